# SPDX-License-Identifier: Apache-2.0
"""ALBERT's text normalization before SentencePiece as TensorFlow operations, and its offsets.

Reference:
    [Lan et al., 2020](https://arxiv.org/abs/1909.11942), released code, `preprocess_text`.
"""

from __future__ import annotations

import dataclasses
import functools
import unicodedata
from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text.normalization import WHITE_SPACE, lower
from keras_bert.text.offsets import Characters

# What Python's `str.split` splits at
_SPACE = rf"[{WHITE_SPACE}\x1c-\x1f]"
_QUOTES = ("`", "'")


@dataclasses.dataclass(frozen=True)
class SentenceCleaner:
    """Cleans texts up.

    Args:
        lowercase: Whether to lower-case.
        keep_accents: If not, characters are decomposed (NFKD), and combining ones dropped.
        collapse: Whether white space becomes one space, and none at the ends of a text, and a pair
            of backticks or apostrophes becomes a quotation mark.
    """

    lowercase: bool
    keep_accents: bool
    collapse: bool

    def __call__(self, text: tf.Tensor) -> tf.Tensor:
        """Cleaned texts.

        Args:
            text: String tensor `(texts,)`, valid UTF-8.
        """
        for pattern, replacement in self.replacements:
            text = tf.strings.regex_replace(text, pattern, replacement)
        return self._fold(text)

    @property
    def replacements(self) -> Sequence[tuple[str, str]]:
        """Regular expressions and what replaces all that they match, one after another."""
        if not self.collapse:
            return ()
        quotes = ((quote * 2, '"') for quote in _QUOTES)
        return ((f"{_SPACE}+", " "), (r"\A | \z", ""), *quotes)

    @staticmethod
    def decompose(text: tf.Tensor) -> tf.Tensor:
        """Texts `(texts,)` with characters decomposed (NFKD), without combining ones."""
        text = tf_text.normalize_utf8(text, "NFKD")
        return tf.strings.regex_replace(text, _combining(), "")

    def traces(self, characters: Characters) -> tuple[tf.Tensor, tf.Tensor]:
        """How much of the cleaned texts each character becomes.

        Args:
            characters: Those of the texts.

        Returns:
            How many bytes each of them becomes, int32 `(characters,)`; and which of them become
            none because they form one character with the one before, bool.
        """
        points, letters, which = characters
        # What a character becomes depends on no neighbour but for the form of a small sigma,
        # which is as long as the other one.
        widths = tf.gather(tf.strings.length(self._fold(letters)), which)
        seconds = tf.zeros_like(widths, tf.bool)
        if self.collapse:
            is_space = tf.gather(tf.strings.regex_full_match(letters, _SPACE), which)
            begins = _begins(points)
            seconds = _second_quotes(points.flat_values, begins)
            widths = tf.where(is_space, 1, widths)
            widths = tf.where(seconds | _idle_spaces(points, begins, is_space), 0, widths)
        return widths, seconds

    def _fold(self, text: tf.Tensor) -> tf.Tensor:
        if not self.keep_accents:
            text = self.decompose(text)
        return lower(text) if self.lowercase else text


@functools.cache
def _combining() -> str:
    """An expression for characters with a combining class, as Python knows them."""
    points = [point for point in range(0x110000) if unicodedata.combining(chr(point))]
    ranges: list[list[int]] = []
    for point in points:
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    spelled = (rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)
    return f"[{''.join(spelled)}]"


def _begins(points: tf.RaggedTensor) -> tf.Tensor:
    """Which characters a text begins with; bool `(characters,)`."""
    starts = points.row_starts()
    size = tf.size(points.flat_values, tf.int64)
    return tf.scatter_nd(starts[:, tf.newaxis], tf.ones_like(starts), [size + 1])[:-1] > 0


def _idle_spaces(points: tf.RaggedTensor, begins: tf.Tensor, is_space: tf.Tensor) -> tf.Tensor:
    """White space at the ends of texts, and all of a run but the first; bool `(characters,)`."""
    before = begins | tf.concat([[True], is_space[:-1]], axis=0)
    seen = tf.concat([[0], tf.cumsum(tf.cast(~is_space, tf.int32))], axis=0)
    text_end = tf.gather(points.row_limits(), points.value_rowids())
    nothing_follows = tf.gather(seen, text_end) == seen[1:]
    return is_space & (before | nothing_follows)


def _second_quotes(points: tf.Tensor, begins: tf.Tensor) -> tf.Tensor:
    """The second character of each pair that becomes a quotation mark; bool `(characters,)`."""
    seconds = tf.zeros_like(begins)
    index = tf.range(tf.size(points))
    for quote in _QUOTES:
        is_quote = points == ord(quote)
        first = is_quote & (begins | ~tf.concat([[False], is_quote[:-1]], axis=0))
        run = tf.maximum(tf.cumsum(tf.cast(first, tf.int32)) - 1, 0)
        run_begin = tf.gather(tf.concat([tf.boolean_mask(index, first), [0]], axis=0), run)
        seconds |= is_quote & ((index - run_begin) % 2 == 1)
    return seconds
