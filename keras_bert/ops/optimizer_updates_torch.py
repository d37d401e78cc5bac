# SPDX-License-Identifier: Apache-2.0
"""Optimizer updates on PyTorch with its fused AdamW, in one call for all variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.keras_private import in_stateless_scope
from keras_bert.ops.optimizer_rules import (
    Update,
    adam_update,
    reference_update_variables,
    stable_adam_update,
    stable_rate,
)
from keras_bert.ops.torch_private import (
    foreach_add_,
    foreach_mul,
    foreach_norm,
    fused_adamw_,
)


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Computes the norm in one call for all gradients."""
    return torch.linalg.vector_norm(torch.stack(foreach_norm(list(gradients))))


def outside_of_training_steps(optimizer: Any, function: Callable[[], None]) -> None:
    """Calls a function with gradients disabled."""
    with torch.no_grad():
        function()


def accumulate(accumulators: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Adds in place. Keras' `assign_add` allocates two tensors and costs more than the sum."""
    if in_stateless_scope():
        for accumulator, gradient in zip(accumulators, gradients, strict=True):
            accumulator.assign(accumulator + gradient)
        return
    with torch.no_grad():
        foreach_add_([accumulator.value for accumulator in accumulators], list(gradients))


def update_variables(updates: Sequence[Update]) -> None:
    """Updates variables with PyTorch's fused AdamW if possible, or else with Keras operations."""
    others: list[Update] = []
    groups: dict[Any, list[Update]] = {}
    with torch.no_grad():
        for update in updates:
            if _fits_fused_adamw(update) and not in_stateless_scope():
                fused = _as_adam(update)
                key = (id(fused.coefficients.rate), fused.coefficients.decay, fused.weight.dtype)
                groups.setdefault(key, []).append(fused)
            else:
                others.append(update)
        reference_update_variables(others)
        for group in groups.values():
            _fused_adamw(group)


def _fits_fused_adamw(update: Update) -> bool:
    """Returns whether fused AdamW supports an update. It requires equal dtypes and layouts."""
    weight = update.weight.value
    state = (update.momentum.value, update.velocity.value)
    return (
        update.rule in (adam_update, stable_adam_update)
        and weight.device.type in ("cpu", "cuda")
        and all(tensor.dtype == weight.dtype for tensor in (update.gradient, *state))
        and all(tensor.is_contiguous() for tensor in (weight, *state))
    )


def _as_adam(update: Update) -> Update:
    """Converts a StableAdamW update to an `adam_update` with an adapted learning rate."""
    if update.rule is adam_update:
        return update
    rate = stable_rate(update.gradient, update.velocity.value, update.coefficients)
    return update._replace(rule=adam_update, coefficients=update.coefficients._replace(rate=rate))


def _fused_adamw(updates: Sequence[Update]) -> None:
    """Applies `adam_update` to variables with the same rate and decay, in one pass over memory."""
    weights = [update.weight.value for update in updates]
    gradients = [update.gradient.contiguous() for update in updates]
    coefficients = updates[0].coefficients
    divisor = None
    if coefficients.gradient_scale is not None:
        if all(g is weight.grad for g, weight in zip(gradients, weights, strict=True)):
            divisor = torch.reciprocal(coefficients.gradient_scale)  # scales gradients in place
        else:
            gradients = list(foreach_mul(gradients, coefficients.gradient_scale))
    # The kernel always corrects the bias. With an infinite step, the correction is 1.
    step = math.inf if coefficients.step is None else coefficients.step
    step = torch.as_tensor(step, dtype=torch.float32, device=weights[0].device)
    fused_adamw_(
        weights,
        gradients,
        [update.momentum.value for update in updates],
        [update.velocity.value for update in updates],
        [],
        [step] * len(updates),
        lr=coefficients.rate,
        beta1=coefficients.beta_1,
        beta2=coefficients.beta_2,
        weight_decay=coefficients.decay,
        eps=coefficients.epsilon,
        amsgrad=False,
        maximize=False,
        grad_scale=divisor,
        found_inf=None,
    )
