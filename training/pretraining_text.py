# SPDX-License-Identifier: Apache-2.0
"""What pre-training starts from: a vocabulary, and records of each length."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from absl import logging

from keras_bert import checkpoints
from keras_bert.text import save_vocabulary, train_vocabulary
from training.create_pretraining_data import create_pretraining_data
from training.pretrain_config import PretrainConfig

VOCABULARY = "vocab.txt"


def vocabulary_path(config: PretrainConfig) -> Path:
    """The vocabulary that is given, or the checkpoint's, or one made from the text."""
    if config.vocabulary:
        return Path(config.vocabulary)
    path = Path(config.output_dir) / VOCABULARY
    if not path.exists():
        tokens = _tokens(config)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_vocabulary(tokens, path)
    return path


def _tokens(config: PretrainConfig) -> Sequence[str]:
    preset = config.init_preset or config.teacher
    if preset:
        tokenizer = checkpoints.open_checkpoint(preset).require_tokenizer()
        if "kind" in tokenizer:
            raise ValueError(
                f"{preset} has a tokenizer of the kind {tokenizer['kind']}; records are made "
                "by WordPiece alone."
            )
        return list(tokenizer["vocabulary"])
    if not config.input_files:
        raise ValueError("vocabulary is empty, and so is input_files, which one can be made of")
    logging.info("making a vocabulary of %d tokens", config.vocabulary_size)
    unused = Path()
    files = config.data_config(128, config.input_files, unused, unused).paths()
    return train_vocabulary(files, config.vocabulary_size, lowercase=config.lowercase)


def training_records(config: PretrainConfig, sequence_length: int, vocabulary: Path) -> str:
    """The pattern of a phase's records, which are made where there are none.

    Raises:
        ValueError: if there is neither text nor records.
    """
    if config.records:
        return _pattern(config.records, sequence_length)
    if not config.input_files:
        raise ValueError("input_files and records are both empty, expected one of them")
    return _made(config, "records", config.input_files, sequence_length, vocabulary)


def dev_records(config: PretrainConfig, sequence_length: int, vocabulary: Path) -> str | None:
    """The same of the held-out text; `None` if there is none."""
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
