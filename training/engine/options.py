# SPDX-License-Identifier: Apache-2.0
"""Base classes for the configs of commands, and options that commands share.

An option whose default depends on other values is usually `None` unless it is given.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Self, TypeAlias

from keras_bert import checks
from keras_bert.checks import NumberRange
from keras_bert.data.text_files import UTF_8, check_encoding

# Types of numeric fields, with the range of accepted numbers
PositiveInt: TypeAlias = Annotated[int, checks.POSITIVE_INT]
NonNegativeInt: TypeAlias = Annotated[int, checks.NON_NEGATIVE_INT]
Seed: TypeAlias = Annotated[int, checks.SEED]
PositiveFloat: TypeAlias = Annotated[float, checks.POSITIVE]
NonNegativeFloat: TypeAlias = Annotated[float, checks.NON_NEGATIVE]
ProperFraction: TypeAlias = Annotated[float, checks.PROPER_FRACTION]
Fraction: TypeAlias = Annotated[float, checks.FRACTION]
PositiveFraction: TypeAlias = Annotated[float, checks.POSITIVE_FRACTION]

# Names of flags without effect, and the reason
UnusedFlags: TypeAlias = Iterator[tuple[Collection[str], str]]

# Arguments that messages also use as ordinary words, see `with_flags`
_ENGLISH_WORDS = frozenset({"calibration", "format", "pair", "text"})
# With this value, `coordinator` and the processes are read from the environment.
ALL_BY_ENVIRONMENT = "auto"


@dataclasses.dataclass(frozen=True)
class CommandConfig:
    """Base class for command configs. Each dataclass field defines a command-line flag.

    A field may itself be a `CommandConfig` that groups related options. A command has flags for its
    fields and for all fields in its groups, so all names must be unique.

    Numeric fields are validated. A type such as `PositiveInt` defines the accepted range, and
    `float` accepts all finite numbers. `None` is accepted if the type includes it. Each number in a
    tuple is validated.

    Raises:
        UnusedFlagError: If a flag is given that has no effect because of the other flags.
        ValueError: If a number is out of range. The message contains the flag.
    """

    def __post_init__(self) -> None:
        for name, numbers in _number_ranges(type(self)).items():
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                numbers.check_optional(**{f"--{name}": number})
        for names, reason in self.unused_flags():
            check_unset(self, names, reason)

    def unused_flags(self) -> UnusedFlags:
        """Yields names of flags that have no effect because of other values, and the reason.

        Creating a config raises an error if such a flag does not have its default value.
        """
        yield from ()

    @classmethod
    def from_flags(cls, **options: Any) -> Self:
        """Returns a config with the given flag values. The flags may belong to any group.

        Raises:
            TypeError: If a flag does not exist.
        """
        return cls().replace(**options)

    def replace(self, **options: Any) -> Self:
        """Returns a copy with different values for some flags. The flags may belong to any group.

        If `options` make another value useless, that value returns to its default. For example,
        --vocabulary replaces a recipe's --vocabulary_size.

        Raises:
            TypeError: If a flag does not exist.
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
        """Returns the values of all flags, including those in groups."""
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, group in self._groups().items():
            del options[name]
            options |= group.to_dict()
        return options

    def settings(self) -> dict[str, Any]:
        """Returns the values of all flags that affect a run's result."""
        return {name: value for name, value in self.to_dict().items() if name not in NO_INFLUENCE}

    def _groups(self) -> dict[str, CommandConfig]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in fields.items() if isinstance(value, CommandConfig)}


def _number_ranges(config_class: Any) -> dict[str, NumberRange]:
    """Returns the accepted range of each numeric field."""
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
    """Returns the number of cores that this process may use. If unknown, counts all cores."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def check_one_of(config: Any, **allowed: tuple[str, ...]) -> None:
    """Raises a ValueError if a field does not have one of its allowed values."""
    for name, values in allowed.items():
        if getattr(config, name) not in values:
            raise ValueError(
                f"--{name} must be one of {', '.join(filter(None, values))}. Received: "
                f"{getattr(config, name)!r}"
            )


@contextlib.contextmanager
def naming_flags(flag_of: Mapping[str, str]) -> Iterator[None]:
    """Replaces a function's arguments by flags in its errors, see `with_flags`."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (with_flags(error.args[0], flag_of),)
        raise


def with_flags(message: str, flag_of: Mapping[str, str]) -> str:
    """Replaces a function's arguments by flags in a message.

    An argument is found before a value, and before "must", "is only" and "is not". Arguments that
    are no English words are found everywhere.

    Args:
        message: The message.
        flag_of: Maps each argument of the function to its flag.

    Example:

    >>> flag_of = {"format": "export_format", "text": "takes_text", "dtype": "dtype"}
    >>> with_flags("text must fit the format. Pass format='onnx', no dtype or text=False.", flag_of)
    '--takes_text must fit the format. Pass --export_format=onnx, no --dtype or --notakes_text.'
    >>> with_flags("/models/dtype/1 already exists.", flag_of)
    '/models/dtype/1 already exists.'
    """

    def flag(match: re.Match[str]) -> str:
        name, value = flag_of[match["name"]], (match["value"] or "")[1:].strip("'")
        if value in ("True", "False"):
            return f"--{name}" if value == "True" else f"--no{name}"
        return f"--{name}={value}" if value else f"--{name}"

    names = "|".join(flag_of)
    words = "|".join(sorted({*flag_of}.difference(_ENGLISH_WORDS))) or "(?!)"
    found = rf"(?:{names})(?==| must | is only | is not )|(?:{words})\b"
    value = r"=(?:'[^']*'|[\w.]*\w)"
    return re.sub(rf"(?<![\w.'=/\\-])(?P<name>{found})(?P<value>{value})?", flag, message)


class UnusedFlagError(ValueError):
    """Raised if a flag is given that has no effect.

    Args:
        message: The error message.
        flag: The name of the flag.
        default: The default of the flag.
    """

    def __init__(self, message: str, flag: str = "", default: Any = None) -> None:
        super().__init__(message)
        self.flag, self.default = flag, default


def check_unset(config: Any, names: Collection[str], reason: str) -> None:
    """Raises an UnusedFlagError if one of the given flags is set, because it has no effect.

    Flags in groups are also checked. A flag counts as set if its value is not the default.
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
    """Raises an UnusedFlagError if a flag is set but the files' formats do not use it.

    Args:
        config: The config.
        formats_of: Maps flag names to the formats that use them.
        formats: The format of each file.
    """
    names = [name for name, its in formats_of.items() if set(its).isdisjoint(formats)]
    check_unset(config, names, f"the format is {' and '.join(sorted(set(formats)))}")


@dataclasses.dataclass(frozen=True)
class TextFileOptions(CommandConfig):
    """Base class of configs whose commands read text files.

    Args:
        encoding: Encoding of the input's text files, such as cp949 (Korean), cp932 (Japanese),
            gb18030 or cp950 (Chinese). A byte order mark takes precedence. Output files are UTF-8.
    """

    # Subclasses have positional arguments of their own.
    encoding: str = dataclasses.field(default=UTF_8, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_encoding(self.encoding)


@dataclasses.dataclass(frozen=True)
class HostOptions(CommandConfig):
    """Options for multi-host training.

    Args:
        coordinator: For multi-host training on JAX, the host:port of the first process, together
            with num_processes and process_id. With auto, all three are read from SLURM, Kubernetes,
            a TPU pod or Open MPI. Start the same command on each host, with an output_dir that all
            hosts share.
        num_processes: Number of processes, usually one per host.
        process_id: Index of this process, from 0. Process 0 runs on the coordinator's host.
        host_timeout: If a process does not respond for this number of seconds, it counts as lost
            and the other processes stop. At the start, all processes must join within five times
            this number.
    """

    coordinator: str = ""
    num_processes: PositiveInt | None = None
    process_id: NonNegativeInt | None = None
    host_timeout: PositiveInt = 60

    def unused_flags(self) -> UnusedFlags:
        if not self.coordinator:
            yield HOST_OPTIONS, "--coordinator is not given"
        elif self.coordinator == ALL_BY_ENVIRONMENT:
            names = ["num_processes", "process_id"]
            yield names, f"--coordinator={ALL_BY_ENVIRONMENT} reads it from the environment"

    def __post_init__(self) -> None:
        super().__post_init__()
        number, total = self.process_id, self.num_processes
        if self.coordinator in ("", ALL_BY_ENVIRONMENT):
            return
        has_port = self.coordinator.rpartition(":")[2].isdigit()
        if not has_port or number is None or total is None or number >= total:
            raise ValueError(
                "--coordinator must be host:port, and --process_id must be below --num_processes. "
                f"Received: --coordinator={self.coordinator}, --process_id={number}, "
                f"--num_processes={total}. With --coordinator={ALL_BY_ENVIRONMENT}, all three are "
                "read from the environment"
            )


HOST_OPTIONS = tuple(field.name for field in dataclasses.fields(HostOptions))
# Options that change a run's result by rounding errors at most
NO_INFLUENCE = (
    "output_dir",
    "data_dir",
    "test_file",
    "devices",
    "shard_optimizer",
    "export",
    "tensorboard",
    "checkpoint_seconds",
    "keep_checkpoints",
    "preset_every",
    "keep_store",
    "num_workers",
    "measure_energy",
    "country",
    "cost_per_hour",
    *HOST_OPTIONS,
)


@dataclasses.dataclass(frozen=True)
class DeviceOptions(CommandConfig):
    """Options for precision and the devices of this machine.

    Args:
        precision: One of auto, float32, bfloat16, mixed_bfloat16 and mixed_float16. auto uses
            mixed_bfloat16 on an accelerator, and on a CPU if a measurement at the start shows that
            it is faster.
        devices: Number of devices, such as GPUs, to split each batch over. Must be 1 with PyTorch.
        shard_optimizer: Whether to shard the optimizer's moments and the accumulated gradients over
            the devices, instead of replicating them. Only supported on JAX.
        rematerialize: Whether to recompute the activations of each encoder layer in the backward
            pass instead of storing them. This needs less memory and up to a third more time.
    """

    precision: str = "auto"
    devices: PositiveInt = 1
    shard_optimizer: bool = False
    rematerialize: bool = False


@dataclasses.dataclass(frozen=True)
class EnergyOptions(CommandConfig):
    """Options for measuring a run's energy.

    Args:
        measure_energy: Whether to measure the energy and CO2 of each host. Requires codecarbon (the
            extra energy).
        country: Three-letter ISO code of the country, to compute the CO2 of its electricity.
    """

    measure_energy: bool = True
    country: str = "USA"

    def unused_flags(self) -> UnusedFlags:
        if not self.measure_energy:
            yield ["country"], "--nomeasure_energy is also given"


@dataclasses.dataclass(frozen=True)
class CostOptions(EnergyOptions):
    """Options for measuring a run's cost.

    Args:
        cost_per_hour: Price per hour for the machine or for all hosts together, in any currency. 0
            if unknown.
    """

    cost_per_hour: NonNegativeFloat = 0.0
