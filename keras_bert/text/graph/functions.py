# SPDX-License-Identifier: Apache-2.0
"""Traces functions of texts only once, for any caller and number of texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def function_of_texts(function: Callable[[tf.Tensor], Any]) -> Callable[[tf.Tensor], Any]:
    """Traces a function of strings `(texts,)` once, for eager calls and all pipelines.

    Tracing the text operations takes longer than processing a thousand texts. A plain `tf.function`
    would trace them again for a different number of texts. It would also log a warning about
    retracing for the fifth object of the same class, because it counts the traces of all objects
    together.
    """
    graph = tf.function(function, autograph=False)
    spec = tf.TensorSpec([None], tf.string)
    return lambda texts: graph.get_concrete_function(spec)(texts)
