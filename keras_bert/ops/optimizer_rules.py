# SPDX-License-Identifier: Apache-2.0
"""The optimizers' update rules in `keras.ops`, and their reference implementation for variables.

`optimizer_updates` has faster implementations for some backends. Tests compare them with this one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor


class Coefficients(NamedTuple):
    """The scalars in an update.

    Attributes:
        rate: Scalar learning rate.
        decay: Scalar weight decay.
        gradient_scale: Scalar factor of the gradient. `None` for 1.
        step: Scalar index of this step, counted from 1, for the bias correction of the moments.
            `None` for no bias correction.
        beta_1: Decay rate of the first moment.
        beta_2: Decay rate of the second moment.
        epsilon: Added to the square root of the second moment.
    """

    rate: Any
    decay: Any
    gradient_scale: Any
    step: Any
    beta_1: float
    beta_2: float
    epsilon: float

    def with_scalars(self, convert: Callable[[Any], Any]) -> Coefficients:
        """Converts the values that may change between steps."""
        names = "rate", "decay", "gradient_scale", "step"
        values = {name: getattr(self, name) for name in names}
        return self._replace(**{k: convert(v) for k, v in values.items() if v is not None})


# (weight, gradient, momentum, velocity, coefficients) -> new (weight, momentum, velocity)
Rule = Callable[[Any, Any, Any, Any, Coefficients], tuple[Any, Any, Any]]


class Update(NamedTuple):
    """The update of one weight, with its rule, gradient, coefficients and three Keras variables.

    The variables `weight`, `momentum` and `velocity` have the same shape.
    """

    rule: Rule
    weight: Any
    gradient: Any
    momentum: Any
    velocity: Any
    coefficients: Coefficients


def adam_update(
    weight: Tensor, gradient: Tensor, momentum: Tensor, velocity: Tensor, coefficients: Coefficients
) -> tuple[Tensor, Tensor, Tensor]:
    """Adam with decoupled weight decay, in float32 or wider.

        m ← m + (1 - β₁) (g - m)            v ← v + (1 - β₂) (g² - v)
        w ← w - rate · (m̂ / (√v̂ + ε) + decay · w)

    Here `g` is the scaled gradient, m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ). If
    `coefficients.step` is `None`, there is no bias correction, so m̂ = m and v̂ = v. All tensors
    have the shape of the weight, and m and v are float32 or wider. The new weight, m and v are
    returned in the dtype of the computation.

    Reference:
        [Decoupled weight decay](https://arxiv.org/abs/1711.05101), algorithm 2;
        [Adam](https://arxiv.org/abs/1412.6980), algorithm 1.
    """
    weight, direction, momentum, velocity = _direction(
        weight, gradient, momentum, velocity, coefficients
    )
    rate = ops.cast(coefficients.rate, weight.dtype)
    return weight - rate * direction, momentum, velocity


def lamb_update(
    weight: Tensor,
    gradient: Tensor,
    momentum: Tensor,
    velocity: Tensor,
    coefficients: Coefficients,
    parts: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """LAMB: `adam_update` with its step scaled by a trust ratio.

        w ← w - rate · ‖w‖ / ‖u‖ · u,    u = m̂ / (√v̂ + ε) + decay · w

    The trust ratio ‖w‖ / ‖u‖ is 1 if either norm is 0. The arguments and results are as in
    `adam_update`. `parts` is the number of equal parts into which the weight's last axis is split.
    Each part has its own trust ratio.

    Reference:
        [LAMB](https://arxiv.org/abs/1904.00962), algorithm 2 with the identity for φ.
    """
    weight, direction, momentum, velocity = _direction(
        weight, gradient, momentum, velocity, coefficients
    )
    # (…, parts · width) -> (rows, parts, width)
    shape = weight.shape
    parts_shape = (-1, parts, math.prod(shape[-1:]) // parts)
    weight, direction = ops.reshape(weight, parts_shape), ops.reshape(direction, parts_shape)
    weight_norm, norm = _norms(weight), _norms(direction)
    both = ops.logical_and(weight_norm > 0, norm > 0)
    ratio = ops.where(both, weight_norm / ops.where(both, norm, 1), 1)
    rate = ops.cast(coefficients.rate, weight.dtype) * ops.cast(ratio, weight.dtype)
    return ops.reshape(weight - rate * direction, shape), momentum, velocity


def _norms(tensor: Tensor) -> Tensor:
    """Computes the norm of each part. Maps `(rows, parts, width)` to `(1, parts, 1)`."""
    return ops.sqrt(ops.sum(ops.square(tensor), axis=(0, 2), keepdims=True))


lamb_update_in_thirds: Rule = functools.partial(lamb_update, parts=3)


def stable_adam_update(
    weight: Tensor, gradient: Tensor, momentum: Tensor, velocity: Tensor, coefficients: Coefficients
) -> tuple[Tensor, Tensor, Tensor]:
    """StableAdamW: `adam_update` with the learning rate of `stable_rate`.

    The arguments and results are as in `adam_update`. The reduced learning rate also multiplies the
    weight decay, as in the paper.

    Reference:
        [Stable and low-precision training](https://arxiv.org/abs/2304.13013), algorithm 2.
    """
    rate = stable_rate(gradient, velocity, coefficients)
    return adam_update(weight, gradient, momentum, velocity, coefficients._replace(rate=rate))


def stable_rate(gradient: Tensor, velocity: Tensor, coefficients: Coefficients) -> Tensor:
    """Reduces a tensor's learning rate if its gradient exceeds its second moment.

        rate / max(1, RMS)    with    RMS = √ mean(g² / max(v̂, ε²))

    Here `g` is the scaled gradient, and v̂ is the second moment that the update computes from it.
    The RMS is 1 if all gradients are as large as before. In the first step it is at most 1, since
    v̂ is g².
    """
    gradient = _scale(gradient, velocity.dtype, coefficients)
    velocity = _moving_average(velocity, ops.square(gradient), coefficients.beta_2)
    # Take the root first, because a small ε squared would be 0 in float32.
    root = ops.sqrt(_correct_bias(velocity, coefficients.beta_2, coefficients.step))
    ratio = gradient / ops.maximum(root, coefficients.epsilon)
    rms = ops.sqrt(ops.mean(ops.square(ratio)))
    return ops.cast(coefficients.rate, velocity.dtype) / ops.maximum(rms, 1)


def _direction(
    weight: Tensor, gradient: Tensor, momentum: Tensor, velocity: Tensor, coefficients: Coefficients
) -> tuple[Any, Any, Any, Any]:
    weight = upcast(weight)
    gradient = _scale(gradient, weight.dtype, coefficients)
    momentum = _moving_average(momentum, gradient, coefficients.beta_1)
    velocity = _moving_average(velocity, ops.square(gradient), coefficients.beta_2)
    direction = _correct_bias(momentum, coefficients.beta_1, coefficients.step) / (
        ops.sqrt(_correct_bias(velocity, coefficients.beta_2, coefficients.step))
        + coefficients.epsilon
    )
    direction = direction + ops.cast(coefficients.decay, weight.dtype) * weight
    return weight, direction, momentum, velocity


def _scale(gradient: Tensor, dtype: Any, coefficients: Coefficients) -> Any:
    gradient = ops.cast(gradient, dtype)
    if coefficients.gradient_scale is None:
        return gradient
    return gradient * ops.cast(coefficients.gradient_scale, dtype)


def _moving_average(moment: Tensor, value: Tensor, beta: float) -> Any:
    """Returns a moving average, updated with a new value."""
    return moment + (value - moment) * (1 - beta)


def _correct_bias(moment: Tensor, beta: float, step: Tensor) -> Tensor:
    if step is None or not beta:
        return moment
    # `expm1` computes 1 - beta^step. In float32, 1 - 0.999 has a relative error of 1.3e-5.
    return moment / -ops.expm1(ops.cast(step, moment.dtype) * math.log(beta))


def upcast(tensor: Tensor) -> Tensor:
    """Casts a tensor to float32 unless its dtype is wider."""
    return ops.cast(tensor, keras.backend.result_type(tensor.dtype, "float32"))


def reference_global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Reference implementation of `global_norm`. Tests compare faster versions with it."""
    return ops.sqrt(sum(ops.sum(ops.square(gradient)) for gradient in gradients))


def reference_update_variables(updates: Iterable[Update]) -> None:
    """Reference implementation of `update_variables`. Tests compare faster versions with it."""
    for update in updates:
        weight, momentum, velocity = update.rule(
            update.weight.value,
            update.gradient,
            update.momentum.value,
            update.velocity.value,
            update.coefficients,
        )
        update.weight.assign(weight)
        update.momentum.assign(momentum)
        update.velocity.assign(velocity)
