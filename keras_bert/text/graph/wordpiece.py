# SPDX-License-Identifier: Apache-2.0
"""WordPiece as TensorFlow operations."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text.graph.normalization import drop_invalid, normalize
from keras_bert.text.graph.offsets import Pieces, to_source_characters
from keras_bert.text.graph.rows import characters_before, row_ids, select
from keras_bert.text.graph.special_tokens import replace_matches, to_unmarked_characters
from keras_bert.text.graph.tokenizer import GraphTokenizer
from keras_bert.text.normalization import Normalization
from keras_bert.text.special_tokens import SUFFIX, TokenMarks

# TF Text limits the number of bytes in a word, not characters, so its limit is disabled.
_NO_LIMIT = 2**30


class WordPieceGraph(GraphTokenizer):
    """The graph operations of a `WordPieceTokenizer`. The arguments are its attributes."""

    def __init__(
        self,
        vocabulary: Sequence[str],
        special_token_ids: Sequence[int],
        unknown_id: int,
        matched_vocabulary: Sequence[str],
        rules: Normalization,
        token_marks: TokenMarks | None,
        max_word_length: int,
    ) -> None:
        super().__init__(special_token_ids)
        self._rules = rules
        self._token_marks = token_marks
        self._max_word_length = max_word_length
        self._find_pieces = PieceFinder(matched_vocabulary, unknown_id, max_word_length)
        with tf.init_scope(), tf.device("CPU:0"):
            self._tokens = tf.constant(list(vocabulary))

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        _, marked_texts = self._mark(texts) if self._token_marks else (texts, texts)
        finder_inputs = normalize(marked_texts, self._rules, self._max_word_length)
        return self._find_pieces(*finder_inputs).ids

    def _mark(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns texts with borders around special and added tokens, and with their marks."""
        texts = drop_invalid(texts)
        marks = self._token_marks
        if marks is None:
            return texts, texts
        bordered_texts = replace_matches(texts, marks.until_borders)
        return bordered_texts, replace_matches(bordered_texts, marks.from_borders)

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        marks = self._token_marks
        bordered_texts, marked_texts = self._mark(texts)
        finder_inputs = normalize(marked_texts, self._rules, self._max_word_length)
        pieces = self._find_pieces(*finder_inputs)
        pieces = to_source_characters(marked_texts, self._rules, pieces)
        if marks is None:
            return pieces
        return to_unmarked_characters(bordered_texts, marked_texts, pieces, marks)

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Joins words and punctuation with spaces, and subwords without spaces."""
        tokens = ids.with_flat_values(tf.gather(self._tokens, ids.flat_values))
        text = tf.strings.reduce_join(tokens, axis=1, separator=" ")
        return tf.strings.regex_replace(text, f" {SUFFIX}", "")


class PieceFinder:
    """Splits normalized texts into subwords, greedily with the longest match first.

    `tokens` are the strings to match, in the order of their ids.

    Reference:
        [Song et al., 2021](https://arxiv.org/abs/2012.15524), the search algorithm.
    """

    def __init__(self, tokens: Sequence[str], unknown_id: int, max_word_length: int) -> None:
        self._max_word_length = max_word_length
        # Constants created while a graph is traced could only be used in that graph.
        with tf.init_scope(), tf.device("CPU:0"):
            self._search = tf_text.FastWordpieceTokenizer(
                list(tokens),
                suffix_indicator=SUFFIX,
                max_bytes_per_word=_NO_LIMIT,
                token_out_type=tf.int32,
                unknown_token=tokens[unknown_id],
            )
            self._is_suffix = tf.constant([token.startswith(SUFFIX) for token in tokens])
        self._unknown_id = unknown_id

    def __call__(self, normalized_texts: tf.Tensor, may_have_long_words: tf.Tensor) -> Pieces:
        """Splits the texts from `normalize` into `Pieces`. Offsets are in bytes of these texts."""
        pieces = Pieces(*self._search.tokenize_with_offsets(normalized_texts))
        row_splits, ids, starts, ends = tf.cond(
            may_have_long_words,
            lambda: self._forget_long_words(normalized_texts, pieces),
            lambda: (pieces.ids.row_splits, *(part.flat_values for part in pieces)),
        )
        return Pieces.from_rows(row_splits, ids, starts, ends)

    def _forget_long_words(
        self, normalized_texts: tf.Tensor, pieces: Pieces
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Replaces overlong words with the unknown token."""
        ids, starts, ends = (values.flat_values for values in pieces)
        continues = tf.gather(self._is_suffix, ids)
        word = tf.cumsum(tf.cast(~continues, tf.int32)) - 1
        num_words = tf.reduce_sum(tf.cast(~continues, tf.int32))
        lengths = _lengths_in_characters(normalized_texts, pieces)
        is_long = tf.gather(tf.math.segment_sum(lengths, word) > self._max_word_length, word)
        word_ends = tf.gather(tf.math.unsorted_segment_max(ends, word, num_words), word)
        is_kept = ~(is_long & continues)
        num_kept = tf.concat([[0], tf.cumsum(tf.cast(is_kept, tf.int64))], axis=0)
        return (
            tf.gather(num_kept, pieces.ids.row_splits),
            select(tf.where(is_long, self._unknown_id, ids), is_kept),
            select(starts, is_kept),
            select(tf.where(is_long, word_ends, ends), is_kept),
        )


def _lengths_in_characters(normalized_texts: tf.Tensor, pieces: Pieces) -> tf.Tensor:
    """Returns the number of characters in each subword, int32 `(pieces,)`."""
    text_starts = tf.cumsum(tf.cast(tf.strings.length(normalized_texts), tf.int64), exclusive=True)
    before = characters_before(normalized_texts)
    offset = tf.gather(text_starts, row_ids(pieces.ids))
    starts, ends = pieces.starts.flat_values, pieces.ends.flat_values
    return tf.gather(before, offset + ends) - tf.gather(before, offset + starts)
