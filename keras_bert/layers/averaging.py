# SPDX-License-Identifier: Apache-2.0
"""A layer that averages the outputs of multiple models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.frozen import NO_CLONE
from keras_bert.ops.annotations import Tensor


class AveragedModels(keras.layers.Layer):
    """Runs multiple models on the same inputs in inference mode and averages their outputs.

    Args:
        models: Functional models with the same inputs. Their outputs must have the same shapes and
            dtypes. The layer's outputs also have these shapes and dtypes.
        average: Function from a list of all models' outputs to the outputs of this layer.
        columns: For each model, indices that bring the last axis of its outputs into the order of
            the first model. `None` for models that already have this order.
    """

    def __init__(
        self,
        models: Sequence[keras.Model],
        average: Callable[[list[Any]], Any],
        columns: Sequence[Sequence[int] | None],
        **kwargs: Any,
    ) -> None:
        # Model outputs are float32, whatever the compute dtype is.
        super().__init__(dtype="float32", **kwargs)
        self.models = list(models)
        self.average = average
        self.columns = list(columns)

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError(NO_CLONE)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """An empty list, because the models' metrics belong to their own training."""
        return []

    def call(self, inputs: Tensor) -> Tensor:
        outputs = [
            output if columns is None else ops.take(output, columns, axis=-1)
            for output, columns in zip(
                (model(inputs, training=False) for model in self.models), self.columns, strict=True
            )
        ]
        return self.average(outputs)

    def compute_output_spec(self, inputs: Tensor) -> Tensor:
        return keras.tree.map_structure(
            lambda output: keras.KerasTensor(output.shape, dtype=output.dtype),
            self.models[0].output,
        )


def mean_of_values(outputs: Sequence[Any]) -> Any:
    """Averages tensors, or dicts of tensors, elementwise."""
    return keras.tree.map_structure(lambda *values: ops.mean(ops.stack(values), axis=0), *outputs)


def mean_of_probabilities(logits: Sequence[Any]) -> Any:
    """Returns logits whose softmax is the mean of the models' probabilities.

    They are the logarithms of the mean probabilities. They are finite even if all probabilities
    underflow. The shape is `(..., classes)`, as for each model.
    """
    return _log_of_mean([ops.log_softmax(part, axis=-1) for part in logits])


def mean_of_independent_probabilities(logits: Sequence[Any]) -> Any:
    """Returns finite logits `(..., classes)` whose sigmoid is the mean of the models' sigmoids."""
    is_label, is_none = (
        _log_of_mean([ops.log_sigmoid(sign * part) for part in logits]) for sign in (1, -1)
    )
    return is_label - is_none


def _log_of_mean(logarithms: Sequence[Any]) -> Any:
    """Averages numbers, given their logarithms, and returns the mean's logarithm."""
    logarithms = ops.stack(logarithms)
    largest = ops.amax(logarithms, axis=0)
    return largest + ops.log(ops.mean(ops.exp(logarithms - largest), axis=0))
