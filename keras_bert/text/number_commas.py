# SPDX-License-Identifier: Apache-2.0
"""ALBERT's rule for numbers: the comma behind a digit is a piece of its own."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text.pieces import Pieces

_SPACE = "▁"


class NumberCommas:
    """Takes pieces apart that end in a digit and a comma.

    Args:
        vocabulary: The pieces.
        processor: Makes pieces of what is before the comma.
        unknown_id: Id of the piece for what is none.

    Reference:
        [Lan et al., 2020](https://arxiv.org/abs/1909.11942), released code, `encode_pieces`.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        processor: tf_text.SentencepieceTokenizer,
        unknown_id: int,
    ) -> None:
        ids = {piece: index for index, piece in enumerate(vocabulary)}
        with tf.init_scope(), tf.device("CPU:0"):
            split = {
                index: _parts(piece, vocabulary, processor)
                for index, piece in enumerate(vocabulary)
                if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
            }
        parts = [split.get(index, [piece]) for index, piece in enumerate(vocabulary)]
        flat = [part for row in parts for part in row]
        lengths = [len(row) for row in parts]
        with tf.init_scope(), tf.device("CPU:0"):
            self._is_split = tf.constant([index in split for index in range(len(vocabulary))])
            self._ids = tf.RaggedTensor.from_row_lengths(
                tf.constant([ids.get(part, unknown_id) for part in flat], tf.int32),
                tf.constant(lengths, tf.int64),
            )
            self._widths = self._ids.with_values(
                tf.constant([len(part.replace(_SPACE, "").encode()) for part in flat], tf.int64)
            )

    def split_ids(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """The ids of pieces, ragged int32 `(texts, pieces)`, with those taken apart."""
        values, row_splits = tf.cond(
            tf.reduce_any(tf.gather(self._is_split, ids.flat_values)),
            lambda: self._split_flat(ids),
            lambda: (ids.flat_values, ids.row_splits),
        )
        return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)

    def split(self, pieces: Pieces) -> Pieces:
        """The pieces with those taken apart; places are int64 in bytes."""
        parts = tf.gather(self._ids, pieces.ids.flat_values)
        widths = tf.gather(self._widths, pieces.ids.flat_values)
        first = tf.gather(pieces.starts.flat_values, parts.value_rowids())
        last = tf.gather(pieces.ends.flat_values, parts.value_rowids())
        before = tf.cumsum(widths.flat_values, exclusive=True)
        before -= tf.gather(before, tf.gather(parts.row_starts(), parts.value_rowids()))
        starts = tf.minimum(first + before, last)
        is_last = tf.range(tf.size(last, tf.int64)) + 1 == tf.gather(
            parts.row_limits(), parts.value_rowids()
        )
        ends = tf.where(is_last, last, tf.minimum(starts + widths.flat_values, last))
        row_splits = tf.gather(parts.row_splits, pieces.ids.row_splits)
        return Pieces(
            *(
                tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)
                for values in (parts.flat_values, starts, ends)
            )
        )

    def _split_flat(self, ids: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        parts = tf.gather(self._ids, ids.flat_values)
        return parts.flat_values, tf.gather(parts.row_splits, ids.row_splits)


def _parts(
    piece: str, vocabulary: Sequence[str], processor: tf_text.SentencepieceTokenizer
) -> list[str]:
    """What a piece with a comma at its end is taken apart to."""
    number = piece[:-1].replace(_SPACE, "")
    parts = [vocabulary[index] for index in processor.tokenize(number).numpy().tolist()]
    if not piece.startswith(_SPACE) and parts[0].startswith(_SPACE):
        # The model begins every text with a space, which is not before this number.
        parts = [part for part in (parts[0].removeprefix(_SPACE), *parts[1:]) if part]
    return [*parts, ","]
