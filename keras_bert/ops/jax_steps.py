# SPDX-License-Identifier: Apache-2.0
"""Keras' steps on JAX, changed so that a model keeps its weights if a step is interrupted.

Keras donates the model's variables to each step, even outside of training. Their arrays are
deleted, and the step's results replace them. If a KeyboardInterrupt is raised in between, the model
loses its weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from keras_bert.ops.backend_steps import BackendSteps

# The variables that a training step accepts and returns, by their names in a trainer
TRAINING = (
    *("trainable_variables", "non_trainable_variables"),
    *("optimizer_variables", "metrics_variables"),
)

State = tuple[list[Any], ...]
Step = Callable[[State, Any], tuple[Any, State]]


class JaxSteps(BackendSteps):
    """Steps that store their results in the model immediately, or do not donate variables."""

    calls_move_variables = True

    def train_function(self, model: Any) -> Any:
        return model._make_function(training_step(model))

    def test_function(self, model: Any) -> Any:
        return model._make_function(step_without_donation(model, model.test_step))

    def predict_function(self, model: Any) -> Any:
        def step(state: State, data: Any) -> tuple[Any, State]:
            outputs, non_trainable_variables = model.predict_step(state, data)
            return replicate_outputs(outputs), (state[0], non_trainable_variables)

        compiled = step_without_donation(model, step)
        return model._make_function(compiled, concatenate_outputs=True)

    @contextlib.contextmanager
    def put_variables_back(self, model: Any) -> Iterator[None]:
        # In a training callback, the training's state is newer than the variables.
        model.jax_state_sync()
        try:
            yield
        finally:
            # Keras does this only in `fit`.
            model.jax_state_sync()
            model._jax_state = None
            model._jax_state_synced = True


def training_step(model: Any) -> Step:
    """Returns the compiled `model.train_step` that stores its result in the model immediately.

    The step donates the variables, since there may not be enough memory for a second copy.
    """
    compiled: Step | None = None

    def compute_and_store(state: State, data: Any) -> tuple[Any, State]:
        nonlocal compiled
        compiled = compiled or _compiled_training_step(model, state)
        results: list[tuple[Any, State]] = []
        try:
            # Python checks for interruptions after a call. Here `extend` makes the call, so the
            # result is already in the list when Python checks.
            results.extend(map(compiled, (state,), (data,)))
        finally:
            for _, new_state in results:
                # Keras' `__setattr__` would check each array, so it is bypassed.
                object.__setattr__(model, "_jax_state", dict(zip(TRAINING, new_state, strict=True)))
                _note_newer_state(model)
        return results[0]

    return compute_and_store


def _note_newer_state(model: Any) -> None:
    """Records that the step's state is newer than the variables.

    Keras does this before it reads the batch, but the data source may call the model.
    """
    object.__setattr__(model, "_jax_state_synced", False)


def _compiled_training_step(model: Any, state: State) -> Step:
    if not _is_compiled(model):
        plain: Step = model.train_step
        return plain
    shardings = _shardings(state)
    step: Step = jax.jit(
        model.train_step,
        donate_argnums=0,
        out_shardings=None if shardings is None else (None, shardings),
    )
    return step


def step_without_donation(model: Any, step: Step) -> Step:
    """Compiles `model.test_step` or `model.predict_step` so that variables keep their arrays.

    Without donation, each output is a copy. So the compiled function only returns the arrays that
    the step changes, for example metrics, and `None` for the other arrays.
    """
    if not _is_compiled(model):
        return step
    shardings: State | None = None

    def changed_arrays(state: State, data: Any) -> tuple[Any, State]:
        outputs, new_state = step(state, data)
        changes = _map_arrays(lambda old, new: None if new is old else new, state, new_state)
        if shardings is not None:
            changes = _map_arrays(_with_sharding, changes, shardings)
        return outputs, changes

    compiled = jax.jit(changed_arrays)

    def compute(state: State, data: Any) -> tuple[Any, State]:
        nonlocal shardings
        shardings = shardings or _shardings(state)
        outputs, changes = compiled(state, data)
        _note_newer_state(model)
        return outputs, _map_arrays(lambda old, new: old if new is None else new, state, changes)

    return compute


def _map_arrays(function: Callable[..., Any], *states: State) -> State:
    """Applies a function to the corresponding arrays of multiple states."""
    return tuple(
        [function(*arrays) for arrays in zip(*groups, strict=True)]
        for groups in zip(*states, strict=True)
    )


def _with_sharding(array: Any, sharding: Any) -> Any:
    return None if array is None else jax.lax.with_sharding_constraint(array, sharding)


def shard_over_devices(rows: Any) -> Any:
    """Shards examples over the devices of Keras' distribution.

    `rows` is an array or a nested structure of arrays with this process's examples. All processes'
    examples are concatenated in order.
    """
    distribution = keras.distribution.distribution()

    def shard(array: Any) -> Any:
        layout = distribution.get_data_layout(array.shape).backend_layout
        return jax.make_array_from_process_local_data(layout, array)

    return keras.tree.map_structure(shard, rows)


def sharded_map(
    function: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]],
    num_rows: int,
    **must_match: int,
) -> np.ndarray[Any, Any]:
    """Computes a function of examples, divided among the processes, and returns all values.

    `function` maps example indices `(rows,)` to values `(rows, ...)`. All processes must call
    `sharded_map` at the same point in their device computations.

    Raises:
        ValueError: In all processes, if `num_rows` or a number in `must_match` differs between
            processes.
    """
    must_match["num_rows"] = num_rows
    values_by_process = process_allgather(np.array(list(must_match.values()), "int32"))
    for name, numbers in zip(must_match, values_by_process.T.tolist(), strict=True):
        if len(set(numbers)) > 1:
            raise ValueError(
                f"{name} must be the same in all processes, because they share batches. Received: "
                f"{numbers}"
            )
    shard_size = -(-num_rows // jax.process_count())
    first = jax.process_index() * shard_size
    rows = np.minimum(np.arange(first, first + shard_size), num_rows - 1)
    values: np.ndarray[Any, Any] = process_allgather(function(rows), tiled=True)
    return values[:num_rows]


def replicate_outputs(outputs: Any) -> Any:
    """Replicates a compiled step's outputs, in any nesting, to every process."""
    distribution = keras.distribution.distribution()
    if distribution is None or distribution.num_processes == 1:
        return outputs
    sharding = jax.sharding.NamedSharding(
        distribution.device_mesh.backend_mesh, jax.sharding.PartitionSpec()
    )
    return keras.tree.map_structure(
        lambda array: jax.lax.with_sharding_constraint(array, sharding), outputs
    )


def training_state(model: Any) -> dict[str, list[Any]]:
    """Returns the arrays of the variables that training changes."""
    variables = {
        "trainable_variables": model.trainable_variables,
        "non_trainable_variables": model.non_trainable_variables,
        "optimizer_variables": model.optimizer.variables,
        "metrics_variables": model.metrics_variables,
    }
    return {name: [variable.value for variable in group] for name, group in variables.items()}


def _is_compiled(model: Any) -> bool:
    return bool(model.jit_compile and not model.run_eagerly)


def local_shards(array: jax.Array) -> list[np.ndarray[Any, Any]]:
    """Returns the array's shards on this process's devices, or the whole array if they have it."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return [np.asarray(array)]
    return [np.asarray(shard.data) for shard in array.addressable_shards]


def _shardings(state: State) -> State | None:
    """Returns the sharding of each variable in Keras' distribution, or `None` without distribution.

    The first state determines it, since a model has no metrics before its first batch.
    """
    if keras.distribution.distribution() is None:
        return None
    return _map_arrays(lambda array: array.sharding, state)
