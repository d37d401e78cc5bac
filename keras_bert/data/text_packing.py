# SPDX-License-Identifier: Apache-2.0
"""One text or two in a row, with the special tokens of their family around them."""

from __future__ import annotations

import tensorflow as tf

from keras_bert.data.batching import pad_to_length
from keras_bert.text.tokenizer import Tokenizer


def num_special_tokens(tokenizer: Tokenizer, num_texts: int = 1) -> int:
    """How many special tokens a row of one text has, or of two."""
    return 2 + (num_texts - 1) * tokenizer.pair_separators


def pack_texts(
    tokenizer: Tokenizer, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None
) -> dict[str, tf.RaggedTensor]:
    """`[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]` with as many separators as the family has.

    Args:
        tokenizer: Whose special tokens and segments they get.
        first: Ids of the first texts, ragged int32 `(batch, None)`.
        second: Ids of the second ones.

    Returns:
        Ragged `token_ids` and `segment_ids` (1 for the second text and its separator, in families
        that tell segments apart), int32 `(batch, None)`.
    """
    start, end = (
        tf.fill([first.nrows(), 1], tf.constant(token_id, tf.int32))
        for token_id in (tokenizer.cls_token_id, tokenizer.sep_token_id)
    )
    segment_a = tf.concat([start, first, end], axis=1)
    if second is None:
        return {"token_ids": segment_a, "segment_ids": tf.zeros_like(segment_a)}
    segment_b = tf.concat([second, end], axis=1)
    between = [end] * (tokenizer.pair_separators - 1)
    segment_a = tf.concat([segment_a, *between], axis=1)
    of_b = tf.ones_like(segment_b) if tokenizer.num_segments > 1 else tf.zeros_like(segment_b)
    return {
        "token_ids": tf.concat([segment_a, segment_b], axis=1),
        "segment_ids": tf.concat([tf.zeros_like(segment_a), of_b], axis=1),
    }


def start_of_second(tokenizer: Tokenizer, first: tf.RaggedTensor) -> tf.Tensor:
    """The position of the first token of each second text in rows of `pack_texts`.

    Not to be read from the segments, of which some families have one.

    Args:
        tokenizer: As for `pack_texts`.
        first: Ids of the first texts, ragged `(batch, None)`.

    Returns:
        int64 `(batch,)`.
    """
    return 1 + first.row_lengths() + tokenizer.pair_separators


def surround_second(
    tokenizer: Tokenizer, first: tf.RaggedTensor, values: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Values of second texts, with zeros at the places of all else in rows of `pack_texts`.

    Args:
        tokenizer: As for `pack_texts`.
        first: Ids of the first texts, ragged `(batch, None)`.
        values: A value for each token of the second ones, ragged `(batch, None)`.

    Returns:
        Ragged `(batch, None)`, of the rows' lengths.
    """
    lengths = start_of_second(tokenizer, first)
    zeros = tf.zeros([tf.reduce_sum(lengths)], values.dtype)
    before = tf.RaggedTensor.from_row_lengths(zeros, lengths, validate=False)
    return tf.concat([before, values, tf.zeros([values.nrows(), 1], values.dtype)], axis=1)


def padded(
    tokenizer: Tokenizer, features: dict[str, tf.RaggedTensor], shortest: int
) -> dict[str, tf.Tensor]:
    """Dense features with the length of the longest row, and their `padding_mask`.

    Args:
        tokenizer: Whose padding fills rows up.
        features: Ragged `(batch, None)` or `(batch, None, None)`, with `token_ids` among them.
        shortest: The least length: the model of an empty batch still looks at column 0.
    """
    token_ids = features["token_ids"]
    lengths = token_ids if token_ids.ragged_rank == 1 else token_ids.values
    longest = tf.reduce_max(tf.concat([lengths.row_lengths(), [shortest]], axis=0))
    return pad_to_length(features, longest, tokenizer.pad_token_id)
