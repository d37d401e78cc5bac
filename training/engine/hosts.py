# SPDX-License-Identifier: Apache-2.0
"""The processes of a run on several hosts: which one this is, and the messages between them.

A program enters `joined` before it computes anything. Without `--coordinator` there is one process,
which is the main process and waits for nobody. This module alone knows how processes find one
another, and uses `jax.distributed`.

Messages go through the key-value store of JAX's coordinator, by the client that Orbax uses too.
Collectives of the devices would have to be in one order with the model's own, and a process that
waits in one cannot be told that another one has failed.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from absl import logging

from keras_bert.data.batch_options import rows_of_shard
from keras_bert.data.batches import Batches, BatchesOfBatches
from keras_bert.data.pretraining.masking import BatchShard

from ..costs import energy
from .options import ALL_BY_ENVIRONMENT, HostOptions

# What one process makes for the others, such as records, may take days. A process that has ended is
# noticed much earlier.
_LONGEST_WAIT = 7 * 24 * 3600.0
# Processes start at different times: they may take this many timeouts to join
_TIMEOUTS_TO_JOIN = 5
# They may take this many timeouts to write their shards of a checkpoint
_TIMEOUTS_TO_WRITE = 20
# How long to wait for the reason why another process has ended
_SECONDS_FOR_REASON = 3.0
_SECONDS_BETWEEN_LOOKS = 1.0
_FAILURE = "failure"
_LOST = (
    "the connection to another process is lost: it has ended. Start the same command on all hosts "
    "again, or on another number of them; it resumes from the last checkpoint"
)
# Words in the errors of collectives of which another process has ended
_CONNECTION_WORDS = ("Gloo", "NCCL", "UNAVAILABLE", "Connection", "connection", "DEADLINE")

Item = TypeVar("Item")


class LostProcessError(ConnectionError):
    """Raised if another process of the run has failed, or does not answer."""


class DisagreementError(ValueError):
    """Raised in all processes of a run if they do not do the same."""


@dataclasses.dataclass(frozen=True)
class _Processes:
    index: int = 0
    count: int = 1
    client: Any = None
    is_first_of_host: bool = True
    timeout: int = HostOptions.host_timeout


_processes = _Processes()
# The last answer of `_failure`, for when the store has ended with the first process
_known_failure = ""


def index() -> int:
    """Returns the number of this process, from 0."""
    return _processes.index


def count() -> int:
    """Returns the number of processes of the run."""
    return _processes.count


def shard() -> tuple[int, int]:
    """Returns this process's shard of each batch: its index, and the number of shards."""
    return index(), count()


def is_main_process() -> bool:
    """Returns whether this process writes files, and prints what the run does."""
    return index() == 0


def seconds_to_write() -> int:
    """Returns how long a process may take to write its shard of a checkpoint.

    One that has ended is noticed much earlier, after `--host_timeout`.
    """
    return _TIMEOUTS_TO_WRITE * _processes.timeout


@contextlib.contextmanager
def joined(options: HostOptions) -> Iterator[None]:
    """Joins the other processes, which share each batch from then on.

    Does nothing if there are no others, or within another such block.

    Within the block, only the main process prints. If the block fails, the others end with
    its error within seconds.

    Raises:
        ValueError: If the backend cannot train on several hosts, or the environment does not
            describe the processes.
        LostProcessError: If they do not all join, or one of them fails.
    """
    if not options.coordinator or count() > 1:
        yield
        return
    global _processes
    _processes = _join(options)
    has_ended = threading.Event()
    watch = threading.Thread(target=_end_with_another, args=(has_ended,), daemon=True)
    watch.start()
    if not is_main_process():
        logging.set_verbosity(logging.ERROR)  # It would repeat the warnings of the main process.
    logging.info("process %d of %d has joined", index(), count())
    try:
        machines = gather(socket.gethostname())
        is_first = machines[index()] not in machines[: index()]
        _processes = dataclasses.replace(_processes, is_first_of_host=is_first)
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            output = sys.stdout if is_main_process() else nowhere
            with contextlib.redirect_stdout(output):
                yield
        barrier()
    except BaseException as error:
        # At exit, JAX would wait for the others, which may wait for this process, and then abort.
        # This handler comes before JAX's, since they are called in reverse order.
        atexit.register(_end_at_once)
        # Before handlers, Python would wait for a thread that writes a checkpoint with the others.
        threading.Thread(target=_end_after_main_thread, daemon=True).start()
        reason = _reason_of_another(error)
        if reason:
            raise LostProcessError(reason) from error
        _tell_others(error)
        raise
    finally:
        has_ended.set()
        watch.join()


def _join(options: HostOptions) -> _Processes:
    """Connects this process with the others, and has Keras share each batch among them."""
    import keras

    backend = keras.backend.backend()
    if backend != "jax":
        raise ValueError(
            f"--coordinator needs the JAX backend, and this is {backend}: set KERAS_BACKEND=jax. "
            "TensorFlow's MultiWorkerMirroredStrategy does not train models of Keras 3 "
            "(https://github.com/keras-team/keras/issues/20585), and the distribution of Keras "
            "3.15 has no PyTorch"
        )
    import jax

    from keras_bert.ops.jax_private import distributed_client
    from keras_bert.ops.lazy_tensorflow import set_random_seed

    seconds_to_join = _TIMEOUTS_TO_JOIN * options.host_timeout
    is_auto = options.coordinator == ALL_BY_ENVIRONMENT
    try:
        _end_without_abort()
        # `keras.distribution.initialize` calls this too, without the timeouts.
        jax.distributed.initialize(
            None if is_auto else options.coordinator,
            options.num_processes,
            options.process_id,
            # Otherwise environment variables of a cluster would choose among this process's
            # devices.
            cluster_detection_method=None if is_auto else "deactivate",
            initialization_timeout=seconds_to_join,
            heartbeat_timeout_seconds=options.host_timeout,
            shutdown_timeout_seconds=options.host_timeout,
        )
    except ValueError as error:
        raise ValueError(
            f"--coordinator={ALL_BY_ENVIRONMENT} finds no cluster in the environment ({error}): "
            "expected a step of SLURM (srun), an indexed Job of Kubernetes with the package "
            "kubernetes, a TPU pod or Open MPI; or --coordinator=host:port, --num_processes and "
            "--process_id"
        ) from error
    except RuntimeError as error:
        raise LostProcessError(
            f"not all processes have joined within {seconds_to_join} s: {_first_line(error)}"
        ) from error
    # As `keras.distribution.initialize` does: the variables that each process creates, such as
    # those of a model that is loaded, must have the same values.
    set_random_seed(0)
    keras.distribution.set_distribution(
        # Each process reads its own rows, of any kind of data; Keras would shard `tf.data` only.
        keras.distribution.DataParallel(auto_shard_dataset=False)
    )
    return _Processes(
        jax.process_index(),
        jax.process_count(),
        distributed_client(),
        timeout=options.host_timeout,
    )


# === Work of one process for all ===


@contextlib.contextmanager
def working_folder(folder: Path) -> Iterator[Path]:
    """Yields the folder for results: `folder` in the main process, a temporary one in the others.

    So all processes can run code that writes files and needs all devices, such as predictions.
    """
    if is_main_process():
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="keras_bert_") as temporary:
        yield Path(temporary)


@contextlib.contextmanager
def energy_meter(is_wanted: bool, country: str) -> Iterator[energy.Meter | None]:
    """Meters the energy of all hosts, each of them once, however many processes it has.

    Codecarbon must be installed on every host.

    Yields:
        A function that returns the energy since its last call, which all processes call at the
        same places; `None` without energy.
    """
    if not all(gather(is_wanted and energy.is_installed())):
        yield None
        return
    with contextlib.ExitStack() as stack:
        meter = None
        if _processes.is_first_of_host:
            meter = stack.enter_context(energy.energy_meter(country))

        def of_all_hosts() -> energy.Energy:
            energies = gather(None if meter is None else list(meter()))
            return functools.reduce(
                energy.Energy.plus, [energy.Energy(*one) for one in energies if one is not None]
            )

        yield of_all_hosts


def whole(array: Any) -> Any:
    """Returns the whole of an array that may be sharded over the devices of all processes.

    All processes must call this for the same arrays.
    """
    if array.is_fully_addressable or array.is_fully_replicated:
        return array
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(array, tiled=True)


@contextlib.contextmanager
def with_whole_values(variables: Iterable[Any]) -> Iterator[None]:
    """Gathers sharded variables in each process within the block, such as to save them.

    All processes must call this for the same variables.
    """
    shards = [(variable, variable.value) for variable in variables] if count() > 1 else []
    try:
        for variable, own_shard in shards:
            # (`assign` would shard it again.)
            variable._value = whole(own_shard)
        yield
    finally:
        for variable, own_shard in shards:
            variable._value = own_shard


# === Messages ===


class _Exchanges:
    """Exchanges values; all processes make the same exchanges in the same order."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def gather(self, value: Any, seconds: float) -> list[Any]:
        """Returns the JSON values of all processes, in their order, within so many seconds."""
        if count() == 1:
            return [value]
        value = json.loads(json.dumps(value))  # as the others receive it
        number = next(self._numbers)
        folder, client = f"{self._folder}/{number}", _processes.client
        if not is_main_process():
            client.key_value_set(f"{folder}/{index()}", json.dumps(value))
            return json.loads(_wait_for(f"{folder}/all", seconds))
        others = (_wait_for(f"{folder}/{other}", seconds) for other in range(1, count()))
        values = [value, *map(json.loads, others)]
        client.key_value_set(f"{folder}/all", json.dumps(values))
        if number:  # All processes that are here have read the exchange before.
            client.key_value_delete(f"{self._folder}/{number - 1}/")
        return values


_exchanges = _Exchanges("exchange")
_exchanges_in_background = _Exchanges("background")


def gather(value: Any) -> list[Any]:
    """Returns the JSON values of all processes, in their order.

    All processes must call this module's functions in the same order.
    """
    return _exchanges.gather(value, _LONGEST_WAIT)


def gather_in_background(value: Any, seconds: float | None = None) -> list[Any]:
    """Does as `gather` in a background thread, within `seconds_to_write()` by default."""
    return _exchanges_in_background.gather(
        value, seconds_to_write() if seconds is None else seconds
    )


def barrier() -> None:
    """Waits until all processes are here."""
    gather(None)


def from_main_process(make: Callable[[], Any]) -> Any:
    """Returns the JSON value that a function has in the main process."""
    return gather(make() if is_main_process() else None)[0]


def sharded_map(function: Callable[[Item], Any], items: Iterable[Item]) -> list[Any]:
    """Returns the results of a function for all items; each process computes its shard of them.

    The function returns a JSON value, and the items are the same in all processes.
    """
    items = list(items)
    results = [function(item) for item in items[rows_of_shard(shard(), len(items))]]
    return [result for of_process in gather(results) for result in of_process]


def merged(what: str, values: dict[str, Any]) -> dict[str, Any]:
    """Merges the values of all processes by key.

    Raises:
        DisagreementError: In all processes, if those that have a value under the same key differ.
    """
    by_process = gather(values)
    result = {key: value for of_process in by_process for key, value in of_process.items()}
    _check_same(what, [result | of_process for of_process in by_process])
    return result


@contextlib.contextmanager
def main_process_first() -> Iterator[None]:
    """Runs the block in the main process, and then in the others, which find its files."""
    if not is_main_process():
        barrier()
    yield
    if is_main_process():
        barrier()


def agree(what: str, value: Any) -> None:
    """Checks that a value is the same in all processes.

    Raises:
        DisagreementError: In all processes, if it differs.
    """
    _check_same(what, gather(value))


def _check_same(what: str, values: list[Any]) -> None:
    """Raises a DisagreementError if the values of the processes differ."""
    if any(other != values[0] for other in values):
        if isinstance(values[0], dict):
            first = values[0]
            names = [key for key in first if any(v.get(key) != first.get(key) for v in values)]
            values = [{key: other.get(key) for key in names} for other in values]
        differing = ", ".join(f"{other} in process {number}" for number, other in enumerate(values))
        raise DisagreementError(
            f"{what} differs between the processes: {differing}. Expected the same command, the "
            "same version and the same files on each host"
        )


class AgreedBatches(BatchesOfBatches):
    """Yields this process's shard of each batch, once all processes have theirs.

    All shards must have the same shapes and step. Otherwise the processes would train something
    else without an error, or wait for one another forever. The same messages have the number of
    tokens that each shard selects, which completes a `BatchShard`.
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
            yield batch.completed(before) if is_shard else batch


# === Failures ===


def is_of_connection(error: BaseException) -> bool:
    """Returns whether an error may come from the end of another process."""
    return count() > 1 and any(word in str(error) for word in _CONNECTION_WORDS)


def _wait_for(key: str, seconds: float) -> str:
    return str(_processes.client.blocking_key_value_get(key, int(1000 * seconds)))


def _tell_others(error: BaseException) -> None:
    words = [] if isinstance(error, (OSError, ValueError)) else [type(error).__name__]
    words += [_first_line(error)] if str(error) else []
    reason = f"process {index()} on {socket.gethostname()} has ended: {': '.join(words)}"
    with contextlib.suppress(Exception):
        _processes.client.key_value_set(_FAILURE, reason)
        if is_main_process():
            time.sleep(1)  # The store ends with this process.


def _reason_of_another(error: BaseException) -> str:
    """Returns why another process has failed, if that made this one fail."""
    if isinstance(error, (DisagreementError, KeyboardInterrupt)):
        return ""
    is_lost = is_of_connection(error)
    end = time.monotonic() + (_SECONDS_FOR_REASON if is_lost else 0)
    while not (reason := _failure()) and time.monotonic() < end:
        time.sleep(0.1)
    if reason or not is_lost:
        return reason
    return f"{_LOST} ({_first_line(error)})"


def _end_with_another(has_ended: threading.Event) -> None:
    """Ends this process when another one has failed, even while the device waits for it."""
    while not has_ended.wait(_SECONDS_BETWEEN_LOOKS):
        reason = _failure()
        # The main thread may have failed too, and says so itself.
        if reason and not has_ended.wait(_SECONDS_FOR_REASON):
            print(f"error: {reason}", file=sys.stderr)
            _end_at_once()


def _failure() -> str:
    """Returns the reason why a process has failed; empty if none has said that it did."""
    global _known_failure
    with contextlib.suppress(Exception):
        _known_failure = str(_processes.client.key_value_try_get(_FAILURE))
    return _known_failure


@functools.cache
def _end_without_abort() -> None:
    """Makes this process end with one line, not a C++ stack, when another one is lost."""
    from keras_bert.ops.jax_private import on_lost_process

    def end() -> None:
        print(f"error: {_known_failure or _LOST}", file=sys.stderr)
        _end_at_once()

    on_lost_process(end)


def _end_at_once() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1)


def _end_after_main_thread() -> None:
    threading.main_thread().join()
    _end_at_once()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:500]
