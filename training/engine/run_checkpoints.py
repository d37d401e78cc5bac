# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a training run, from which it resumes as if it had not been interrupted."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from keras_bert.atomic import atomic_path, make_folder
from keras_bert.checkpoints.earlier_layout import rebuilt, variables_in_version_1

from . import hosts
from .output_folder import (
    NotFiniteError,
    OtherSettingsError,
    file_sha256,
    read_checked,
    with_checksum,
)

_PREFIX = "step_"
_TENSORS = "tensors.safetensors"
_STATE = "state.json"
# The key of the tensors' checksum in the state
_TENSORS_SUM = "sha256"
_METRIC = "metric."
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Tensors = dict[str, "np.ndarray[Any, Any]"]


class DiskFullError(OSError):
    """Raised if the disk is too full for a checkpoint; earlier checkpoints are kept."""


@dataclasses.dataclass(frozen=True)
class RunState:
    """The state of a run besides its tensors.

    Args:
        step: Number of completed updates.
        backend: Keras' backend; another one generates other random numbers.
        fingerprint: Hash of the settings that determine the result.
        log: The records logged so far, one for each interval.
        seconds: Training time so far.
        details: Further state of the program, as JSON values.
    """

    step: int
    backend: str
    fingerprint: str
    log: list[dict[str, float]]
    seconds: float
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def check_same_run(self, found: RunState, folder: Path) -> None:
        """Raises a ValueError if a checkpoint is from another backend or other settings.

        Args:
            found: The checkpoint's state.
            folder: The folder of the checkpoints, for the message.
        """
        for name in ("backend", "fingerprint"):
            if getattr(found, name) != getattr(self, name):
                raise OtherSettingsError(
                    f"{folder} contains a run of "
                    + (f"the {found.backend} backend" if name == "backend" else "other settings")
                    + "; choose another --output_dir, or remove that folder"
                )


class RunCheckpoints:
    """The last few checkpoints of a run, in a folder.

    Each checkpoint is a folder that is written atomically (under a temporary name, then renamed)
    and includes checksums of its state and its tensors, so that partial and corrupted checkpoints
    are detected.

    Args:
        folder: The folder of the checkpoints.
        keep: Number of checkpoints to keep.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def save(self, model: keras.Model, state: RunState, with_metrics: bool = False) -> None:
        """Writes a checkpoint, and removes old ones.

        On several hosts, all processes call this, and the first one writes.

        Args:
            model: The model, with a built optimizer.
            state: The state of the run.
            with_metrics: Whether to save the state of the metrics too, which is needed in the
                middle of an epoch.

        Raises:
            NotFiniteError: If a weight is not finite; nothing is written.
            DiskFullError: If the disk is full; earlier checkpoints are kept.
        """
        tensors = model_tensors(model, with_metrics)
        if not hosts.is_writer():
            return
        _check_finite(tensors, state.step)
        make_folder(self.folder)
        target = self.folder / f"{_PREFIX}{state.step:09}"
        if target.exists():  # corrupted, since the run was not resumed from it
            shutil.rmtree(target)
        try:
            with atomic_path(target, sync=True) as temporary:
                temporary.mkdir()
                _write_tensors(temporary / _TENSORS, tensors)
                values = dataclasses.asdict(state) | {
                    _TENSORS_SUM: file_sha256(temporary / _TENSORS)
                }
                values = with_checksum(values)
                (temporary / _STATE).write_text(json.dumps(values) + "\n", encoding="utf-8")
        except OSError as error:
            if error.errno not in _DISK_ERRORS:
                raise
            raise DiskFullError(self._no_room(state, tensors, error)) from error
        for old in self._paths()[self.keep :]:
            shutil.rmtree(old)

    def restore(
        self,
        model: keras.Model,
        check: Callable[[RunState], None] = lambda state: None,
        with_metrics: bool = False,
    ) -> RunState | None:
        """Loads the last valid checkpoint.

        Args:
            model: The model, with a built optimizer.
            check: Called with the checkpoint's state before its tensors are loaded; may raise.
            with_metrics: Whether to restore the state of the metrics too, which the checkpoint must
                include. Keras creates their variables in the first training step.

        Returns:
            The checkpoint's state, or `None` if there is no checkpoint.

        Raises:
            ValueError: If no checkpoint is valid, or the last valid one is of another model.
        """
        paths = self._paths()
        for path in paths:
            try:
                state, tensors = _read(path)
            except (OSError, ValueError, SafetensorError) as error:
                logging.warning("%s is corrupted (%s): trying the one before it", path, error)
                continue
            check(state)
            if not with_metrics:
                tensors = {n: tensor for n, tensor in tensors.items() if not n.startswith(_METRIC)}
            variables = _variables(model, with_metrics)
            if set(variables) != set(tensors):
                earlier = _variables(model, with_metrics, version_1=True)
                variables = earlier if set(earlier) == set(tensors) else variables
            _assign(variables, tensors, path)
            return state
        if paths:
            raise ValueError(
                f"every checkpoint in {self.folder} is corrupted: remove the folder to start again"
            )
        return None

    def remove(self) -> None:
        """Removes all checkpoints, when the run is finished."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _paths(self) -> list[Path]:
        """Returns the paths of the checkpoints, the last one first."""
        found = self.folder.glob(f"{_PREFIX}*") if self.folder.is_dir() else ()
        return sorted(found, reverse=True)

    def _no_room(self, state: RunState, tensors: Tensors, error: OSError) -> str:
        needed = sum(tensor.nbytes for tensor in tensors.values())
        paths = self._paths()
        kept = f"{paths[0]} is kept" if paths else "there is no earlier checkpoint"
        return (
            f"not enough disk space for the checkpoint of step {state.step} in {self.folder}: it "
            f"takes {needed:,} bytes, and {shutil.disk_usage(self.folder).free:,} are free "
            f"({error.strerror}); {kept}. Free some space and run the same command again"
        )


class StopWhereNotFinite(keras.callbacks.Callback):
    """Ends the training at a loss, or after an epoch at a weight, that is NaN or infinite.

    It belongs before callbacks that score or save the model.

    Args:
        place: Describes a batch for the message, from the index of its epoch, as `fit` counts, and
            its index in it.

    Raises:
        NotFiniteError: From `fit`.
    """

    def __init__(self, place: Callable[[int, int], str]) -> None:
        super().__init__()
        self.place = place

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # The running mean of the epoch, which is not finite after a single such loss
        loss = (logs or {}).get("loss", 0.0)
        self._batch = batch
        if not math.isfinite(loss):
            raise NotFiniteError(f"the loss is {float(loss)} in {self.place(self._epoch, batch)}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        # A loss is computed before its update, and does not show what the last one has done.
        place = self.place(epoch, self._batch)
        for weight in self.model.weights:
            is_float = keras.backend.is_float_dtype(weight.dtype)
            # On the device, without a copy of the weight
            if is_float and not bool(keras.ops.all(keras.ops.isfinite(weight))):
                raise NotFiniteError(f"after {place}, the weight {weight.path} is not finite")


def model_tensors(model: keras.Model, with_metrics: bool = False) -> Tensors:
    """Returns all variables of a model and its optimizer, including Keras' seed generators."""
    return {name: _to_numpy(variable) for name, variable in _variables(model, with_metrics).items()}


def seed_dropout(seed: int, step: int) -> None:
    """Seeds the random state that a checkpoint cannot hold, before each batch.

    On PyTorch, Keras' dropout draws from PyTorch's global generator, which `fit` also advances when
    it builds a model or starts to read data.
    """
    if keras.backend.backend() == "torch":
        import torch

        torch.manual_seed((seed << 32) + step)


def _variables(model: keras.Model, with_metrics: bool, version_1: bool = False) -> dict[str, Any]:
    """Returns the variables by names that are the same in every process, unlike Keras' names.

    Args:
        model: The model, with a built optimizer.
        with_metrics: Whether to return those of the metrics too.
        version_1: Whether to number and name them as versions did whose blocks had other layers.
    """
    variables, moments = model.variables, model.optimizer.variables
    if version_1:
        variables = variables_in_version_1(model)
        trained = {id(variable) for variable in model.optimizer._trainable_variables}
        earlier_order = [variable for variable in variables if id(variable) in trained]
        _, moments = rebuilt(model.optimizer, earlier_order)
    metrics = {id(variable) for variable in model.metrics_variables}
    weights = [variable for variable in variables if id(variable) not in metrics]
    names = [weight.name for weight in weights]
    if version_1:
        names = [re.sub("^(intermediate|output)_bias$", "bias", name) for name in names]
    sums = model.metrics_variables if with_metrics else ()
    return {
        **{f"model.{index:05}.{names[index]}": weight for index, weight in enumerate(weights)},
        **{f"optimizer.{index:05}": moment for index, moment in enumerate(moments)},
        **{f"{_METRIC}{index:05}": variable for index, variable in enumerate(sums)},
    }


def _to_numpy(variable: Any) -> np.ndarray[Any, Any]:
    if hosts.count() > 1:
        return np.array(hosts.whole(variable.value), order="C")
    # (`convert_to_numpy` fails for scalars that TensorFlow mirrors on several devices.)
    return np.array(variable.numpy(), order="C")


def _check_finite(tensors: Mapping[str, np.ndarray[Any, Any]], step: int) -> None:
    for name, tensor in tensors.items():
        is_whole_number = np.issubdtype(tensor.dtype, np.integer) or tensor.dtype == bool
        if not is_whole_number and not np.isfinite(tensor.astype("float32")).all():
            raise NotFiniteError(f"after step {step}, {name} is not finite")


def _assign(variables: Mapping[str, Any], tensors: Tensors, path: Path) -> None:
    if set(variables) != set(tensors):
        different = sorted(set(variables) ^ set(tensors))
        raise ValueError(f"{path} is of another model: {different[0]} is in one of them only")
    for name, variable in variables.items():
        if tuple(variable.shape) != tensors[name].shape:
            raise ValueError(
                f"{path}: {name} has the shape {tensors[name].shape}, expected "
                f"{tuple(variable.shape)}"
            )
        variable.assign(tensors[name])


def _read(path: Path) -> tuple[RunState, Tensors]:
    names = {field.name for field in dataclasses.fields(RunState)} | {_TENSORS_SUM}
    values = read_checked(path / _STATE, names, added={"details"})
    if values.pop(_TENSORS_SUM) != file_sha256(path / _TENSORS):
        raise ValueError(f"the checksum of {_TENSORS} differs")
    return RunState(**values), load_file(path / _TENSORS)


def _write_tensors(path: Path, tensors: Tensors) -> None:
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        # SafetensorError wraps the operating system's error.
        for code in _DISK_ERRORS:
            if f"os error {code}" in str(error):
                raise OSError(code, os.strerror(code)) from error
        raise
