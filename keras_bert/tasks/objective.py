# SPDX-License-Identifier: Apache-2.0
"""Losses and metrics of tasks, averaged over examples or tokens instead of batches."""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.losses import CRFLoss
from keras_bert.metrics import ClassAccuracy, ElementMean, weights_like
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import REAL_ROWS
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.keras_private import LossFunctionWrapper, MetricsList
from keras_bert.tasks.loss_divisors import divide_by_update, read_mean_divisors

# (minimum hidden_dim, learning rate). The rate of MiniLM was measured, and the next is
# interpolated. BASE and LARGE have rates from the BERT paper (2e-5, 3e-5, 5e-5).
_FINE_TUNING_RATES = ((1024, 2e-5), (768, 3e-5), (512, 1e-4), (0, 1.5e-4))


def fine_tuning_rate(hidden_dim: int) -> float:
    """Returns the default peak learning rate for fine-tuning. Small encoders have higher rates.

    | hidden_dim | learning rate | source |
    |---|---|---|
    | below 512 | 1.5e-4 | MiniLM on 100 and 800 examples of three GLUE tasks, and the recipes |
    | 512 to 767 | 1e-4 | not measured |
    | 768 to 1023 | 3e-5 | BERT, appendix A.3, not measured here |
    | 1024 or more | 2e-5 | BERT, appendix A.3, not measured here |

    Args:
        hidden_dim: Hidden dimension of the encoder.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), appendix A.3.

    Example:

    >>> from keras_bert.tasks.objective import fine_tuning_rate
    >>> fine_tuning_rate(384), fine_tuning_rate(768)
    (0.00015, 3e-05)
    """
    return next(rate for least, rate in _FINE_TUNING_RATES if hidden_dim >= least)


# These losses have class IDs as targets. Floats would round the IDs.
_LOSSES_OF_IDS = (keras.losses.SparseCategoricalCrossentropy, CRFLoss)


class OutputLoss:
    """An output's loss, with a sum over examples or tokens and its divisor.

    The sum and the divisor exclude examples and tokens that only fill a batch, whatever the
    reduction is.

    Args:
        loss: A Keras loss. The reduction `"sum"` has no divisor, and `"mean_with_sample_weight"`
            divides by the sum of the weights. All other reductions divide by the number of examples
            or tokens, as in Keras.
        coefficient: Loss weight.
    """

    def __init__(self, loss: keras.losses.Loss, coefficient: float) -> None:
        self.loss = loss
        self.coefficient = coefficient
        self.is_sum = loss.reduction == "sum"
        has_ids = isinstance(loss, _LOSSES_OF_IDS) or getattr(loss, "has_id_targets", False)
        self._target_dtype = None if has_ids else loss.dtype
        self._num_value_axes = getattr(loss, "num_value_axes", -1)
        self._ignored_class = getattr(loss, "ignore_class", None)

    def shape_of_values(self, output: Tensor) -> tuple[Any, ...]:
        """Returns the shape of the loss's values, such as one value for each example or token."""
        shape: tuple[Any, ...] = ops.shape(output)
        return shape[: self._num_value_axes]

    def sum(self, x: Any, target: Any, output: Tensor, weights: Any) -> Any:
        """Computes the weighted sum over a batch, float32."""
        shape = self.shape_of_values(output)
        target = ops.convert_to_tensor(target, dtype=self._target_dtype)
        output = ops.convert_to_tensor(output, dtype=self.loss.dtype)
        values = ops.cast(self.loss.call(target, output), "float32")
        num_axes = len(values.shape)
        if num_axes == 0 and self._count_mask(x, target, shape, weights) is None:
            values = spread_over_rows(values, shape, self.is_sum)
        elif num_axes < len(shape):
            raise ValueError(
                f"The loss {self.loss.name} must return a value for each example or token, because "
                "those that only fill a batch do not count. Received: shape "
                f"{tuple(values.shape)}. Reduce only the last axis, for example with "
                "`keras.ops.mean(values, axis=-1)`."
            )
        for _ in range(num_axes - len(shape)):
            values = ops.mean(values, axis=-1)
        return ops.sum(values if weights is None else values * weights_like(weights, shape))

    def divisor(self, x: Any, target: Any, shape: Sequence[Any], weights: Any) -> Any:
        """Computes a batch's divisor, float32. `shape` is the shape of its examples or tokens."""
        counted = self._count_mask(x, target, shape, weights)
        if self.loss.reduction == "mean_with_sample_weight" and weights is not None:
            weights = weights_like(weights, shape)
            return ops.sum(weights if counted is None else weights * counted)
        return _size(shape) if counted is None else ops.sum(counted)

    def _count_mask(self, x: Any, target: Any, shape: Sequence[Any], weights: Any) -> Any:
        """Returns 1 for examples or tokens that count, otherwise 0, or `None` if all of them count.

        | does not count | marked by |
        |---|---|
        | a padding example | 0 in the feature `REAL_ROWS` |
        | a padding token | a weight of 0 |
        | an example or token without a label | the loss's `ignore_class` |
        """
        mask = x.get(REAL_ROWS) if isinstance(x, Mapping) and len(shape) == 1 else None
        if len(shape) > 1 and weights is not None:
            mask = ops.cast(weights_like(weights, shape) != 0, "float32")
        if self._ignored_class is None:
            return mask
        has_class = ops.cast(ops.reshape(target, shape) != self._ignored_class, "float32")
        return has_class if mask is None else mask * has_class


class Objective:
    """A compiled model's losses, each a mean over all examples or tokens.

    Keras averages the means of batches instead, so its loss depends on the batching.

    Args:
        losses: The loss of each output. A single output is called "".
        means: For each output, the metric that averages its loss for `fit` and `evaluate`.
    """

    def __init__(self, losses: Mapping[str, OutputLoss], means: Mapping[str, ElementMean]) -> None:
        self._losses = losses
        self._means = means

    def loss(self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool) -> Any:
        """Computes the sum of the outputs' losses and updates the mean of each loss."""
        objective = 0
        mean_divisors = read_mean_divisors(x, self._losses) if training else {}
        for name, loss, loss_sum, divisor in self._sums(x, y, y_pred, sample_weight):
            batch_mean = ops.divide_no_nan(ops.stop_gradient(loss_sum), divisor)
            self._means[name].update_state(batch_mean, divisor)
            term = loss_sum
            if not loss.is_sum:
                term = divide_by_update(loss_sum, divisor, mean_divisors.get(name))
            objective = objective + (term if loss.coefficient == 1 else term * loss.coefficient)
        return objective

    def batch_loss(self, y: Any, y_pred: Tensor, sample_weight: Any) -> Any:
        """Computes the sum of the outputs' losses without updating any mean."""
        return sum(
            loss.coefficient * (loss_sum if loss.is_sum else ops.divide_no_nan(loss_sum, divisor))
            for _, loss, loss_sum, divisor in self._sums(None, y, y_pred, sample_weight)
        )

    def divisors(self, x: Any, y: Any, outputs: Any, sample_weight: Any) -> Any:
        """Returns the divisor of each loss in a batch, float32 `(losses,)`.

        `outputs` are symbolic.
        """
        divisors = []
        for name, loss in self._losses.items():
            target, output, weights = select_output(name, y, outputs, sample_weight)
            shape = ops.shape(target)[: len(output.shape) - 1]
            divisors.append(loss.divisor(x, target, shape, weights))
        return ops.stack(divisors)

    def logs(self) -> dict[str, Any]:
        """Returns the total loss since the last reset, and with multiple outputs also each loss."""
        logs, total = {}, 0.0
        for name, loss in self._losses.items():
            mean = self._means[name]
            logs[mean.name] = ops.convert_to_tensor(mean.total) if loss.is_sum else mean.result()
            total = total + loss.coefficient * logs[mean.name]
        return {**(logs if len(logs) > 1 else {}), "loss": total}

    def _sums(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any
    ) -> Iterator[tuple[str, OutputLoss, Tensor, Tensor]]:
        """Yields the name, loss, sum and divisor of each output."""
        for name, loss in self._losses.items():
            target, output, weights = select_output(name, y, y_pred, sample_weight)
            divisor = loss.divisor(x, target, loss.shape_of_values(output), weights)
            yield name, loss, loss.sum(x, target, output, weights), divisor


def select_output(name: str, *parts: Any) -> list[Any]:
    """Returns the part for one output from targets, outputs or sample weights."""
    return [part[name] if isinstance(part, Mapping) else part for part in parts]


def spread_over_rows(value: Any, shape: Sequence[Any], is_sum: bool) -> Any:
    """Spreads a batch's scalar loss over its examples or tokens.

    All of them get the same value, so that their sum or mean is the scalar `v` again. For `n` of
    them:

    - If the loss is a sum, each gets `v / n`, and `n * (v / n) = v`.
    - If the loss is a mean, each gets `v`, and `n * v / n = v`.
    """
    return ops.broadcast_to(value / _size(shape) if is_sum else value, shape)


def _size(shape: Sequence[Any]) -> Any:
    return ops.cast(ops.prod(ops.convert_to_tensor(shape, dtype="int32")), "float32")


def class_loss() -> keras.losses.Loss:
    """Returns the cross-entropy of logits for class IDs.

    The divisor is the sum of the sample weights, not their number, because padding examples and all
    but the first subword of each word have weight 0.
    """
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )


def class_accuracy() -> keras.metrics.Metric:
    """Returns the weighted accuracy of logits for class IDs."""
    return ClassAccuracy(name="accuracy")


def takes_ids(loss: Any) -> bool:
    """Returns whether a loss expects IDs as targets. The default loss, `None`, does."""
    return isinstance(loss, CRFLoss | None) or loss_name(loss).startswith("sparse")


def loss_name(loss: Any) -> str:
    """Returns a Keras loss's normalized name. The loss is a string, function or object."""
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return name.lower().replace("_", "")


class LogDirections(MetricsList):
    """Whether each of a model's logs improves by increasing or by decreasing.

    With `mode="auto"`, Keras' callbacks look up a log's metric by name in a `MetricsList`. There,
    the metrics of models with multiple outputs have different names from their logs, and metrics
    that a model updates itself are missing.
    """

    def __init__(self, model: keras.Model) -> None:
        keras.metrics.Metric.__init__(self, name="log_directions")
        self._model = weakref.ref(model)

    @property
    def metrics(self) -> list[Any]:
        model: Any = self._model()
        compiled = model._compile_metrics
        lists = compiled._flat_weighted_metrics if compiled is not None and compiled.built else ()
        named = [
            (f"{part.output_name}_{metric.name}" if part.output_name else metric.name, metric)
            for part in lists
            if part is not None
            for metric in part.metrics
        ]
        named += [(metric.name, metric) for metric in model._metrics]
        return [
            types.SimpleNamespace(name=name, _direction=metric._direction)
            for name, metric in named
            if hasattr(metric, "_direction")
        ]

    def reset_state(self) -> None:
        pass

    def result(self) -> dict[str, Any]:
        return {}


def computes_in_float16(backbone: Backbone) -> bool:
    policy = backbone.dtype_policy
    return bool(policy.compute_dtype == "float16" and policy.variable_dtype != "float16")


def joined_metrics(metrics: Any, weighted: Any) -> Any:
    """Combines `metrics` and `weighted_metrics` of `compile`, by output if they are dicts."""
    if metrics is None or weighted is None:
        return weighted if metrics is None else metrics
    if isinstance(metrics, Mapping) and isinstance(weighted, Mapping):
        names = dict.fromkeys([*metrics, *weighted])
        return {name: joined_metrics(metrics.get(name), weighted.get(name)) for name in names}
    parts = [part if isinstance(part, (list, tuple)) else [part] for part in (metrics, weighted)]
    if any(isinstance(item, Mapping) for part in parts for item in part):
        raise ValueError(
            "metrics and weighted_metrics must both be dicts by output, or neither. Received: "
            f"{type(metrics).__name__} and {type(weighted).__name__}"
        )
    return [item for part in parts for item in part]


def new_objective(loss: Any, weights: Any, outputs: Mapping[str, ElementMean]) -> Objective | None:
    """Returns the objective for arguments of `compile`, or `None` if Keras must handle them."""
    losses = dict(loss) if isinstance(loss, Mapping) else {"": loss}
    losses = {name: _as_loss(part) for name, part in losses.items() if part is not None}
    coefficients = weights if isinstance(weights, Mapping) else {"": weights}
    if not losses or not set(losses) <= set(outputs) or not set(coefficients) <= {*outputs, ""}:
        return None
    if not all(type(part).__call__ is keras.losses.Loss.__call__ for part in losses.values()):
        return None
    if any(isinstance(value, Sequence) for value in coefficients.values()):
        return None
    shared = coefficients.get("")
    # Keras sums them in this order.
    weighted = {
        name: OutputLoss(
            losses[name],
            float(next((w for w in (coefficients.get(name), shared) if w is not None), 1.0)),
        )
        for name in sorted(losses)
    }
    return Objective(weighted, outputs)


def _as_loss(loss: Any) -> Any:
    """Converts a loss name or function to a Keras loss."""
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    is_function = callable(loss) and not isinstance(loss, keras.losses.Loss)
    name = getattr(loss, "__name__", type(loss).__name__)
    return LossFunctionWrapper(loss, name=name) if is_function else loss


def exclude_variables(variables: list[Any], known: list[Any]) -> list[Any]:
    """Returns the variables without the known variables."""
    # Compare by identity, since == compares the values of variables.
    known_ids = {id(variable) for variable in known}
    return [variable for variable in variables if id(variable) not in known_ids]
