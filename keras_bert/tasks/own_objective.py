# SPDX-License-Identifier: Apache-2.0
"""What objectives have in common whose losses and metrics are their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from keras import ops

from keras_bert.metrics import ElementMean

_CHOICES = ("loss_weights", "metrics", "weighted_metrics")


class OwnObjective:
    """A mixin for tasks that compute their losses and metrics themselves."""

    sums_losses_of_outputs = False
    _means: dict[str, ElementMean]

    def _report(self, names: Iterable[str]) -> None:
        """Makes the means that are reported under these names."""
        self._means = {name: ElementMean(name=name) for name in names}

    def _loss_parts(self) -> Mapping[str, float]:
        """Which of the means the loss is the sum of, and the coefficient of each."""
        raise NotImplementedError

    def get_metrics_result(self) -> dict[str, Any]:
        """All metrics. The loss is that of all that was seen, whatever the batches."""
        logs: dict[str, Any] = super().get_metrics_result()  # type: ignore[misc]
        parts = [weight * logs[name] for name, weight in self._loss_parts().items()]
        return {**logs, "loss": sum(parts)}

    def _reported(self, seen: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
        """Adds values, each with its weights, to the means; returns all metrics."""
        for name, (values, weights) in seen.items():
            self._means[name].update_state(values, weights)
        return self.get_metrics_result()

    def compile(self, optimizer: Any = None, loss: Any = None, **kwargs: Any) -> None:
        """`keras.Model.compile` with defaults. The losses and metrics are the objective's own.

        Args:
            optimizer: `None` takes `keras_bert.optimizers.AdamW`, at a learning rate of 2e-5 for
                classifiers and 1e-4 for pre-training.
            loss: Must be `None`.
            **kwargs: As in Keras.

        Raises:
            ValueError: If a loss or metrics are given.
        """
        choices = {"loss": loss, **{name: kwargs.get(name) for name in _CHOICES}}
        given = [name for name, value in choices.items() if value is not None]
        if given:
            raise ValueError(
                f"{', '.join(given)} cannot be chosen: the losses and metrics of a "
                f"{type(self).__name__} are its own, and the weights between its losses are "
                "arguments of the class."
            )
        super().compile(optimizer, **kwargs)  # type: ignore[misc]

    def _default_loss(self) -> None:
        return None

    def _default_metrics(self) -> None:
        return None


def slot_targets(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
    """The original ids of masked tokens and their weights, int32 and float32 `(batch, slots)`.

    Args:
        x: Features with `mask_positions`.
        y: The ids, or a dict of `masked_lm_logits`, as `Pretrainer` takes them.
        sample_weight: The same; `None` leaves out the slots at position 0.
    """
    ids, weights = (
        part["masked_lm_logits"] if isinstance(part, Mapping) else part
        for part in (y, sample_weight)
    )
    if weights is None:
        weights = ops.not_equal(x["mask_positions"], 0)
    return ops.cast(ids, "int32"), ops.cast(weights, "float32")


def token_weights(x: Any, slot_weights: Any) -> Any:
    """What each token weighs: as much as the heaviest slot of its row, and padding nothing.

    Args:
        x: Features.
        slot_weights: `(batch, slots)`.

    Returns:
        float32 `(batch, length)`.
    """
    of_rows = ops.max(slot_weights, axis=1, keepdims=True)
    mask = x.get("padding_mask")
    mask = x.get("sequence_ids") if mask is None else mask
    mask = ops.ones_like(x["token_ids"]) if mask is None else mask
    return of_rows * ops.cast(ops.not_equal(ops.cast(mask, "int32"), 0), "float32")
