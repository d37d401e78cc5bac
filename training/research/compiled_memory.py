# SPDX-License-Identifier: Apache-2.0
"""The memory of a training step, by XLA's analysis of the compiled step, which is not run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any

import keras

from keras_bert import Backbone, BertConfig, Pretrainer
from keras_bert.checks import POSITIVE_INT
from keras_bert.optimizers import AdamW

from ..costs.model_flops import without_values


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """The memory of a device in a training step, in bytes.

    Attributes:
        state: Weights and the state of the optimizer.
        temporary: Activations, gradients and other results that exist at the same time.
    """

    state: int
    temporary: int

    @property
    def total(self) -> int:
        return self.state + self.temporary


@dataclasses.dataclass(frozen=True)
class Step:
    """A masked LM's training step with AdamW, on one device or shared by several.

    Attributes:
        config: The encoder's architecture.
        rows: Rows of a device in a batch, which with accumulation is a part of an update.
        sequence_length: Tokens in a row.
        slots: Masked tokens in a row.
        precision: Keras' dtype policy.
        rematerialize: Whether blocks are computed again in the backward pass.
        accumulation: The number of batches of an update.
        devices: The number of devices, each with its rows.
        shard_optimizer: Whether they share the optimizer's state instead of having a copy each.
    """

    config: BertConfig
    rows: int
    sequence_length: int
    slots: int
    precision: str = "float32"
    rematerialize: bool = False
    accumulation: int = 1
    devices: int = 1
    shard_optimizer: bool = False

    def __post_init__(self) -> None:
        POSITIVE_INT.check(
            rows=self.rows,
            sequence_length=self.sequence_length,
            slots=self.slots,
            accumulation=self.accumulation,
            devices=self.devices,
        )


def step_memory(step: Step) -> StepMemory:
    """Compiles a training step on JAX and returns the memory of a device.

    Neither weights nor batches get values, so that it needs no such memory itself.

    Raises:
        ValueError: If the backend is not JAX, or has too few devices.
    """
    if keras.backend.backend() != "jax":
        raise ValueError(
            "the analysis of a compiled step needs KERAS_BACKEND=jax, the backend is "
            f"{keras.backend.backend()}"
        )
    devices = keras.distribution.list_devices()
    if len(devices) < step.devices:
        raise ValueError(
            f"{step.devices} devices are expected, JAX has {len(devices)}; for virtual ones on a "
            f"CPU, set JAX_NUM_CPU_DEVICES={step.devices}"
        )
    # Its counter has a value.
    optimizer = AdamW(
        1e-4,
        gradient_accumulation_steps=step.accumulation if step.accumulation > 1 else None,
        shard_state=step.shard_optimizer,
    )
    return without_values(functools.partial(_analyzed, step, optimizer, devices[: step.devices]))


def _analyzed(step: Step, optimizer: AdamW, devices: list[str]) -> StepMemory:
    import jax

    distribution = keras.distribution.DataParallel(devices=devices) if len(devices) > 1 else None
    with contextlib.nullcontext() if distribution is None else distribution.scope():
        backbone = Backbone(step.config, dtype=step.precision, rematerialize=step.rematerialize)
        model = Pretrainer(backbone, next_sentence=False)
        model.compile(optimizer)
        if distribution is not None:
            for variable in model.variables:
                # As it would be with a value
                variable._layout = distribution.get_variable_layout(variable)
        batch = _batch(step, distribution)
        model._symbolic_build(data_batch=batch)
        parts = (
            *(model.trainable_variables, model.non_trainable_variables),
            *(optimizer.variables, model.metrics_variables),
        )
        state = tuple([_described(variable, distribution) for variable in part] for part in parts)
        shardings = None
        if distribution is not None:
            shardings = None, tuple([array.sharding for array in part] for part in state)
        compiled = (
            jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
            .lower(state, batch)
            .compile()
        )
    analysis = compiled.memory_analysis()
    # What the step returns replaces the state, but for the metrics.
    new = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return StepMemory(analysis.argument_size_in_bytes, analysis.temp_size_in_bytes + new)


def _described(variable: Any, distribution: Any) -> Any:
    """Returns the shape, dtype and sharding of a variable."""
    import jax

    sharding = None
    if distribution is not None:
        layout = variable._layout or distribution.get_variable_layout(variable)
        sharding = layout.backend_layout
    return jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=sharding)


def _batch(step: Step, distribution: Any) -> tuple[Any, Any, Any]:
    """Returns the description of a batch without padding."""
    import jax

    rows = step.rows * step.devices

    def array(width: int, dtype: str) -> Any:
        shape = (rows, width)
        sharding = None
        if distribution is not None:
            sharding = distribution.get_data_layout(shape).backend_layout
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    features = {
        "token_ids": array(step.sequence_length, "int32"),
        "segment_ids": None,
        "padding_mask": None,
        "mask_positions": array(step.slots, "int32"),
    }
    name = "masked_lm_logits"
    return features, {name: array(step.slots, "int32")}, {name: array(step.slots, "float32")}
