# SPDX-License-Identifier: Apache-2.0
"""The tokenizers of KerasHub's presets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.byte_pair_files import read_byte_pair
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import read_json
from keras_bert.checkpoints.keras_hub_weights import check_class
from keras_bert.checkpoints.sentence_piece_files import read_sentence_piece
from keras_bert.checkpoints.wordpiece_files import read_vocabulary

TOKENIZER_FILE = "tokenizer.json"
_FOLDER = "assets/tokenizer"
_WORDS, _PIECES = f"{_FOLDER}/vocabulary.txt", f"{_FOLDER}/vocabulary.spm"
_TOKENS, _MERGES = f"{_FOLDER}/vocabulary.json", f"{_FOLDER}/merges.txt"
ASSETS = (_WORDS, _PIECES, _TOKENS, _MERGES)
"""The files that the tokenizers of these families can have."""

_WORDPIECE_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
# Its tokenizer gives text to the model as it is.
_PLAIN = {"do_lower_case": False, "keep_accents": True, "albert_rules": False}


def read_tokenizer(folder: Path) -> dict[str, Any] | None:
    """The config of a preset's tokenizer, `None` if it has none.

    Raises:
        CheckpointError: If a file is missing or malformed, or the tokenizer none of these
            families'.
    """
    path = folder / TOKENIZER_FILE
    if not path.exists() or not any((folder / name).exists() for name in ASSETS):
        return None
    fields = read_json(path)
    name = str(fields.get("registered_name")).rpartition(">")[2]
    if name == "RobertaTokenizer":
        arguments = check_class(fields, name, path)
        prefix = bool(arguments.get("add_prefix_space", False))
        return read_byte_pair(folder / _TOKENS, folder / _MERGES, prefix)
    if name == "AlbertTokenizer":
        check_class(fields, name, path)
        return read_sentence_piece(folder / _PIECES, _PLAIN)
    if name in _WORDPIECE_CLASSES:
        return _wordpiece(check_class(fields, name, path), path, folder)
    known = ", ".join((*_WORDPIECE_CLASSES, "RobertaTokenizer", "AlbertTokenizer"))
    raise CheckpointError(f"{path}: registered_name is {name!r}; it must be one of {known}.")


def _wordpiece(arguments: Mapping[str, Any], path: Path, folder: Path) -> dict[str, Any]:
    lowercase = arguments.get("lowercase")
    if not isinstance(lowercase, bool):
        raise CheckpointError(f"{path}: lowercase is {lowercase!r}; it must be true or false.")
    typed = bool(arguments.get("special_tokens_in_strings"))
    return {
        "vocabulary": read_vocabulary(folder / _WORDS),
        "lowercase": lowercase,
        **({"special_tokens_in_text": True} if typed else {}),
    }
