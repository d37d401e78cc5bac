# SPDX-License-Identifier: Apache-2.0
"""Functions of texts that are only traced once, for any caller and number of texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def function_of_texts(function: Callable[[tf.Tensor], Any]) -> Callable[[tf.Tensor], Any]:
    """Makes a graph of a function of strings `(texts,)`, for eager calls and all pipelines.

    Tracing the text operations takes longer than processing a thousand texts. A plain `tf.function`
    would trace them again for a different number of texts. From the fifth object of a class, it
    would also log a warning about retracing, because it counts the traces of all objects together.
    """
    graph = tf.function(function, autograph=False)
    spec = tf.TensorSpec([None], tf.string)
    return lambda texts: graph.get_concrete_function(spec)(texts)
