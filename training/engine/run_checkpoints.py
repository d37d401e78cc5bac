# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a training run: all that it takes to go on as if nothing had happened."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from keras_bert.atomic import atomic_path

_PREFIX = "step_"
_PARTIAL = ".partial"
_TENSORS = "tensors.safetensors"
_STATE = "state.json"
_METRIC = "metric."
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Tensors = dict[str, "np.ndarray[Any, Any]"]


class NotFiniteError(ValueError):
    """A loss or a weight is NaN or infinite."""


class DiskFullError(OSError):
    """A checkpoint had no room; those before it are untouched."""


@dataclasses.dataclass(frozen=True)
class RunState:
    """What a run knows besides its tensors.

    Args:
        step: updates done.
        backend: Keras' backend: another one gives other random numbers.
        fingerprint: changes with the settings that decide the outcome.
        log: what was logged so far, a record for each interval.
        seconds: how long the training took so far.
        details: what else the program has to know, as JSON holds it.
    """

    step: int
    backend: str
    fingerprint: str
    log: list[dict[str, float]]
    seconds: float
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def check_same_run(self, found: RunState, folder: Path) -> None:
        """Raises if a checkpoint is of a run of another backend or of other settings.

        Args:
            found: The checkpoint's state.
            folder: Where the checkpoints are.
        """
        for name in ("backend", "fingerprint"):
            if getattr(found, name) != getattr(self, name):
                raise ValueError(
                    f"{folder} has a run of "
                    + (f"the {found.backend} backend" if name == "backend" else "other settings")
                    + "; choose another --output_dir, or remove it"
                )


class RunCheckpoints:
    """The last few checkpoints of a run, in a folder.

    Each is a folder of its own, written under another name and then renamed, with the checksum of
    its tensors: what a process left behind that was killed while writing is told from a checkpoint,
    and so is one that a file system lost a part of.

    Args:
        folder: Where they are.
        keep: How many of them stay.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def save(self, model: keras.Model, state: RunState, with_metrics: bool = False) -> None:
        """Writes a checkpoint, and removes old ones.

        Args:
            model: The model, its optimizer built.
            state: What else the run knows.
            with_metrics: Whether the model is in the middle of an epoch of Keras', and its metrics
                are to go on from their sums.

        Raises:
            NotFiniteError: If a weight is not finite; nothing is written.
            DiskFullError: If there is no room; the checkpoints before are untouched.
        """
        tensors = model_tensors(model, with_metrics)
        _check_finite(tensors, state.step)
        for leftover in self.folder.glob(f"*{_PARTIAL}"):
            shutil.rmtree(leftover)
        target = self.folder / f"{_PREFIX}{state.step:09}"
        if target.exists():  # torn, or it would have been continued
            shutil.rmtree(target)
        try:
            with atomic_path(target, sync=True) as temporary:
                temporary.mkdir(parents=True)
                _write_tensors(temporary / _TENSORS, tensors)
                values = dataclasses.asdict(state) | {"sha256": _sha256(temporary / _TENSORS)}
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
        """Loads the last checkpoint that is whole.

        Args:
            model: The model, its optimizer built.
            check: Called with a checkpoint's state before its tensors are loaded; may raise.
            with_metrics: Whether the metrics go on from their sums too, which the checkpoint must
                have. Keras makes their variables in the first step of training.

        Returns:
            Its state, or `None` if there is no checkpoint.

        Raises:
            ValueError: If none of the checkpoints that are there is whole, or the last whole one is
                of another model.
        """
        paths = self._paths()
        for path in paths:
            try:
                state, tensors = _read(path)
            except (OSError, ValueError, SafetensorError) as error:
                logging.warning("%s is torn (%s): going on from the one before", path, error)
                continue
            check(state)
            if not with_metrics:
                tensors = {n: tensor for n, tensor in tensors.items() if not n.startswith(_METRIC)}
            _assign(_variables(model, with_metrics), tensors, path)
            return state
        if paths:
            raise ValueError(
                f"no checkpoint in {self.folder} is whole: remove the folder to begin anew"
            )
        return None

    def remove(self) -> None:
        """Removes all checkpoints: the run is done."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _paths(self) -> list[Path]:
        """The checkpoints, the last one first."""
        found = self.folder.glob(f"{_PREFIX}*") if self.folder.is_dir() else ()
        return sorted((path for path in found if path.suffix != _PARTIAL), reverse=True)

    def _no_room(self, state: RunState, tensors: Tensors, error: OSError) -> str:
        needed = sum(tensor.nbytes for tensor in tensors.values())
        paths = self._paths()
        kept = f"{paths[0]} is kept" if paths else "there is none before it"
        return (
            f"no room for the checkpoint of step {state.step} in {self.folder}: it takes "
            f"{needed:,} bytes, and {shutil.disk_usage(self.folder).free:,} are free "
            f"({error.strerror}); {kept}. Make room and start the same command again"
        )


def model_tensors(model: keras.Model, with_metrics: bool = False) -> Tensors:
    """All variables of a model and its optimizer, the states of Keras' generators among them."""
    return {name: _to_numpy(variable) for name, variable in _variables(model, with_metrics).items()}


def seed_dropout(seed: int, step: int) -> None:
    """Seeds what a checkpoint cannot hold, before any batch that may be the first after one.

    Keras' dropout on PyTorch draws from PyTorch's own generator, from which `fit` draws too when it
    builds a model or begins to read data.
    """
    if keras.backend.backend() == "torch":
        import torch

        torch.manual_seed((seed << 32) + step)


def _variables(model: keras.Model, with_metrics: bool) -> dict[str, Any]:
    """The variables by names that are the same in every process, as their own need not be."""
    metrics = {id(variable) for variable in model.metrics_variables}
    weights = [variable for variable in model.variables if id(variable) not in metrics]
    moments = model.optimizer.variables
    sums = model.metrics_variables if with_metrics else ()
    return {
        **{f"model.{index:05}.{weight.name}": weight for index, weight in enumerate(weights)},
        **{f"optimizer.{index:05}": moment for index, moment in enumerate(moments)},
        **{f"{_METRIC}{index:05}": variable for index, variable in enumerate(sums)},
    }


def _to_numpy(variable: Any) -> np.ndarray[Any, Any]:
    return np.array(keras.ops.convert_to_numpy(variable.value), order="C")


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
    values = json.loads((path / _STATE).read_text(encoding="utf-8"))
    if values.pop("sha256") != _sha256(path / _TENSORS):
        raise ValueError("the checksum does not fit")
    return RunState(**values), load_file(path / _TENSORS)


def _write_tensors(path: Path, tensors: Tensors) -> None:
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        # It wraps what the system said.
        for code in _DISK_ERRORS:
            if f"os error {code}" in str(error):
                raise OSError(code, os.strerror(code)) from error
        raise


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
