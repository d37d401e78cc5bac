# SPDX-License-Identifier: Apache-2.0
"""The mean of the outputs of several models, as a layer of another model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.frozen import NO_CLONE
from keras_bert.ops.annotations import Tensor


class AveragedModels(keras.layers.Layer):
    """Runs several models on the same inputs in inference mode, and averages their outputs.

    Args:
        models: Functional models with the same inputs, and outputs of the same shapes and dtypes,
            which the outputs of this layer have too.
        average: Computes them from a list of the outputs of all models.
        columns: For each model, the last axis of its outputs in the order of the first model's;
            `None` for models that have this order.
    """

    def __init__(
        self,
        models: Sequence[keras.Model],
        average: Callable[[list[Any]], Any],
        columns: Sequence[Sequence[int] | None],
        **kwargs: Any,
    ) -> None:
        # The outputs of models are float32, whatever they compute in.
        super().__init__(dtype="float32", **kwargs)
        self.models = list(models)
        self.average = average
        self.columns = list(columns)

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError(NO_CLONE)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """None: the models' metrics belong to their own training."""
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
    """Returns the mean of tensors, or of each tensor of dicts."""
    return keras.tree.map_structure(lambda *values: ops.mean(ops.stack(values), axis=0), *outputs)


def mean_of_probabilities(logits: Sequence[Any]) -> Any:
    """Returns the logarithms of mean probabilities, which are logits: their softmax is the mean.

    They are finite also where all probabilities underflow: `(..., classes)`, as those of each
    model.
    """
    return _log_of_mean([ops.log_softmax(part, axis=-1) for part in logits])


def mean_of_independent_probabilities(logits: Sequence[Any]) -> Any:
    """Returns finite logits `(..., classes)`, of which the sigmoid is the mean of the models'."""
    is_label, is_none = (
        _log_of_mean([ops.log_sigmoid(sign * part) for part in logits]) for sign in (1, -1)
    )
    return is_label - is_none


def _log_of_mean(logarithms: Sequence[Any]) -> Any:
    """Returns the logarithm of the mean of numbers of which logarithms are given."""
    logarithms = ops.stack(logarithms)
    largest = ops.amax(logarithms, axis=0)
    return largest + ops.log(ops.mean(ops.exp(logarithms - largest), axis=0))
