# SPDX-License-Identifier: Apache-2.0
"""Reads and writes sharded checkpoint tensors with Orbax. Each process handles its own part.

The values are copied to host memory, and written while the training continues. Each process writes
its shards of all arrays. Replicated arrays are divided equally among the processes. The directory
is renamed once all processes have written their parts.

Orbax has no checksums for values, so it reads corrupted data without an error. Therefore each
process hashes the files that it has written. Before they are read, each process checks a fraction
of all files.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_bert.checks import importing

from . import hosts
from .output_directory import file_sha256

_DIRECTORY = "tensors"
# Directories that each process writes. The main process writes everything else.
_PART_OF = re.compile(r"ocdbt\.process_(\d+)/")
# How TensorStore reports system errors in its messages
_SYSTEM_ERROR = re.compile(r"os_error_code='(\d+)'")

Checksums = dict[str, str]

_writings = itertools.count()


class _FailedElsewhereError(OSError):
    """Raised, with the other process's error, if another process could not write its part."""


def are_sharded(variables: Mapping[str, Any]) -> bool:
    """Returns whether the variables must be written in parts.

    This is the case in multi-host training and if devices shard variables. Both require JAX.
    """
    if keras.backend.backend() != "jax":
        return False
    if hosts.count() > 1:
        return True
    return not all(variable.value.is_fully_replicated for variable in variables.values())


def begin(directory: Path, variables: Mapping[str, Any]) -> Callable[[], Checksums]:
    """Starts to write the variables' current values. The variables may change afterwards.

    All processes must call this at the same point.

    Returns:
        A function that waits until all parts are written. In the main process, it returns the
        checksum of each file. If writing fails in any process, it raises an OSError with the
        system's error number in all processes. Each process must call it in a background thread.
    """
    import jax
    import orbax.checkpoint as ocp

    seconds = hosts.seconds_to_write()

    def meet(*, key: str, timeout_ms: int) -> None:
        _results_of_all(None, timeout_ms / 1000)

    place = ocp.options.MultiprocessingOptions(
        # Each name must be used only once.
        barrier_sync_key_prefix=f"checkpoint_{next(_writings)}"
    )
    checkpointer = ocp.AsyncCheckpointer(
        # Compression would hardly make weights smaller, but would multiply the CPU time.
        ocp.PyTreeCheckpointHandler(
            use_compression=False,
            multiprocessing_options=place,
            # Orbax's own metadata for each process's part is disabled. A process might start to
            # wait for its directory when all parts are already written, and then wait until the
            # timeout.
            type_handler_registry=ocp.type_handlers.create_type_handler_registry(
                (jax.Array, ocp.type_handlers.ArrayHandler(array_metadata_store=None))
            ),
        ),
        async_options=ocp.options.AsyncOptions(timeout_secs=seconds, barrier_sync_fn=meet),
        multiprocessing_options=place,
    )
    values = {name: _shared(variable.value) for name, variable in variables.items()}
    checkpointer.save(directory.absolute() / _DIRECTORY, args=ocp.args.PyTreeSave(values))

    def finish() -> Checksums:
        try:
            checkpointer.close()
            sums = {file: file_sha256(directory / file) for file in _own_files(directory)}
        except _FailedElsewhereError:
            raise
        except TimeoutError as error:
            raise TimeoutError(
                f"not all processes have written their parts of {directory.name} within {seconds} s"
            ) from error
        except Exception as error:
            failure = _system_error(error)
            # Report the failure, because the other processes wait for this one.
            hosts.gather_in_background([failure.errno, failure.strerror])
            raise failure from error
        all_sums: Checksums = {}
        for process_results in _results_of_all(sums):
            all_sums |= process_results
        if hosts.is_main_process():
            # A process may not see its own files yet if another process has just renamed the
            # directory.
            without_sum = [file for file in _files(directory) if file not in all_sums]
            all_sums |= {file: file_sha256(directory / file) for file in without_sum}
        return all_sums

    return finish


def check(directory: Path, checksums: Checksums) -> None:
    """Checks that this process's fraction of the files is unchanged since they were written.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If a file differs.
    """
    for file in sorted(checksums)[hosts.index() :: hosts.count()]:
        if file_sha256(directory / file) != checksums[file]:
            raise ValueError(f"the checksum of {file} differs")


def shapes(directory: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each tensor."""
    return {name: tuple(tensor.shape) for name, tensor in _described(directory).items()}


def assign(directory: Path, variables: Mapping[str, Any]) -> None:
    """Reads values into variables. Sharded variables only read this process's parts.

    All processes must call this at the same point.
    """
    import orbax.checkpoint as ocp

    metadata = _described(directory)
    values = _checkpointer().restore(
        directory.absolute() / _DIRECTORY,
        args=ocp.args.PyTreeRestore(
            {name: metadata[name] for name in variables},
            restore_args={
                name: ocp.ArrayRestoreArgs(
                    sharding=variable.value.sharding, global_shape=tuple(variable.shape)
                )
                for name, variable in variables.items()
            },
            partial_restore=True,
        ),
    )
    for name, variable in variables.items():
        variable.assign(values[name])


def _checkpointer() -> Any:
    with importing("distributed", "a multi-host or sharded checkpoint"):
        import orbax.checkpoint as ocp
    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler())


def _described(directory: Path) -> dict[str, Any]:
    """Returns the shape and dtype of each tensor."""
    metadata: dict[str, Any] = (
        _checkpointer().metadata(directory.absolute() / _DIRECTORY).item_metadata.tree
    )
    return metadata


def _shared(array: Any) -> Any:
    """Combines the processes' copies into one array that belongs to all processes."""
    import jax

    if hosts.count() == 1 or _has_parts(array):
        return array
    devices = jax.sharding.Mesh(np.array(jax.devices()), ("device",))
    layout = jax.sharding.NamedSharding(devices, jax.sharding.PartitionSpec())
    copy = np.asarray(array)
    return jax.make_array_from_callback(copy.shape, layout, lambda index: copy[index])


def _has_parts(array: Any) -> bool:
    """Returns whether an array belongs to all processes and this one can access its parts.

    JAX 0.10 raises an error for arrays that `device_put` has replicated to multiple processes, as
    Keras does for new variables. A training step replaces these arrays.
    """
    if array.is_fully_addressable:
        return False
    try:
        return bool(array.addressable_shards)
    except ValueError:
        return not array.is_fully_replicated


def _files(directory: Path) -> list[str]:
    """Returns all files, relative to the directory."""
    paths = (path for path in (directory / _DIRECTORY).rglob("*") if path.is_file())
    return sorted(path.relative_to(directory).as_posix() for path in paths)


def _own_files(directory: Path) -> list[str]:
    """Returns the files that this process has written, relative to the directory."""

    def writer(file: str) -> int:
        part = _PART_OF.search(file)
        return int(part[1]) if part and hosts.count() > 1 else 0

    return [file for file in _files(directory) if writer(file) == hosts.index()]


def _results_of_all(result: Checksums | None, seconds: float | None = None) -> list[Any]:
    """Returns the results of all processes. If a process reports an error, raises it."""
    results = hosts.gather_in_background(result, seconds)
    for process_results in results:
        if isinstance(process_results, list):
            raise _FailedElsewhereError(*process_results)
    return results


def _system_error(error: Exception) -> OSError:
    """Returns the operating system's error that TensorStore reports as text."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    if number := _SYSTEM_ERROR.search(str(error)):
        return OSError(int(number[1]), os.strerror(int(number[1])))
    return OSError(0, f"{type(error).__name__}: {error}")
