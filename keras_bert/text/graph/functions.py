# SPDX-License-Identifier: Apache-2.0
"""Functions of texts that are traced once, whoever calls them and with however many texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def function_of_texts(function: Callable[[tf.Tensor], Any]) -> Callable[[tf.Tensor], Any]:
    """Makes a graph of a function of strings `(texts,)`, for eager calls and all pipelines.

    Tracing the text operations takes longer than a thousand texts. `tf.function` alone would trace
    them again for another number of texts, and would log a warning about retracing from the fifth
    object on, because it counts the traces of all objects of a class together.
    """
    graph = tf.function(function, autograph=False)
    spec = tf.TensorSpec([None], tf.string)
    return lambda texts: graph.get_concrete_function(spec)(texts)
