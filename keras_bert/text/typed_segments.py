# SPDX-License-Identifier: Apache-2.0
"""Cuts texts at the special tokens that are typed in them, for tokenizers to do the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import tensorflow as tf

from keras_bert.text.byte_words import WHITE_SPACE
from keras_bert.text.pieces import Pieces


class TypedSegments:
    """Gives special tokens their ids, and all between them to a function.

    Args:
        ids: The tokens and their ids.
        takes_space: The token that takes the white space before it, if it is one of them.
    """

    def __init__(self, ids: Mapping[str, int], takes_space: str) -> None:
        self._ids = tuple(ids.values())
        self._patterns = tuple(
            (f"[{WHITE_SPACE}]*" if token == takes_space else "") + re.escape(token)
            for token in ids
        )

    def __call__(self, text: tf.Tensor, tokenize: Callable[[tf.Tensor], Pieces]) -> Pieces:
        """The pieces of texts.

        Args:
            text: String tensor `(texts,)`, valid UTF-8.
            tokenize: Makes pieces of strings `(segments,)`, with places in characters.

        Returns:
            Pieces with places in characters of `text`.
        """
        segments = self._split(text)
        flat = segments.flat_values
        which = self._which(flat)
        lengths = tf.strings.length(flat, unit="UTF8_CHAR")
        pieces = tokenize(tf.where(which < 0, flat, ""))
        is_token = tf.cast(which >= 0, tf.int64)

        def with_tokens(ragged: tf.RaggedTensor, of_tokens: tf.Tensor) -> tf.RaggedTensor:
            alone = tf.boolean_mask(tf.cast(of_tokens, tf.int32), which >= 0)
            tokens = tf.RaggedTensor.from_row_lengths(alone, is_token, validate=False)
            return tf.concat([ragged, tokens], axis=1)

        before = tf.concat([[0], tf.cumsum(lengths)], axis=0)
        of_text = tf.gather(before, tf.gather(segments.row_starts(), segments.value_rowids()))
        begin = before[:-1] - of_text
        ids = with_tokens(pieces.ids, tf.gather(self._ids, tf.maximum(which, 0)))
        without_space = tf.strings.regex_replace(flat, rf"\A[{WHITE_SPACE}]+", "")
        spaces = lengths - tf.strings.length(without_space, unit="UTF8_CHAR")
        starts = with_tokens(pieces.starts, spaces)
        ends = with_tokens(pieces.ends, lengths)
        moved = tf.gather(begin, ids.value_rowids())
        return Pieces(
            *(
                segments.with_values(part).merge_dims(1, 2)
                for part in (
                    ids,
                    starts.with_flat_values(starts.flat_values + moved),
                    ends.with_flat_values(ends.flat_values + moved),
                )
            )
        )

    def _split(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Texts as special tokens and what is between them, ragged strings `(texts, segments)`."""
        # No byte of valid UTF-8. (TF Text's own splitting by expressions ends at a NUL.)
        border = b"\xff"
        tokens = f"({'|'.join(self._patterns)})"
        text = tf.strings.regex_replace(text, tokens, border + rb"\1" + border)
        return tf.strings.split(text, border)

    def _which(self, segments: tf.Tensor) -> tf.Tensor:
        """Which special token each segment is, int32; -1 for none."""
        which = tf.fill(tf.shape(segments), -1)
        for index, pattern in enumerate(self._patterns):
            which = tf.where(tf.strings.regex_full_match(segments, pattern), index, which)
        return which
