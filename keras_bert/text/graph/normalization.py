# SPDX-License-Identifier: Apache-2.0
"""BERT's text normalization as TensorFlow operations, with the same result as in Python.

`FastWordpieceTokenizer` then splits at whitespace, punctuation and CJK ideographs, like the
original BERT code.

Reference:
    [Devlin et al., 2019](https://arxiv.org/abs/1810.04805), original code, `BasicTokenizer`.
"""

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text.characters import (
    DECOMPOSED_MARKS,
    IDEOGRAPHS,
    IDEOGRAPHS_AS_LETTERS,
    PRIVATE_PLANES,
    combining_classes,
    combining_marks,
    decompose,
)
from keras_bert.text.composition import MAX_MARKS
from keras_bert.text.graph.rows import row_ids
from keras_bert.text.normalization import Normalization
from keras_bert.vocabularies.tokenizer_config import MAX_WORD_LENGTH

# The replacement character, and categories Cc and Cf except for tab, newline and carriage return
_DROPPED = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\p{Cf}\x{fffd}]"
_ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"
# Characters outside of words, approximately: CJK ideographs and most punctuation
_BETWEEN_WORDS = (
    rf"\x00-\x20{_ASCII_PUNCTUATION}\p{{Z}}\x{{3000}}-\x{{3003}}\x{{3008}}-\x{{3011}}"
    rf"\x{{ff01}}-\x{{ff0f}}{IDEOGRAPHS}"
)
_NONCHARACTERS = [
    *range(0xFDD0, 0xFDF0),
    *(plane + last for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF)),
]
_MAX_POINT, _NUM_CLASSES = 0x10FFFF, 256
# Uppercase letters added in Unicode 14: (characters, distance to the lowercase letter).
# TensorFlow's version of ICU is older and does not lowercase them.
_NEW_CAPITALS = (
    (r"\x{2c2f}", 48),
    (r"\x{a7c0}\x{a7d0}\x{a7d6}\x{a7d8}", 1),
    (r"\x{10570}-\x{1057a}\x{1057c}-\x{1058a}\x{1058c}-\x{10592}\x{10594}-\x{10595}", 39),
)
# Punctuation added in Unicode 13 and 14. TF Text in older servers does not split at it.
_NEW_PUNCTUATION = (
    r"\x{61d}\x{1b7d}\x{1b7e}\x{2e52}-\x{2e5d}\x{10ead}\x{10f86}-\x{10f89}\x{1145a}\x{116b9}"
    r"\x{11944}-\x{11946}\x{12ff1}\x{12ff2}"
)
# Valid UTF-8 (without surrogates) that does not contain these letters and punctuation marks
_USUAL = "".join(
    (r"[^\x{d800}-\x{dfff}", _NEW_PUNCTUATION, *(letters for letters, _ in _NEW_CAPITALS), "]*")
)


def normalize(
    text: tf.Tensor, rules: Normalization, max_word_length: int = MAX_WORD_LENGTH
) -> tuple[tf.Tensor, tf.Tensor]:
    """Drops control characters and, depending on the rules, case and accents.

    Invalid UTF-8 is dropped. Also returns whether a text may have an overlong word, a bool scalar.
    It can be true without overlong words.
    """
    # Printable ASCII text without long words only needs lowercasing of A-Z. Most English text
    # matches and skips the full normalization.
    plain_text = rf"(?:[!-~]{{0,{max_word_length}}}[ \t\r\n])*[!-~]{{0,{max_word_length}}}"
    # This is a coarse filter. Exact lengths are computed later.
    maybe_long = rf"(?s).*[^{_BETWEEN_WORDS}]{{{max_word_length + 1}}}.*"
    rows = tf.where(~tf.strings.regex_full_match(text, plain_text))
    slow = normalize_slow_path(tf.gather(text, rows[:, 0]), rules)
    plain = tf.strings.lower(text) if rules.lowercase else text
    return (
        tf.tensor_scatter_nd_update(plain, rows, slow),
        tf.reduce_any(tf.strings.regex_full_match(slow, maybe_long)),
    )


def normalize_slow_path(text: tf.Tensor, rules: Normalization) -> tf.Tensor:
    """Normalizes texts like `normalize`, but without the shortcut for plain ASCII text."""
    # This check is ten times faster than decoding all characters.
    is_usual = tf.reduce_all(tf.strings.regex_full_match(text, _USUAL))
    text = tf.cond(is_usual, lambda: text, lambda: _set_apart(drop_invalid(text)))
    text = tf.strings.regex_replace(text, _DROPPED, "")
    if rules.lowercase:
        text = _lower(text)
        text = tf.cond(is_usual, lambda: text, lambda: _shift(text, _NEW_CAPITALS))
    if rules.strip_accents:
        text = normalize_unicode(text, "NFD")
        text = tf.strings.regex_replace(text, r"\p{Mn}", "")
    if rules.split_ideographs:
        return text
    characters, replacement = PRIVATE_PLANES
    text = tf.strings.regex_replace(text, f"[{characters}]", replacement)
    return _shift(text, IDEOGRAPHS_AS_LETTERS)


def normalize_unicode(text: tf.Tensor, form: str) -> tf.Tensor:
    """Returns NFC, NFD or NFKD of texts in linear time. See `composition.normalize_form`."""
    has_long_runs = rf"(?s).*[{combining_marks()}]{{{MAX_MARKS + 1}}}.*"
    text = tf.cond(
        tf.reduce_any(tf.strings.regex_full_match(text, has_long_runs)),
        lambda: _canonical_order(text),
        lambda: text,
    )
    return tf_text.normalize_utf8(text, form)


def _canonical_order(text: tf.Tensor) -> tf.Tensor:
    """Sorts each run of combining marks by their combining class."""
    for mark in DECOMPOSED_MARKS:
        text = tf.strings.regex_replace(text, mark, decompose(mark))
    points = tf.strings.unicode_decode(text, "UTF-8")
    rows = combining_classes()
    lasts = tf.constant([row.last for row in rows] + [_MAX_POINT])
    row = tf.searchsorted(lasts, points.flat_values)
    is_mark = points.flat_values >= tf.gather([row.first for row in rows] + [_MAX_POINT + 1], row)
    mark_class = tf.where(is_mark, tf.gather([row.combining_class for row in rows] + [0], row), 0)
    # Each character except for marks starts a run, and so does each text.
    run = tf.cumsum(tf.cast(~is_mark, tf.int32)) + tf.cast(row_ids(points), tf.int32)
    key = tf.cast(run, tf.int64) * _NUM_CLASSES + tf.cast(mark_class, tf.int64)
    order = tf.argsort(key, stable=True)
    sorted_points = points.with_flat_values(tf.gather(points.flat_values, order))
    return encode_texts(sorted_points)


def drop_invalid(text: tf.Tensor) -> tf.Tensor:
    """Drops invalid UTF-8 bytes."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="ignore")


def encode_characters(points: tf.Tensor) -> tf.Tensor:
    """Encodes code points `(characters,)` as UTF-8 strings of the same shape.

    In TensorFlow Serving up to 2.19, `tf.strings.unicode_encode` replaces noncharacters with
    U+FFFD.
    """
    row = tf.minimum(tf.searchsorted(_NONCHARACTERS, points), len(_NONCHARACTERS) - 1)
    return tf.where(
        points == tf.gather(_NONCHARACTERS, row),
        tf.gather([chr(point).encode() for point in _NONCHARACTERS], row),
        tf.strings.unicode_encode(points[:, tf.newaxis], "UTF-8"),
    )


def encode_texts(points: tf.RaggedTensor) -> tf.Tensor:
    """Encodes code points `(texts, None)` as UTF-8 strings `(texts,)`. Keeps noncharacters."""
    flat = points.flat_values
    is_noncharacter = (flat % 0x10000 >= 0xFFFE) | ((flat >= 0xFDD0) & (flat <= 0xFDEF))
    return tf.cond(
        tf.reduce_any(is_noncharacter),
        lambda: tf.strings.reduce_join(points.with_flat_values(encode_characters(flat)), axis=1),
        lambda: tf.strings.unicode_encode(points, "UTF-8"),
    )


def lower(text: tf.Tensor) -> tf.Tensor:
    """Lowercases texts in valid UTF-8, with the same result as `str.lower`."""
    is_usual = tf.reduce_all(tf.strings.regex_full_match(text, _USUAL))
    text = _lower(text)
    return tf.cond(is_usual, lambda: text, lambda: _shift(text, _NEW_CAPITALS))


def _lower(text: tf.Tensor) -> tf.Tensor:
    # ASCII is lowercased first. With encoding="utf-8", "I" becomes "ı" in a Turkish locale.
    return tf.strings.lower(tf.strings.lower(text), encoding="utf-8")


def _set_apart(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(text, f"([{_NEW_PUNCTUATION}])", r" \1 ")


def _shift(text: tf.Tensor, shifts: Sequence[tuple[str, int]]) -> tf.Tensor:
    """Adds a number to the code points of the characters in each class."""
    points = tf.strings.unicode_decode(text, "UTF-8")
    letters = encode_characters(points.flat_values)
    shift = tf.zeros_like(points.flat_values)
    for characters, distance in shifts:
        is_shifted = tf.strings.regex_full_match(letters, f"[{characters}]")
        shift += distance * tf.cast(is_shifted, tf.int32)
    return encode_texts(points.with_flat_values(points.flat_values + shift))
