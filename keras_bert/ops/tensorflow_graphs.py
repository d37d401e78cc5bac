# SPDX-License-Identifier: Apache-2.0
"""Functions on TensorFlow that have one graph for all calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_bert.ops.tensorflow_plain import is_compiled_as_a_whole


def _known_spec(x: Any) -> Any:
    """Returns the dtype of a tensor and its shape, as far as the graph that is traced knows it."""
    return None if x is None else tf.TensorSpec(x.shape, x.dtype)


def trace_once(
    function: Callable[..., Any],
    *,
    spec: Callable[[Any], Any] = _known_spec,
    jit_compile: bool = False,
    inline: bool = False,
) -> Callable[..., Any]:
    """Makes one graph of a function, which all graphs call that are traced with it.

    Args:
        function: A function of tensors, or `None`, in any nesting. It is traced once for each
            structure, for the specs of its arguments, and for graphs that XLA compiles as a whole.
        spec: Returns the `tf.TensorSpec` of an argument.
        jit_compile: Whether XLA compiles the function, at the first call with each shape.
        inline: Whether TensorFlow replaces the calls by the operations before it optimizes a graph.
            Without, a graph with many calls is optimized in a fraction of the time.
    """
    new_graph = functools.partial(
        tf.function,
        function,
        jit_compile=jit_compile,
        autograph=False,
        experimental_attributes=None if inline or jit_compile else {"_noinline": True},
    )
    # One for all would not know the dimensions in which calls differ.
    graphs: dict[str, Any] = {}

    def call(*arguments: Any) -> Any:
        specs = tf.nest.map_structure(spec, arguments)
        kind = f"{specs} {is_compiled_as_a_whole()}"
        if kind not in graphs:
            graphs.setdefault(kind, new_graph())  # another thread may have been faster
        return graphs[kind].get_concrete_function(*specs)(*arguments)

    return call
