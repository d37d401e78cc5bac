# SPDX-License-Identifier: Apache-2.0
"""The inputs of pre-training: a vocabulary, and records of each length."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert import checkpoints
from keras_bert.text import WordPieceTokenizer, save_vocabulary

from ..create_pretraining_data import create_pretraining_data
from ..train_tokenizer import make_tokenizer
from .config import PretrainConfig
from .tokenizer_source import save_tokenizer

VOCABULARY = "vocab.txt"
TOKENIZER = "tokenizer"


def vocabulary_path(config: PretrainConfig) -> Path:
    """Returns the given vocabulary, or the checkpoint's, or else one trained on the text.

    Returns:
        The path of a vocab.txt, or the folder of a tokenizer.
    """
    if config.vocabulary:
        return Path(config.vocabulary)
    file, folder = (Path(config.output_dir) / name for name in (VOCABULARY, TOKENIZER))
    if folder.exists():
        return folder
    if not file.exists():
        tokenizer = _tokenizer_config(config)
        file.parent.mkdir(parents=True, exist_ok=True)
        is_wordpiece = tokenizer.get("kind", WordPieceTokenizer.kind) == WordPieceTokenizer.kind
        # A vocab.txt does not specify whether it is cased, unless --lowercase is given.
        if not is_wordpiece or (config.lowercase is None and not tokenizer["lowercase"]):
            save_tokenizer(tokenizer, folder)
            return folder
        save_vocabulary(tokenizer["vocabulary"], file)
    return file


def _tokenizer_config(config: PretrainConfig) -> dict[str, Any]:
    preset = config.init_preset or config.teacher
    if preset:
        return checkpoints.open_checkpoint(preset).require_tokenizer()
    if not config.input_files:
        raise ValueError("--vocabulary and --input_files are both empty, expected one of them")
    kind = config.named_architecture().tokenizer
    logging.info("training a vocabulary of %d tokens (%s)", config.vocabulary_size, kind)
    unused = Path()
    files = config.data_config(128, config.input_files, unused, unused).paths()
    return make_tokenizer(kind, files, config.vocabulary_size, config.lowercase).get_config()


def training_records(config: PretrainConfig, sequence_length: int, vocabulary: Path) -> str:
    """Returns the glob pattern of a phase's records, which are created if there are none.

    Raises:
        ValueError: If there is neither text nor records.
    """
    if config.records:
        return _pattern(config.records, sequence_length)
    if not config.input_files:
        raise ValueError("--input_files and --records are both empty, expected one of them")
    return _made(config, "records", config.input_files, sequence_length, vocabulary)


def dev_records(config: PretrainConfig, sequence_length: int, vocabulary: Path) -> str | None:
    """Returns the pattern of the held-out text's records, or `None` if there is none."""
    if config.dev_records:
        return _pattern(config.dev_records, sequence_length)
    if not config.dev_files:
        return None
    return _made(config, "dev_records", config.dev_files, sequence_length, vocabulary)


def _pattern(folder: str, sequence_length: int) -> str:
    return os.path.join(folder.replace("{length}", str(sequence_length)), "*.tfrecord*")


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
