# SPDX-License-Identifier: Apache-2.0
"""What decides how a task is trained, whatever the task: the fields that its config extends."""

from __future__ import annotations

import dataclasses
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class OptimizationConfig:
    """How a checkpoint is trained further.

    Args:
        preset: a checkpoint: a folder, hf://organisation/model, or a name KerasHub knows; empty
            takes the MiniLM of the extra `quickstart`.
        pretrained: whether the checkpoint's weights are taken; with no, its architecture and
            vocabulary are, and the weights are random, which shows what pre-training gave.
        epochs: passes over the training data.
        batch_size: rows in an optimizer step.
        accumulation: micro-batches that make up an optimizer step, for large batches.
        learning_rate: the peak, reached at the end of the warm-up.
        warmup: share of the steps in which the learning rate rises.
        weight_decay: decoupled decay, of all but biases and LayerNorms.
        layer_decay: factor on the learning rate from each layer to the one below it.
        sequence_length: the longest row in tokens; longer texts are cut.
        precision: float32, bfloat16, mixed_bfloat16 or mixed_float16; auto takes mixed_bfloat16,
            and float32 for JAX on a CPU, where bfloat16 is the slower.
        seed: of the first run; it decides the new head's weights, dropout and the order.
        output_dir: where models, scores and plots go.
        tensorboard: whether to log for TensorBoard, into output_dir.
        checkpoint_seconds: of training between two checkpoints, from which the same command goes on
            if it was killed; 0 writes one after each batch.
    """

    preset: str = ""
    pretrained: bool = True
    epochs: int = 3
    batch_size: int = 32
    accumulation: int = 1
    learning_rate: float = 5e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    layer_decay: float = 1.0
    sequence_length: int = 128
    precision: str = "auto"
    seed: int = 1
    output_dir: str = "runs"
    tensorboard: bool = False
    checkpoint_seconds: float = 180.0

    # Fields that a program chooses by the data and the encoder where they are negative
    may_be_chosen: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        self.check_positive("batch_size", "accumulation")
        for name, least in (("epochs", 1), ("learning_rate", 0)):
            value = getattr(self, name)
            if value < least and not (value < 0 and name in self.may_be_chosen):
                raise ValueError(f"{name} is {value}, expected at least {least}")
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"--accumulation is {self.accumulation}, expected a divisor of the batch size, "
                f"{self.batch_size}"
            )
        if not 0 <= self.warmup < 1:
            raise ValueError(f"--warmup is {self.warmup}, expected a share in [0, 1)")
        if self.checkpoint_seconds < 0:
            raise ValueError(
                f"--checkpoint_seconds is {self.checkpoint_seconds}, expected 0 or more"
            )

    def check_positive(self, *names: str) -> None:
        """Raises ValueError if one of the fields is below 1."""
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} is {getattr(self, name)}, expected at least 1")


@dataclasses.dataclass(frozen=True)
class TrainingConfig(OptimizationConfig):
    """How a task is trained with several seeds, and what is kept.

    Args:
        num_seeds: how many runs, with seeds counting up, to report a mean and an interval.
        patience: epochs without a better dev score after which a run stops; 0 never stops early.
        export: whether to write a SavedModel of the best run, into output_dir/export/1.
        length_window: batches that are sorted by length among themselves: 64 pads least, 1 makes
            batches of rows as they come, which small data learn better from; negative takes 64, or
            a sixteenth of an epoch where that is less.
    """

    num_seeds: int = 1
    patience: int = 0
    export: bool = True
    length_window: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("num_seeds")
        if self.length_window == 0:
            raise ValueError("length_window is 0, expected at least 1, or -1 for the default")
