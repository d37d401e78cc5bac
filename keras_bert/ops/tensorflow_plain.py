# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's own operations, in the order that its CPU kernels and graph optimiser like best.

These go into exported graphs, so nothing here asks for XLA.
"""

from __future__ import annotations

import math

import tensorflow as tf

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention_mask import masked_score


def attention(query_key_value: Tensor, mask: Tensor) -> Tensor:
    """`keras_bert.ops.attention` without dropout, by batched products."""
    query, key, value = split_heads(query_key_value)
    context = tf.matmul(attention_probabilities(query, key, mask), value)
    return tf.transpose(context, (0, 2, 1, 3))


def split_heads(query_key_value: Tensor) -> Tensor:
    """One transposition instead of three slices with one each.

    Args:
        query_key_value: `(batch, length, 3, heads, head_dim)`.

    Returns:
        Query, key and value, each `(batch, heads, length, head_dim)`.
    """
    return tf.unstack(tf.transpose(query_key_value, (2, 0, 3, 1, 4)))


def attention_probabilities(query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
    """The softmax of the scaled and masked scores, `(batch, heads, length, source)`."""
    # In this order the graph optimiser makes one kernel of product, scale and mask.
    scores = tf.matmul(query, key, transpose_b=True)
    scores *= tf.constant(1 / math.sqrt(query.shape[-1]), scores.dtype)
    if mask is not None:
        masked = tf.constant(masked_score(scores.dtype.name), scores.dtype)
        scores += tf.cast(tf.logical_not(mask), scores.dtype) * masked
    return tf.nn.softmax(scores)


def tokens_at(x: Tensor, positions: Tensor) -> Tensor:
    """`keras_bert.ops.tokens_at`, a vector at a time where Keras' own goes by single numbers."""
    return tf.gather(x, positions, batch_dims=1)


def token_logits(x: Tensor, table: Tensor) -> Tensor:
    """`keras_bert.ops.token_logits`, whose gradient has the table's layout as it is computed."""
    rows = tf.reshape(x, (-1, x.shape[-1]))
    logits = tf.matmul(rows, table, transpose_b=True)
    return tf.reshape(logits, tf.concat([tf.shape(x)[:-1], tf.shape(logits)[-1:]], 0))


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """`keras_bert.ops.layer_norm` in fewer passes over the data than Keras' own."""
    wide = tf.float64 if x.dtype == tf.float64 else tf.float32
    centred = tf.cast(x, wide)
    centred -= tf.reduce_mean(centred, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
    normal = centred * tf.math.rsqrt(variance + tf.constant(epsilon, wide))
    return tf.cast(normal * tf.cast(gamma, wide) + tf.cast(beta, wide), x.dtype)
