# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes with one seed. Interrupted runs can be resumed with the same result.

The order of the batches in an epoch, and dropout on PyTorch, depend only on the seed, the epoch and
the index of the batch. All other state is saved in the checkpoint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging

from keras_bert import atomic

from . import hosts, interrupts
from .options import CommandConfig
from .output_directory import (
    SettingsMismatchError,
    check_same_start,
    fingerprint,
    read_checked,
    with_checksum,
)
from .run_checkpoints import (
    DiskFullError,
    RunCheckpoints,
    RunState,
    TerminateOnNonFinite,
    seed_dropout,
)

# Minimum ratio of training time to the time spent on writing checkpoints
_LEAST_RATIO = 20.0
# After an epoch, a checkpoint is due after this fraction of the usual interval.
_EPOCH_SHARE = 0.2

FitEpoch = Callable[[int, int, list[keras.callbacks.Callback]], Any]


class SeedRun:
    """Runs one seed. Saves checkpoints during training, and a record when it is finished.

    Args:
        directory: The output directory. It is created if it does not exist.
        seed: The seed.
        fingerprint: Hash of everything that affects the result.
        seconds: Approximate training time between two checkpoints. 0 writes one after each batch.
        preset: Hash of the initial checkpoint's files. Empty if unknown.
    """

    def __init__(
        self, directory: Path, seed: int, fingerprint: str, seconds: float, preset: str = ""
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.seed = seed
        self.fingerprint = fingerprint
        self.seconds = seconds
        self.preset = preset
        self.checkpoints = RunCheckpoints(directory / "checkpoints")
        # Number of batches in the current epoch done before `fit_epoch` was called
        self.first_batch = 0
        self._record = directory / "run.json"

    @property
    def model_path(self) -> Path:
        """The path of the best epoch's model."""
        return self.directory / "model.keras"

    def load_result(self) -> dict[str, Any] | None:
        """Returns the values that `finish` saved for this run, or `None` if it is unfinished.

        Raises:
            ValueError: If the directory contains a finished run with different settings, a
                different checkpoint or a different backend, or if its record is corrupted.
        """
        if not (self._record.is_file() and self.model_path.is_file()):
            return None
        try:
            names = {"fingerprint", "backend", "preset", "run"}
            record = read_checked(self._record, names)
        except ValueError as error:
            raise ValueError(
                f"{self._record} is corrupted ({error}). Remove {self.directory} to train again"
            ) from error
        self.check_preset(record["preset"])
        if (record["fingerprint"], record["backend"]) == (self.fingerprint, _backend()):
            logging.info("seed %d is finished: %s", self.seed, self._record)
            return record["run"]
        raise SettingsMismatchError(
            f"{self.directory} contains a finished run with different settings, data or backend. "
            "Choose another --output_dir, or remove that directory"
        )

    def check_preset(self, before: str) -> None:
        """Checks that the run in the directory started from the same files.

        Raises:
            SettingsMismatchError: If the files differ.
        """
        check_same_start(self.directory, "preset", before, self.preset)

    def finish(self, values: Mapping[str, Any]) -> None:
        """Saves the results of the run, and removes its checkpoints."""
        record = {
            "fingerprint": self.fingerprint,
            "backend": _backend(),
            "preset": self.preset,
            "run": values,
        }
        atomic.write_json(self._record, with_checksum(record))
        self.checkpoints.remove()

    def fit(
        self,
        model: keras.Model,
        fit_epoch: FitEpoch,
        epochs: int,
        callbacks: Iterable[keras.callbacks.Callback] = (),
        evaluation: Any = None,
    ) -> list[dict[str, float]]:
        """Trains a compiled model up to the last epoch, and resumes from a checkpoint if it can.

        Args:
            model: The model, with the initial weights of the run.
            fit_epoch: Called once per epoch with its index from 0, the number of its finished
                batches, and the callbacks. It calls `model.fit` for the rest of the epoch. Python's
                random generator determines the order of the batches. It is seeded before the call.
            epochs: Total number of epochs.
            callbacks: Callbacks for `fit`.
            evaluation: A callback with the methods `state` and `restore`. Checkpoints contain its
                state.

        Returns:
            Keras' loss and metrics, one record per epoch.

        Raises:
            NotFiniteError: If a loss or a weight is NaN or infinite.
            ValueError: If the checkpoints have different settings or a different backend, or if all
                checkpoints are corrupted.
        """
        model.optimizer.build(model.trainable_variables)
        keeper = _Checkpoints(self, evaluation)
        keeper.restore(model)
        guard = TerminateOnNonFinite(keeper.place)
        try:
            with (
                self.checkpoints,
                interrupts.defer_interrupt(hosts.count() == 1) as keeper.is_interrupted,
            ):
                while keeper.epoch < epochs and not keeper.stopped:
                    random.seed(f"{self.seed} {keeper.epoch}")
                    self.first_batch = keeper.batch - keeper.to_redo
                    fit_epoch(keeper.epoch, self.first_batch, [guard, *callbacks, keeper])
        except DiskFullError as error:
            logging.warning("%s", error)  # Nothing will resume from the last checkpoint.
        return keeper.records


class _Checkpoints(keras.callbacks.Callback):
    """Tracks the run's progress, and writes checkpoints at intervals."""

    def __init__(self, run: SeedRun, evaluation: Any) -> None:
        super().__init__()
        self.run = run
        self.evaluation = evaluation
        self.epoch = 0
        self.batch = 0  # done in this epoch
        self.step = 0  # batches done in all epochs
        # When a run resumes within an epoch, the last batch is repeated, because Keras creates the
        # metrics' variables in the first step. Everything is restored after that step.
        self.to_redo = 0
        self.stopped = False
        self.is_interrupted: Callable[[], bool] = bool
        self.records: list[dict[str, float]] = []
        self._start = self._last = time.perf_counter()
        self._seconds = 0.0  # spent by earlier processes
        self._cost = 0.0

    def restore(self, model: keras.Model) -> None:
        directory = self.run.checkpoints.directory

        def check(checkpoint: RunState) -> None:
            self._state().check_same_run(checkpoint, directory)
            self.run.check_preset(checkpoint.details.get("preset", ""))

        checkpoint = self.run.checkpoints.restore(model, check)
        hosts.check_all_equal(
            "the step of the checkpoint", 0 if checkpoint is None else checkpoint.step
        )
        if checkpoint is None:
            return
        details = checkpoint.details
        self.step, self.records, self._seconds = checkpoint.step, checkpoint.log, checkpoint.seconds
        self.epoch, self.batch, self.stopped = (
            details[name] for name in ("epoch", "batch", "stopped")
        )
        self.to_redo = int(self.batch > 0)
        if self.to_redo:
            # Repeat the batch with the same learning rate.
            optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
            optimizer._iterations.assign(optimizer._iterations - 1)
        if self.evaluation is not None:
            self.evaluation.restore(details["evaluation"])
        print(
            f"Resuming seed {self.run.seed} from epoch {self.epoch + 1}, batch {self.batch + 1}",
            flush=True,
        )

    def place(self, epoch: int, batch: int) -> str:
        """Describes a batch, given its index in the current call of `fit`."""
        return f"epoch {epoch + 1}, batch {self._first + batch + 1}"

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._first = self.batch - self.to_redo

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        seed_dropout(self.run.seed, self.step)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.to_redo:
            self._sync()
            self.run.checkpoints.restore(self.model, with_metrics=True)
            self.to_redo = 0
            return
        self.batch = self._first + batch + 1
        self.step += 1
        # After an epoch's last batch, `on_epoch_end` saves.
        if batch + 1 != self.params["steps"] and self._is_due(self.run.seconds):
            self._save()
            self.run.checkpoints.raise_if_interrupted(self.is_interrupted())

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.records.append({name: float(value) for name, value in (logs or {}).items()})
        self.epoch, self.batch = epoch + 1, 0
        self.stopped = self.model.stop_training
        if self._is_due(self.run.seconds * _EPOCH_SHARE):
            self._save()
        self.run.checkpoints.raise_if_interrupted(self.is_interrupted())

    def _is_due(self, seconds: float) -> bool:
        def is_due() -> bool:
            if self.is_interrupted():
                return True
            pause = max(seconds, _LEAST_RATIO * self._cost) if seconds else 0.0
            return time.perf_counter() - self._last >= pause

        # All processes take part in a checkpoint, so the main process decides.
        return bool(hosts.from_main_process(is_due))

    def _save(self) -> None:
        start = time.perf_counter()
        self._sync()
        try:
            self.run.checkpoints.save(self.model, self._state(), with_metrics=self.batch > 0)
        except DiskFullError as error:
            # The run continues without this checkpoint.
            logging.warning("%s", error)
        self._last = time.perf_counter()
        self._cost = self._last - start

    def _sync(self) -> None:
        if _backend() == "jax":
            # On JAX, Keras only updates the variables when an epoch ends.
            self.model.jax_state_sync()

    def _state(self) -> RunState:
        details = {
            "epoch": self.epoch,
            "batch": self.batch,
            "stopped": self.stopped,
            "preset": self.run.preset,
            "evaluation": None if self.evaluation is None else self.evaluation.state(),
        }
        seconds = self._seconds + time.perf_counter() - self._start
        return RunState(self.step, _backend(), self.run.fingerprint, self.records, seconds, details)


def run_fingerprint(config: CommandConfig, data: Any, **more: Any) -> str:
    """Returns a hash of the settings and data that affect a seed's result.

    Args:
        config: The command's config.
        data: The training and validation data: strings, numbers and arrays in lists, mappings and
            dataclasses. Fields with `compare=False` are ignored.
        **more: Further settings.
    """
    settings = config.settings()
    for name in ("seed", "num_seeds"):
        settings.pop(name, None)
    return fingerprint({**settings, **more}, hash_data(data))


def hash_data(data: Any) -> bytes:
    """Returns a hash of the data that affect a seed's result, see `run_fingerprint`."""
    content = hashlib.sha256()
    _add(content, data)
    return content.digest()


def _add(content: Any, value: Any) -> None:
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        value = [getattr(value, field.name) for field in fields if field.compare]
    elif isinstance(value, Mapping):
        value = list(value.items())
    elif isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        content.update(f"[{len(value)}]".encode())
        for part in value:
            _add(content, part)
    else:
        content.update(repr(value).encode("utf-8", "surrogatepass") + b"\0")


def _backend() -> str:
    return str(keras.backend.backend())
