# SPDX-License-Identifier: Apache-2.0
"""The inputs of pre-training: a vocabulary, and records of each length."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert import atomic, checkpoints
from keras_bert.data.file_systems import is_url
from keras_bert.data.pretraining.corpus import resolve_format
from keras_bert.text import WordPieceTokenizer, save_vocabulary

from ..create_pretraining_data import (
    SUMMARY_FILE,
    create_pretraining_data,
    require_libraries,
    warn_of_unknown_tokens,
)
from ..engine.output_folder import OtherSettingsError
from ..tokenizer import family_options, make_tokenizer
from .config import PretrainConfig, PretrainingDataConfig, content_of_inputs
from .tokenizer_source import save_tokenizer

VOCABULARY = "vocab.txt"
TOKENIZER = "tokenizer"
# The names of given records; those that a run makes end in .tfrecord
_RECORDS = "*.tfrecord*"
# What the vocabulary was made of
SOURCE_FILE = "vocabulary.json"


def check_text(config: PretrainConfig) -> None:
    """Checks, before any work, that there is the text of a run, and what splits it is installed.

    Records that exist need neither.

    Raises:
        FileNotFoundError: If an entry of `input_files` or `dev_files` matches no file.
        ImportError: If the library that splits paragraphs into sentences is not installed.
    """
    lengths = {phase.sequence_length for phase in config.plan()}
    for name, files in (("records", config.input_files), ("dev_records", config.dev_files)):
        folders = [Path(config.output_dir) / f"{name}_{length}" for length in lengths]
        are_made = all((folder / SUMMARY_FILE).exists() for folder in folders)
        if files and not getattr(config, name) and not are_made:
            text = config.data_config(128, files, Path(), Path())
            require_libraries(text, text.inputs())


def vocabulary_path(config: PretrainConfig) -> Path:
    """Returns the given vocabulary, or the checkpoint's, or else one trained on the text.

    Returns:
        The path of a vocab.txt, or the folder of a tokenizer.

    Raises:
        ValueError: If `output_dir` contains a vocabulary that was made of another text, of another
            checkpoint or with other settings.
    """
    if config.vocabulary:
        return Path(config.vocabulary)
    file, folder = (Path(config.output_dir) / name for name in (VOCABULARY, TOKENIZER))
    for path in (folder, file):
        if path.exists():
            _check_source(config, path)
            return path
    tokenizer = _tokenizer_config(config)
    file.parent.mkdir(parents=True, exist_ok=True)
    # Before the vocabulary: if that exists, its source is known.
    source = {**_source(config), "lowercase": tokenizer.get("lowercase")}
    atomic.write_json(file.parent / SOURCE_FILE, source)
    is_wordpiece = tokenizer.get("kind", WordPieceTokenizer.kind) == WordPieceTokenizer.kind
    # A vocab.txt does not specify whether it is cased, unless --lowercase is given.
    if not is_wordpiece or (config.lowercase is None and not tokenizer["lowercase"]):
        save_tokenizer(tokenizer, folder)
        return folder
    save_vocabulary(tokenizer["vocabulary"], file)
    return file


def _preset(config: PretrainConfig) -> str:
    return config.init_preset or config.teacher


def _tokenizer_config(config: PretrainConfig) -> dict[str, Any]:
    if _preset(config):
        return checkpoints.open_checkpoint(_preset(config)).require_tokenizer()
    if not config.input_files:
        raise ValueError("--vocabulary and --input_files are both empty, expected one of them")
    architecture = config.named_architecture()
    kind = architecture.tokenizer
    logging.info("training a vocabulary of %d tokens (%s)", config.vocabulary_size, kind)
    text = _text_config(config)
    inputs = text.inputs()
    files = [Path(file.path) for file in inputs]
    for file in inputs:
        if is_url(file.path) or resolve_format(file.path, text.format) == "parquet":
            raise ValueError(
                f"a vocabulary is trained on text files of this machine, and {file.path} is "
                "another: give one with --vocabulary (`keras-bert tokenizer` trains it on a sample)"
            )
    return make_tokenizer(
        kind,
        files,
        config.vocabulary_size,
        config.lowercase,
        options=family_options(architecture),
    ).get_config()


def _text_config(config: PretrainConfig) -> PretrainingDataConfig:
    unused = Path()
    return config.data_config(128, config.input_files, unused, unused)


def _source(config: PretrainConfig) -> dict[str, Any]:
    """Returns what the vocabulary is made of, as JSON values: a checkpoint's tokenizer, or text."""
    if _preset(config):
        tokenizer = json.dumps(_tokenizer_config(config), sort_keys=True).encode()
        return {"checkpoint": hashlib.sha256(tokenizer).hexdigest()}
    inputs = _text_config(config).inputs()
    return {
        "input_files": [[file.name, file.size] for file in inputs],
        "content": content_of_inputs(inputs),
        "kind": config.named_architecture().tokenizer,
        "vocabulary_size": config.vocabulary_size,
    }


def _check_source(config: PretrainConfig, vocabulary: Path) -> None:
    """Raises a ValueError if an existing vocabulary was made of something else."""
    file = vocabulary.parent / SOURCE_FILE
    if not file.exists() or not (_preset(config) or config.input_files):
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    lowercase = before.pop("lowercase", None)
    try:
        now = _source(config)
    except FileNotFoundError:
        return  # With the records at hand, a run can be resumed without the text.
    # Without --lowercase, the existing vocabulary specifies it.
    if config.lowercase is not None and lowercase is not None:
        before, now = before | {"lowercase": lowercase}, now | {"lowercase": config.lowercase}
    if before != now:
        raise OtherSettingsError(
            f"{vocabulary} is a vocabulary made of {_described(before, now)}, but this run has "
            f"{_described(now, before)}; choose another --output_dir, or remove {vocabulary} and "
            "the records and checkpoints made with it"
        )


def _described(source: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Describes the parts of a source in which it differs from another."""
    words = []
    for name, value in source.items():
        if value == other.get(name):
            continue
        if name == "checkpoint":
            words.append("a checkpoint's tokenizer")
        elif name == "input_files":
            words += [f"{file} ({size:,} bytes)" for file, size in value[:3]]
            words += [f"{len(value) - 3} more files"] if len(value) > 3 else []
        elif name == "content":
            if source["input_files"] == other.get("input_files"):
                words.append(f"files with the SHA-256 {value[:12]}")
        else:
            words.append(f"--{name}={value}")
    return ", ".join(words)


def given_files(config: PretrainConfig) -> dict[str, list[list[Path]]]:
    """Returns the files that flags name and that are read as they are, by the name of the flag.

    Returns:
        The files of each of `file_groups`, of the lengths one after another; those that every
        process reads are a single group.
    """
    from keras_bert.data.pretraining.records import record_paths
    from keras_bert.data.pretraining.stream import grouped

    lengths = [phase.sequence_length for phase in config.plan()]
    files = {"model": [[Path(config.model)] if os.path.isfile(config.model) else []]}
    for flag, count in (("records", config.file_groups), ("dev_records", 1)):
        groups: list[list[Path]] = [[] for _ in range(count)]
        folders = dict.fromkeys(_records_folder(getattr(config, flag), n) for n in lengths)
        for folder in folders if getattr(config, flag) else ():
            paths = record_paths(os.fspath(folder / _RECORDS))
            for group, own in zip(groups, grouped(paths, count), strict=True):
                group += map(Path, own)
        files[flag] = groups
    return files


def training_records(config: PretrainConfig, sequence_length: int, vocabulary: Path) -> str:
    """Returns the glob pattern of a phase's records, which are created if there are none.

    Raises:
        ValueError: If there is neither text nor records.
    """
    if config.records:
        return _given(config.records, sequence_length)
    if not config.input_files:
        raise ValueError("--input_files and --records are both empty, expected one of them")
    return _made(config, "records", config.input_files, sequence_length, vocabulary)


def dev_records(config: PretrainConfig, sequence_length: int, vocabulary: Path) -> str | None:
    """Returns the pattern of the validation text's records, or `None` if there is none."""
    config = config.of_validation_text()
    if config.dev_records:
        return _given(config.dev_records, sequence_length)
    if not config.dev_files:
        return None
    return _made(config, "dev_records", config.dev_files, sequence_length, vocabulary)


def _given(records: str, sequence_length: int) -> str:
    folder = _records_folder(records, sequence_length)
    warn_of_unknown_tokens(folder)
    return os.fspath(folder / _RECORDS)


def _records_folder(records: str, sequence_length: int) -> Path:
    return Path(records.replace("{length}", str(sequence_length)))


def _made(
    config: PretrainConfig,
    name: str,
    files: tuple[str, ...],
    sequence_length: int,
    vocabulary: Path,
) -> str:
    folder = Path(config.output_dir) / f"{name}_{sequence_length}"
    create_pretraining_data(config.data_config(sequence_length, files, folder, vocabulary))
    return str(folder / "*.tfrecord")
