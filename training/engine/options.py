# SPDX-License-Identifier: Apache-2.0
"""The options that programs share: dataclasses that a program's config extends.

A flag that was not given and has no fixed default is `None`, never a number that stands for one.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any


def optional(recorded: float) -> Any:
    """A field that is `None` unless it is given.

    Args:
        recorded: What fingerprints have instead of `None`: older versions wrote a number for a
            value that was not given, and their run folders are continued.
    """
    return dataclasses.field(default=None, metadata={"recorded": recorded})


def added(default: Any) -> Any:
    """A field that older versions did not have: fingerprints leave it out at its default."""
    return dataclasses.field(default=default, metadata={"added": True})


def recorded_settings(config: Any) -> dict[str, Any]:
    """The fields of a config as fingerprints have them.

    Args:
        config: An instance of a dataclass.
    """
    settings = dataclasses.asdict(config)
    for field in dataclasses.fields(config):
        value = settings[field.name]
        if value is None and "recorded" in field.metadata:
            settings[field.name] = field.metadata["recorded"]
        elif field.metadata.get("added") and value == field.default:
            del settings[field.name]
    return settings


def check_at_least(config: Any, least: float, *names: str) -> None:
    """Raises ValueError if a field is given and less than that."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} is {value}, expected at least {least}")


def check_one_of(config: Any, **allowed: tuple[str, ...]) -> None:
    """Raises ValueError if a field has none of the values that are allowed."""
    for name, values in allowed.items():
        if getattr(config, name) not in values:
            raise ValueError(
                f"--{name} is {getattr(config, name)!r}, expected one of {', '.join(values)}"
            )


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Training that starts from a checkpoint.

    Args:
        data_dir: the folder of the files that are named without one.
        preset: a checkpoint: a folder, hf://organisation/model, or a name KerasHub knows; empty
            takes the MiniLM of the extra `quickstart`.
        epochs: passes over the training data.
        batch_size: rows in an optimizer step.
        learning_rate: the peak, reached at the end of the warm-up.
        warmup: share of the steps in which the learning rate rises.
        weight_decay: decoupled decay, of all but biases and LayerNorms.
        sequence_length: the longest row in tokens; longer texts are cut.
        precision: float32, bfloat16, mixed_bfloat16 or mixed_float16; auto takes mixed_bfloat16,
            and float32 for JAX on a CPU, where bfloat16 is the slower.
        seed: of the first run; it decides the new head's weights, dropout and the order.
        output_dir: where models, scores and plots go.
        tensorboard: whether to log for TensorBoard, into output_dir.
        checkpoint_seconds: of training between two checkpoints, from which the same command
            continues if it was killed; 0 writes one after each batch.
    """

    data_dir: str = ""
    preset: str = ""
    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 5e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    sequence_length: int = 128
    precision: str = "auto"
    seed: int = 1
    output_dir: str = "runs"
    tensorboard: bool = False
    checkpoint_seconds: float = 180.0

    def __post_init__(self) -> None:
        check_at_least(self, 1, "epochs", "batch_size")
        check_at_least(self, 0, "learning_rate", "checkpoint_seconds")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"--warmup is {self.warmup}, expected a share in [0, 1)")

    def path(self, name: str, content: str) -> str:
        """The path of a file that the config names.

        Args:
            name: the file, in `data_dir` unless it is an absolute path.
            content: what it holds, for the message.

        Raises:
            FileNotFoundError: if there is no such file.
        """
        path = os.path.join(self.data_dir, name)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"{path} is not there, expected {content}")
        return path


@dataclasses.dataclass(frozen=True)
class EncoderConfig(RunConfig):
    """Training of the encoder itself.

    Args:
        pretrained: whether the checkpoint's weights are taken; with no, its architecture and
            vocabulary are, and the weights are random, which shows what pre-training gave.
        accumulation: micro-batches that make up an optimizer step, for large batches.
        layer_decay: factor on the learning rate from each layer to the one below it.
    """

    pretrained: bool = True
    accumulation: int = 1
    layer_decay: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "accumulation")
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"--accumulation is {self.accumulation}, expected a divisor of the batch size, "
                f"{self.batch_size}"
            )


@dataclasses.dataclass(frozen=True)
class SeedsConfig(RunConfig):
    """Training with several seeds on a training file, with the best epoch kept.

    Args:
        train_file: what to train on.
        dev_file: what to select the best epoch by.
        test_file: what to answer at the end.
        train_rows: trains on so many rows only, a random sample with each class's share; 0 for
            all.
        num_seeds: how many runs, with seeds counting up, to report a mean and an interval.
        patience: epochs without a better dev score after which a run stops; 0 never stops early.
    """

    train_file: str = ""
    dev_file: str = ""
    test_file: str = ""
    train_rows: int = added(0)
    num_seeds: int = 1
    patience: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "num_seeds")
        check_at_least(self, 0, "patience", "train_rows")


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(EncoderConfig, SeedsConfig):
    """Fine-tuning of an encoder with a new head.

    Args:
        export: whether to write a SavedModel of the best run, into output_dir/export/1.
        length_window: batches that are sorted by length among themselves: 64 pads least, 1 makes
            batches of rows as they come, which small data learn better from; not given, it is 64,
            or a sixteenth of an epoch where that is less.
    """

    export: bool = True
    length_window: int | None = optional(recorded=-1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "length_window")
