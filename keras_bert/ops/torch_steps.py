# SPDX-License-Identifier: Apache-2.0
"""Keras' training step on PyTorch, compiled in one piece from the inputs to the loss.

With `jit_compile=True`, Keras passes its whole step to `torch.compile`. Because `torch.compile`
cannot trace `loss.backward()`, it traces everything before the backward pass twice, and traces it
again in the second step, when weights have gradients. For BERT-base, this takes minutes. The
backward pass is compiled with the forward pass anyway, and the optimizer's kernels are already
fused.
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import torch

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.backend_steps import BackendSteps


class TorchSteps(BackendSteps):
    """Compiles the training step from the inputs to the loss."""

    def train_function(self, model: Any) -> Any:
        """Returns the function for `model.train_function`, or `None` to use Keras'.

        Keras' function is used if the model is not compiled by PyTorch, overrides `train_step`, or
        has no trainable weights.
        """
        has_own_step = type(model).train_step is not keras.Model.train_step
        if not model.jit_compile or has_own_step or not model.trainable_weights:
            return None
        if model.steps_per_execution > 1:
            return None  # Keras raises an error.
        # PyTorch makes a dozen nested calls to trace a call, and models may contain models.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 4000))

        @torch.compile
        def loss_and_outputs(x: Any, y: Any, sample_weight: Any) -> tuple[Tensor, Any]:
            outputs = model(x, training=True)
            loss = model._compute_loss(
                x=x, y=y, y_pred=outputs, sample_weight=sample_weight, training=True
            )
            return loss, outputs

        def step(data: Any) -> dict[str, Any]:
            """Trains on a batch, as `TorchTrainer.train_step` does."""
            # `train_on_batch` passes arrays, and PyTorch cannot trace their checks.
            x, y, sample_weight = keras.tree.map_structure(
                lambda value: None if value is None else keras.ops.convert_to_tensor(value),
                keras.utils.unpack_x_y_sample_weight(data[0]),
            )
            model.zero_grad()
            loss, outputs = loss_and_outputs(x, y, sample_weight)
            num_rows = next(array for array in keras.tree.flatten(x) if array is not None).shape[0]
            model._loss_tracker.update_state(loss, sample_weight=num_rows)
            model.optimizer.scale_loss(loss).backward()
            weights = model.trainable_weights
            with torch.no_grad():
                model.optimizer.apply([weight.value.grad for weight in weights], weights)
            metrics: dict[str, Any] = model.compute_metrics(x, y, outputs, sample_weight)
            return metrics

        return step
