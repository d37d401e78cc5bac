# SPDX-License-Identifier: Apache-2.0
"""ALBERT's tokenizer as a `tokenizer.json`, and a SentencePiece model made of one.

Beside a model, the transformers library (5.23) would cut texts at the pieces that are always ones
of their own, and begin a word behind each: other ids than SentencePiece's. The file prevents it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from keras_bert.checkpoints.sentence_piece_model import (
    Piece,
    PieceType,
    read_characters_map,
    read_pieces,
    write_model,
)
from keras_bert.checkpoints.tokenizer_json import TokenizerJson

SPECIAL_TOKENS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
_QUOTES = ("``", "''")
_SPACES = " {2,}"


def to_json(model: bytes, lowercase: bool, keep_accents: bool) -> dict[str, Any]:
    """The fields of the file.

    Args:
        model: A SentencePiece model.
        lowercase: Whether text is lower-cased.
        keep_accents: Whether it keeps its accents.
    """
    pieces = read_pieces(model)
    ids = {piece.text: index for index, piece in enumerate(pieces)}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    steps = [{"type": "WhitespaceSplit"}, metaspace]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added_token(token, ids[token]) for token in SPECIAL_TOKENS if token in ids
        ],
        "normalizer": _normalizer(read_characters_map(model), lowercase, keep_accents),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": _template(ids),
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": ids["<unk>"],
            "vocab": [[piece.text, piece.score] for piece in pieces],
            "byte_fallback": False,
        },
    }


def to_model(tokenizer: TokenizerJson) -> tuple[bytes, bool, bool]:
    """A model of a file's pieces, whether text is lower-cased, and whether it keeps its accents.

    Raises:
        CheckpointError: If the file is malformed, or another kind of tokenizer than ALBERT's.
    """
    lowercase, keep_accents, characters_map = _normalizing(tokenizer)
    _check_pre_tokenizer(tokenizer)
    return write_model(_pieces(tokenizer), characters_map), lowercase, keep_accents


def _added_token(token: str, token_id: int) -> dict[str, Any]:
    return {
        "id": token_id,
        "content": token,
        "single_word": False,
        "lstrip": token == "[MASK]",
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _normalizer(characters_map: bytes, lowercase: bool, keep_accents: bool) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": quotes}, "content": '"'} for quotes in _QUOTES
    ]
    if not keep_accents:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if lowercase:
        steps.append({"type": "Lowercase"})
    if characters_map:
        encoded = base64.b64encode(characters_map).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    steps.append({"type": "Replace", "pattern": {"Regex": _SPACES}, "content": " "})
    return {"type": "Sequence", "normalizers": steps}


def _template(ids: dict[str, int]) -> dict[str, Any]:
    def special(token: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [special("[CLS]", 0), text("A", 0), special("[SEP]", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), special("[SEP]", 1)],
        "special_tokens": {
            token: {"id": token, "ids": [ids[token]], "tokens": [token]}
            for token in ("[CLS]", "[SEP]")
        },
    }


def _pieces(tokenizer: TokenizerJson) -> list[Piece]:
    model = tokenizer.part("model")
    if model.get("byte_fallback"):
        raise tokenizer.error("model.byte_fallback is True, which ALBERT's tokenizer has not")
    kinds = {
        token.get("content"): PieceType.CONTROL if token.get("special") else PieceType.USER_DEFINED
        for token in tokenizer.added_tokens()
    }
    try:
        pieces = [
            Piece(text, float(score), kinds.get(text, PieceType.NORMAL))
            for text, score in model["vocab"]
        ]
        unknown = pieces[model["unk_id"]]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise tokenizer.error(
            "model.vocab must be a list of pieces with their scores, and model.unk_id the place "
            f"of one ({error!r})"
        ) from error
    pieces[model["unk_id"]] = unknown._replace(type=PieceType.UNKNOWN)
    return pieces


def _normalizing(tokenizer: TokenizerJson) -> tuple[bool, bool, bytes]:
    """Whether text is lower-cased, whether it keeps its accents, and the map of characters."""
    names = []
    characters_map = b""
    for step in tokenizer.steps("normalizer"):
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
    if [name for name in names if name != f"Replace {_SPACES}"] != expected:
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
