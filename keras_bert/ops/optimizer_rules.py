# SPDX-License-Identifier: Apache-2.0
"""The rules of the optimizers, in `keras.ops`, and their portable execution on variables.

`optimizer_updates` has each backend's fastest way, which tests compare with this.
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
    """The scalars of an update.

    Attributes:
        rate: The learning rate, a scalar.
        decay: The weight decay, a scalar.
        gradient_scale: The factor of the gradient, a scalar; `None` for 1.
        step: The number of this update, counted from 1, a scalar; `None` leaves the moments'
            bias uncorrected.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Added to the square root of the second moment.
    """

    rate: Any
    decay: Any
    gradient_scale: Any
    step: Any
    beta_1: float
    beta_2: float
    epsilon: float


# (weight, gradient, momentum, velocity, coefficients) -> new (weight, momentum, velocity)
Rule = Callable[[Any, Any, Any, Any, Coefficients], tuple[Any, Any, Any]]


class Update(NamedTuple):
    """The update of one weight: its rule, its gradient, and three Keras variables of one shape."""

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

    where `g` is the scaled gradient, and m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ), or m and v
    themselves where `coefficients.step` is `None`.

    Args:
        weight: Any shape, any float dtype.
        gradient: As `weight`.
        momentum: As `weight`, float32 or wider: m of the last step.
        velocity: As `momentum`: v of the last step.
        coefficients: Scalars.

    Returns:
        New weight, momentum and velocity, in the dtype of the computation.

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
    """`adam_update` with its step scaled to the norm of the weight.

        w ← w - rate · ‖w‖ / ‖u‖ · u,    u = m̂ / (√v̂ + ε) + decay · w

    with 1 for the ratio where either norm is 0. Arguments and results as for `adam_update`, and
    `parts`: the number of equal parts of the weight's last axis, each of which has its own norms.

    Reference:
        [LAMB](https://arxiv.org/abs/1904.00962), algorithm 2 with the identity for φ.
    """
    weight, direction, momentum, velocity = _direction(
        weight, gradient, momentum, velocity, coefficients
    )
    # (…, parts · width) -> (rows, parts, width)
    shape = weight.shape
    apart = (-1, parts, math.prod(shape[-1:]) // parts)
    weight, direction = ops.reshape(weight, apart), ops.reshape(direction, apart)
    weight_norm, norm = _norms(weight), _norms(direction)
    both = ops.logical_and(weight_norm > 0, norm > 0)
    ratio = ops.where(both, weight_norm / ops.where(both, norm, 1), 1)
    rate = ops.cast(coefficients.rate, weight.dtype) * ops.cast(ratio, weight.dtype)
    return ops.reshape(weight - rate * direction, shape), momentum, velocity


def _norms(apart: Tensor) -> Tensor:
    """Of `(rows, parts, width)` the norm of each part, `(1, parts, 1)`."""
    return ops.sqrt(ops.sum(ops.square(apart), axis=(0, 2), keepdims=True))


lamb_update_in_thirds: Rule = functools.partial(lamb_update, parts=3)


def _direction(
    weight: Tensor, gradient: Tensor, momentum: Tensor, velocity: Tensor, coefficients: Coefficients
) -> tuple[Any, Any, Any, Any]:
    weight = widened(weight)
    dtype = weight.dtype
    gradient = ops.cast(gradient, dtype)
    if coefficients.gradient_scale is not None:
        gradient = gradient * ops.cast(coefficients.gradient_scale, dtype)
    momentum = momentum + (gradient - momentum) * (1 - coefficients.beta_1)
    velocity = velocity + (ops.square(gradient) - velocity) * (1 - coefficients.beta_2)
    direction = _unbiased(momentum, coefficients.beta_1, coefficients.step) / (
        ops.sqrt(_unbiased(velocity, coefficients.beta_2, coefficients.step)) + coefficients.epsilon
    )
    direction = direction + ops.cast(coefficients.decay, dtype) * weight
    return weight, direction, momentum, velocity


def _unbiased(moment: Tensor, beta: float, step: Tensor) -> Tensor:
    if step is None:
        return moment
    # 1 - beta^step by expm1: in float32, 1 - 0.999 is off by 1.3e-5 of itself.
    return moment / -ops.expm1(ops.cast(step, moment.dtype) * math.log(beta))


def widened(tensor: Tensor) -> Tensor:
    """A tensor in float32, or as it is where its dtype is wider."""
    return ops.cast(tensor, keras.backend.result_type(tensor.dtype, "float32"))


def portable_global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The definition that tests compare faster versions with."""
    return ops.sqrt(sum(ops.sum(ops.square(gradient)) for gradient in gradients))


def portable_update_variables(updates: Iterable[Update]) -> None:
    """The definition that tests compare faster versions with."""
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
