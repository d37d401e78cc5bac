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
    from .compiled_memory import step_memory

    columns = dict.fromkeys(name for name, _ in _variants(config))
    rows = []
    for model, length, precision in itertools.product(
        config.models, map(int, config.lengths), config.precisions
    ):
        architecture = BertConfig.from_name(model)
        if length > architecture.max_sequence_length:
            continue
        cells: list[Any] = [model, f"{max(1, config.tokens // length)} x {length:,}", precision]
        for _, options in _variants(config):
            if options.get("accumulation", 1) > max(1, config.tokens // length):
                cells.append(None)  # fewer rows than batches
                continue
            found = step_memory(_step(config, architecture, length, precision=precision, **options))
            cells.append(f"{found.total / 1e9:.1f} ({found.state / 1e9:.1f})")
        rows.append(cells)
        print(*(cell or "-" for cell in cells), file=sys.stderr, flush=True)
    return markdown_table(["model", "rows", "precision", *columns], rows)


def _variants(config: MemoryConfig) -> list[tuple[str, dict[str, Any]]]:
    """Returns the columns: their names, and what differs in their steps."""
    return [
        ("stored", {}),
        ("rematerialized", {"rematerialize": True}),
        (f"{config.accumulation} batches", {"accumulation": config.accumulation}),
        (
            f"shared by {config.devices}",
            {"devices": config.devices, "shard_optimizer": True},
        ),
    ]


def _step(config: MemoryConfig, architecture: BertConfig, length: int, **options: Any) -> Any:
    from .compiled_memory import Step

    rows = max(1, config.tokens // length // options.get("accumulation", 1))
    slots = default_max_predictions(length, config.masked)
    return Step(architecture, rows, length, slots, **options)


if __name__ == "__main__":
    program.run(main, MemoryConfig)
