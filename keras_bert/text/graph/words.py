# SPDX-License-Identifier: Apache-2.0
"""Splitting of raw text into words, like those of data sets for tagging."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text.graph.normalization import CJK, drop_invalid

# A character that a word can begin with, and one that can follow it: also accents and the
# zero-width joiners of Persian or Hindi.
_FIRST = rf"[^\s\p{{Z}}\p{{P}}\p{{S}}\p{{Cc}}\p{{Cf}}{CJK}]"
_LETTER = rf"[^\s\p{{Z}}\p{{P}}\p{{S}}\p{{Cc}}{CJK}]"
_WORD = "|".join(
    (
        r"https?://[^\s\p{Z}]+",
        r"(?:\p{L}\.){2,}",  # U.S.
        r"\p{N}+(?:[.,:/]\p{N}+)+",  # 3,000.5 and 12:30
        rf"[@#]?{_FIRST}{_LETTER}*(?:[-.'’&/:@_+]{_FIRST}{_LETTER}*)*",  # o'clock, AT&T, #tag
        rf"[{CJK}]",
        r"\.{2,}|-{2,}",
        r"[\p{So}\p{Sk}][\p{So}\p{Sk}\p{M}\p{Cf}]*",  # emoji
        r"[\p{P}\p{S}]",
    )
)
_BETWEEN = r"[\s\p{Z}\p{Cc}\p{Cf}\p{M}]+"


def words_with_offsets(
    text: tf.Tensor,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Splits texts into words, with graph operations.

    Punctuation marks and CJK ideographs are words of their own, except inside words (`AT&T`,
    `o'clock`, `12:30`, `U.S.`) and URLs, and at the start of `@name` and `#tag`.

    Args:
        text: String tensor `(texts,)`, UTF-8.

    Returns:
        A tuple of the words, strings; the offset of the first character of each, int32; and the
        offset one past its last character, int32. All are ragged `(texts, None)`. Offsets count
        the Unicode code points of the text, without invalid bytes.

    Example:

    >>> import tensorflow as tf
    >>> words, starts, ends = words_with_offsets(tf.constant(["Ann (U.S.) smiles."]))
    >>> [word.decode() for word in words.to_list()[0]]
    ['Ann', '(', 'U.S.', ')', 'smiles', '.']
    >>> starts.to_list()
    [[0, 4, 5, 9, 11, 17]]
    """
    with tf.device("CPU:0"):
        # The operation treats NUL as the end of the text.
        text = tf.strings.regex_replace(drop_invalid(text), r"\x00", " ")
        words, starts, ends = tf_text.regex_split_with_offsets(
            text, rf"{_WORD}|{_BETWEEN}", keep_delim_regex_pattern=_WORD
        )
        in_characters = _character_counts(text)
        text_starts = tf.cumsum(tf.strings.length(text), exclusive=True)
        offsets = tf.gather(text_starts, words.value_rowids())
        begin = tf.gather(in_characters, offsets)

        def characters(byte_offsets: tf.RaggedTensor) -> tf.RaggedTensor:
            found = tf.gather(in_characters, offsets + tf.cast(byte_offsets.flat_values, tf.int32))
            return byte_offsets.with_flat_values(found - begin)

        return words, characters(starts), characters(ends)


def _character_counts(text: tf.Tensor) -> tf.Tensor:
    """Counts the characters before each byte of the concatenated texts, int32 `(bytes + 1,)`."""
    all_bytes = tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8)
    # UTF-8: every character has exactly one byte that is not 10xxxxxx.
    begins = tf.bitwise.bitwise_and(all_bytes, tf.constant(0xC0, tf.uint8)) != 0x80
    return tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int32))], axis=0)
