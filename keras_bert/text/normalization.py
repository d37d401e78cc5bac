# SPDX-License-Identifier: Apache-2.0
"""BERT's text clean-up as TensorFlow operations, equal to the original character by character.

White space, punctuation and CJK ideographs are not touched here: `FastWordpieceTokenizer` splits
there by itself, on the same characters as the original.

Reference:
    [Devlin et al., 2019](https://arxiv.org/abs/1810.04805), released code, `BasicTokenizer`.
"""

import unicodedata

import tensorflow as tf
import tensorflow_text as tf_text

WHITE_SPACE = (
    r"\t\n\x0b\f\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)
"""White space as byte-level BPE and Python's `str.isspace` know it, for character classes."""

MAX_WORD_LENGTH = 200
"""Words of more characters than this are unknown, as in the original."""

# Every word of such a text has at most 200 characters, all ASCII and printable, so that
# lower-casing A-Z is all there is to do. Most English text is like this, and skips the rest.
_PLAIN = rf"(?:[!-~]{{0,{MAX_WORD_LENGTH}}}[ \t\r\n])*[!-~]{{0,{MAX_WORD_LENGTH}}}"
# Categories Cc and Cf but for tab, newline and carriage return; and the replacement character.
_DROPPED = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\p{Cf}\x{fffd}]"
CJK = (
    r"\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}\x{f900}-\x{faff}\x{20000}-\x{2a6df}\x{2a700}-\x{2b73f}"
    r"\x{2b740}-\x{2b81f}\x{2b820}-\x{2ceaf}\x{2f800}-\x{2fa1f}"
)
_ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"
# Only a filter: letters from `CJK` and most punctuation end a word; the rest is counted later.
_MAYBE_LONG_WORD = (
    rf"(?s).*[^\x00-\x20{_ASCII_PUNCTUATION}\p{{Z}}\x{{3000}}-\x{{3003}}\x{{3008}}-\x{{3011}}"
    rf"\x{{ff01}}-\x{{ff0f}}{CJK}]{{{MAX_WORD_LENGTH + 1}}}.*"
)
# Capital letters that Unicode 14 brought: (characters, distance to the small letter). TensorFlow's
# copy of ICU is older and leaves them as they are.
_NEW_CAPITALS = (
    (r"\x{2c2f}", 48),
    (r"\x{a7c0}\x{a7d0}\x{a7d6}\x{a7d8}", 1),
    (r"\x{10570}-\x{1057a}\x{1057c}-\x{1058a}\x{1058c}-\x{10592}\x{10594}-\x{10595}", 39),
)
# Punctuation of Unicode 13 and 14, which the TF Text of older servers does not split at.
_NEW_PUNCTUATION = (
    r"\x{61d}\x{1b7d}\x{1b7e}\x{2e52}-\x{2e5d}\x{10ead}\x{10f86}-\x{10f89}\x{1145a}\x{116b9}"
    r"\x{11944}-\x{11946}\x{12ff1}\x{12ff2}"
)
# Valid UTF-8 (so no surrogates) without those capitals and that punctuation.
_USUAL = "".join(
    (r"[^\x{d800}-\x{dfff}", _NEW_PUNCTUATION, *(letters for letters, _ in _NEW_CAPITALS), "]*")
)


def normalize(text: tf.Tensor, lowercase: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Cleans texts and, for an uncased vocabulary, lowers them and strips their accents.

    Args:
        text: string tensor, `(texts,)`, UTF-8; invalid bytes are dropped.
        lowercase: whether to lower-case and strip accents.

    Returns:
        The normalized texts, string `(texts,)`, and a boolean scalar: whether a word of more than
        200 characters may be among them (no means no).
    """
    rows = tf.where(~tf.strings.regex_full_match(text, _PLAIN))
    intricate = normalize_intricate(tf.gather(text, rows[:, 0]), lowercase)
    plain = tf.strings.lower(text) if lowercase else text
    return (
        tf.tensor_scatter_nd_update(plain, rows, intricate),
        tf.reduce_any(tf.strings.regex_full_match(intricate, _MAYBE_LONG_WORD)),
    )


def normalize_intricate(text: tf.Tensor, lowercase: bool) -> tf.Tensor:
    """Does what `normalize` does, to any text, in full.

    Args:
        text: string tensor, `(texts,)`, UTF-8.
        lowercase: whether to lower-case and strip accents.

    Returns:
        The normalized texts, string `(texts,)`, valid UTF-8.
    """
    # Looking whether they are needed costs a tenth of what decoding all characters does.
    is_usual = tf.reduce_all(tf.strings.regex_full_match(text, _USUAL))
    text = tf.cond(is_usual, lambda: text, lambda: _set_apart(drop_invalid(text)))
    text = tf.strings.regex_replace(text, _DROPPED, "")
    if not lowercase:
        return text
    text = _lower(text)
    text = tf.cond(is_usual, lambda: text, lambda: _lower_new_capitals(text))
    text = tf_text.normalize_utf8(text, "NFD")
    return tf.strings.regex_replace(text, r"\p{Mn}", "")


def drop_invalid(text: tf.Tensor) -> tf.Tensor:
    """Drops the bytes that are no valid UTF-8.

    Args:
        text: string tensor of any shape.

    Returns:
        A string tensor of the same shape.
    """
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="ignore")


def split_words(text: tf.Tensor, lowercase: bool) -> tf.RaggedTensor:
    """Normalizes texts and splits them into the words that WordPiece then cuts in pieces.

    Args:
        text: string tensor, `(texts,)`, UTF-8.
        lowercase: whether to lower-case and strip accents.

    Returns:
        The words, ragged string `(texts, words)`; a punctuation mark or a CJK ideograph is a word.
    """
    text, _ = normalize(text, lowercase)
    alone = rf"([{_ASCII_PUNCTUATION}\p{{P}}{CJK}])"
    text = tf.strings.regex_replace(text, alone, r" \1 ")
    return tf.strings.split(tf.strings.regex_replace(text, r"[\t\r\n\p{Z}]", " "))


def lower(text: tf.Tensor) -> tf.Tensor:
    """Lower-cases valid UTF-8 as Python does.

    Args:
        text: string tensor, `(texts,)`.

    Returns:
        String tensor `(texts,)`.
    """
    is_usual = tf.reduce_all(tf.strings.regex_full_match(text, _USUAL))
    text = _lower(text)
    return tf.cond(is_usual, lambda: text, lambda: _lower_new_capitals(text))


def _lower(text: tf.Tensor) -> tf.Tensor:
    # ASCII first: the UTF-8 form obeys the locale, and a Turkish one turns "I" into a dotless "i".
    return tf.strings.lower(tf.strings.lower(text), encoding="utf-8")


def _set_apart(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(text, f"([{_NEW_PUNCTUATION}])", r" \1 ")


def _lower_new_capitals(text: tf.Tensor) -> tf.Tensor:
    points = tf.strings.unicode_decode(text, "UTF-8")
    letters = tf.strings.unicode_encode(points.flat_values[:, tf.newaxis], "UTF-8")
    shift = tf.zeros_like(points.flat_values)
    for characters, distance in _NEW_CAPITALS:
        is_capital = tf.strings.regex_full_match(letters, f"[{characters}]")
        shift += distance * tf.cast(is_capital, tf.int32)
    return tf.strings.unicode_encode(points.with_flat_values(points.flat_values + shift), "UTF-8")


def without_case(text: str) -> str:
    """The text in lower case and without accents, as an uncased tokenizer reads it."""
    parts = unicodedata.normalize("NFD", text.lower())
    return "".join(part for part in parts if unicodedata.category(part) != "Mn")
