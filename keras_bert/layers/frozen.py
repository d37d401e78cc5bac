# SPDX-License-Identifier: Apache-2.0
"""A frozen model inside another one."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor

NO_CLONE = (
    "keras.models.clone_model copies a model layer by layer, so that the copies would no longer "
    "share weights that the originals share. Copy the model by its config: "
    "`type(model).from_config(model.get_config())`, then `set_weights`."
)


class FrozenModel(keras.layers.Layer):
    """Runs a model in inference mode, without gradients, while the model around it is trained.

    (A model that is a layer of another one takes over that one's `training`, so `training=False`
    where the graph is made is not enough.)

    Args:
        model: A functional model whose outputs are a dict; all of it is frozen.

    Call arguments:
        inputs: The model's inputs.

    Returns:
        Its outputs.
    """

    def __init__(self, model: keras.Model, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        model.trainable = False
        self.model = model
        self.trainable = False

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError(NO_CLONE)

    def call(self, inputs: Tensor) -> Tensor:
        outputs = self.model(inputs, training=False)
        return {name: ops.stop_gradient(value) for name, value in outputs.items()}

    def compute_output_spec(self, inputs: Tensor) -> Tensor:
        return {
            name: keras.KerasTensor(value.shape, dtype=value.dtype)
            for name, value in self.model.output.items()
        }
