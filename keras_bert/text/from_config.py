# SPDX-License-Identifier: Apache-2.0
"""Tokenizers from their configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_bert.text.byte_pair import BytePairTokenizer
from keras_bert.text.sentence_piece import SentencePieceTokenizer
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.text.wordpiece import WordPieceTokenizer

_CLASSES: dict[str, type[Tokenizer]] = {
    tokenizer.kind: tokenizer
    for tokenizer in (WordPieceTokenizer, BytePairTokenizer, SentencePieceTokenizer)
}


def tokenizer_from_config(config: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer whose `get_config` a config is.

    Args:
        config: What its class takes, and `kind`: `wordpiece`, `byte_pair` or `sentence_piece`.
            Without a kind it is a WordPiece tokenizer's.

    Raises:
        ValueError: If there is no such kind.
    """
    kind = config.get("kind", WordPieceTokenizer.kind)
    if kind not in _CLASSES:
        raise ValueError(
            f"kind of a tokenizer's config is {kind!r}; expected one of {', '.join(_CLASSES)}."
        )
    return _CLASSES[kind].from_config(dict(config))
