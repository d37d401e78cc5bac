# SPDX-License-Identifier: Apache-2.0
"""A layer that runs a frozen model."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.gradients import without_gradients

NO_CLONE = (
    "keras.models.clone_model is not supported. It copies a model layer by layer, so layers that "
    "share weights would no longer share them in the copy. Copy the model with its config instead: "
    "`type(model).from_config(model.get_config())`, then `set_weights`."
)


class FrozenModel(keras.layers.Layer):
    """Runs a model in inference mode and without gradients, even while the outer model is trained.

    An inner model inherits the outer model's `training` argument. So calling it with
    `training=False` in the functional graph is not enough.

    The weights keep their `trainable` flags, since the model may be trained elsewhere. The outer
    model must exclude them from its `trainable_variables`.

    Args:
        model: A functional model with a dict of outputs.

    Call arguments:
        inputs: The model's inputs.

    Returns:
        A dict with the model's outputs.
    """

    def __init__(self, model: keras.Model, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.model = model

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError(NO_CLONE)

    def call(self, inputs: Tensor) -> Tensor:
        with without_gradients():
            outputs = self.model(inputs, training=False)
        return {name: ops.stop_gradient(value) for name, value in outputs.items()}

    def compute_output_spec(self, inputs: Tensor) -> Tensor:
        return {
            name: keras.KerasTensor(value.shape, dtype=value.dtype)
            for name, value in self.model.output.items()
        }
