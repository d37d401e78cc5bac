# SPDX-License-Identifier: Apache-2.0
"""Prints the memory that pre-training steps need in different configurations.

    python -m training.benchmarks.memory
    python -m training.benchmarks.memory --models=bert_base_uncased --lengths=128

The steps are not run. JAX compiles each step for this machine's CPU, and the table shows the memory
that XLA would allocate for weights, optimizer state, and intermediate results. Because no memory is
allocated, a small machine can analyze a large model. Accelerators have different compilers and
fused kernels, so their steps need different amounts of memory. In particular, XLA upcasts bfloat16
to float32 on a CPU, so the table is for float32 only.
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
from ..engine.options import CommandConfig

# Tokens per device in a training step (at least one sequence), and the fraction to predict
_TOKENS, _MASKED = 8192, 0.15
_BATCHES, _DEVICES = 4, 8
# Arguments for `step_memory` by table column
_VARIANTS: dict[str, dict[str, Any]] = {
    "stored": {},
    "rematerialized": {"rematerialize": True},
    f"{_BATCHES} micro-batches": {"accumulation": _BATCHES},
    f"sharded over {_DEVICES}": {"devices": _DEVICES},
}


@dataclasses.dataclass(frozen=True)
class MemoryConfig(CommandConfig):
    """The models to compare.

    Args:
        models: Names that BertConfig.from_name accepts.
        lengths: Sequence lengths in tokens. Lengths that exceed a model's positions are skipped.
    """

    models: tuple[str, ...] = ("bert_large_uncased", "modernbert_base")
    lengths: tuple[str, ...] = ("128", "512", "8192")


def main(config: MemoryConfig) -> None:
    # Set this before JAX is imported. Optimized code would take much longer to compile and give the
    # same results.
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(_DEVICES))
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    program.import_quietly()
    rows = []
    for model, length in itertools.product(config.models, map(int, config.lengths)):
        architecture = BertConfig.from_name(model)
        if length > architecture.max_sequence_length:
            continue
        num_rows = max(1, _TOKENS // length)
        cells: list[Any] = [model, f"{num_rows} x {length:,}"]
        for options in _VARIANTS.values():
            micro_batch, rest = divmod(num_rows, options.get("accumulation", 1))
            if rest:  # There are fewer examples than micro-batches.
                cells.append(None)
                continue
            total, state = step_memory(architecture, micro_batch, length, **options)
            cells.append(f"{total / 1e9:.1f} ({state / 1e9:.1f})")
        rows.append(cells)
        print(*(cell or "-" for cell in cells), file=sys.stderr, flush=True)
    print(markdown_table(["model", "rows", *_VARIANTS], rows))


def step_memory(
    config: BertConfig,
    rows: int,
    length: int,
    rematerialize: bool = False,
    accumulation: int | None = None,
    devices: int = 1,
) -> tuple[int, int]:
    """Compiles a masked LM's training step with AdamW on JAX, without allocating arrays.

    Args:
        config: The encoder's architecture.
        rows: Number of examples per device and batch.
        length: Sequence length in tokens.
        rematerialize: Whether the backward pass recomputes the layers.
        accumulation: Number of batches per training step.
        devices: Number of devices. Each has its own examples and a shard of the optimizer state.

    Returns:
        The total number of bytes per device, and the bytes of the weights and optimizer state.
    """
    import keras

    if keras.backend.backend() != "jax":
        raise ValueError(f"KERAS_BACKEND must be jax. Received: {keras.backend.backend()}")
    import jax

    from keras_bert import Backbone, Pretrainer
    from keras_bert.optimizers import AdamW

    from ..costs.model_flops import without_values

    distribution = None
    if devices > 1:
        distribution = keras.distribution.DataParallel(
            devices=keras.distribution.list_devices()[:devices]
        )

    def described(variable: Any) -> Any:
        sharding = None
        if distribution is not None:
            layout = variable._layout or distribution.get_variable_layout(variable)
            sharding = layout.backend_layout
        return jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=sharding)

    def array(width: int, dtype: str = "int32") -> Any:
        size, sharding = (rows * devices, width), None
        if distribution is not None:
            sharding = distribution.get_data_layout(size).backend_layout
        return jax.ShapeDtypeStruct(size, dtype, sharding=sharding)

    # The optimizer's counter has a value.
    optimizer = AdamW(1e-4, gradient_accumulation_steps=accumulation, shard_state=devices > 1)

    def analyzed() -> Any:
        with contextlib.nullcontext() if distribution is None else distribution.scope():
            backbone = Backbone(config, rematerialize=rematerialize, dtype="float32")
            model = Pretrainer(backbone, next_sentence=False)
            model.compile(optimizer)
            if distribution is not None:
                for variable in model.variables:
                    # Keras does this when a variable gets a value.
                    variable._layout = distribution.get_variable_layout(variable)
            slots = default_max_predictions(length, _MASKED)
            features = {"token_ids": array(length), "segment_ids": None, "padding_mask": None}
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
            step = jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
            return step.lower(state, batch).compile().memory_analysis()

    analysis = without_values(analyzed)
    # Except for metrics, the returned state replaces the old state in place.
    new = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    state_bytes = analysis.argument_size_in_bytes
    return state_bytes + analysis.temp_size_in_bytes + new, state_bytes


if __name__ == "__main__":
    program.run(main, MemoryConfig)
