# SPDX-License-Identifier: Apache-2.0
"""Prints the memory of pre-training steps by configuration, without running them.

    python -m training.research.memory
    python -m training.research.memory --models=bert_base_uncased --lengths=128,512 --devices=4

Each step is compiled for this machine's CPU by JAX, and the table is XLA's analysis of what it
allocates: weights and the optimizer's state, and the results that exist at the same time. Neither
is allocated here, so that the table of a large model needs no large machine. Accelerators have
other compilers and fused kernels, whose steps need other memory: in particular, XLA upcasts
bfloat16 to float32 on a CPU, so that mixed_bfloat16 saves nothing here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import sys
from typing import Any

from keras_bert.config import BertConfig
from keras_bert.data.pretraining.static_masking import default_max_predictions
from keras_bert.tables import markdown_table

from ..engine import program
from ..engine.options import PositiveFraction, PositiveInt, ProgramConfig

PRECISIONS = ("float32", "mixed_bfloat16")


@dataclasses.dataclass(frozen=True)
class MemoryConfig(ProgramConfig):
    """The steps whose memory is compared.

    Args:
        models: Names of architectures that BertConfig.from_name knows.
        lengths: Numbers of tokens in a row; those that a model has no positions for are left out.
        tokens: Tokens of a device in an update, at least a row.
        masked: Share of the tokens that are predicted.
        accumulation: Number of batches that an update is divided into, where gradients are
            accumulated.
        devices: Number of devices that share the optimizer's state, where it is shared; each has
            as many rows as one alone.
        precisions: Keras' dtype policies.
    """

    models: tuple[str, ...] = ("bert_large_uncased", "modernbert_base")
    lengths: tuple[str, ...] = ("128", "512", "8192")
    tokens: PositiveInt = 8192
    masked: PositiveFraction = 0.15
    accumulation: PositiveInt = 4
    devices: PositiveInt = 8
    precisions: tuple[str, ...] = PRECISIONS

    def __post_init__(self) -> None:
        super().__post_init__()
        for length in self.lengths:
            if not length.isdecimal() or not int(length):
                raise ValueError(f"--lengths has {length!r}, expected numbers of tokens")


def main(config: MemoryConfig) -> None:
    # Before JAX is imported. Optimized code would take several times as long to compile, and its
    # results are the same.
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(config.devices))
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    program.import_quietly()
    print(table(config))


def table(config: MemoryConfig) -> str:
    """Returns the table in Markdown: of each step the memory in GB, and that of its state."""
    variants: dict[str, dict[str, Any]] = {
        "stored": {},
        "rematerialized": {"rematerialize": True},
        f"{config.accumulation} batches": {"accumulation": config.accumulation},
        f"shared by {config.devices}": {"devices": config.devices},
    }
    rows = []
    for model, length, precision in itertools.product(
        config.models, map(int, config.lengths), config.precisions
    ):
        architecture = BertConfig.from_name(model)
        if length > architecture.max_sequence_length:
            continue
        in_update = max(1, config.tokens // length)
        slots = default_max_predictions(length, config.masked)
        cells: list[Any] = [model, f"{in_update} x {length:,}", precision]
        for options in variants.values():
            batches = options.get("accumulation", 1)
            if batches > in_update:
                cells.append(None)  # fewer rows than batches
                continue
            shape = in_update // batches, length
            total, state = step_memory(architecture, shape, slots, precision, **options)
            cells.append(f"{total / 1e9:.1f} ({state / 1e9:.1f})")
        rows.append(cells)
        print(*(cell or "-" for cell in cells), file=sys.stderr, flush=True)
    return markdown_table(["model", "rows", "precision", *variants], rows)


def step_memory(
    config: BertConfig,
    shape: tuple[int, int],
    slots: int,
    precision: str,
    rematerialize: bool = False,
    accumulation: int = 1,
    devices: int = 1,
) -> tuple[int, int]:
    """Compiles a masked LM's training step with AdamW on JAX.

    Neither weights nor batches get values, so that it needs no such memory itself.

    Args:
        config: The encoder's architecture.
        shape: Rows of a device in a batch, and tokens in a row.
        slots: Masked tokens in a row.
        precision: Keras' dtype policy.
        rematerialize: Whether blocks are computed again in the backward pass.
        accumulation: The number of batches of an update.
        devices: The number of devices, each with its rows, that share the optimizer's state.

    Returns:
        The bytes that a device needs in all, and those of weights and the optimizer's state.
    """
    import keras

    from keras_bert.optimizers import AdamW

    from ..costs.model_flops import without_values

    if keras.backend.backend() != "jax":
        raise ValueError(f"expected KERAS_BACKEND=jax, the backend is {keras.backend.backend()}")
    distribution = None
    if devices > 1:
        distribution = keras.distribution.DataParallel(
            devices=keras.distribution.list_devices()[:devices]
        )
    # Its counter has a value.
    optimizer = AdamW(
        1e-4,
        gradient_accumulation_steps=accumulation if accumulation > 1 else None,
        shard_state=devices > 1,
    )
    built = {"dtype": precision, "rematerialize": rematerialize}
    rows, length = shape[0] * devices, shape[1]
    return without_values(
        lambda: _analyzed(config, built, (rows, length), slots, optimizer, distribution)
    )


def _analyzed(
    config: BertConfig,
    built: dict[str, Any],
    shape: tuple[int, int],
    slots: int,
    optimizer: Any,
    distribution: Any,
) -> tuple[int, int]:
    import jax

    from keras_bert import Backbone, Pretrainer

    def described(variable: Any) -> Any:
        sharding = None
        if distribution is not None:
            layout = variable._layout or distribution.get_variable_layout(variable)
            sharding = layout.backend_layout
        return jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=sharding)

    def array(width: int, dtype: str = "int32") -> Any:
        size, sharding = (shape[0], width), None
        if distribution is not None:
            sharding = distribution.get_data_layout(size).backend_layout
        return jax.ShapeDtypeStruct(size, dtype, sharding=sharding)

    with contextlib.nullcontext() if distribution is None else distribution.scope():
        model = Pretrainer(Backbone(config, **built), next_sentence=False)
        model.compile(optimizer)
        if distribution is not None:
            for variable in model.variables:
                # As it would be with a value
                variable._layout = distribution.get_variable_layout(variable)
        features = {"token_ids": array(shape[1]), "segment_ids": None, "padding_mask": None}
        features["mask_positions"] = array(slots)
        name = "masked_lm_logits"
        batch = features, {name: array(slots)}, {name: array(slots, "float32")}
        model._symbolic_build(data_batch=batch)
        parts = (
            *(model.trainable_variables, model.non_trainable_variables),
            *(optimizer.variables, model.metrics_variables),
        )
        state = tuple([described(variable) for variable in part] for part in parts)
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
    held = analysis.argument_size_in_bytes
    return held + analysis.temp_size_in_bytes + new, held


if __name__ == "__main__":
    program.run(main, MemoryConfig)
