# SPDX-License-Identifier: Apache-2.0
"""Base class for tasks that compute their own loss, and targets for masked tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from keras import ops

from keras_bert.metrics import ElementMean
from keras_bert.ops.annotations import Tensor
from keras_bert.tasks.compiled_model import CompiledModel
from keras_bert.tasks.loss_divisors import divide_by_update, read_mean_divisors
from keras_bert.tasks.objective import select_output


class CustomObjective(CompiledModel):
    """Base class of tasks that compute their own loss, a weighted sum of means."""

    _means: dict[str, ElementMean]

    def _outputs_with_losses(self) -> Iterable[str]:
        return ()

    def _report(self, names: Iterable[str]) -> None:
        """Creates a reported metric for each name."""
        self._means = {name: ElementMean(name=name) for name in names}
        for name, mean in self._means.items():
            mean._direction = "down" if name in self._loss_parts() else "up"

    def _loss_parts(self) -> Mapping[str, float]:
        """Returns the weight of each loss in the sum, by name."""
        raise NotImplementedError

    def _loss_targets(self, x: Any, y: Any, sample_weight: Any) -> tuple[Any, Mapping[str, Any]]:
        """Returns the targets, and the weights of the values in each part of the loss."""
        raise NotImplementedError

    def _values(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any
    ) -> Mapping[str, tuple[Any, Any]]:
        """Returns each reported metric's values in a batch, and their weights."""
        raise NotImplementedError

    def _has_loss_divisors(self) -> bool:
        return True

    def _loss_divisors(self, x: Any, y: Any, sample_weight: Any) -> Any:
        sample_weight = self._weighted_by_class(y, sample_weight)
        weights = self._loss_targets(x, y, sample_weight)[1]
        return ops.stack([ops.sum(weights[name]) for name in self._loss_parts()])

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Tensor = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Computes the weighted sum of the losses."""
        if training:
            sample_weight = self._weighted_by_class(y, sample_weight)
        values, parts = self._values(x, y, y_pred, sample_weight), self._loss_parts()
        mean_divisors = read_mean_divisors(x, parts) if training else {}
        total = 0
        for name in filter(values.__contains__, parts):
            value, weights = values[name]
            mean = divide_by_update(
                ops.sum(value * weights), ops.sum(weights), mean_divisors.get(name)
            )
            total = total + parts[name] * mean
        return self._add_layer_losses(total, x)

    def compute_metrics(
        self, x: Tensor, y: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Any]:
        """Updates the unweighted losses and the metrics, and returns all results."""
        for name, seen in self._values(x, y, y_pred, sample_weight).items():
            self._means[name].update_state(*seen)
        return self.get_metrics_result()

    def get_metrics_result(self) -> dict[str, Any]:
        """Returns all metrics by name, including the mean loss since the last reset."""
        logs: dict[str, Any] = super().get_metrics_result()
        parts = [weight * logs[name] for name, weight in self._loss_parts().items()]
        return {**logs, "loss": sum(parts, self._layer_losses.result())}

    def _check_loss(self, loss: Any, **others: Any) -> None:
        given = {"loss": loss, **others}
        arguments = [name for name, value in given.items() if value is not None]
        if arguments:
            raise ValueError(
                f"A {type(self).__name__} has its own losses and metrics. Received: "
                f"{', '.join(arguments)}. Pass loss weights to the class."
            )

    def _default_loss(self) -> None:
        return None

    def _default_metrics(self) -> None:
        return None


def slot_targets(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Returns the IDs and weights of masked tokens, int32 and float32 `(batch, slots)`.

    Targets and weights may be dicts, as in `Pretrainer`. Without weights, position 0 is unused and
    has weight 0.
    """
    ids, weights = select_output("masked_lm_logits", y, sample_weight)
    if weights is None:
        weights = ops.not_equal(x["mask_positions"], 0)
    return ops.cast(ids, "int32"), ops.cast(weights, "float32")


def token_weights(x: Any, slot_weights: Any) -> Any:
    """Returns the weight of each token: its example's highest slot weight, or 0 for padding."""
    row_weights = ops.amax(slot_weights, axis=1, keepdims=True)
    mask = x.get("padding_mask")
    mask = x.get("sequence_ids") if mask is None else mask
    mask = ops.ones_like(x["token_ids"]) if mask is None else mask
    return row_weights * ops.cast(ops.not_equal(ops.cast(mask, "int32"), 0), "float32")
