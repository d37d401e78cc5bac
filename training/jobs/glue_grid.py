# SPDX-License-Identifier: Apache-2.0
"""What decides a run over all of GLUE."""

from __future__ import annotations

import dataclasses
import itertools

from training.readers.glue import find_task


@dataclasses.dataclass(frozen=True)
class FinetuneGlueConfig:
    """Which tasks, and which settings of each.

    Args:
        data_dir: the folder of the GLUE download.
        tasks: the tasks, or all: those of the nine that are in data_dir.
        preset: a checkpoint: a folder, hf://organisation/model, or a name KerasHub knows; empty
            takes the MiniLM of the extra `quickstart`.
        learning_rates: the rates to try.
        batch_sizes: the batch sizes to try.
        num_seeds: runs with each setting: large models fail to train with some.
        epochs: passes over the training data.
        epochs_of: passes of tasks that want another number, such as rte=10.
        warmup: share of the steps in which the learning rate rises.
        weight_decay: decoupled decay, of all but biases and LayerNorms.
        layer_decay: factor on the learning rate from each layer to the one below it.
        sequence_length: the longest row in tokens.
        train_rows: trains on so many rows of each task; 0 for all.
        precision: as for training.finetune.
        output_dir: where everything goes.
    """

    data_dir: str = "glue"
    tasks: tuple[str, ...] = ("all",)
    preset: str = ""
    learning_rates: tuple[str, ...] = ("5e-5", "4e-5", "3e-5", "2e-5")
    batch_sizes: tuple[str, ...] = ("32",)
    num_seeds: int = 1
    epochs: int = 3
    epochs_of: tuple[str, ...] = ()
    warmup: float = 0.1
    weight_decay: float = 0.01
    layer_decay: float = 1.0
    sequence_length: int = 128
    train_rows: int = 0
    precision: str = "auto"
    output_dir: str = "runs/glue"

    def __post_init__(self) -> None:
        for entry in self.epochs_of:
            name, _, number = entry.partition("=")
            find_task(name)
            if not number.isdigit() or not int(number):
                raise ValueError(
                    f"--epochs_of has {entry!r}, expected a task and a number above 0, as in rte=10"
                )

    def task_epochs(self, task: str) -> int:
        """Passes over a task's training data."""
        return int(dict(entry.split("=") for entry in self.epochs_of).get(task, self.epochs))

    def settings(self) -> list[tuple[str, str]]:
        """Every learning rate with every batch size."""
        return list(itertools.product(self.learning_rates, self.batch_sizes))
