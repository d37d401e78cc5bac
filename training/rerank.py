# SPDX-License-Identifier: Apache-2.0
"""Trains an encoder to re-rank what BM25 finds, and scores it on queries that were held out.

    python -m training.rerank --data_dir=cranfield --loss=pairwise

The folder holds Cranfield's files, BEIR's, MS MARCO's, or those that `--documents`, `--queries` and
`--judgements` name.

By a recipe, with any of its values changed by a flag:

    python -m training.rerank --recipe=minilm_cranfield --data_dir=cranfield --epochs=1

It writes into `output_dir`: the rankings of the held-out queries in TREC's format, by BM25
(`bm25.run`), by the encoder (`reranked.run`) and by both (`combined.run`), the scores of the three
(`scores.json`), and the model (`model.keras`).

Needs the extra `ranking`, which brings the BM25 that it starts from.
"""

import os
from pathlib import Path

from .engine import config_flags, output_folder, program
from .engine.run_report import table
from .jobs.reranking import RerankConfig, rerank
from .readers.trec_files import read_collection


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    config = config_flags.configuration(RerankConfig)
    program.require(("bm25s",), "ranking")
    collection = read_collection(
        Path(config.data_dir), config.documents, config.queries, config.judgements
    )
    program.import_quietly()
    with output_folder.claimed(config.output_dir):
        scores = rerank(config, collection)
    print("\n" + table("held-out queries", scores))
    model = os.path.join(config.output_dir, "model.keras")
    print(f"\nmodel     {model}\nrankings  {os.path.join(config.output_dir, '*.run')}")


if __name__ == "__main__":
    config_flags.define_program_flags(RerankConfig())
    program.run(main)
