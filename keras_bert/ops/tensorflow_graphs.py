# SPDX-License-Identifier: Apache-2.0
"""Traces TensorFlow functions once for all calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_bert.ops.tensorflow_plain import is_compiled_as_a_whole


def _known_spec(x: Any) -> Any:
    """Returns a tensor's dtype and shape, as far as it is known while tracing."""
    return None if x is None else tf.TensorSpec(x.shape, x.dtype)


def trace_once(
    function: Callable[..., Any],
    *,
    spec: Callable[[Any], Any] = _known_spec,
    jit_compile: bool = False,
    inline: bool = False,
) -> Callable[..., Any]:
    """Wraps a function so that all graphs calling it share a single trace.

    Args:
        function: Function of tensors or `None`, in any nesting. It is traced once per combination
            of nesting structure and specs. Graphs that XLA compiles as a whole use a separate
            trace.
        spec: Function that returns an argument's `tf.TensorSpec`.
        jit_compile: Whether XLA compiles the function, in the first call with each shape.
        inline: Whether TensorFlow replaces calls by the function's operations before it optimizes a
            graph. Without inlining, optimizing a graph with many calls is much faster.
    """
    new_graph = functools.partial(
        tf.function,
        function,
        jit_compile=jit_compile,
        autograph=False,
        experimental_attributes=None if inline or jit_compile else {"_noinline": True},
    )
    # A single `tf.function` would generalize dimensions that differ between calls.
    graphs: dict[str, Any] = {}

    def call(*arguments: Any) -> Any:
        specs = tf.nest.map_structure(spec, arguments)
        kind = f"{specs} {is_compiled_as_a_whole()}"
        if kind not in graphs:
            graphs.setdefault(kind, new_graph())  # Another thread may have added it.
        return graphs[kind].get_concrete_function(*specs)(*arguments)

    return call
