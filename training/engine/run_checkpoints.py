# SPDX-License-Identifier: Apache-2.0
"""Saves training checkpoints. A run resumes from them as if it had not been interrupted."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import math
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import keras
import numpy as np
from absl import logging
from safetensors import SafetensorError

from keras_bert.atomic import atomic_path, make_directory, remove_abandoned

from . import connection, hosts, sharded_tensors, whole_tensors
from .output_directory import (
    NotFiniteError,
    SettingsMismatchError,
    read_checked,
    with_checksum,
)

_PREFIX = "step_"
_STATE = "state.json"
# The state's key for the tensors' checksum, or for a dict of checksums by file
_TENSORS_SUM = "sha256"
_METRIC = "metric."

Tensors = dict[str, "np.ndarray[Any, Any]"]


class DiskFullError(OSError):
    """Raised if the disk is too full for a checkpoint. Earlier checkpoints are kept."""


@dataclasses.dataclass(frozen=True)
class RunState:
    """A run's state without its tensors.

    Args:
        step: Number of completed optimizer steps.
        backend: Keras' backend. It must not change, because backends generate different random
            numbers.
        fingerprint: Hash of the settings that affect the result.
        log: The records logged so far, one per epoch or evaluation interval.
        seconds: Training time so far, in seconds.
        details: Further state of the command, as JSON values.
    """

    step: int
    backend: str
    fingerprint: str
    log: list[dict[str, float]]
    seconds: float
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def check_same_run(self, other: RunState, directory: Path) -> None:
        """Raises a SettingsMismatchError if `other` has a different backend or fingerprint."""
        for name in ("backend", "fingerprint"):
            if getattr(other, name) != getattr(self, name):
                raise SettingsMismatchError(
                    f"{directory} contains a run with "
                    + (
                        f"the {other.backend} backend"
                        if name == "backend"
                        else "different settings"
                    )
                    + ". Choose another --output_dir, or remove that directory"
                )


class RunCheckpoints:
    """A directory with a run's latest checkpoints.

    Each checkpoint is a directory. It is written under a temporary name and then renamed. Checksums
    of the state and tensors detect incomplete and corrupted checkpoints.

    Usually, `save` writes the tensors to one file before it returns. In multi-host training, or if
    variables are sharded over devices, all processes write multiple files in the background while
    the training continues. A run can resume on a different number of processes or devices.

    When a `with` block exits, the object waits until the last checkpoint is written.
    """

    def __init__(self, directory: Path, keep: int = 2) -> None:
        self.directory = directory
        self.keep = keep
        self._writing: _Background | None = None

    def __enter__(self) -> RunCheckpoints:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.wait()
        # Other processes may still write in threads, even if their main threads wait.
        elif isinstance(error, Exception) and not connection.is_of_connection(error):
            with contextlib.suppress(Exception):  # It would hide the error that stops the run.
                self.wait()

    def save(self, model: keras.Model, state: RunState, with_metrics: bool = False) -> None:
        """Writes a checkpoint, and removes old ones.

        In multi-host training, all processes must call this.

        Args:
            model: The model, with a built optimizer.
            state: The rest of the state.
            with_metrics: Whether to include the metrics' state. This is required before the epoch
                is finished.

        Raises:
            NotFiniteError: If a variable is not finite. Nothing is written.
            DiskFullError: If the disk is full. Earlier checkpoints are kept. If a background write
                fills the disk, the next call only warns, and then waits for its own checkpoint.
        """
        waits = False
        try:
            self.wait()
        except DiskFullError as error:
            logging.warning("%s", error)
            waits = True
        variables = _variables(model, with_metrics)
        if name := _first_not_finite(variables):
            raise NotFiniteError(f"after step {state.step}, {name} is not finite")
        if sharded_tensors.are_sharded(variables):
            self._writing = _Background(self._begin(variables, state))
            if waits:
                self.wait()
            return
        with self._new_checkpoint(variables, state) as temporary:
            _write_state(temporary, state, whole_tensors.write(temporary, variables))

    def wait(self) -> None:
        """Waits until the last checkpoint is written, if one is being written.

        Raises:
            DiskFullError: If the disk is full. It is raised in all processes.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.wait()

    def raise_if_interrupted(self, is_interrupted: bool) -> None:
        """Stops an interrupted run after its last checkpoint has been written.

        Raises:
            KeyboardInterrupt: If the run was interrupted.
        """
        if is_interrupted:
            self.wait()
            raise KeyboardInterrupt

    def _begin(self, variables: Mapping[str, Any], state: RunState) -> Callable[[], None]:
        """Starts to write sharded tensors, and returns a function that finishes the checkpoint."""
        with contextlib.ExitStack() as stack:
            temporary, error = Path(), None
            if hosts.is_main_process():
                try:
                    temporary = stack.enter_context(self._new_checkpoint(variables, state))
                except DiskFullError as failure:
                    error = failure
            _agree_on(error, hosts.gather)
            # Hosts may mount the directory at different paths.
            directory = self.directory / hosts.from_main_process(
                lambda: Path(os.path.relpath(temporary, self.directory)).as_posix()
            )
            finish_tensors = sharded_tensors.begin(directory, variables)
            remaining = stack.pop_all()

        def finish() -> None:
            error = None
            try:
                with remaining, self._report_disk_full(variables, state):
                    checksums = finish_tensors()
                    if hosts.is_main_process():
                        _write_state(temporary, state, checksums)
            except TimeoutError:
                raise  # Another process does not respond.
            except OSError as failure:
                error = failure
            _agree_on(error, hosts.gather_in_background)

        return finish

    @contextlib.contextmanager
    def _new_checkpoint(self, variables: Mapping[str, Any], state: RunState) -> Iterator[Path]:
        """Yields a new checkpoint's temporary directory, and renames it at the end."""
        make_directory(self.directory)
        target = self.directory / f"{_PREFIX}{state.step:09}"
        if target.exists():  # It is corrupted, because the run did not resume from it.
            shutil.rmtree(target)
        with (
            self._report_disk_full(variables, state),
            atomic_path(target, sync=True) as temporary,
        ):
            temporary.mkdir()
            if shutil.disk_usage(temporary).free < num_bytes(variables.values()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            yield temporary
        for old in self._paths()[self.keep :]:
            shutil.rmtree(old)

    def restore(
        self,
        model: keras.Model,
        check: Callable[[RunState], None] = lambda state: None,
        with_metrics: bool = False,
    ) -> RunState | None:
        """Loads the last valid checkpoint.

        In multi-host training, all processes must call this. All of them load the same checkpoint.

        Args:
            model: The model, with a built optimizer.
            check: Called with the checkpoint's state before its tensors are loaded. May raise an
                error.
            with_metrics: Whether to also restore the metrics' state. The checkpoint must include
                it. Keras creates the metrics' variables in the first training step.

        Returns:
            The checkpoint's state, or `None` without a checkpoint.

        Raises:
            ValueError: If no checkpoint is valid, or the last valid one belongs to a different
                model.
        """
        self.wait()
        names = hosts.from_main_process(lambda: [path.name for path in self._paths()])
        for name in names:
            path = self.directory / name
            state, tensors, damage = None, whole_tensors, ""
            try:
                state, tensors = _read(path)
            except (OSError, ValueError, SafetensorError) as error:
                damage = str(error) or type(error).__name__
            # Other processes may have read other files of the same checkpoint.
            damage = next(filter(None, hosts.gather(damage)), "")
            if state is None or damage:
                logging.warning(
                    "%s is corrupted (%s). Trying the previous checkpoint", path, damage
                )
                continue
            check(state)
            variables = _variables(model, with_metrics)
            shapes = tensors.shapes(path)
            if not with_metrics:
                shapes = {n: shape for n, shape in shapes.items() if not n.startswith(_METRIC)}
            _check_same(variables, shapes, path)
            tensors.assign(path, variables)
            return state
        if names:
            raise ValueError(
                f"every checkpoint in {self.directory} is corrupted. Remove the directory to start "
                "again"
            )
        return None

    def remove(self) -> None:
        """Removes all checkpoints once the run is finished."""
        for path in self._paths():
            shutil.rmtree(path)
        if self.directory.is_dir():
            remove_abandoned(self.directory)
            with contextlib.suppress(OSError):  # The directory may contain other files.
                self.directory.rmdir()

    def _paths(self) -> list[Path]:
        """Returns the paths of the checkpoints, newest first."""
        directories = self.directory.glob(f"{_PREFIX}[0-9]*") if self.directory.is_dir() else ()
        return sorted(directories, reverse=True)

    @contextlib.contextmanager
    def _report_disk_full(self, variables: Mapping[str, Any], state: RunState) -> Iterator[None]:
        """Raises a DiskFullError with the required and free space if the system reports one."""
        try:
            yield
        except OSError as error:
            if error.errno not in whole_tensors.DISK_ERRORS:
                raise
            paths = self._paths()
            note = f"{paths[0]} is kept" if paths else "There is no earlier checkpoint"
            free = shutil.disk_usage(self.directory).free
            raise DiskFullError(
                f"not enough disk space for the checkpoint of step {state.step} in "
                f"{self.directory}: "
                f"it needs {num_bytes(variables.values()):,} bytes, but only {free:,} are free "
                f"({error.strerror}). {note}. Free some space and run the same command again"
            ) from error


class _Background:
    """A thread that runs a function.

    This is a daemon thread, because the function may wait for other processes that have stopped. If
    an error stops this process, it does not wait for the thread.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._function()
        except Exception as error:
            self._error = error

    def wait(self) -> None:
        """Waits until the function has returned, and raises its error if it failed."""
        self._thread.join()
        if self._error is not None:
            raise self._error


def _agree_on(error: OSError | None, gather: Callable[[Any], list[Any]]) -> None:
    """Raises an error in all processes if any process has an error."""
    own = None if error is None else [isinstance(error, DiskFullError), str(error)]
    failures = [failure for failure in gather(own) if failure is not None]
    if error is not None:
        raise error
    for is_full, message in failures:
        raise DiskFullError(message) if is_full else OSError(message)


class TerminateOnNonFinite(keras.callbacks.Callback):
    """Stops training if a loss is NaN or infinite, or a weight after an epoch.

    Put this callback before callbacks that score or save the model.

    Args:
        place: Describes a batch for the message, given the index of its epoch in `fit` and its
            index in the epoch.

    Raises:
        NotFiniteError: From `fit`.
    """

    def __init__(self, place: Callable[[int, int], str]) -> None:
        super().__init__()
        self.place = place

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # Keras logs the epoch's running mean. It is not finite if any loss is not finite.
        loss = (logs or {}).get("loss", 0.0)
        self._batch = batch
        if not math.isfinite(loss):
            raise NotFiniteError(f"the loss is {float(loss)} in {self.place(self._epoch, batch)}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        # Each loss is computed before the optimizer step, so no loss shows the last step's effect.
        place = self.place(epoch, self._batch)
        if path := _first_not_finite({weight.path: weight for weight in self.model.weights}):
            raise NotFiniteError(f"after {place}, the weight {path} is not finite")


def model_tensors(model: keras.Model) -> Tensors:
    """Returns all variables of the model and its optimizer, including Keras' seed generators."""
    variables = _variables(model, with_metrics=False)
    return {name: whole_tensors.to_numpy(variable) for name, variable in variables.items()}


def seed_dropout(seed: int, step: int) -> None:
    """Seeds the random state that a checkpoint cannot contain. Call it before each batch.

    On PyTorch, Keras' dropout uses PyTorch's global generator. `fit` also advances this generator
    when it builds a model or starts to read data.
    """
    if keras.backend.backend() == "torch":
        import torch

        torch.manual_seed((seed << 32) + step)


def _variables(model: keras.Model, with_metrics: bool) -> dict[str, Any]:
    """Returns the variables under names that, unlike Keras' names, match in all processes."""
    metrics = {id(variable) for variable in model.metrics_variables}
    weights = [variable for variable in model.variables if id(variable) not in metrics]
    sums = model.metrics_variables if with_metrics else ()
    return {
        **{f"model.{index:05}.{weight.name}": weight for index, weight in enumerate(weights)},
        **{
            f"optimizer.{index:05}": moment
            for index, moment in enumerate(model.optimizer.variables)
        },
        **{f"{_METRIC}{index:05}": variable for index, variable in enumerate(sums)},
    }


def num_bytes(variables: Iterable[Any]) -> int:
    """Returns the total size of variables in bytes."""

    def bits(dtype: str) -> int:
        digits = re.search(r"\d+", dtype)
        return int(digits[0]) if digits else 8  # bool

    return sum(
        math.prod(variable.shape) * bits(keras.backend.standardize_dtype(variable.dtype)) // 8
        for variable in variables
    )


def _first_not_finite(variables: Mapping[str, Any]) -> str:
    """Returns the name of the first variable with NaN or infinite values, or `""`."""
    for name, variable in variables.items():
        is_float = keras.backend.is_float_dtype(variable.dtype)
        # This is computed on the device, without a copy, and by all processes if the variable is
        # sharded. Variables are checked one after the other, because multiple collective operations
        # can deadlock on JAX's virtual CPU devices.
        if is_float and not bool(keras.ops.all(keras.ops.isfinite(variable))):
            return name
    return ""


def _check_same(
    variables: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], path: Path
) -> None:
    if set(variables) != set(shapes):
        different = sorted(set(variables) ^ set(shapes))
        raise ValueError(
            f"{path} belongs to a different model: only one of them has {different[0]}"
        )
    for name, variable in variables.items():
        if tuple(variable.shape) != shapes[name]:
            raise ValueError(
                f"{path}: {name} must have shape {tuple(variable.shape)}. Received: {shapes[name]}"
            )


def _read(path: Path) -> tuple[RunState, Any]:
    """Returns a checkpoint's state, and the module that reads its tensors."""
    names = {field.name for field in dataclasses.fields(RunState)} | {_TENSORS_SUM}
    values = read_checked(path / _STATE, names)
    checksums = values.pop(_TENSORS_SUM)
    tensors: Any = sharded_tensors if isinstance(checksums, dict) else whole_tensors
    tensors.check(path, checksums)
    return RunState(**values), tensors


def _write_state(directory: Path, state: RunState, checksums: str | dict[str, str]) -> None:
    values = with_checksum(dataclasses.asdict(state) | {_TENSORS_SUM: checksums})
    (directory / _STATE).write_text(json.dumps(values) + "\n", encoding="utf-8")
