# SPDX-License-Identifier: Apache-2.0
"""Creates the records of a corpus: tokenizes it, writes its shards, and sums them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert.data import TokenStore
from keras_bert.data.file_systems import InputFile
from keras_bert.data.pretraining.corpus import resolve_format, sentence_splitter
from keras_bert.data.pretraining.instances import PAIR_FORMATS
from keras_bert.data.text_files import COMPRESSIONS
from keras_bert.progress import bar
from keras_bert.text.tokenizer import Tokenizer

from ..engine import output_folder
from ..engine.options import check_formats, check_unset
from .record_config import (
    CorpusOptions,
    PretrainingDataConfig,
    content_of_inputs,
    find_inputs,
)
from .record_folder import RecordFolder
from .shards import ShardStatistics, count_shards, shard_name, write_shards
from .tokenized_corpus import CorpusCounts, write_token_store
from .tokenizer_source import open_tokenizer

SUMMARY_FILE = "summary.json"
FIGURE_FILE = "lengths.png"
_SETTINGS_FILE = ".work/settings.json"
# Share of unknown tokens that a vocabulary of the text's own language should stay below
_MANY_UNKNOWN = 0.05
# The formats of the flags of a corpus that not all formats have
_FORMATS_OF = {
    "document_ends": ("sentences", "paragraphs"),
    "field": ("jsonl", "parquet"),
    "language": ("paragraphs", "jsonl", "parquet"),
}
# What separates documents, by `document_ends`
_DOCUMENT_ENDS = {
    "blank_lines": "a blank line between two of them, or the end of a file",
    "files": "the end of a file",
    "wikitext": "a line ' = Title = ' before each, or the end of a file",
}


def create_records(
    config: PretrainingDataConfig,
    runner: str = "",
    runner_options: Sequence[str] = (),
    *,
    is_checked: bool = False,
) -> dict[str, Any]:
    """Creates the records, or those whose files are missing.

    Args:
        config: The config.
        runner, runner_options: A runner of Apache Beam, and its options.
        is_checked: Whether `check_corpus` was called, such as for all files of a run together.

    Returns:
        The content of `summary.json`: the numbers of documents, sentences and tokens in the corpus,
        and the share of unknown tokens among them; the numbers of files and of instances; the
        instances' mean length in tokens; the share of padding if all were padded to the sequence
        length; and the share of pairs labeled 1 (`null` for rows without a second segment).

    Raises:
        FileNotFoundError: If a file does not exist.
        UnusedFlagError: If a flag of the corpus is for none of its files.
        ImportError: If paragraphs are to be split into sentences and `sentencex` is not installed.
        ValueError: If a file is malformed, if pairs need a second document and there is only one,
            or if the folder contains records of other settings.
    """
    from ..plots.length_histogram import length_figure
    from ..plots.style import png

    if runner:
        from . import beam_files

        beam_files.set_options(runner_options)
        inputs = find_inputs(config.input_files, beam_files.LISTING)
        folder = beam_files.record_folder(config.output_dir)
    else:
        inputs = find_inputs(config.input_files)
        folder = RecordFolder(config.output_dir)
    if not is_checked:
        check_corpus(config.corpus, inputs, config.vocabulary)
    tokenizer = open_tokenizer(config.vocabulary, config.corpus.lowercase)
    _check_separators(config.rows.sequence_format, tokenizer)
    # Whether text is lower-cased is the tokenizer's own.
    settings = config.settings() | {
        "lowercase": None,
        "vocabulary": tokenizer.get_config(),
        "input_files": content_of_inputs(inputs),
    }
    fingerprint = output_folder.fingerprint(settings)
    if _is_done(folder, fingerprint):
        summary = folder.read_json(SUMMARY_FILE)
        _warn_of_unknown_tokens(summary, folder.path)
        return summary
    require_libraries(config.corpus, inputs)
    folder.write_json(_SETTINGS_FILE, {"config": config.to_dict(), "fingerprint": fingerprint})
    engine: Any = _LocalEngine(config, inputs, tokenizer)
    if runner:
        from .beam_pipeline import BeamEngine

        engine = BeamEngine(config, inputs, tokenizer, runner, runner_options)
    corpus = engine.tokenize()
    _check_documents(config, inputs, corpus.documents)
    shards = engine.write_shards(count_shards(config, corpus.documents, corpus.tokens))
    summary = _summary(config, corpus, shards) | {"fingerprint": fingerprint}
    figure = length_figure(summary["lengths"], f"{summary['instances']:,} rows")
    folder.write(FIGURE_FILE, png(figure))
    folder.write_json(SUMMARY_FILE, summary)
    _warn_of_unknown_tokens(summary, folder.path)
    if not config.rows.keep_store:
        folder.remove(".work")
    return summary


class _LocalEngine:
    """Tokenizes a corpus into a token store, and writes its shards, by processes."""

    def __init__(
        self, config: PretrainingDataConfig, inputs: Sequence[InputFile], tokenizer: Tokenizer
    ) -> None:
        self.config, self.inputs, self.tokenizer = config, inputs, tokenizer
        self.work = Path(config.output_dir) / ".work"

    def tokenize(self) -> CorpusCounts:
        """Writes the token store unless it exists, and counts what it has."""
        if not (self.work / "store").exists():
            is_plain = not any(file.path.endswith(COMPRESSIONS) for file in self.inputs)
            size = sum(file.size for file in self.inputs) if is_plain else None
            with bar("tokenizing", size, "B", unit_scale=True) as shown:
                write_token_store(
                    self.work / "store",
                    self.inputs,
                    self.config.corpus,
                    self.tokenizer,
                    self.config.rows.workers,
                    shown.update,
                )
        store = TokenStore(self.work / "store")
        num_unknown = store.token_count(self.tokenizer.unk_token_id)
        return CorpusCounts(len(store), store.num_sentences, store.num_tokens, num_unknown)

    def write_shards(self, num_shards: int) -> list[ShardStatistics]:
        """Writes the shards that do not exist yet, and returns the statistics of all."""
        with bar("writing", num_shards, "shard") as shown:
            return write_shards(self.config, self.tokenizer, self.work, num_shards, shown.update)


def check_corpus(corpus: CorpusOptions, inputs: Sequence[InputFile], vocabulary: str) -> None:
    """Checks that each flag of a corpus is for one of its files, or for its tokenizer.

    Raises:
        UnusedFlagError: If one is not.
    """
    formats = [resolve_format(file.path, corpus.format) for file in inputs]
    check_formats(corpus, _FORMATS_OF, formats)
    if vocabulary and Path(vocabulary).is_dir():
        check_unset(corpus, ["lowercase"], f"the tokenizer in {vocabulary} has its own")


def require_libraries(corpus: CorpusOptions, inputs: Sequence[InputFile]) -> None:
    """Checks that the library that splits paragraphs is installed, if there are any."""
    if any(resolve_format(file.path, corpus.format) != "sentences" for file in inputs):
        sentence_splitter(corpus.language)


def _check_separators(sequence_format: str, tokenizer: Tokenizer) -> None:
    if tokenizer.pair_separators > 1 and sequence_format in PAIR_FORMATS:
        raise ValueError(
            f"--sequence_format is {sequence_format}, whose pairs have one separator between the "
            f"segments, but a {tokenizer.kind} tokenizer's have {tokenizer.pair_separators}; "
            "expected full_sentences or document_sentences"
        )


def _check_documents(
    config: PretrainingDataConfig, inputs: Sequence[InputFile], num_documents: int
) -> None:
    kind, ends = config.rows.sequence_format, config.corpus.document_ends
    if kind not in PAIR_FORMATS or num_documents > 1:
        return
    names = ", ".join(file.path for file in inputs[:5])
    raise ValueError(
        f"there is only 1 document in {names}, expected at least 2: --sequence_format={kind} takes "
        f"second segments from other documents. A document ends at {_DOCUMENT_ENDS[ends]} "
        f"(--document_ends={ends}; in JSON Lines each line is a document); "
        "--sequence_format=full_sentences needs no second document"
    )


def warn_of_unknown_tokens(folder: Path) -> None:
    """Logs a warning if many tokens of the records in a folder are unknown to the vocabulary.

    Without a summary there is no warning.
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
                folder.remove(".work")  # of a run that ended before its first record
                break
            raise output_folder.SettingsMismatchError(
                f"{folder.path} contains records of other settings, another vocabulary or other "
                f"files (see {folder.path_of(name)}); choose another --output_dir, or remove that "
                "folder"
            )
    if folder.names(SUMMARY_FILE):
        count, names = folder.read_json(SUMMARY_FILE)["files"], folder.names("*.tfrecord")
        absent = {shard_name(shard, count) for shard in range(count)} - set(names)
        if not absent:
            return True
        logging.warning(
            "%s has no %s: creating the records that are missing",
            folder.path,
            ", ".join(sorted(absent)[:5]),
        )
        folder.remove(SUMMARY_FILE)
    return False


def _summary(
    config: PretrainingDataConfig, corpus: CorpusCounts, shards: list[ShardStatistics]
) -> dict[str, Any]:
    total = shards[0]
    for shard in shards[1:]:
        total += shard
    instances = sum(total.lengths)
    tokens = sum(length * count for length, count in enumerate(total.lengths))
    return {
        "documents": corpus.documents,
        "sentences": corpus.sentences,
        "tokens": corpus.tokens,
        "unknown_tokens": round(corpus.unknown / corpus.tokens, 4),
        "files": len(shards),
        "instances": instances,
        "mean_length": round(tokens / instances, 2),
        "padding": round(1 - tokens / (instances * config.sequence_length), 4),
        "random_pairs": round(total.random_pairs / total.pairs, 4) if total.pairs else None,
        "lengths": total.lengths,
        "config": config.to_dict(),
    }
