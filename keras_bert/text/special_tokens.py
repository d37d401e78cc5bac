# SPDX-License-Identifier: Apache-2.0
"""Special tokens that are typed in a text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import tensorflow as tf

from keras_bert.text.pieces import Pieces

PADDING, UNKNOWN, CLASSIFY, SEPARATE, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PADDING, UNKNOWN, CLASSIFY, SEPARATE, MASK)

# Code points with no character, among those that the tokenizer treats as ideographs: each is a word
# of its own, normalizing leaves it alone, and no real text has it.
_FIRST_MARK = 0xFAE0
_NO_CHARACTER = 0xFAFF


class TypedTokens:
    """Puts one character for each special token typed in a text, for the tokenizer to find.

    Args:
        tokens: The tokens to recognise.

    Raises:
        ValueError: If there are more of them than characters to put for them.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        if len(tokens) > _NO_CHARACTER - _FIRST_MARK:
            raise ValueError(
                f"There are {len(tokens)} special and added tokens to find in texts; at most "
                f"{_NO_CHARACTER - _FIRST_MARK} are supported."
            )
        # Of two that begin alike, the longer one is found first.
        self._tokens = tuple(sorted(tokens, key=len, reverse=True))

    @property
    def marks(self) -> Mapping[str, str]:
        """The character that stands for each token."""
        return {token: chr(_FIRST_MARK + index) for index, token in enumerate(self._tokens)}

    def mark(self, text: tf.Tensor) -> tf.Tensor:
        """Replaces the tokens by their marks.

        Args:
            text: String tensor `(texts,)`.

        Returns:
            String tensor `(texts,)`.
        """
        # Nobody gets at a special token by typing its mark.
        marks = "".join(self.marks.values())
        text = tf.strings.regex_replace(text, f"[{marks}]", chr(_NO_CHARACTER))
        for token, mark in self.marks.items():
            text = tf.strings.regex_replace(text, re.escape(token), mark)
        return text

    def to_typed_characters(self, marked: tf.Tensor, pieces: Pieces) -> Pieces:
        """Moves the places of pieces from a marked text to the text as it was typed.

        Args:
            marked: String tensor `(texts,)`, valid UTF-8.
            pieces: Pieces with places in characters of `marked`.

        Returns:
            The pieces with places in characters of the text before `mark`.
        """
        points = tf.strings.unicode_decode(marked, "UTF-8")
        lengths = tf.constant([len(token) for token in self._tokens])
        index = points.flat_values - _FIRST_MARK
        is_mark = (index >= 0) & (index < len(self._tokens))
        widths = tf.where(is_mark, tf.gather(lengths, tf.where(is_mark, index, 0)), 1)
        before = tf.concat([[0], tf.cumsum(widths)], axis=0)
        text = tf.cast(tf.gather(points.row_starts(), pieces.ids.value_rowids()), tf.int32)

        def moved(places: tf.RaggedTensor) -> tf.RaggedTensor:
            typed = tf.gather(before, text + places.flat_values) - tf.gather(before, text)
            return places.with_flat_values(typed)

        return Pieces(pieces.ids, moved(pieces.starts), moved(pieces.ends))
