# SPDX-License-Identifier: Apache-2.0
"""Keras' steps on TensorFlow, with a prediction graph for batches of any shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bert.ops.backend_steps import BackendSteps


class TensorFlowSteps(BackendSteps):
    """Traces prediction once for batches of any shape."""

    def predict_function(self, model: Any) -> Any:
        """Returns the function for `model.predict_function`, one graph for batches of any shape.

        Keras' function would be traced again for a second shape. This takes as long as dozens of
        batches. After five traces in all models together, TensorFlow would log warnings. The input
        shapes of a `TokenModel` define which dimensions are unknown in the graph. Since the graph
        cannot check them, the shape of each input is checked before the call.
        """
        keras.Model.make_predict_function(model, force=True)
        function = model.predict_function
        if not hasattr(function, "get_concrete_function"):  # It runs eagerly.
            return function

        def spec(structure: Any, name: str = "token_ids") -> Any:
            if isinstance(structure, (tuple, list)):
                return type(structure)(spec(item) for item in structure)
            if isinstance(structure, Mapping):
                return {name: spec(value, name) for name, value in structure.items()}
            model.check_shape(name, structure.shape)
            shape = model.input[name].shape if name in model.input else structure.shape
            return tf.TensorSpec(shape, structure.dtype)

        def call(batches: Any) -> Any:
            arrays = tf.nest.flatten(batches)
            if not all(isinstance(array, (np.ndarray, tf.Tensor)) for array in arrays):
                return function(batches)  # Values of multiple replicas
            return function.get_concrete_function(spec(batches))(batches)

        return call
