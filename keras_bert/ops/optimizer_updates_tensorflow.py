# SPDX-License-Identifier: Apache-2.0
"""Optimizer updates on TensorFlow, with `tf.distribute`, and compiled to one pass on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.optimizer_rules import Coefficients, Rule, Update


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Computes the norm in one pass over each gradient, without storing its squares."""
    # Heads compute in float32 under any dtype policy.
    half_squares = [tf.cast(tf.nn.l2_loss(gradient), "float32") for gradient in gradients]
    return tf.sqrt(2 * tf.add_n(half_squares))


def dense_gradient(gradient: Tensor) -> Tensor:
    """Converts an embedding gradient, `tf.IndexedSlices` with repeated indices, to a dense one."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    num_rows = gradient.dense_shape[0]
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, num_rows)


def num_replicas() -> int:
    """Returns the number of replicas, or 1 outside of `tf.distribute`."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def sum_over_replicas(gradients: Sequence[Tensor]) -> Sequence[Any]:
    """Sums gradients before clipping, so that the sum's norm is clipped. Keras sums afterwards."""
    replica = tf.distribute.get_replica_context()
    if replica is None or not tf.distribute.has_strategy():
        return gradients
    sums: Sequence[Any] = replica.all_reduce(tf.distribute.ReduceOp.SUM, list(gradients))
    return sums


def once_for_all_replicas(function: Callable[[], None]) -> None:
    """Calls a function in the cross-replica context. There, reading a variable returns the sum."""

    @tf.autograph.experimental.do_not_convert
    def call(_: Any) -> None:
        function()

    tf.distribute.get_replica_context().merge_call(call)


def outside_of_training_steps(optimizer: Any, function: Callable[[], None]) -> None:
    """Calls a function in each replica of the optimizer's strategy."""
    strategy = optimizer._distribution_strategy
    if strategy.num_replicas_in_sync == 1:
        function()
    else:
        tf.function(lambda: strategy.run(function), autograph=False)()


def accumulate(accumulators: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Adds in place. Under `tf.distribute`, this adds to the replica's own value."""
    for accumulator, gradient in zip(accumulators, gradients, strict=True):
        accumulator.value.assign_add(tf.cast(gradient, accumulator.dtype))


def update_variables(updates: Sequence[Update]) -> None:
    """Updates every replica's copy of each variable."""
    # Scalars are passed as tensors, so that all steps and layers share the compiled code.
    constant = functools.cache(functools.partial(tf.cast, dtype="float32"))

    def as_tensor(scalar: Any) -> Tensor:
        return tf.cast(scalar, "float32") if tf.is_tensor(scalar) else constant(scalar)

    native = [
        update._replace(
            weight=update.weight.value,
            momentum=update.momentum.value,
            velocity=update.velocity.value,
            coefficients=update.coefficients.with_scalars(as_tensor),
        )
        for update in updates
    ]
    strategy = tf.distribute.get_strategy()
    if tf.distribute.in_cross_replica_context():
        _update_every_copy(strategy, native)
    else:
        tf.__internal__.distribute.interim.maybe_merge_call(_update_every_copy, strategy, native)


def _update_every_copy(strategy: Any, updates: Sequence[Update]) -> None:
    for update in updates:
        strategy.extended.update(
            update.weight,
            _update_copy,
            args=(
                update.rule,
                update.momentum,
                update.velocity,
                update.gradient,
                update.coefficients,
            ),
            group=False,
        )


@tf.autograph.experimental.do_not_convert
def _update_copy(
    weight: Tensor,
    rule: Rule,
    momentum: Tensor,
    velocity: Tensor,
    gradient: Tensor,
    coefficients: Coefficients,
) -> None:
    update = _update_function(
        rule,
        tuple(weight.shape),
        (weight.dtype, momentum.dtype, velocity.dtype),
        compiled=_runs_on_cpu_alone(),
    )
    # Pass handles instead of variables, because a trace that captures a variable fails once the
    # variable is deleted.
    handles = (weight.handle, momentum.handle, velocity.handle)
    update(handles, gradient, coefficients)


@functools.cache
def _runs_on_cpu_alone() -> bool:
    return all(device.device_type == "CPU" for device in tf.config.get_visible_devices())


@functools.cache
def _update_function(
    rule: Rule, shape: tuple[int, ...], dtypes: tuple[Any, ...], *, compiled: bool
) -> Any:
    """Returns a function that applies a rule to three variables, given as handles.

    If `compiled`, the function is one loop that updates the variables in place, and variables of
    the same shape share it. With an accelerator, it is not compiled separately, since Keras
    compiles the whole training step.
    """

    def update(handles: Sequence[Any], gradient: Tensor, coefficients: Coefficients) -> None:
        weight, momentum, velocity = (
            tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype), shape)
            for handle, dtype in zip(handles, dtypes, strict=True)
        )
        values = rule(weight, gradient, momentum, velocity, coefficients)
        for handle, value, dtype in zip(handles, values, dtypes, strict=True):
            tf.raw_ops.AssignVariableOp(resource=handle, value=tf.cast(value, dtype))

    return tf.function(update, jit_compile=True, autograph=False) if compiled else update
