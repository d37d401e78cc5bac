# SPDX-License-Identifier: Apache-2.0
"""Creation of tokenizers from their configs."""

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
    """Creates a tokenizer from the config that its `get_config` returned.

    Args:
        config: A dict of the arguments of the class and of `kind`: `"wordpiece"`, `"byte_pair"` or
            `"sentence_piece"`. Without `kind`, it is the config of a `WordPieceTokenizer`.

    Returns:
        A tokenizer.

    Raises:
        ValueError: If `kind` is not one of the above.
    """
    kind = config.get("kind", WordPieceTokenizer.kind)
    if kind not in _CLASSES:
        raise ValueError(
            f"kind of a tokenizer's config is {kind!r}; expected one of {', '.join(_CLASSES)}."
        )
    return _CLASSES[kind].from_config(dict(config))
