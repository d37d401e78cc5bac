# SPDX-License-Identifier: Apache-2.0
"""Options shared by programs: base classes of their configs.

An option without a fixed default is `None` unless it is given; no number stands for "unset".
"""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Self, TypeAlias

from keras_bert import checks
from keras_bert.checks import NumberRange

# Types of numeric fields: each names the numbers that it accepts
PositiveInt: TypeAlias = Annotated[int, checks.POSITIVE_INT]
NonNegativeInt: TypeAlias = Annotated[int, checks.NON_NEGATIVE_INT]
Seed: TypeAlias = Annotated[int, checks.SEED]
PositiveFloat: TypeAlias = Annotated[float, checks.POSITIVE]
NonNegativeFloat: TypeAlias = Annotated[float, checks.NON_NEGATIVE]
ProperFraction: TypeAlias = Annotated[float, checks.PROPER_FRACTION]
Fraction: TypeAlias = Annotated[float, checks.FRACTION]
PositiveFraction: TypeAlias = Annotated[float, checks.POSITIVE_FRACTION]

# Names of flags that have no effect, and the reason
UnusedFlags: TypeAlias = Iterator[tuple[Collection[str], str]]

# Value of `coordinator` that finds the processes of a run by the environment
ALL_BY_ENVIRONMENT = "auto"


@dataclasses.dataclass(frozen=True)
class CommandConfig:
    """Base class of the configs of programs: dataclasses whose fields are command-line flags.

    A field may be such a config itself: a group of options on one subject. The flags of a program
    are its own fields and the fields of all its groups; every name must be unique.

    Numeric fields are checked: a type such as `PositiveInt` names the numbers that it accepts;
    `float` accepts all finite numbers. `None` is accepted if the type includes it.

    Raises:
        UnusedFlagError: If a flag is given that the values of others leave without effect.
        ValueError: If a number is not accepted; the message names the flag.
    """

    def __post_init__(self) -> None:
        for name, numbers in _number_ranges(type(self)).items():
            numbers.check_optional(**{f"--{name}": getattr(self, name)})
        for names, reason in self.unused_flags():
            check_unset(self, names, reason)

    def unused_flags(self) -> UnusedFlags:
        """Yields names of flags that have no effect because of other values, and the reason.

        A config must not be made with another value of such a flag than its default.
        """
        yield from ()

    @classmethod
    def from_flags(cls, **options: Any) -> Self:
        """Returns a config with the given values of flags, in whatever group they are.

        Raises:
            TypeError: If there is no such flag.
        """
        return cls().replace(**options)

    def replace(self, **options: Any) -> Self:
        """Returns a copy with other values of some flags, in whatever group they are.

        A value of this config that `options` leave without effect returns to its default. For
        example, --vocabulary replaces the --vocabulary_size of a recipe.

        Raises:
            TypeError: If there is no such flag.
            UnusedFlagError: If one of `options` has no effect.
        """
        try:
            return self._replaced(options)
        except UnusedFlagError as error:
            if error.flag in options:
                raise
            return self.replace(**options, **{error.flag: error.default})

    def _replaced(self, options: dict[str, Any]) -> Self:
        options = dict(options)
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

    def _groups(self) -> dict[str, CommandConfig]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in fields.items() if isinstance(value, CommandConfig)}


def _number_ranges(config_class: Any) -> dict[str, NumberRange]:
    """Returns the accepted numbers of each numeric field."""
    hints = typing.get_type_hints(config_class, include_extras=True)
    plain = {float: checks.FINITE, int: checks.INTEGER}
    ranges = {}
    for field in dataclasses.fields(config_class):
        hint = hints[field.name]
        # In `PositiveInt | None`, the first argument is the type.
        for kind in (hint, *typing.get_args(hint)):
            numbers = getattr(kind, "__metadata__", (plain.get(kind),))[0]
            if numbers is not None:
                ranges[field.name] = numbers
                break
    return ranges


def num_cores() -> int:
    """Returns the number of cores that this process may use, or of all if that is unknown."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def check_one_of(config: Any, **allowed: tuple[str, ...]) -> None:
    """Raises a ValueError if a field has a value that is not allowed."""
    for name, values in allowed.items():
        if getattr(config, name) not in values:
            raise ValueError(
                f"--{name} must be one of {', '.join(values)}. Received: {getattr(config, name)!r}"
            )


class UnusedFlagError(ValueError):
    """Raised if a flag is given that has no effect.

    Args:
        message: The message.
        flag: The name of the flag.
        default: Its default.
    """

    def __init__(self, message: str, flag: str = "", default: Any = None) -> None:
        super().__init__(message)
        self.flag, self.default = flag, default


def check_unset(config: Any, names: Collection[str], reason: str) -> None:
    """Raises an UnusedFlagError if a flag is given that has no effect, for a reason.

    Flags of groups are checked too. A flag that is given with its default value is not
    distinguished from one that is not.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, CommandConfig):
            check_unset(value, names, reason)
        elif field.name in names and value != field.default:
            text = ",".join(value) if isinstance(value, tuple) else value
            message = f"--{field.name}={text} is given, but {reason}"
            raise UnusedFlagError(message, field.name, field.default)


def check_formats(
    config: Any, formats_of: Mapping[str, Collection[str]], formats: Collection[str]
) -> None:
    """Raises an UnusedFlagError if a flag is given that is for none of the formats of the files.

    Args:
        config: The config.
        formats_of: The formats that have a flag, by the name of the flag.
        formats: The format of each file.
    """
    names = [name for name, its in formats_of.items() if set(its).isdisjoint(formats)]
    check_unset(config, names, f"the format is {' and '.join(sorted(set(formats)))}")


@dataclasses.dataclass(frozen=True)
class HostOptions(CommandConfig):
    """The processes of a run, and which of them this one is.

    Args:
        coordinator: For several hosts, on JAX: host:port of the first process, with num_processes
            and process_id; or auto, which takes all three from SLURM, Kubernetes, a TPU pod or Open
            MPI. Start the same command on each host; output_dir must be a folder that all share.
        num_processes: Number of processes, usually one for each host.
        process_id: The number of this process, from 0; process 0 runs on the coordinator's host.
        host_timeout: Seconds after which a process that does not answer counts as lost, and the
            others end; at the start, all must join within five times as many.
    """

    coordinator: str = ""
    num_processes: PositiveInt | None = None
    process_id: NonNegativeInt | None = None
    host_timeout: PositiveInt = 60

    def unused_flags(self) -> UnusedFlags:
        if not self.coordinator:
            yield HOST_OPTIONS, "there is no --coordinator"
        elif self.coordinator == ALL_BY_ENVIRONMENT:
            names = ["num_processes", "process_id"]
            yield names, f"--coordinator={ALL_BY_ENVIRONMENT} takes it from the environment"

    def __post_init__(self) -> None:
        super().__post_init__()
        number, total = self.process_id, self.num_processes
        if self.coordinator in ("", ALL_BY_ENVIRONMENT):
            return
        has_port = self.coordinator.rpartition(":")[2].isdigit()
        if not has_port or number is None or total is None or number >= total:
            raise ValueError(
                f"--coordinator is {self.coordinator}, --process_id {number} and --num_processes "
                f"{total}, expected host:port and a number below that of all processes; or "
                f"--coordinator={ALL_BY_ENVIRONMENT}"
            )


HOST_OPTIONS = tuple(field.name for field in dataclasses.fields(HostOptions))
# Options that change the result of a run at most by rounding
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
    "cost_per_hour",
    *HOST_OPTIONS,
)


@dataclasses.dataclass(frozen=True)
class DeviceOptions(CommandConfig):
    """How a model computes, and on which devices of this machine.

    Args:
        precision: Float32, bfloat16, mixed_bfloat16 or mixed_float16; auto takes mixed_bfloat16 on
            an accelerator, and on a CPU if a measurement at the start shows that it is faster.
        devices: Number of devices of this machine, such as GPUs, to split each batch over; 1 with
            PyTorch.
        shard_optimizer: Whether to shard the optimizer's moments and the accumulated gradients over
            these devices, instead of keeping a copy on each; on JAX.
        rematerialize: Whether to compute each block of the encoder again in the backward pass
            instead of storing its results: less memory, for up to a third more time.
    """

    precision: str = "auto"
    devices: PositiveInt = 1
    shard_optimizer: bool = False
    rematerialize: bool = False


@dataclasses.dataclass(frozen=True)
class CostOptions(CommandConfig):
    """How to measure the cost of a run.

    Args:
        measure_energy: Whether to meter the energy and CO2 of each host, if codecarbon (the extra
            energy) is installed.
        country: ISO code of the country, three letters, for the CO2 of its electricity.
        cost_per_hour: The price of the machine, or of all hosts together, in any currency; 0 if it
            is unknown.
    """

    measure_energy: bool = True
    country: str = "USA"
    cost_per_hour: NonNegativeFloat = 0.0

    def unused_flags(self) -> UnusedFlags:
        if not self.measure_energy:
            yield ["country"], "--nomeasure_energy is given, too"
