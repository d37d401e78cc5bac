# SPDX-License-Identifier: Apache-2.0
"""Splits raw text into words with TensorFlow operations."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text.graph.normalization import drop_invalid
from keras_bert.text.graph.rows import characters_before, row_ids
from keras_bert.text.words import WordUnit, word_patterns


def words_with_offsets(
    text: tf.Tensor, unit: WordUnit = "words"
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Splits texts `(texts,)` in UTF-8 into words. See `keras_bert.text.words.split_words`.

    Returns:
        A tuple of the words (strings), the offset of each word's first character (int32), and the
        offset after each word's last character (int32). All are ragged `(texts, None)`. Offsets
        count the Unicode code points of the text, without invalid bytes.

    Example:

    >>> import tensorflow as tf
    >>> words, starts, ends = words_with_offsets(tf.constant(["Ann (U.S.) smiles."]))
    >>> [word.decode() for word in words.to_list()[0]]
    ['Ann', '(', 'U.S.', ')', 'smiles', '.']
    >>> starts.to_list()
    [[0, 4, 5, 9, 11, 17]]
    """
    word, gap = word_patterns(lambda category: rf"\p{{{category}}}", unit)
    with tf.device("CPU:0"):
        # The operation stops at NUL.
        text = tf.strings.regex_replace(drop_invalid(text), r"\x00", " ")
        words, starts, ends = tf_text.regex_split_with_offsets(
            text, f"{word}|{gap}", keep_delim_regex_pattern=word
        )
        in_characters = characters_before(text)
        text_starts = tf.cumsum(tf.strings.length(text), exclusive=True)
        offsets = tf.gather(text_starts, row_ids(words))
        begin = tf.gather(in_characters, offsets)

        def characters(byte_offsets: tf.RaggedTensor) -> tf.RaggedTensor:
            character_offsets = tf.gather(
                in_characters, offsets + tf.cast(byte_offsets.flat_values, tf.int32)
            )
            return byte_offsets.with_flat_values(character_offsets - begin)

        return words, characters(starts), characters(ends)
