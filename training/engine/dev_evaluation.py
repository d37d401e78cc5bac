# SPDX-License-Identifier: Apache-2.0
"""Scores the validation sets after each epoch, and saves the best model."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import keras
from absl import logging

from keras_bert import atomic

from ..costs.energy import Energy, Meter
from . import hosts
from .job import DevScores, Job
from .output_directory import NotFiniteError
from .seed_runs import SeedRun

_EVALUATION_STATE = (
    "by_epoch",
    "best_epoch",
    "best_score",
    "training_seconds",
    "waiting_seconds",
    "scoring_seconds",
    "energy",
)


class DevEvaluation(keras.callbacks.Callback):
    """Scores the validation sets after each epoch, saves the best model, and stops early."""

    def __init__(self, job: Job, seed_run: SeedRun, meter: Meter | None = None) -> None:
        super().__init__()
        self.job = job
        self.seed_run = seed_run
        self.meter = meter
        self.energy: Energy | None = None if meter is None else Energy()
        self.by_epoch: list[DevScores] = []
        self.best_epoch = 0
        self.best_score = -math.inf
        self.training_seconds = 0.0
        self.waiting_seconds = 0.0
        self.scoring_seconds = 0.0
        self._epoch_start: float | None = None

    def energy_so_far(self) -> Energy | None:
        """Returns the energy used so far, including interrupted runs that this run resumes."""
        if self.meter is not None and self.energy is not None:
            self.energy = self.energy + self.meter()
        return self.energy

    def state(self) -> dict[str, Any]:
        """Returns the state to save in checkpoints."""
        self.energy_so_far()
        state = {name: getattr(self, name) for name in _EVALUATION_STATE}
        if self._epoch_start is not None:
            state["training_seconds"] += time.perf_counter() - self._epoch_start
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the state from a checkpoint."""
        for name in _EVALUATION_STATE:
            if name in state:
                setattr(self, name, state[name])
        # The total energy is unknown if part of the run was not metered.
        energy = state.get("energy")
        is_known = energy is not None and self.meter is not None
        self.energy = Energy(*energy) if is_known else None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch_start = time.perf_counter()
        self._waited_before = getattr(self.model, "seconds_waited", 0.0)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.training_seconds = self.state()["training_seconds"]
        self.waiting_seconds += self.model.seconds_waited - self._waited_before
        self._epoch_start = None
        scoring_start = time.perf_counter()
        try:
            task = self.job.task(self.model)
            dev_scores = self.job.score(task)
        except NotFiniteError as error:
            raise NotFiniteError(f"after epoch {epoch + 1}, {error}") from error
        self.by_epoch.append(dev_scores)
        first = next(iter(dev_scores.values()))
        if logs is not None:
            if self.job.dev_loss is not None:
                logs["dev_loss"] = self.job.dev_loss
            logs.update({f"dev_{name}": value for name, value in first.items()})
        # The progress line shows the scores on the first validation set.
        for name, scores in list(dev_scores.items())[1:]:
            text = ", ".join(f"{metric} {value:.2f}" for metric, value in scores.items())
            logging.info("epoch %d, %s: %s", epoch + 1, name, text)
        score, patience = self.job.selection_score(first), self.job.config.patience
        if score > self.best_score:
            self.best_score, self.best_epoch = score, epoch + 1
            if hosts.is_main_process():
                self.job.keep(self.seed_run.directory)
            with self.job.weights_to_save(task):
                save_model(task, self.seed_run.model_path)
        elif patience and epoch + 1 - self.best_epoch >= patience:
            logging.info("early stopping: no better dev score since epoch %d", self.best_epoch)
            self.model.stop_training = True
        self.scoring_seconds += time.perf_counter() - scoring_start

    def records(self) -> list[dict[str, float]]:
        """Returns the scores on the first validation set, one record per epoch."""
        firsts = [next(iter(dev_scores.values())) for dev_scores in self.by_epoch]
        return [{"epoch": number, **first} for number, first in enumerate(firsts, start=1)]


def save_model(model: keras.Model, path: Path) -> None:
    """Saves a model atomically.

    In a multi-host run, all processes call this, and the main process writes the file.

    Raises:
        OSError: If the disk is full. An existing file is left unchanged.
    """
    optimizer = getattr(model, "optimizer", None)
    moments = () if optimizer is None else optimizer.variables
    # This is outside the `try`, because a lost process also raises a RuntimeError.
    with hosts.gathered_variables(moments):
        if not hosts.is_main_process():
            return
        try:
            with atomic.atomic_path(path) as temporary:
                model.save(temporary)
        except (OSError, RuntimeError) as error:  # HDF5 raises either if the disk is full.
            raise OSError(f"{path} could not be written: {error}") from error
