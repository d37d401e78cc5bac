# SPDX-License-Identifier: Apache-2.0
"""Creates pre-training records from raw text files.

    python -m training.create_pretraining_data --input_files=corpus --vocabulary=vocab.txt \\
        --output_dir=records

The text is tokenized into a token store on disk. The records are created from it one shard at a
time, so memory use does not grow with the corpus. The records depend on the seed, but not on the
number of processes. If the command is interrupted, run it again to resume after the last complete
shard.

With --independent_shards, --runner creates the same records with Apache Beam, on this machine or on
a Flink, Spark or Dataflow cluster. The runner's options follow after --:

    python -m training.create_pretraining_data --input_files=gs://bucket/corpus/*.jsonl.gz \\
        --vocabulary=vocab.txt --output_dir=gs://bucket/records --independent_shards \\
        --runner=DataflowRunner -- --project=mine --region=europe-west4 --temp_location=gs://bucket/tmp

Files written to `output_dir`: the shards (`pretraining-*-of-*.tfrecord`), `summary.json`, and a
histogram of the sequence lengths (`lengths.png`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bert.data.file_systems import is_url
from keras_bert.tables import table_from_records, text_table

from .engine import output_directory, program
from .engine.options import CommandConfig, UnusedFlags
from .pretraining.record_config import PretrainingDataConfig

_QUANTILES = {"5%": 0.05, "25%": 0.25, "median": 0.5, "75%": 0.75, "95%": 0.95}


@dataclasses.dataclass(frozen=True)
class CreatePretrainingDataConfig(CommandConfig):
    """How and where pre-training records are created from raw text.

    Args:
        records: The settings of the records.
        runner: The Apache Beam runner that creates the records (requires the extra beam):
            FnApiRunner on this machine, FlinkRunner, SparkRunner, DataflowRunner or any other
            runner. Requires independent_shards. Empty uses local processes without Beam.
        runner_options: The runner's options, as documented by Beam. They can also follow after all
            flags and --, as in -- --flink_master=localhost:8081.
    """

    records: PretrainingDataConfig = dataclasses.field(default_factory=PretrainingDataConfig)
    runner: str = ""
    runner_options: tuple[str, ...] = ()

    def unused_flags(self) -> UnusedFlags:
        if not self.records.rows.static_masks:
            yield ["max_predictions", "masked_lm_probability"], "--static_masks is not given"
        if self.runner not in ("", "FnApiRunner"):
            yield ["num_workers"], f"--runner={self.runner} starts its own workers"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.runner and not self.records.rows.independent_shards:
            raise ValueError(
                f"--runner={self.runner} requires --independent_shards, because each worker in a "
                "cluster only has the documents of its shards. The records then do not depend on "
                "the runner"
            )
        if self.runner_options and not self.runner:
            raise ValueError(
                f"Beam options require --runner. Received: {' '.join(self.runner_options)}"
            )
        output_dir = self.records.output_dir
        if is_url(output_dir) and not self.runner:
            raise ValueError(
                "--output_dir must be a local directory unless --runner is given. Received: "
                f"{output_dir}"
            )


def main(config: CreatePretrainingDataConfig) -> None:
    program.require(("matplotlib",), "pretraining")
    if config.runner:
        program.require(("apache_beam",), "beam")
    from .pretraining.records import create_records

    # Remote file systems do not support locks.
    directory = config.records.output_dir
    own_directory: Any = contextlib.nullcontext()
    if not is_url(directory):
        own_directory = output_directory.lock_output_dir(
            directory, command="create_pretraining_data"
        )
    with own_directory:
        summary = create_records(config.records, config.runner, config.runner_options)
    print(describe(summary))


def describe(summary: Mapping[str, Any]) -> str:
    """Formats the counts and the length quantiles in `summary.json`."""
    from .pretraining.records import FIGURE_FILE, SUMMARY_FILE

    config = summary["config"]
    directory = config["output_dir"].rstrip("/")
    pairs, files = summary["random_pairs"], summary["files"]
    lines = [
        f"Text: {summary['documents']:,} documents, {summary['sentences']:,} sentences, "
        f"{summary['tokens']:,} tokens ({100 * summary['unknown_tokens']:.1f}% unknown)",
        f"Records: {summary['instances']:,} examples in {files:,} file{'s' * (files > 1)}; with "
        f"padding to {config['sequence_length']} tokens, {summary['padding']:.1%} of all tokens "
        "would be padding",
    ]
    if pairs is not None:
        lines.append(f"Pairs: {pairs:.1%} have label 1 (random or swapped)")
    counts = np.asarray(summary["lengths"])
    # The length of the example at each quantile, with examples sorted by length
    lengths = np.searchsorted(
        np.cumsum(counts), [share * counts.sum() for share in _QUANTILES.values()]
    )
    quantiles = dict(zip(_QUANTILES, map(int, lengths), strict=True))
    statistics = {"mean": summary["mean_length"], **quantiles}
    table = text_table(*table_from_records("tokens", {"per example": statistics}))
    files_by_name = {
        "records": f"{directory}/pretraining-*.tfrecord",
        "summary": f"{directory}/{SUMMARY_FILE}",
        "lengths": f"{directory}/{FIGURE_FILE}",
    }
    paths = "\n".join(f"{name:8} {path}" for name, path in files_by_name.items())
    return "\n\n".join(("\n".join(lines), table, paths))


if __name__ == "__main__":
    program.run(main, CreatePretrainingDataConfig, remaining="runner_options")
