# SPDX-License-Identifier: Apache-2.0
"""Trains an encoder to re-rank BM25's results, and scores it on held-out queries.

    python -m training.rerank --data_dir=cranfield --loss=pairwise

The folder contains the files of Cranfield, of a BEIR collection or of MS MARCO, or those that
`--documents`, `--queries` and `--judgements` name.

With a recipe, any value of which a flag can change:

    python -m training.rerank --recipe=minilm_cranfield --data_dir=cranfield --epochs=1

Files written to `output_dir`: the rankings of the held-out queries in TREC's run format, by BM25
(`bm25.run`), by the encoder (`reranked.run`) and by both combined (`combined.run`); the judgements
of these queries (`held_out.qrels`); their scores (`scores.json`); and the model (`model.keras`).
`trec_eval -c held_out.qrels reranked.run` computes the same MAP, and with `-M 10 -m recip_rank` and
`-m ndcg_cut.10` the same MRR@10 and nDCG@10.

Requires the extra `ranking`: that of the other programs, and a BM25 implementation.
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
    program.require(("bm25s", *program.TRAINING_LIBRARIES), "ranking")
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
