# SPDX-License-Identifier: Apache-2.0
"""Functions of tensors that are traced once, whoever calls them and with however many rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a graph of a function, which eager calls and all pipelines share.

    Tracing the text operations takes longer than a thousand texts. `tf.function` alone would trace
    them again for another number of rows, and would log a warning about retracing from the fifth
    object on, because it counts the traces of all objects of a class together. The function is
    traced once for each structure, dtype and rank of its arguments, without autograph.
    """
    graph = tf.function(function, autograph=False)

    def call(*arguments: Any) -> Any:
        specs = tf.nest.map_structure(_spec_of_any_rows, arguments)
        return graph.get_concrete_function(*specs)(*arguments)

    return call


def _spec_of_any_rows(value: Any) -> tf.TypeSpec | None:
    """Returns the type of a tensor without the size of its first dimension."""
    if value is None:
        return None
    shape = value.shape
    if shape.rank:
        shape = [None, *shape[1:]]
    if isinstance(value, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, value.dtype, value.ragged_rank, value.row_splits.dtype)
    return tf.TensorSpec(shape, value.dtype)
