# SPDX-License-Identifier: Apache-2.0
"""Creates pre-training records. Tokenizes a corpus, and writes shards and a summary."""

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

from ..engine import output_directory
from ..engine.options import check_formats, check_unset
from .record_config import (
    CorpusOptions,
    PretrainingDataConfig,
    content_of_inputs,
    find_inputs,
)
from .record_directory import RecordDirectory
from .shards import ShardStatistics, count_shards, shard_name, write_shards
from .tokenized_corpus import CorpusCounts, write_token_store
from .tokenizer_source import open_tokenizer

SUMMARY_FILE = "summary.json"
FIGURE_FILE = "lengths.png"
_SETTINGS_FILE = ".work/settings.json"
# With a vocabulary for the text's language, the fraction of unknown tokens should be lower.
_MANY_UNKNOWN = 0.05
# The formats that each of these corpus flags applies to
_FORMATS_OF = {
    "document_ends": ("sentences", "paragraphs"),
    "field": ("jsonl", "parquet"),
    "language": ("paragraphs", "jsonl", "parquet"),
    "encoding": ("sentences", "paragraphs", "jsonl"),
}
# Descriptions of the document separators, by `document_ends`
_DOCUMENT_ENDS = {
    "blank_lines": "a blank line, or at the end of a file",
    "files": "the end of a file",
    "wikitext": "the next line ' = Title = ', or at the end of a file",
}


def create_records(
    config: PretrainingDataConfig,
    runner: str = "",
    runner_options: Sequence[str] = (),
    *,
    is_checked: bool = False,
) -> dict[str, Any]:
    """Creates the records whose files are missing.

    Args:
        config: The config.
        runner, runner_options: An Apache Beam runner and its options.
        is_checked: Whether `check_corpus` was already called, for example for all of the run's
            files.

    Returns:
        The content of `summary.json`. It includes the numbers of documents, sentences and tokens in
        the corpus, the fraction of unknown tokens, and the numbers of files and examples. It also
        includes the examples' mean length in tokens, the fraction of padding if all examples were
        padded to the sequence length, and the fraction of pairs with label 1 (`null` for examples
        without a second segment).

    Raises:
        FileNotFoundError: If a file does not exist.
        UnusedFlagError: If a corpus flag does not apply to any file.
        ImportError: If paragraphs must be split into sentences and `sentencex` is not installed.
        ValueError: If a file is invalid, if pairs need a second document but the corpus has only
            one, or if the directory contains records with different settings.
    """
    from ..plots.length_histogram import length_figure
    from ..plots.style import png

    if runner:
        from . import beam_files

        beam_files.set_options(runner_options)
        inputs = find_inputs(config.input_files, beam_files.LISTING)
        directory = beam_files.record_directory(config.output_dir)
    else:
        inputs = find_inputs(config.input_files)
        directory = RecordDirectory(config.output_dir)
    if not is_checked:
        check_corpus(config.corpus, inputs, config.vocabulary)
    tokenizer = open_tokenizer(config.vocabulary, config.corpus.lowercase)
    _check_separators(config.rows.sequence_format, tokenizer)
    # The tokenizer's config already specifies `lowercase`.
    settings = config.settings() | {
        "lowercase": None,
        "vocabulary": tokenizer.get_config(),
        "input_files": content_of_inputs(inputs),
    }
    fingerprint = output_directory.fingerprint(settings)
    if _is_done(directory, fingerprint):
        summary = directory.read_json(SUMMARY_FILE)
        _warn_of_unknown_tokens(summary, directory.path)
        return summary
    require_libraries(config.corpus, inputs)
    directory.write_json(_SETTINGS_FILE, {"config": config.to_dict(), "fingerprint": fingerprint})
    engine: Any = _LocalEngine(config, inputs, tokenizer)
    if runner:
        from .beam_pipeline import BeamEngine

        engine = BeamEngine(config, inputs, tokenizer, runner, runner_options)
    corpus = engine.tokenize()
    _check_documents(config, inputs, corpus.documents)
    shards = engine.write_shards(count_shards(config, corpus.documents, corpus.tokens))
    summary = _summary(config, corpus, shards) | {"fingerprint": fingerprint}
    figure = length_figure(summary["lengths"], f"{summary['instances']:,} examples")
    directory.write(FIGURE_FILE, png(figure))
    directory.write_json(SUMMARY_FILE, summary)
    _warn_of_unknown_tokens(summary, directory.path)
    if not config.rows.keep_store:
        directory.remove(".work")
    return summary


class _LocalEngine:
    """Tokenizes a corpus into a token store and writes its shards, with local processes."""

    def __init__(
        self, config: PretrainingDataConfig, inputs: Sequence[InputFile], tokenizer: Tokenizer
    ) -> None:
        self.config, self.inputs, self.tokenizer = config, inputs, tokenizer
        self.work = Path(config.output_dir) / ".work"

    def tokenize(self) -> CorpusCounts:
        """Writes the token store unless it exists, and returns its counts."""
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
        """Writes missing shards, and returns the statistics of all shards."""
        with bar("writing", num_shards, "shard") as shown:
            return write_shards(self.config, self.tokenizer, self.work, num_shards, shown.update)


def check_corpus(corpus: CorpusOptions, inputs: Sequence[InputFile], vocabulary: str) -> None:
    """Checks that each corpus flag applies to a file or to the tokenizer.

    Raises:
        UnusedFlagError: If a flag has no effect.
    """
    formats = [resolve_format(file.path, corpus.format) for file in inputs]
    check_formats(corpus, _FORMATS_OF, formats)
    if vocabulary and Path(vocabulary).is_dir():
        check_unset(corpus, ["lowercase"], f"the tokenizer in {vocabulary} already specifies it")


def require_libraries(corpus: CorpusOptions, inputs: Sequence[InputFile]) -> None:
    """Checks that the sentence splitter is installed, if the format requires it."""
    if any(resolve_format(file.path, corpus.format) != "sentences" for file in inputs):
        sentence_splitter(corpus.language)


def _check_separators(sequence_format: str, tokenizer: Tokenizer) -> None:
    if tokenizer.pair_separators > 1 and sequence_format in PAIR_FORMATS:
        raise ValueError(
            f"--sequence_format={sequence_format} does not support {tokenizer.kind} tokenizers, "
            f"because they put {tokenizer.pair_separators} separators between segments. Use "
            "full_sentences or document_sentences"
        )


def _check_documents(
    config: PretrainingDataConfig, inputs: Sequence[InputFile], num_documents: int
) -> None:
    kind, ends = config.rows.sequence_format, config.corpus.document_ends
    if kind not in PAIR_FORMATS or num_documents > 1:
        return
    names = ", ".join(file.path for file in inputs[:5])
    raise ValueError(
        f"--sequence_format={kind} requires at least 2 documents, because it samples second "
        f"segments from other documents. Received: 1 document in {names}. With "
        f"--document_ends={ends}, a document ends at {_DOCUMENT_ENDS[ends]} (in JSON Lines, each "
        "line is a document). Use --sequence_format=full_sentences for a single document"
    )


def warn_of_unknown_tokens(directory: Path) -> None:
    """Logs a warning if many tokens in a directory's records are unknown to the vocabulary.

    Without a summary file, it does not warn.
    """
    records = RecordDirectory(str(directory))
    if records.names(SUMMARY_FILE):
        _warn_of_unknown_tokens(records.read_json(SUMMARY_FILE), records.path)


def _warn_of_unknown_tokens(summary: Mapping[str, Any], directory: str) -> None:
    share = summary["unknown_tokens"]
    if share > _MANY_UNKNOWN:
        logging.warning(
            "%.1f%% of the tokens in %s are unknown to the vocabulary %s. A model cannot learn "
            "anything about them. Check that the vocabulary is for this text's language. Pass a "
            "different vocabulary with --vocabulary, or train one on this text (with tokenizer, or "
            "with pretrain without --vocabulary). If it was trained on this text, increase "
            "--vocabulary_size",
            100 * share,
            directory,
            summary["config"]["vocabulary"],
        )


def _is_done(directory: RecordDirectory, fingerprint: str) -> bool:
    """Returns whether all records exist. Raises an error if their settings differ."""
    for name in (SUMMARY_FILE, _SETTINGS_FILE):
        if directory.names(name) and directory.read_json(name).get("fingerprint") != fingerprint:
            if name == _SETTINGS_FILE and not directory.names("*.tfrecord"):
                directory.remove(".work")  # The previous run stopped before its first record.
                break
            raise output_directory.SettingsMismatchError(
                f"{directory.path} contains records with different settings, vocabulary or files "
                "(see "
                f"{directory.path_of(name)}). Choose another --output_dir, or remove this directory"
            )
    if directory.names(SUMMARY_FILE):
        count, names = directory.read_json(SUMMARY_FILE)["files"], directory.names("*.tfrecord")
        absent = {shard_name(shard, count) for shard in range(count)} - set(names)
        if not absent:
            return True
        logging.warning(
            "%s lacks %s: creating the missing records",
            directory.path,
            ", ".join(sorted(absent)[:5]),
        )
        directory.remove(SUMMARY_FILE)
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
