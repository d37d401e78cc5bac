# SPDX-License-Identifier: Apache-2.0
"""From normalized text to word pieces: TF Text's linear-time search, made exact at its edges."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text.normalization import MAX_WORD_LENGTH

SUFFIX = "##"
# TF Text counts a word in bytes, so its own limit is put out of reach.
_NO_LIMIT = 2**30
# TF Text keeps a piece's length in a byte.
_MAX_PIECE_BYTES = 256


class Pieces(NamedTuple):
    """Word pieces and where they lie.

    Args:
        ids: Ragged int32 `(texts, pieces)`.
        starts: Ragged integers, of the same shape; the first byte or character of each piece.
        ends: Ragged integers, of the same shape; one past the last.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class PieceFinder:
    """Finds the pieces of normalized texts: greedily, longest match first.

    Args:
        vocabulary: The tokens; a token's id is its index.
        unknown_id: Id of the token for words that the vocabulary cannot spell.
        typed_as: Tokens that stand in the text as another string, by id.

    Raises:
        ValueError: If a token has more than 256 bytes.

    Reference:
        [Song et al., 2021](https://arxiv.org/abs/2012.15524), the search.
    """

    def __init__(
        self, vocabulary: Sequence[str], unknown_id: int, typed_as: Mapping[int, str]
    ) -> None:
        tokens = [
            typed_as.get(index, _searchable(token, index)) for index, token in enumerate(vocabulary)
        ]
        # Constants made while a graph is being built would belong to that graph alone.
        with tf.init_scope(), tf.device("CPU:0"):
            self._search = tf_text.FastWordpieceTokenizer(
                tokens,
                suffix_indicator=SUFFIX,
                max_bytes_per_word=_NO_LIMIT,
                token_out_type=tf.int32,
                unknown_token=tokens[unknown_id],
            )
            self._is_suffix = tf.constant([token.startswith(SUFFIX) for token in tokens])
        self._unknown_id = unknown_id

    def __call__(self, normalized: tf.Tensor, may_have_long_words: tf.Tensor) -> Pieces:
        """The pieces of texts.

        Args:
            normalized: String tensor `(texts,)`, as `normalize` returns it.
            may_have_long_words: Boolean scalar: whether words can be over 200 characters.

        Returns:
            The pieces, their places counted in bytes of the normalized text.
        """
        pieces = Pieces(*self._search.tokenize_with_offsets(normalized))
        row_splits, ids, starts, ends = tf.cond(
            may_have_long_words,
            lambda: self._forget_long_words(normalized, pieces),
            lambda: (pieces.ids.row_splits, *(part.flat_values for part in pieces)),
        )
        return Pieces(
            *(
                tf.RaggedTensor.from_row_splits(part, row_splits, validate=False)
                for part in (ids, starts, ends)
            )
        )

    def _forget_long_words(
        self, normalized: tf.Tensor, pieces: Pieces
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Makes one unknown piece of each word with more than 200 characters."""
        ids, starts, ends = (part.flat_values for part in pieces)
        continues = tf.gather(self._is_suffix, ids)
        word = tf.cumsum(tf.cast(~continues, tf.int32)) - 1
        num_words = tf.reduce_sum(tf.cast(~continues, tf.int32))
        lengths = _lengths_in_characters(normalized, pieces)
        is_long = tf.gather(tf.math.segment_sum(lengths, word) > MAX_WORD_LENGTH, word)
        word_ends = tf.gather(tf.math.unsorted_segment_max(ends, word, num_words), word)
        kept = pieces.ids.with_flat_values(~(is_long & continues))
        return (
            tf.ragged.boolean_mask(pieces.ids, kept).row_splits,
            tf.boolean_mask(tf.where(is_long, self._unknown_id, ids), kept.flat_values),
            tf.boolean_mask(starts, kept.flat_values),
            tf.boolean_mask(tf.where(is_long, word_ends, ends), kept.flat_values),
        )


def _searchable(token: str, index: int) -> str:
    """The token, or something that no text contains if the original would never match the token.

    TF Text matches tokens before it looks for white space, so that one with a space inside would
    match two words; and "##" alone it takes for a mistake.
    """
    if len(token.encode("utf-8")) > _MAX_PIECE_BYTES:
        raise ValueError(
            f"Token {index} of the vocabulary has {len(token.encode('utf-8'))} bytes: {token!r}; "
            f"at most {_MAX_PIECE_BYTES} are supported."
        )
    unmatched = token == SUFFIX or any(
        character.isspace() or unicodedata.category(character) in ("Cc", "Cf")
        for character in token
    )
    # More than one character and punctuation among them: never a word.
    return f"[unmatched {index}]" if unmatched else token


def _lengths_in_characters(normalized: tf.Tensor, pieces: Pieces) -> tf.Tensor:
    """Characters in each piece, int32, flat."""
    text_starts = tf.cumsum(tf.cast(tf.strings.length(normalized), tf.int64), exclusive=True)
    all_bytes = tf.io.decode_raw(tf.strings.reduce_join(normalized), tf.uint8)
    # UTF-8: every character has exactly one byte that is not 10xxxxxx.
    begins = tf.bitwise.bitwise_and(all_bytes, tf.constant(0xC0, tf.uint8)) != 0x80
    before = tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int32))], axis=0)
    offset = tf.gather(text_starts, pieces.ids.value_rowids())
    starts, ends = pieces.starts.flat_values, pieces.ends.flat_values
    return tf.gather(before, offset + ends) - tf.gather(before, offset + starts)
