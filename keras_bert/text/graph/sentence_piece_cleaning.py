# SPDX-License-Identifier: Apache-2.0
"""ALBERT's text normalization before SentencePiece as TensorFlow operations, with offsets.

Reference:
    [Lan et al., 2020](https://arxiv.org/abs/1909.11942), original code, `preprocess_text`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from keras_bert.text.characters import WHITE_SPACE, combining_marks
from keras_bert.text.graph.normalization import lower, normalize_unicode
from keras_bert.text.graph.offsets import Characters
from keras_bert.text.graph.rows import is_first_in_row, row_ids, select
from keras_bert.text.sentence_piece_cleaning import TextCleaner

# The whitespace that separates words for Python's `str.split`
_SPACE = f"[{WHITE_SPACE}\x1c-\x1f]"
_QUOTES = ("`", "'")


@dataclasses.dataclass(frozen=True)
class SentenceCleaner:
    """Normalizes texts, strings `(texts,)` in valid UTF-8, like a `TextCleaner` in Python."""

    options: TextCleaner

    def __call__(self, text: tf.Tensor) -> tf.Tensor:
        """Normalizes a batch of texts."""
        for pattern, replacement in self.replacements:
            text = tf.strings.regex_replace(text, pattern, replacement)
        return self._fold(text)

    @property
    def replacements(self) -> Sequence[tuple[str, str]]:
        """Regular expressions and the replacements for their matches, in this order."""
        if self.options.join_spaces:
            space_runs = f"[{WHITE_SPACE}]{{2,}}|[\n\r\t]"
            return ((f"[{WHITE_SPACE}]+\\z", ""), (space_runs, " "))
        if not self.options.collapse:
            return ()
        quotes = ((quote * 2, '"') for quote in _QUOTES)
        return ((f"{_SPACE}+", " "), (r"\A | \z", ""), *quotes)

    @staticmethod
    def decompose(text: tf.Tensor) -> tf.Tensor:
        """Decomposes characters (NFKD) and drops combining marks."""
        text = normalize_unicode(text, "NFKD")
        return tf.strings.regex_replace(text, f"[{combining_marks()}]", "")

    def traces(self, characters: Characters) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes the size of each character in the normalized texts, in bytes.

        Also returns whether a character has no bytes because it is merged with the previous
        character.
        """
        points, letters, which = characters
        # Only the lowercase sigma depends on neighboring characters. Both of its forms have the
        # same number of bytes.
        widths = tf.gather(tf.strings.length(self._fold(letters)), which)
        seconds = tf.zeros_like(widths, tf.bool)
        if self.options.collapse:
            is_space = tf.gather(tf.strings.regex_full_match(letters, _SPACE), which)
            begins = is_first_in_row(points)
            seconds = _second_quotes(points.flat_values, begins)
            widths = tf.where(is_space, 1, widths)
            widths = tf.where(seconds | _idle_spaces(points, begins, is_space), 0, widths)
        if self.options.join_spaces:
            is_space = tf.gather(tf.strings.regex_full_match(letters, f"[{WHITE_SPACE}]"), which)
            before = tf.concat([[False], is_space[:-1]], axis=0)
            follows = is_space & ~is_first_in_row(points) & before
            begins_run = tf.concat([follows[1:], [False]], axis=0)
            widths = tf.where(begins_run, 1, widths)
            is_idle = follows | (is_space & _nothing_follows(points, is_space))
            widths = tf.where(is_idle, 0, widths)
        return widths, seconds

    def _fold(self, text: tf.Tensor) -> tf.Tensor:
        if not self.options.keep_accents:
            text = self.decompose(text)
        return lower(text) if self.options.lowercase else text


def _idle_spaces(points: tf.RaggedTensor, begins: tf.Tensor, is_space: tf.Tensor) -> tf.Tensor:
    """Finds dropped whitespace, at both ends and after other whitespace, `(characters,)`."""
    before = begins | tf.concat([[True], is_space[:-1]], axis=0)
    return is_space & (before | _nothing_follows(points, is_space))


def _nothing_follows(points: tf.RaggedTensor, is_space: tf.Tensor) -> tf.Tensor:
    """Finds characters with only whitespace after them, bool `(characters,)`."""
    counts = tf.concat([[0], tf.cumsum(tf.cast(~is_space, tf.int32))], axis=0)
    text_end = tf.gather(points.row_limits(), row_ids(points))
    return tf.gather(counts, text_end) == counts[1:]


def _second_quotes(points: tf.Tensor, begins: tf.Tensor) -> tf.Tensor:
    """Finds the second quote of each pair that becomes a quotation mark, `(characters,)`."""
    seconds = tf.zeros_like(begins)
    index = tf.range(tf.size(points))
    for quote in _QUOTES:
        is_quote = points == ord(quote)
        first = is_quote & (begins | ~tf.concat([[False], is_quote[:-1]], axis=0))
        run = tf.maximum(tf.cumsum(tf.cast(first, tf.int32)) - 1, 0)
        run_begin = tf.gather(tf.concat([select(index, first), [0]], axis=0), run)
        seconds |= is_quote & ((index - run_begin) % 2 == 1)
    return seconds
