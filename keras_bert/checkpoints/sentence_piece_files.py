# SPDX-License-Identifier: Apache-2.0
"""A SentencePiece tokenizer in files: ALBERT's `spiece.model`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import write_json
from keras_bert.checkpoints.sentence_piece_json import to_json, to_model
from keras_bert.checkpoints.sentence_piece_model import read_pieces
from keras_bert.checkpoints.tokenizer_json import TOKENIZER_FILE, TokenizerJson

KIND = "sentence_piece"
MODEL_FILE = "spiece.model"
# As the TF1 release calls it
RELEASED_FILE = "30k-clean.model"

_REQUIRED = ("[CLS]", "[SEP]", "<pad>", "<unk>")


def read_sentence_piece(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a tokenizer whose model is a file.

    Args:
        path: The file.
        settings: The fields of `tokenizer_config.json`.

    Raises:
        CheckpointError: If the file is missing, or no model with ALBERT's special tokens.
    """
    try:
        model = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: the file cannot be read: {error.strerror}.") from error
    return {
        "kind": KIND,
        "model": _checked(model, path),
        "lowercase": bool(settings.get("do_lower_case", True)),
        "keep_accents": bool(settings.get("keep_accents", False)),
        "albert_rules": bool(settings.get("albert_rules", True)),
    }


def convert_sentence_piece(tokenizer: TokenizerJson) -> dict[str, Any]:
    """The config of a tokenizer in a `tokenizer.json`, with a model made of its pieces.

    Raises:
        CheckpointError: If the file is malformed, or another kind of tokenizer than ALBERT's.
    """
    model, lowercase, keep_accents = to_model(tokenizer)
    return {
        "kind": KIND,
        "model": _checked(model, tokenizer.path),
        "lowercase": lowercase,
        "keep_accents": keep_accents,
        "albert_rules": True,
    }


def write_sentence_piece(folder: Path, tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the model, and the `tokenizer.json` that goes with it.

    Returns:
        What `tokenizer_config.json` is to say of them.
    """
    model = model_of(tokenizer)
    lowercase = bool(tokenizer.get("lowercase", True))
    keep_accents = bool(tokenizer.get("keep_accents", False))
    (folder / MODEL_FILE).write_bytes(model)
    write_json(folder / TOKENIZER_FILE, to_json(model, lowercase, keep_accents))
    return {
        "tokenizer_class": "AlbertTokenizer",
        "do_lower_case": lowercase,
        "keep_accents": keep_accents,
        "remove_space": True,
        "albert_rules": bool(tokenizer.get("albert_rules", True)),
    }


def pieces_of(tokenizer: Mapping[str, Any]) -> list[str]:
    """The pieces of a tokenizer's config, a piece's id being its index.

    Raises:
        ValueError: If its model is none.
    """
    return [piece.text for piece in read_pieces(model_of(tokenizer))]


def model_of(tokenizer: Mapping[str, Any]) -> bytes:
    """The SentencePiece model of a tokenizer's config.

    Raises:
        ValueError: If it is no base64.
    """
    try:
        return base64.b64decode(tokenizer["model"], validate=True)
    except (TypeError, binascii.Error) as error:
        raise ValueError(f"model of the tokenizer's config is no base64: {error}.") from error


def _checked(model: bytes, path: Path) -> str:
    """A model in base64."""
    try:
        pieces = {piece.text for piece in read_pieces(model)}
    except ValueError as error:
        raise CheckpointError(f"{path}: the file is {error}.") from error
    missing = [token for token in _REQUIRED if token not in pieces]
    if missing:
        raise CheckpointError(
            f"{path}: the model of {len(pieces)} pieces lacks {', '.join(missing)}; ALBERT's has "
            f"{', '.join(_REQUIRED)}."
        )
    return base64.b64encode(model).decode("ascii")
