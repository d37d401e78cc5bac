# SPDX-License-Identifier: Apache-2.0
"""The config of a tokenizer: plain values, which name no files.

It travels in `.keras` files, and their reader must not open other files. A path of a vocabulary is
an argument of the classes of tokenizers alone.
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
"""The maximum number of characters of a word in BERT's released code; longer ones are unknown."""
WORD_LENGTH = checks.NumberRange(at_least=1, below=1000, integer=True)
"""The range of other such maxima; regular expressions (RE2) count no further."""
TRUNCATION_SIDES = ("right", "left")
"""The ends at which texts that are too long for a row may be truncated, the usual one first."""

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
    },
}
"""The type and the default of each field of a config, by the kind of the tokenizer."""
# Fields that configs have even if they are the defaults
_ALWAYS = (
    "lowercase",
    "add_prefix_space",
    "keep_accents",
    "albert_rules",
    "special_tokens_in_text",
)


def check_tokenizer_config(config: object) -> str:
    """Checks the fields of a tokenizer's config, the arguments of its class; returns its kind.

    Without `kind`, it is the config of a `WordPieceTokenizer`.
    """
    if not isinstance(config, Mapping):
        raise ValueError(
            f"The config of a tokenizer must be a dict. Received: {shorten_repr(config)}"
        )
    kind = config.get("kind", WORDPIECE)
    if kind not in KINDS:
        raise ValueError(
            f"kind of a tokenizer's config must be one of {', '.join(KINDS)}. Received: "
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
            f"The config of a {kind} tokenizer {what}; its fields are kind, {', '.join(fields)}."
        )
    for name, value in values.items():
        field_type, _ = fields[name]
        if not _is(value, field_type):
            raise ValueError(
                f"{name} of a tokenizer's config must be {field_type}. Received: "
                f"{shorten_repr(value)}"
                + (
                    " The file of a vocabulary is an argument of the tokenizer's class only."
                    if field_type == _STRINGS and isinstance(value, str)
                    else ""
                )
            )
    return str(kind)


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a tokenizer's config with the defaults of the fields that it lacks."""
    fields = FIELDS[config.get("kind", WORDPIECE)]
    return {name: config.get(name, default) for name, (_, default) in fields.items()}


def without_defaults(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of fields that the config of a tokenizer has: not most defaults."""
    return {
        name: value
        for name, value in values.items()
        if name in _ALWAYS or value != FIELDS[kind][name][1]
    }


def list_tokens(tokenizer: Mapping[str, Any]) -> list[str]:
    """Returns the tokens of a tokenizer's config in the order of their ids."""
    if check_tokenizer_config(tokenizer) == SENTENCE_PIECE:
        return [piece.text for piece in read_pieces(decode_model(tokenizer))]
    return list(tokenizer["vocabulary"])


def decode_model(tokenizer: Mapping[str, Any]) -> bytes:
    """Decodes the SentencePiece model of a tokenizer's config, base64."""
    try:
        return base64.b64decode(tokenizer["model"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError(f"model of a tokenizer's config is not base64: {error}.") from error


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
