# SPDX-License-Identifier: Apache-2.0
"""Splits texts as byte-level BPE does before it merges: into words, each with the space before it.

Reference:
    [Radford et al., 2019](https://d4mucfpksywv.cloudfront.net/better-language-models/language_models_are_unsupervised_multitask_learners.pdf),
    released code: a regular expression with a look ahead, which TensorFlow's cannot have.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

WHITE_SPACE = (
    r"\t\n\x0b\f\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)
_OTHER, _LETTER, _NUMBER, _SPACE = range(4)
_BLANK, _APOSTROPHE = ord(" "), ord("'")
# Endings that are words of their own behind an apostrophe that begins one
_ONE_LETTER_ENDINGS = ("s", "t", "m", "d")
_TWO_LETTER_ENDINGS = ("re", "ve", "ll")


class ByteWords(NamedTuple):
    """The words of texts, and the characters that they are made of.

    Args:
        words: Ragged strings `(texts, words)`; joined, they are the text.
        character_bytes: int32 `(characters,)`, how many bytes each character of all texts has.
        character_splits: int64 `(texts + 1,)`, where each text's characters begin.
    """

    words: tf.RaggedTensor
    character_bytes: tf.Tensor
    character_splits: tf.Tensor


def split_byte_words(text: tf.Tensor) -> ByteWords:
    """Splits texts into words of letters, of numbers, of white space and of anything else.

    The space before a word is its first character. More white space than one space is a word
    too, without the space that the next word takes. Endings like `'s` are words.

    Args:
        text: String tensor `(texts,)`, valid UTF-8.
    """
    points = tf.strings.unicode_decode(text, "UTF-8")
    distinct, which = tf.unique(points.flat_values)
    letters = tf.strings.unicode_encode(distinct[:, tf.newaxis], "UTF-8")
    kinds = tf.gather(_kinds(letters), which)
    starts = _word_starts(points.flat_values, kinds, points.row_starts())
    word_starts = tf.concat([tf.where(starts)[:, 0], points.row_splits[-1:]], axis=0)
    words = tf.RaggedTensor.from_row_splits(points.flat_values, word_starts, validate=False)
    row_splits = tf.searchsorted(word_starts, points.row_splits, out_type=tf.int64)
    return ByteWords(
        tf.RaggedTensor.from_row_splits(
            tf.strings.unicode_encode(words, "UTF-8"), row_splits, validate=False
        ),
        tf.gather(tf.strings.length(letters), which),
        points.row_splits,
    )


def _kinds(letters: tf.Tensor) -> tf.Tensor:
    """What each character is; int32 of the strings' shape."""
    kinds = tf.zeros_like(letters, tf.int32)
    for kind, pattern in (
        (_LETTER, r"\p{L}"),
        (_NUMBER, r"\p{N}"),
        (_SPACE, f"[{WHITE_SPACE}]"),
    ):
        kinds += kind * tf.cast(tf.strings.regex_full_match(letters, pattern), tf.int32)
    return kinds


def _word_starts(points: tf.Tensor, kinds: tf.Tensor, text_starts: tf.Tensor) -> tf.Tensor:
    """Where words begin; bool `(characters,)`.

    Args:
        points: int32 `(characters,)` of all texts.
        kinds: Their kinds.
        text_starts: int64 `(texts,)`, where each text begins; a text without characters begins
            where the next one does.
    """
    size = tf.size(points, tf.int64)
    begins = tf.scatter_nd(text_starts[:, tf.newaxis], tf.ones_like(text_starts), [size + 1]) > 0
    begins = begins[:-1]
    before = tf.concat([[_OTHER], kinds[:-1]], axis=0)
    ends = _ahead(begins, 1, True)
    is_space = kinds == _SPACE
    changes = begins | (kinds != before)
    # The last white space in front of a word belongs to no run
    is_last = is_space & ~ends & (_ahead(kinds, 1, _SPACE) != _SPACE)
    joins_next = is_last & (points == _BLANK)
    joined = _behind(joins_next, False)
    starts = (changes & ~joined) | is_last
    # === Endings ===
    ending = starts & (points == _APOSTROPHE)
    one = ending & _spells(points, ends, _ONE_LETTER_ENDINGS)
    two = ending & _spells(points, ends, _TWO_LETTER_ENDINGS)
    inside = _behind(one, False) | _behind(two, False) | _behind(two, False, 2)
    behind = _behind(one, False, 2) | _behind(two, False, 3)
    return (starts & ~inside) | behind


def _spells(points: tf.Tensor, ends: tf.Tensor, endings: tuple[str, ...]) -> tf.Tensor:
    """Whether the characters behind each one, of the same text, are one of the endings."""
    found = tf.zeros_like(ends)
    for ending in endings:
        same = tf.ones_like(ends)
        for distance, letter in enumerate(ending, 1):
            same &= ~_ahead(ends, distance - 1, True)
            same &= _ahead(points, distance, 0) == ord(letter)
        found |= same
    return found


def _ahead(values: tf.Tensor, distance: int, filler: object) -> tf.Tensor:
    """The values so many places further on."""
    return tf.concat([values[distance:], tf.fill([distance], filler)], axis=0)[: tf.size(values)]


def _behind(values: tf.Tensor, filler: object, distance: int = 1) -> tf.Tensor:
    """The values so many places before."""
    return tf.concat([tf.fill([distance], filler), values], axis=0)[: tf.size(values)]
