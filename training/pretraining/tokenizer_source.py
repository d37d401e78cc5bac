# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a program: a vocab.txt, or a folder with the files of any kind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from keras_bert.atomic import atomic_path
from keras_bert.checkpoints.tokenizer_files import read_tokenizer, write_tokenizer
from keras_bert.text import WordPieceTokenizer, load_vocabulary, tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.vocabularies.vocab_txt import looks_uncased

# Written beside a tokenizer that is of no encoder yet
NO_LIMIT = 1_000_000


def open_tokenizer(path: str | os.PathLike[str], lowercase: bool | None = None) -> Tokenizer:
    """The tokenizer of a vocab.txt (WordPiece), or of a folder with a tokenizer's files.

    Args:
        path: the file or the folder.
        lowercase: whether text is lower-cased for a file, None where its tokens decide; a folder
            says so itself.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if a file is malformed, or the folder has none of a tokenizer.
    """
    if os.path.isdir(path):
        return tokenizer_from_config(_config_of(Path(path)))
    return WordPieceTokenizer(path, lowercase=is_lowercased(path, lowercase))


def is_lowercased(path: str | os.PathLike[str], lowercase: bool | None) -> bool:
    """Whether text is lower-cased for a vocab.txt: what is given, or what its tokens look like.

    Of a folder, which says it itself, what is given counts for nothing, and None is True.
    """
    if lowercase is not None:
        return lowercase
    return os.path.isdir(path) or looks_uncased(load_vocabulary(path))


def content_of(path: str | os.PathLike[str]) -> bytes:
    """Changes with whatever a tokenizer's ids depend on."""
    if os.path.isdir(path):
        return json.dumps(_config_of(Path(path)), sort_keys=True).encode()
    return Path(path).read_bytes()


def save_tokenizer(tokenizer: dict[str, Any], folder: Path) -> None:
    """Writes the folder of a tokenizer's files atomically."""
    with atomic_path(folder) as temporary:
        temporary.mkdir(parents=True)
        write_tokenizer(temporary, tokenizer, NO_LIMIT)


def _config_of(folder: Path) -> dict[str, Any]:
    config = read_tokenizer(folder)
    if config is None:
        raise ValueError(
            f"{folder} has no tokenizer, expected vocab.txt, vocab.json and merges.txt, "
            "spiece.model or tokenizer.json, as the program train_tokenizer writes them"
        )
    return config
