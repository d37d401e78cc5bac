# SPDX-License-Identifier: Apache-2.0
"""The processes in multi-host training, and the values that they exchange.

A command enters `connection.join_processes` before any other work. Without `--coordinator`, the
only process is the main process, and it never waits.

Values are exchanged through the key-value store of JAX's coordinator, with the client that Orbax
also uses. Device collectives would not work, because all processes would have to run them in the
same order as the model's collectives. Also, a process that waits in a collective does not notice
that another process has failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from keras_bert.data.batch_options import rows_of_shard
from keras_bert.data.batches import Batches, WrappedBatches
from keras_bert.data.pretraining.masking import BatchShard

from ..costs import energy
from .options import HostOptions

# Work that one process does for all, such as creating records, may take days. A failed process is
# noticed much earlier.
_LONGEST_WAIT = 7 * 24 * 3600.0
# Writing the checkpoint shards may take this multiple of the timeout.
_TIMEOUTS_TO_WRITE = 20

Item = TypeVar("Item")


class ProcessMismatchError(ValueError):
    """Raised in all processes if their commands or data differ."""


@dataclasses.dataclass(frozen=True)
class Processes:
    """This process and the number of processes in the run.

    Args:
        index: Index of this process, from 0.
        count: Number of processes.
        client: Client of JAX's coordinator. All processes share its key-value store. `None` for a
            single process.
        is_first_of_host: Whether this is the process with the lowest index on its host.
        timeout: `--host_timeout` in seconds.
    """

    index: int = 0
    count: int = 1
    client: Any = None
    is_first_of_host: bool = True
    timeout: int = HostOptions.host_timeout


_processes = Processes()


def current() -> Processes:
    """Returns the processes of the run."""
    return _processes


def enter(processes: Processes) -> None:
    """Registers this process's place in the run. Only `connection` calls this."""
    global _processes
    _processes = processes


def index() -> int:
    """Returns the index of this process, from 0."""
    return _processes.index


def count() -> int:
    """Returns the number of processes in the run."""
    return _processes.count


def shard() -> tuple[int, int]:
    """Returns the index of this process's batch shard, and the number of shards."""
    return index(), count()


def is_main_process() -> bool:
    """Returns whether this process writes files and prints progress."""
    return index() == 0


def seconds_to_write() -> int:
    """Returns the maximum time in seconds to write a process's checkpoint shard.

    A stopped process is noticed much earlier, after `--host_timeout`.
    """
    return _TIMEOUTS_TO_WRITE * _processes.timeout


# === Work that one process does for all ===


@contextlib.contextmanager
def working_directory(directory: Path) -> Iterator[Path]:
    """Yields `directory` in the main process, and a temporary directory in the other processes.

    All processes can then run code that uses all devices and writes files, such as predictions.
    """
    if is_main_process():
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="keras_bert_") as temporary:
        yield Path(temporary)


@contextlib.contextmanager
def energy_meter(is_wanted: bool, country: str) -> Iterator[energy.Meter | None]:
    """Measures the energy of all hosts. Each host is counted once, even with multiple processes.

    Codecarbon must be installed on every host.

    Yields:
        A function that returns the energy since its last call, or `None` if energy is not measured.
        All processes must call it at the same points.
    """
    if not all(gather(is_wanted and energy.is_installed())):
        yield None
        return
    with contextlib.ExitStack() as stack:
        meter = None
        if _processes.is_first_of_host:
            meter = stack.enter_context(energy.energy_meter(country))

        def total_energy() -> energy.Energy:
            energies = gather(None if meter is None else list(meter()))
            return functools.reduce(
                energy.Energy.__add__, [energy.Energy(*one) for one in energies if one is not None]
            )

        yield total_energy


def gather_array(array: Any) -> Any:
    """Returns the full array, even if it is sharded over the devices of all processes.

    All processes must call this for the same arrays.
    """
    if array.is_fully_addressable or array.is_fully_replicated:
        return array
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(array, tiled=True)


@contextlib.contextmanager
def gathered_variables(variables: Iterable[Any]) -> Iterator[None]:
    """Gathers sharded variables in each process within the block, for example to save them.

    All processes must call this for the same variables.
    """
    shards = [(variable, variable.value) for variable in variables] if count() > 1 else []
    try:
        for variable, own_shard in shards:
            # `assign` would shard the value again.
            variable._value = gather_array(own_shard)
        yield
    finally:
        for variable, own_shard in shards:
            variable._value = own_shard


# === Messages ===


def _wait_for(key: str, seconds: float) -> str:
    return str(_processes.client.blocking_key_value_get(key, int(1000 * seconds)))


class _Exchanges:
    """Exchanges values. All processes must make the same exchanges in the same order."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._numbers = itertools.count()

    def gather(self, value: Any, seconds: float) -> list[Any]:
        """Returns the JSON values of all processes, or fails after `seconds`."""
        if count() == 1:
            return [value]
        value = json.loads(json.dumps(value))  # The other processes receive this form.
        number = next(self._numbers)
        directory, client = f"{self._directory}/{number}", _processes.client
        if not is_main_process():
            client.key_value_set(f"{directory}/{index()}", json.dumps(value))
            return json.loads(_wait_for(f"{directory}/all", seconds))
        others = (_wait_for(f"{directory}/{other}", seconds) for other in range(1, count()))
        values = [value, *map(json.loads, others)]
        client.key_value_set(f"{directory}/all", json.dumps(values))
        if number:  # All processes in this exchange have read the previous one.
            client.key_value_delete(f"{self._directory}/{number - 1}/")
        return values


_exchanges = _Exchanges("exchange")
_exchanges_in_background = _Exchanges("background")


def gather(value: Any) -> list[Any]:
    """Returns the JSON values of all processes, in the order of their indices.

    All processes must call this module's functions in the same order.
    """
    return _exchanges.gather(value, _LONGEST_WAIT)


def gather_in_background(value: Any, seconds: float | None = None) -> list[Any]:
    """Same as `gather`, but for a background thread. Waits `seconds_to_write()` by default."""
    return _exchanges_in_background.gather(
        value, seconds_to_write() if seconds is None else seconds
    )


def barrier() -> None:
    """Waits until all processes have called this function."""
    gather(None)


def from_main_process(make: Callable[[], Any]) -> Any:
    """Calls a function in the main process, and returns its JSON value in all processes."""
    return gather(make() if is_main_process() else None)[0]


def sharded_map(function: Callable[[Item], Any], items: Iterable[Item]) -> list[Any]:
    """Applies a function to all items. Each process computes the results for its shard.

    The function must return a JSON value, and the items must be the same in all processes.
    """
    items = list(items)
    results = [function(item) for item in items[rows_of_shard(shard(), len(items))]]
    return [result for process_values in gather(results) for result in process_values]


def merge_across_processes(what: str, values: dict[str, Any]) -> dict[str, Any]:
    """Merges the values of all processes by key.

    Raises:
        ProcessMismatchError: In all processes, if two processes have different values for a key.
    """
    by_process = gather(values)
    result = {key: value for process_values in by_process for key, value in process_values.items()}
    _check_same(what, [result | process_values for process_values in by_process])
    return result


@contextlib.contextmanager
def main_process_first() -> Iterator[None]:
    """Runs the block in the main process first, so that the other processes find its files."""
    if not is_main_process():
        barrier()
    yield
    if is_main_process():
        barrier()


def check_all_equal(what: str, value: Any) -> None:
    """Checks that a value is the same in all processes.

    Raises:
        ProcessMismatchError: In all processes, if it differs.
    """
    _check_same(what, gather(value))


def _check_same(what: str, values: list[Any]) -> None:
    """Raises a ProcessMismatchError if the values of the processes differ."""
    if any(other != values[0] for other in values):
        if isinstance(values[0], dict):
            first = values[0]
            names = [key for key in first if any(v.get(key) != first.get(key) for v in values)]
            values = [{key: other.get(key) for key in names} for other in values]
        differing = ", ".join(f"{other} in process {number}" for number, other in enumerate(values))
        raise ProcessMismatchError(
            f"{what} differs between the processes: {differing}. Use the same command, the same "
            "version and the same files on each host"
        )


class AgreedBatches(WrappedBatches):
    """Yields this process's shard of each batch after comparing it with the other processes.

    All shards must have the same shapes and step. Otherwise, the processes would silently train on
    different batches, or wait for each other forever. The exchange also completes each `BatchShard`
    with the number of tokens that earlier shards select.
    """

    def __init__(self, batches: Batches, first: int = 0) -> None:
        super().__init__(batches)
        self.prefetches = False  # Messages are exchanged in the order of the steps.
        self._first = first

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        for place, batch in enumerate(self._batches.epoch(number, first), self._first + first):
            is_shard = isinstance(batch, BatchShard)
            arrays, selected = batch[:2] if is_shard else (batch, 0)
            shapes = json.dumps(arrays, default=lambda array: array.shape, sort_keys=True)
            by_process = gather([{"number": place, "shapes": shapes}, selected])
            _check_same(f"batch {place}", [value for value, _ in by_process])
            before = sum(count for _, count in by_process[: index()])
            yield batch.complete(before) if is_shard else batch
