# SPDX-License-Identifier: Apache-2.0
"""Defines tokenizer configs, dicts of plain values without file names.

Configs are stored in `.keras` files, and reading a `.keras` file must not open other files.
Therefore, only the tokenizer classes accept a vocabulary path.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from keras_bert import checks
from keras_bert.checks import shorten_repr
from keras_bert.vocabularies.sentence_piece_model import read_pieces

WORDPIECE, BYTE_PAIR, SENTENCE_PIECE = KINDS = ("wordpiece", "byte_pair", "sentence_piece")

MAX_WORD_LENGTH = 200
"""The maximum word length in the original BERT code. Longer words are unknown."""
WORD_LENGTH = checks.NumberRange(at_least=1, below=1000, integer=True)
"""The allowed maximum word lengths. Regular expressions (RE2) cannot count further."""
TRUNCATION_SIDES = ("right", "left")
"""The sides on which overlong texts can be truncated. The first is the default."""

_STRINGS, _FLAG, _BASE64 = "a list of strings", "True or False", "a string, the model in base64"
_STRING, _INTEGER, _NAMES = "a string", "a positive integer", "a dict of strings"
_REQUIRED = object()
FIELDS: dict[str, dict[str, tuple[str, Any]]] = {
    WORDPIECE: {
        "vocabulary": (_STRINGS, _REQUIRED),
        "lowercase": (_FLAG, True),
        "special_tokens_in_text": (_FLAG, False),
        "added_tokens": (_STRINGS, []),
        "normalized_tokens": (_STRINGS, []),
        "special_added_tokens": (_STRINGS, []),
        "max_word_length": (_INTEGER, MAX_WORD_LENGTH),
        "num_segments": (_INTEGER, 2),
        "truncation_side": (_STRING, "right"),
        "strip_accents": (_FLAG, None),
        "tokenize_chinese_chars": (_FLAG, True),
        "special_tokens": (_NAMES, None),
        "pair_separators": (_INTEGER, 1),
    },
    BYTE_PAIR: {
        "vocabulary": (_STRINGS, _REQUIRED),
        "merges": (_STRINGS, _REQUIRED),
        "add_prefix_space": (_FLAG, False),
        "special_tokens_in_text": (_FLAG, False),
        "special_tokens": (_NAMES, None),
        "pair_separators": (_INTEGER, 2),
        "mask_takes_space": (_FLAG, True),
        "added_tokens": (_STRINGS, []),
        "special_added_tokens": (_STRINGS, []),
        "word_pattern": (_STRING, "gpt2"),
        "compose": (_FLAG, False),
        "ignore_merges": (_FLAG, False),
        "space_before_first_word": (_FLAG, True),
        "byte_fallback": (_FLAG, False),
        "repeats_cls": (_FLAG, False),
        "truncation_side": (_STRING, "right"),
    },
    SENTENCE_PIECE: {
        "model": (_BASE64, _REQUIRED),
        "lowercase": (_FLAG, True),
        "keep_accents": (_FLAG, False),
        "albert_rules": (_FLAG, True),
        "special_tokens_in_text": (_FLAG, False),
        "special_tokens": (_NAMES, None),
        "pair_separators": (_INTEGER, 1),
        "num_segments": (_INTEGER, 2),
        "truncation_side": (_STRING, "right"),
        "compose": (_FLAG, False),
        "added_tokens": (_STRINGS, []),
        "special_added_tokens": (_STRINGS, []),
    },
}
"""The type and default of each config field, by tokenizer type."""
# Fields that are stored even if they have their default value
_ALWAYS = (
    "lowercase",
    "add_prefix_space",
    "keep_accents",
    "albert_rules",
    "special_tokens_in_text",
)


def check_tokenizer_config(config: object) -> str:
    """Validates a tokenizer config. Returns the tokenizer type.

    Without `kind`, the config belongs to a `WordPieceTokenizer`.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"A tokenizer config must be a dict. Received: {shorten_repr(config)}")
    kind = config.get("kind", WORDPIECE)
    if kind not in KINDS:
        raise ValueError(
            f"kind in a tokenizer config must be one of {', '.join(KINDS)}. Received: "
            f"{shorten_repr(kind)}"
        )
    fields = FIELDS[kind]
    required = (name for name, (_, default) in fields.items() if default is _REQUIRED)
    absent_fields = [name for name in required if name not in config]
    values = {name: value for name, value in config.items() if name != "kind"}
    other_fields = [name for name in values if name not in fields]
    if absent_fields or other_fields:
        what = (
            f"lacks {absent_fields[0]}" if absent_fields else f"has {shorten_repr(other_fields[0])}"
        )
        raise ValueError(
            f"The config of a {kind} tokenizer {what}. The fields are kind, {', '.join(fields)}."
        )
    for name, value in values.items():
        field_type, _ = fields[name]
        if not _is(value, field_type):
            raise ValueError(
                f"{name} in a tokenizer config must be {field_type}. Received: "
                f"{shorten_repr(value)}"
                + (
                    ". Only the tokenizer class accepts a vocabulary file."
                    if field_type == _STRINGS and isinstance(value, str)
                    else ""
                )
            )
    return str(kind)


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a tokenizer config with the defaults of missing fields."""
    fields = FIELDS[config.get("kind", WORDPIECE)]
    return {name: config.get(name, default) for name, (_, default) in fields.items()}


def without_defaults(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Removes fields with default values, except for the fields that are always stored."""
    return {
        name: value
        for name, value in values.items()
        if name in _ALWAYS or value != FIELDS[kind][name][1]
    }


def list_tokens(tokenizer: Mapping[str, Any]) -> list[str]:
    """Returns the tokens in a tokenizer config in id order."""
    if check_tokenizer_config(tokenizer) == SENTENCE_PIECE:
        return [piece.text for piece in read_pieces(decode_model(tokenizer))]
    return list(tokenizer["vocabulary"])


def decode_model(tokenizer: Mapping[str, Any]) -> bytes:
    """Decodes the base64 SentencePiece model in a tokenizer config."""
    try:
        return base64.b64decode(tokenizer["model"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError(f"model in a tokenizer config must be base64: {error}.") from error


def _is(value: object, kind: str) -> bool:
    if kind == _STRINGS:
        return isinstance(value, list | tuple) and _all_strings(value)
    if kind == _NAMES:
        return isinstance(value, Mapping) and _all_strings((*value, *value.values()))
    if kind == _INTEGER:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    return isinstance(value, bool if kind == _FLAG else str)


def _all_strings(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)
