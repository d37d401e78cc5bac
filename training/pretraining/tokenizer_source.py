# SPDX-License-Identifier: Apache-2.0
"""The tokenizer given to a program: a vocab.txt, or a folder with the files of any kind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from keras_bert.atomic import atomic_path, make_folder
from keras_bert.text import WordPieceTokenizer, load_vocabulary, tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.vocabularies.vocab_txt import looks_uncased

# Checkpoints are imported where a folder is read or written: they import Keras, which takes as long
# as a worker needs for its first million tokens.

# The maximum length written with a tokenizer that does not belong to an encoder yet
NO_LIMIT = 1_000_000


def open_tokenizer(path: str | os.PathLike[str], lowercase: bool | None = None) -> Tokenizer:
    """Returns the tokenizer of a vocab.txt (WordPiece), or of a folder with a tokenizer's files.

    Args:
        path: The file or the folder.
        lowercase: For a file, whether text is lower-cased; `None` infers it from the tokens. The
            files in a folder specify it.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a file is malformed, or the folder has no tokenizer's files.
    """
    if os.path.isdir(path):
        return tokenizer_from_config(_read_config(Path(path)))
    return WordPieceTokenizer(path, lowercase=is_lowercased(path, lowercase))


def is_lowercased(path: str | os.PathLike[str], lowercase: bool | None) -> bool:
    """Returns whether text is lower-cased for a vocab.txt: as given, or inferred from its tokens.

    For a folder, whose files specify it, the result has no effect; `None` returns True.
    """
    if lowercase is not None:
        return lowercase
    return os.path.isdir(path) or looks_uncased(load_vocabulary(path))


def tokenizer_content(path: str | os.PathLike[str]) -> bytes:
    """Returns everything that a tokenizer's ids depend on, to be hashed."""
    if os.path.isdir(path):
        return json.dumps(_read_config(Path(path)), sort_keys=True).encode()
    return Path(path).read_bytes()


def save_tokenizer(tokenizer: dict[str, Any], folder: Path) -> None:
    """Writes a folder with a tokenizer's files, atomically."""
    from keras_bert.checkpoints.tokenizer_files import write_tokenizer

    make_folder(folder.parent)
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        write_tokenizer(temporary, tokenizer, NO_LIMIT)


def _read_config(folder: Path) -> dict[str, Any]:
    from keras_bert.checkpoints.tokenizer_files import read_tokenizer

    config = read_tokenizer(folder)
    if config is None:
        raise ValueError(
            f"{folder} has no tokenizer, expected vocab.txt, vocab.json and merges.txt, "
            "spiece.model or tokenizer.json, as the program tokenizer writes them"
        )
    return config
