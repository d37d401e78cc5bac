# SPDX-License-Identifier: Apache-2.0
"""Keras' steps on TensorFlow: a graph of prediction for batches of any size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def predict_function(model: Any) -> Any:
    """Returns what `model.predict_function` is to be: one graph for batches of any size.

    Keras' function would be traced again for a second size, which takes as long as dozens of
    batches, and from the fifth time on, in all models together, TensorFlow would log warnings about
    it.

    Args:
        model: A `TokenModel`: the shapes of its inputs tell which dimensions have any size. It
            checks the shape of each input, which is unknown in the graph.
    """
    keras.Model.make_predict_function(model, force=True)
    function = model.predict_function
    if not hasattr(function, "get_concrete_function"):  # it runs eagerly
        return function

    def spec(part: Any, name: str = "token_ids") -> Any:
        if isinstance(part, (tuple, list)):
            return type(part)(spec(item) for item in part)
        if isinstance(part, Mapping):
            return {name: spec(value, name) for name, value in part.items()}
        model.check_shape(name, part.shape)
        shape = model.input[name].shape if name in model.input else part.shape
        return tf.TensorSpec(shape, part.dtype)

    def call(batches: Any) -> Any:
        arrays = tf.nest.flatten(batches)
        if not all(isinstance(array, (np.ndarray, tf.Tensor)) for array in arrays):
            return function(batches)  # values of several replicas
        return function.get_concrete_function(spec(batches))(batches)

    return call
