# SPDX-License-Identifier: Apache-2.0
"""Each backend's fast update matches the reference update."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.ops import optimizer_rules, optimizer_updates
from keras_bert.ops.optimizer_rules import (
    Coefficients,
    Update,
    adam_update,
    lamb_update,
    stable_adam_update,
)
from tests.ops.backend_gradients import to_numpy

BACKEND = keras.backend.backend()
SHAPES = [(40, 12), (12,), (3, 4, 5), ()]

not_on_jax = pytest.mark.skipif(BACKEND == "jax", reason="takes the reference update")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="PyTorch's kernel")
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's gradients")


def make_coefficients(**changes: Any) -> Coefficients:
    values = {
        "rate": ops.convert_to_tensor(0.02),
        "decay": 0.1,
        "gradient_scale": ops.convert_to_tensor(0.5),
        "step": ops.convert_to_tensor(3.0),
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-8,
    }
    return Coefficients(**{**values, **changes})


def make_updates(rule: Any, dtype: str = "float32", **changes: Any) -> list[Update]:
    random = np.random.default_rng(0)

    def make_variable(value: np.ndarray, dtype: str) -> keras.Variable:
        return keras.Variable(value, dtype=dtype)

    return [
        Update(
            rule,
            make_variable(random.standard_normal(shape), dtype),
            ops.convert_to_tensor(random.standard_normal(shape), dtype),
            make_variable(random.standard_normal(shape), "float32"),
            make_variable(random.random(shape), "float32"),
            make_coefficients(**changes),
        )
        for shape in SHAPES
    ]


def to_arrays(items: list[Update]) -> list[np.ndarray]:
    return [
        ops.convert_to_numpy(ops.cast(variable.value, "float32"))
        for item in items
        for variable in (item.weight, item.momentum, item.velocity)
    ]


@not_on_jax
@pytest.mark.parametrize("rule", [adam_update, lamb_update, stable_adam_update])
@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        ("float32", {}),
        ("bfloat16", {"gradient_scale": None}),
        ("float32", {"step": None}),
        ("bfloat16", {"decay": 0.0}),
    ],
    ids=str,
)
def test_fast_update_matches_reference(rule, dtype, changes):
    fast, reference = make_updates(rule, dtype, **changes), make_updates(rule, dtype, **changes)
    optimizer_updates.update_variables(fast)
    optimizer_rules.reference_update_variables(reference)
    # A difference in rounding can move a bfloat16 value to its neighbor.
    tolerance = 1e-6 if dtype == "float32" else 2**-7
    for a, b in zip(to_arrays(fast), to_arrays(reference), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=1e-6)


def test_fast_norm_matches_reference():
    gradients = [item.gradient for item in make_updates(adam_update)]
    fast = float(optimizer_updates.global_norm(gradients))
    assert fast == pytest.approx(float(optimizer_rules.reference_global_norm(gradients)), rel=1e-6)
    assert fast == pytest.approx(
        np.sqrt(sum(np.sum(ops.convert_to_numpy(g) ** 2) for g in gradients)), rel=1e-6
    )


def test_half_precision_norm_does_not_overflow():
    gradients = [ops.full((4,), 300.0, dtype="float16")]
    assert float(optimizer_updates.global_norm(gradients)) == pytest.approx(600.0)


@on_tensorflow
def test_compiled_update_accepts_new_variables():
    for _ in range(2):
        optimizer_updates.update_variables(make_updates(adam_update))


@on_tensorflow
def test_repeated_sparse_rows_are_added():
    import tensorflow as tf

    sparse = tf.IndexedSlices(
        tf.constant([[1.0, 2.0], [10.0, 20.0], [3.0, 4.0]]),
        tf.constant([2, 0, 2]),
        tf.constant([4, 2]),
    )
    dense = ops.convert_to_numpy(optimizer_updates.dense_gradient(sparse))
    np.testing.assert_array_equal(dense, [[10, 20], [0, 0], [4, 6], [0, 0]])


@on_torch
def test_only_variable_gradients_are_scaled_in_place():
    (update,) = make_updates(adam_update)[:1]
    before = update.gradient.clone()
    optimizer_updates.update_variables([update])
    np.testing.assert_array_equal(to_numpy(update.gradient), to_numpy(before))
    update.weight.value.grad = update.gradient
    optimizer_updates.update_variables([update])
    np.testing.assert_allclose(to_numpy(update.gradient), 0.5 * to_numpy(before))


@on_torch
def test_stable_adamw_fused_kernel_rate_per_variable(monkeypatch):
    from keras_bert.ops import optimizer_updates_torch

    rates = []
    fused = optimizer_updates_torch.fused_adamw_

    def record_rate(weights, *arguments, lr, **options):
        rates.append(float(lr))
        fused(weights, *arguments, lr=lr, **options)

    monkeypatch.setattr(optimizer_updates_torch, "fused_adamw_", record_rate)
    changes = {"gradient_scale": ops.convert_to_tensor(4.0), "step": None}
    optimizer_updates.update_variables(make_updates(stable_adam_update, **changes))
    assert len(set(rates)) == len(SHAPES)
    assert max(rates) < 0.02


@on_torch
@pytest.mark.parametrize("transposed", ["weight", "gradient"])
def test_memory_order_does_not_matter(transposed):
    import torch

    def make_update() -> Update:
        return make_updates(adam_update)[0]

    def transpose_memory(tensor: Any) -> Any:
        return torch.empty_strided((40, 12), (1, 40), device=tensor.device).copy_(tensor)

    expected, actual = make_update(), make_update()
    if transposed == "gradient":
        actual = actual._replace(gradient=transpose_memory(actual.gradient))
    else:
        weight = actual.weight.value
        weight.data = transpose_memory(weight.data)
        assert not weight.is_contiguous()
    optimizer_updates.update_variables([actual])
    optimizer_rules.reference_update_variables([expected])
    for a, b in zip(to_arrays([actual]), to_arrays([expected]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@on_torch
def test_stateless_scope_keeps_caller_tensors():
    (update,) = make_updates(adam_update)[:1]
    variables = (update.weight, update.momentum, update.velocity)
    tensors = [variable.value.detach().clone() for variable in variables]
    copies = [tensor.clone() for tensor in tensors]
    with keras.StatelessScope(state_mapping=list(zip(variables, tensors, strict=True))) as scope:
        optimizer_updates.update_variables([update])
    for variable, tensor, before in zip(variables, tensors, copies, strict=True):
        np.testing.assert_array_equal(to_numpy(tensor), to_numpy(before))
        assert (scope.get_current_value(variable) != before).any()
