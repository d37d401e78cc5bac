# SPDX-License-Identifier: Apache-2.0
"""TensorFlow operations in the order that suits its CPU kernels and graph optimizer best.

Exported graphs contain them, so they do not require XLA.
"""

from __future__ import annotations

import tensorflow as tf

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.tensorflow_private import GraphOrParentsInXlaContext


def tokens_at(x: Tensor, positions: Tensor) -> Tensor:
    """Implements `keras_bert.ops.tokens_at`. Unlike `take_along_axis`, it gathers whole vectors."""
    return tf.gather(x, tf.cast(positions, tf.int32), batch_dims=1)


def take(table: Tensor, indices: Tensor) -> Tensor:
    """Implements `keras_bert.ops.take` for indices >= 0, in a fifth of Keras' operations."""
    return tf.gather(tf.convert_to_tensor(table), indices)


def length_of(inputs: Tensor) -> Tensor:
    """Implements `reference.length_of`, without operations for the other dimensions."""
    return tf.shape(inputs)[1] if inputs.shape[1] is None else inputs.shape[1]


def is_compiled_as_a_whole() -> bool:
    """Returns whether XLA compiles the graph being traced."""
    return bool(GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def token_logits(x: Tensor, table: Tensor) -> Tensor:
    """Implements `keras_bert.ops.token_logits`, with a gradient in the table's layout."""
    rows = tf.reshape(x, (-1, x.shape[-1]))
    logits = tf.matmul(rows, table, transpose_b=True)
    return tf.reshape(logits, tf.concat([tf.shape(x)[:-1], tf.shape(logits)[-1:]], 0))


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor:
    """Implements `keras_bert.ops.layer_norm` in fewer passes over the data than Keras."""
    dtype = tf.float64 if x.dtype == tf.float64 else tf.float32
    centered = tf.cast(x, dtype)
    centered -= tf.reduce_mean(centered, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centered), -1, keepdims=True)
    normal = (
        centered * tf.math.rsqrt(variance + tf.constant(epsilon, dtype)) * tf.cast(gamma, dtype)
    )
    return tf.cast(normal if beta is None else normal + tf.cast(beta, dtype), x.dtype)
