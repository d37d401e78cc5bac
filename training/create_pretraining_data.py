# SPDX-License-Identifier: Apache-2.0
"""Creates pre-training records from files of raw text.

    python -m training.create_pretraining_data --input_files=corpus --vocabulary=vocab.txt \\
        --output_dir=records

The text is tokenized into a token store on disk, from which the records are created shard by shard,
so that memory use does not grow with the corpus. The records depend on the seed, not on the number
of processes. If the program is interrupted, the same command resumes after the last complete shard.

With --independent_shards, --runner creates the same records by Apache Beam, on this machine or on a
cluster of Flink, Spark or Dataflow. The options of the runner follow after a --:

    python -m training.create_pretraining_data --input_files=gs://bucket/corpus/*.jsonl.gz \\
        --vocabulary=vocab.txt --output_dir=gs://bucket/records --independent_shards \\
        --runner=DataflowRunner -- --project=mine --region=europe-west4 --temp_location=gs://bucket/tmp

Files written to `output_dir`: the shards (`pretraining-*-of-*.tfrecord`), `summary.json`, and a
histogram of the lengths of the rows (`lengths.png`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from absl import logging

from keras_bert.data.file_systems import is_url
from keras_bert.data.pretraining.corpus import resolve_format, sentence_splitter
from keras_bert.data.pretraining.instances import PAIR_KINDS
from keras_bert.data.text_files import COMPRESSIONS
from keras_bert.progress import bar
from keras_bert.tables import of_records, text_table

from .engine import output_folder, program
from .pretraining.config import PretrainingDataConfig
from .pretraining.record_folder import RecordFolder

SUMMARY_FILE = "summary.json"
_FIGURE = "lengths.png"
_SETTINGS_FILE = "work/settings.json"
# Share of unknown tokens that a vocabulary of the text's own language should stay below
_MANY_UNKNOWN = 0.05
# What separates documents, by `document_ends`
_DOCUMENT_ENDS = {
    "blank_lines": "a blank line between two of them, or the end of a file",
    "files": "the end of a file",
    "wikitext": "a line ' = Title = ' before each, or the end of a file",
}
_QUANTILES = {"5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95}

if TYPE_CHECKING:
    from keras_bert.data.file_systems import InputFile

    from .pretraining.shards import ShardStatistics
    from .pretraining.tokenized_corpus import CorpusCounts


@dataclasses.dataclass(frozen=True)
class CreatePretrainingDataConfig(PretrainingDataConfig):
    """How pre-training records are created from files of raw text, and on which machines.

    Args:
        runner: The runner of Apache Beam (the extra beam) that creates the records: FnApiRunner on
            this machine, FlinkRunner, SparkRunner, DataflowRunner or another one. Requires
            independent_shards. Empty uses processes of this machine without Beam.
        runner_options: The runner's own options, as Beam documents them, which can also be given
            after all flags and a --, as in -- --flink_master=localhost:8081.
    """

    runner: str = ""
    runner_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.runner and not self.independent_shards:
            raise ValueError(
                f"--runner is {self.runner}, expected --independent_shards with it: the workers of "
                "a cluster have only the documents of their shards. The records are then the same "
                "on any runner, and without one"
            )
        if self.runner_options and not self.runner:
            raise ValueError(
                f"{' '.join(self.runner_options)} are options of a runner of Apache Beam, expected "
                "--runner with them"
            )
        if is_url(self.output_dir) and not self.runner:
            raise ValueError(
                f"--output_dir is {self.output_dir}, expected a folder of this machine, or --runner"
            )


def main(config: PretrainingDataConfig) -> None:
    program.require(("matplotlib",), "pretraining")
    if _has_runner(config):
        program.require(("apache_beam",), "beam")
    # There are no locks on remote file systems.
    locked = contextlib.nullcontext if is_url(config.output_dir) else output_folder.locked
    with locked(config.output_dir):
        summary = create_pretraining_data(config)
    print(describe(summary))


def describe(summary: Mapping[str, Any]) -> str:
    """Formats the content of `summary.json`: the counts, and quantiles of the rows' lengths."""
    config = summary["config"]
    folder = config["output_dir"].rstrip("/")
    unknown = (
        f"{100 * summary['unknown_tokens']:.1f} % unknown" if "unknown_tokens" in summary else ""
    )
    pairs, files = summary["random_pairs"], summary["files"]
    lines = [
        f"Text: {summary['documents']:,} documents, {summary['sentences']:,} sentences, "
        f"{summary['tokens']:,} tokens" + (f" ({unknown})" if unknown else ""),
        f"Records: {summary['instances']:,} rows in {files:,} file{'s' * (files > 1)}; padding to "
        f"{config['sequence_length']} tokens would be {summary['padding']:.1%} of all tokens",
    ]
    if pairs is not None:
        lines.append(f"Pairs: {pairs:.1%} are labeled 1 (random, or swapped)")
    counts = np.asarray(summary["lengths"])
    # The length of the row at each share of all rows, sorted by length
    lengths = np.searchsorted(
        np.cumsum(counts), [share * counts.sum() for share in _QUANTILES.values()]
    )
    quantiles = dict(zip(_QUANTILES, map(int, lengths), strict=True))
    in_a_row = {"mean": summary["mean_length"], **quantiles}
    table = text_table(*of_records("tokens", {"in a row": in_a_row}))
    written = {
        "records": f"{folder}/pretraining-*.tfrecord",
        "summary": f"{folder}/{SUMMARY_FILE}",
        "lengths": f"{folder}/{_FIGURE}",
    }
    paths = "\n".join(f"{name:8} {path}" for name, path in written.items())
    return "\n\n".join(("\n".join(lines), table, paths))


def create_pretraining_data(config: PretrainingDataConfig) -> dict[str, Any]:
    """Creates the records, or those whose files are missing.

    Args:
        config: The input, the output and the settings.

    Returns:
        The content of `summary.json`: the numbers of documents, sentences and tokens in the corpus,
        and the share of unknown tokens among them; the numbers of files and of instances; the
        instances' mean length in tokens; the share of padding if all were padded to the sequence
        length; and the share of pairs labeled 1 (`null` for rows without a second segment).

    Raises:
        FileNotFoundError: If a file does not exist.
        ImportError: If paragraphs are to be split into sentences and `sentencex` is not installed.
        ValueError: If a file is malformed, if pairs need a second document and there is only one,
            or if the folder contains records of other settings.
    """
    if _has_runner(config):
        from .pretraining import beam_files

        beam_files.set_options(config.runner_options)
        inputs = config.inputs(beam_files.find_urls)
        folder = beam_files.record_folder(config.output_dir)
    else:
        inputs = config.inputs()
        folder = RecordFolder(config.output_dir)
    fingerprint = config.fingerprint(inputs)
    if _is_done(folder, fingerprint):
        summary = folder.read_json(SUMMARY_FILE)
        _warn_of_unknown_tokens(summary, folder.path)
        return summary
    from .pretraining.shards import count_shards

    require_libraries(config, inputs)
    settings = {"config": dataclasses.asdict(config), "fingerprint": fingerprint}
    folder.write_json(_SETTINGS_FILE, settings)
    engine = _engine(config, inputs)
    corpus = engine.tokenize()
    _check_documents(config, inputs, corpus.documents)
    shards = engine.write_shards(count_shards(config, corpus.documents, corpus.tokens))
    summary = _summary(config, corpus, shards) | {"fingerprint": fingerprint}
    folder.write(_FIGURE, _drawn(summary))
    folder.write_json(SUMMARY_FILE, summary)
    _warn_of_unknown_tokens(summary, folder.path)
    if not config.keep_store:
        folder.remove("work")
    return summary


def _has_runner(config: PretrainingDataConfig) -> TypeGuard[CreatePretrainingDataConfig]:
    return isinstance(config, CreatePretrainingDataConfig) and bool(config.runner)


def _engine(config: PretrainingDataConfig, inputs: Sequence[InputFile]) -> Any:
    if _has_runner(config):
        from .pretraining.beam_pipeline import BeamEngine

        return BeamEngine(config, inputs, config.runner, config.runner_options)
    return _OneMachine(config, inputs)


class _OneMachine:
    """Tokenizes a corpus into a token store, and writes its shards, by processes."""

    def __init__(self, config: PretrainingDataConfig, inputs: Sequence[InputFile]) -> None:
        self.config, self.inputs = config, inputs
        self.work = Path(config.output_dir) / "work"

    def tokenize(self) -> CorpusCounts:
        """Writes the token store unless it exists, and counts what it has."""
        from keras_bert.data import TokenStore

        from .pretraining.tokenized_corpus import CorpusCounts, count_unknown, write_token_store

        if not (self.work / "store").exists():
            is_plain = not any(file.path.endswith(COMPRESSIONS) for file in self.inputs)
            size = sum(file.size for file in self.inputs) if is_plain else None
            with bar("tokenizing", size, "B", unit_scale=True) as shown:
                write_token_store(self.config, self.inputs, self.work / "store", shown.update)
        store = TokenStore(self.work / "store")
        unknown = count_unknown(self.config, store)
        return CorpusCounts(len(store), store.num_sentences, store.num_tokens, unknown)

    def write_shards(self, num_shards: int) -> list[ShardStatistics]:
        """Writes the shards that do not exist yet, and returns the statistics of all."""
        from .pretraining.shards import write_shards

        with bar("writing", num_shards, "shard") as shown:
            return write_shards(self.config, self.work, num_shards, shown.update)


def require_libraries(config: PretrainingDataConfig, inputs: Sequence[InputFile]) -> None:
    """Checks that the library that splits paragraphs is installed, if there are any."""
    if any(resolve_format(file.path, config.format) != "sentences" for file in inputs):
        sentence_splitter(config.language)


def _check_documents(
    config: PretrainingDataConfig, inputs: Sequence[InputFile], num_documents: int
) -> None:
    if config.kind not in PAIR_KINDS or num_documents > 1:
        return
    names = ", ".join(file.path for file in inputs[:5])
    raise ValueError(
        f"there is only 1 document in {names}, expected at least 2: --kind={config.kind} takes "
        "second segments from other documents. A document ends at "
        f"{_DOCUMENT_ENDS[config.document_ends]} (--document_ends={config.document_ends}; in JSON "
        "Lines each line is a document); --kind=full_sentences needs no second document"
    )


def warn_of_unknown_tokens(folder: Path) -> None:
    """Logs a warning if many tokens of the records in a folder are unknown to the vocabulary.

    Args:
        folder: The folder of the records. Without a summary there is no warning.
    """
    records = RecordFolder(str(folder))
    if records.names(SUMMARY_FILE):
        _warn_of_unknown_tokens(records.read_json(SUMMARY_FILE), records.path)


def _warn_of_unknown_tokens(summary: Mapping[str, Any], folder: str) -> None:
    share = summary["unknown_tokens"]
    if share > _MANY_UNKNOWN:
        logging.warning(
            "%.1f %% of the tokens in %s are unknown to the vocabulary %s, and a model learns "
            "nothing about them: is it a vocabulary of this text's language? Give another one with "
            "--vocabulary, or train one on this text (pretrain without --vocabulary, or "
            "tokenizer), with a larger --vocabulary_size if it was trained on this text",
            100 * share,
            folder,
            summary["config"]["vocabulary"],
        )


def _is_done(folder: RecordFolder, fingerprint: str) -> bool:
    """Returns whether all records exist. Records of other settings raise a ValueError."""
    for name in (SUMMARY_FILE, _SETTINGS_FILE):
        if folder.names(name) and folder.read_json(name).get("fingerprint") != fingerprint:
            if name == _SETTINGS_FILE and not folder.names("*.tfrecord"):
                folder.remove("work")  # of a run that ended before its first record
                break
            raise output_folder.OtherSettingsError(
                f"{folder.path} contains records of other settings, another vocabulary or other "
                f"files (see {folder.path_of(name)}); choose another --output_dir, or remove that "
                "folder"
            )
    if folder.names(SUMMARY_FILE):
        missing = _missing_shards(folder)
        if not missing:
            return True
        logging.warning(
            "%s has no %s: creating the records that are missing",
            folder.path,
            ", ".join(missing[:5]),
        )
        folder.remove(SUMMARY_FILE)
    return False


def _missing_shards(folder: RecordFolder) -> list[str]:
    """Returns the names of the files that a folder's summary counts and that do not exist."""
    from .pretraining.shards import shard_name

    count = folder.read_json(SUMMARY_FILE)["files"]
    found = set(folder.names("*.tfrecord"))
    names = (shard_name(shard, count) for shard in range(count))
    return [name for name in names if name not in found]


def _drawn(summary: Mapping[str, Any]) -> bytes:
    """Returns the histogram of the rows' lengths, as the content of a PNG."""
    from .plots.length_histogram import length_figure
    from .plots.style import png

    return png(length_figure(summary["lengths"], f"{summary['instances']:,} rows"))


def _summary(
    config: PretrainingDataConfig, corpus: CorpusCounts, shards: list[ShardStatistics]
) -> dict[str, Any]:
    counted = shards[0]
    for shard in shards[1:]:
        counted += shard
    instances = sum(counted.lengths)
    tokens = sum(length * count for length, count in enumerate(counted.lengths))
    return {
        "documents": corpus.documents,
        "sentences": corpus.sentences,
        "tokens": corpus.tokens,
        "unknown_tokens": round(corpus.unknown / corpus.tokens, 4),
        "files": len(shards),
        "instances": instances,
        "mean_length": round(tokens / instances, 2),
        "padding": round(1 - tokens / (instances * config.sequence_length), 4),
        "random_pairs": round(counted.random_pairs / counted.pairs, 4) if counted.pairs else None,
        "lengths": counted.lengths,
        "config": dataclasses.asdict(config),
    }


if __name__ == "__main__":
    program.run(main, CreatePretrainingDataConfig, remaining="runner_options")
