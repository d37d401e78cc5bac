# SPDX-License-Identifier: Apache-2.0
"""Temperature scaling, so that a classifier's probabilities match how often it is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_bert.data.labels import sigmoid, softmax

_MAX_STEPS = 100
_TOLERANCE = 1e-10
# Fraction of the decrease predicted by the gradient that a step must reach
_SUFFICIENT_DECREASE = 1e-4

Array = np.ndarray[Any, Any]
# The loss, its gradient and its Hessian
Derivatives = tuple[float, Array, Array]


@dataclasses.dataclass(frozen=True)
class TemperatureScaling:
    """The calibrated logits `logits / temperature + bias`.

    Args:
        temperature: Above 1 if the probabilities were too confident.
        bias: A number for each class.
    """

    temperature: float
    bias: tuple[float, ...]

    def apply(self, logits: Array) -> Array:
        """Returns calibrated logits, in the dtype of `logits`."""
        scaled = logits.astype("float64") / self.temperature + np.array(self.bias)
        return np.asarray(scaled, logits.dtype)


def fit_temperature(logits: Array, targets: Array, *, multi_label: bool) -> TemperatureScaling:
    """Minimizes the cross-entropy over a temperature, and where it applies, over biases.

    More than two classes only have a temperature, so the predicted class stays the same. Two
    classes also have a bias, as in Platt scaling. With `multi_label`, the labels share the
    temperature, and each label has a bias. A label that all or no examples have keeps the bias 0
    and does not influence the temperature.

    Args:
        logits: Float `(examples, classes)`.
        targets: The probability of each class, usually 0 or 1, `(examples, classes)`.
        multi_label: Whether the classes do not exclude each other.

    Raises:
        ValueError: If no positive and finite temperature minimizes the loss, for example because
            all predictions are right.

    Reference:
        [Guo et al., 2017](https://arxiv.org/abs/1706.04599), section 4.2, the temperature;
        [Platt, 1999](https://www.researchgate.net/publication/2594015), the bias for two classes;
        [Alexandari et al., 2020](https://arxiv.org/abs/1901.06852), a temperature and biases.
    """
    logits, targets = logits.astype("float64"), targets.astype("float64")
    num_classes = logits.shape[1]
    bias = np.zeros(num_classes)
    if num_classes == 2 and not multi_label:
        # The softmax of two logits is the sigmoid of their difference.
        scale, shift = _fit_sigmoid(logits[:, 1:] - logits[:, :1], targets[:, 1:])
        bias = np.array([-0.5, 0.5]) * shift
    elif multi_label:
        varies = targets.min(axis=0, initial=1) < targets.max(axis=0, initial=0)
        scale, bias[varies] = _fit_sigmoid(logits[:, varies], targets[:, varies])
    else:
        scale = _fit_softmax(logits, targets)
    return TemperatureScaling(1 / scale, tuple(bias.tolist()))


def _fit_softmax(logits: Array, targets: Array) -> float:
    """Returns the scale of the logits with the lowest cross-entropy."""
    logits = logits - logits.max(axis=1, keepdims=True)
    of_target = np.sum(targets * logits, axis=1)
    if not (of_target < 0).any():
        raise ValueError(_unbounded(len(logits)))

    def derivatives(parameters: Array) -> Derivatives:
        scaled = parameters[0] * logits
        probabilities = softmax(scaled)
        mean = np.sum(probabilities * logits, axis=1)
        variance = np.sum(probabilities * (logits - mean[:, None]) ** 2, axis=1)
        loss = np.mean(np.logaddexp.reduce(scaled, axis=1) - parameters[0] * of_target)
        gradient, hessian = np.mean(mean - of_target), np.mean(variance)
        return float(loss), np.array([gradient]), np.array([[hessian]])

    return float(_positive_scale(_minimize(derivatives, np.ones(1)), len(logits)))


def _fit_sigmoid(logits: Array, targets: Array) -> tuple[float, Array]:
    """Returns the shared scale and the bias of each column with the lowest binary cross-entropy."""
    lowest = np.where(targets > 0, logits, np.inf).min(axis=0, initial=np.inf)
    highest = np.where(targets < 1, logits, -np.inf).max(axis=0, initial=-np.inf)
    if np.all(highest <= lowest):
        raise ValueError(_unbounded(len(logits)))

    def derivatives(parameters: Array) -> Derivatives:
        scaled = parameters[0] * logits + parameters[1:]
        probabilities = sigmoid(scaled)
        residual, curvature = probabilities - targets, probabilities * (1 - probabilities)
        loss = np.mean(np.sum(np.logaddexp(0, scaled) - targets * scaled, axis=1))
        gradient = np.array([np.sum(residual * logits), *residual.sum(axis=0)]) / len(logits)
        mixed = np.sum(curvature * logits, axis=0)
        hessian = np.diag([np.sum(curvature * logits**2), *curvature.sum(axis=0)])
        hessian[0, 1:] = hessian[1:, 0] = mixed
        return float(loss), gradient, hessian / len(logits)

    start = np.array([1.0, *np.zeros(logits.shape[1])])
    parameters = _minimize(derivatives, start)
    return _positive_scale(parameters, len(logits)), parameters[1:]


def _minimize(derivatives: Callable[[Array], Derivatives], start: Array) -> Array:
    """Minimizes a convex function with Newton's method and a backtracking line search."""
    point = start
    loss, gradient, hessian = derivatives(point)
    for _ in range(_MAX_STEPS):
        if np.abs(gradient).max() < _TOLERANCE:
            break
        # Rounding can make the Hessian of very confident predictions singular.
        step = np.linalg.solve(hessian + 1e-12 * np.eye(len(point)), gradient)
        decrease, size = _SUFFICIENT_DECREASE * float(gradient @ step), 1.0
        while (new := derivatives(point - size * step))[0] > loss - size * decrease:
            size /= 2
            if size < _TOLERANCE:  # The loss cannot decrease in float64.
                return point
        point = point - size * step
        loss, gradient, hessian = new
    return point


def _positive_scale(parameters: Array, num_examples: int) -> float:
    if parameters[0] <= 0:
        raise ValueError(
            "The predictions must be better than chance to calibrate them. Received: "
            f"{num_examples} texts on which the labels of higher scores are not more frequent."
        )
    return float(parameters[0])


def _unbounded(num_examples: int) -> str:
    return (
        "Texts for calibration must include at least one that the model gets wrong, and for two "
        f"classes or multiple labels, texts with and without a label. Received: {num_examples} "
        "texts that the scores separate perfectly. Pass more texts that the model was not trained "
        "on."
    )
