# SPDX-License-Identifier: Apache-2.0
"""A SentencePiece tokenizer in files: ALBERT's `spiece.model`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.sentence_piece_model import (
    Piece,
    PieceType,
    read_pieces,
    write_model,
)
from keras_bert.checkpoints.tokenizer_json import TokenizerJson

KIND = "sentence_piece"
MODEL_FILE = "spiece.model"
# As the TF1 release calls it
RELEASED_FILE = "30k-clean.model"

_REQUIRED = ("[CLS]", "[SEP]", "<pad>", "<unk>")
_QUOTES = ("``", "''")


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
    path = tokenizer.path
    lowercase, keep_accents, characters_map = _normalizing(tokenizer)
    _check_pre_tokenizer(tokenizer)
    model = write_model(_pieces(tokenizer), characters_map)
    return {
        "kind": KIND,
        "model": _checked(model, path),
        "lowercase": lowercase,
        "keep_accents": keep_accents,
        "albert_rules": True,
    }


def write_sentence_piece(folder: Path, tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the model.

    Returns:
        What `tokenizer_config.json` is to say of it.
    """
    (folder / MODEL_FILE).write_bytes(base64.b64decode(tokenizer["model"]))
    return {
        "tokenizer_class": "AlbertTokenizer",
        "do_lower_case": bool(tokenizer.get("lowercase", True)),
        "keep_accents": bool(tokenizer.get("keep_accents", False)),
        "remove_space": True,
        "albert_rules": bool(tokenizer.get("albert_rules", True)),
    }


def pieces_of(tokenizer: Mapping[str, Any]) -> list[str]:
    """The pieces of a tokenizer's config, a piece's id being its index.

    Raises:
        ValueError: If its model is none.
    """
    try:
        model = base64.b64decode(tokenizer["model"], validate=True)
    except (TypeError, binascii.Error) as error:
        raise ValueError(f"model of the tokenizer's config is no base64: {error}.") from error
    return [piece.text for piece in read_pieces(model)]


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


def _pieces(tokenizer: TokenizerJson) -> list[Piece]:
    model = tokenizer.part("model")
    if model.get("byte_fallback"):
        raise tokenizer.error("model.byte_fallback is True, which ALBERT's tokenizer has not")
    unknown = model.get("unk_id")
    special = {token.get("content") for token in tokenizer.added_tokens()}

    def kind(index: int, text: str) -> PieceType:
        if index == unknown:
            return PieceType.UNKNOWN
        return PieceType.CONTROL if text in special else PieceType.NORMAL

    try:
        return [
            Piece(text, float(score), kind(index, text))
            for index, (text, score) in enumerate(model["vocab"])
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise tokenizer.error(
            f"model.vocab must be a list of pieces with their scores ({error!r})"
        ) from error


def _normalizing(tokenizer: TokenizerJson) -> tuple[bool, bool, bytes]:
    """Whether text is lower-cased, whether it keeps its accents, and the map of characters."""
    steps = tokenizer.steps("normalizer")
    names = []
    characters_map = b""
    for step in steps:
        name = str(step.get("type"))
        if name == "Replace":
            pattern = step.get("pattern")
            name = f"Replace {next(iter(pattern.values())) if isinstance(pattern, dict) else ''}"
        elif name == "Precompiled":
            characters_map = _decoded(step.get("precompiled_charsmap"), tokenizer)
        names.append(name)
    keep_accents, lowercase = "StripAccents" not in names, "Lowercase" in names
    expected = [
        *(f"Replace {quotes}" for quotes in _QUOTES),
        *([] if keep_accents else ["NFKD", "StripAccents"]),
        *(["Lowercase"] if lowercase else []),
        *(["Precompiled"] if "Precompiled" in names else []),
    ]
    if [name for name in names if name != "Replace  {2,}"] != expected:
        raise tokenizer.error(
            f"normalizer has the steps {', '.join(names) or 'none'}; ALBERT's are "
            f"{', '.join(expected)}: get its spiece.model"
        )
    return lowercase, keep_accents, characters_map


def _decoded(characters_map: Any, tokenizer: TokenizerJson) -> bytes:
    try:
        return base64.b64decode(characters_map or "", validate=True)
    except (TypeError, binascii.Error) as error:
        raise tokenizer.error(f"precompiled_charsmap is no base64 ({error})") from error


def _check_pre_tokenizer(tokenizer: TokenizerJson) -> None:
    steps = tokenizer.steps("pre_tokenizer")
    types = [step.get("type") for step in steps]
    last = steps[-1] if steps else {}
    prefixed = last.get("prepend_scheme", "always") == "always" and last.get(
        "add_prefix_space", True
    )
    if types not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]) or not prefixed:
        raise tokenizer.error(
            f"pre_tokenizer has the steps {', '.join(map(str, types)) or 'none'}; ALBERT's is a "
            "Metaspace that begins every text with a space: get its spiece.model"
        )
