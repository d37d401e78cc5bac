# SPDX-License-Identifier: Apache-2.0
"""One fine-tuning run: a checkpoint and labelled text in; a model, its scores and answers out.

What programs for other tasks share with it: the optimizer, the evaluation after each epoch, and
what is written of a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np
from absl import logging

from keras_bert import TextClassifier
from keras_bert.optimizers import AdamW
from training.engine import output_folder
from training.engine.progress import Progress
from training.engine.seed_runs import FitEpoch, SeedRun, run_fingerprint
from training.jobs.classification import FinetuneConfig, FinetuneData
from training.plots import curves
from training.readers.labelled_text import LabelledText
from training.scores import classifier_scores
from training.scores.baselines import Baselines


class TrainingOptions(Protocol):
    """What decides how any task is trained and where to: fields that `FinetuneConfig` has."""

    @property
    def epochs(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def accumulation(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def warmup(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def layer_decay(self) -> float: ...
    @property
    def tensorboard(self) -> bool: ...
    @property
    def seed(self) -> int: ...
    @property
    def num_seeds(self) -> int: ...
    @property
    def output_dir(self) -> str: ...
    @property
    def checkpoint_seconds(self) -> float: ...


@dataclasses.dataclass(frozen=True)
class Run:
    """What came of one seed.

    Args:
        seed: the seed.
        final: for each dev set, the scores after the last epoch.
        best: for each dev set, the scores of the epoch whose score on the first was best.
        best_epoch: that epoch, counted from 1.
        history: Keras' loss and metrics by epoch.
        evaluations: the scores on the first dev set, a record an epoch.
        examples_per_second: in training, evaluation left out.
        model_path: the best epoch's model.
        seconds: how long the parts took: building, training, scoring.
    """

    seed: int
    final: dict[str, dict[str, float]]
    best: dict[str, dict[str, float]]
    best_epoch: int
    history: dict[str, list[float]]
    evaluations: list[dict[str, float]]
    examples_per_second: float
    model_path: str
    seconds: dict[str, float]


def resolve_precision(name: str) -> str:
    """The dtype policy that `auto` stands for on this backend."""
    if name != "auto":
        return name
    if keras.backend.backend() == "jax":
        import jax

        # Measured: XLA's bfloat16 products on a CPU are slower than its float32 ones.
        return "float32" if jax.default_backend() == "cpu" else "mixed_bfloat16"
    return "mixed_bfloat16"


def build_classifier(config: FinetuneConfig, data: LabelledText, preset: str) -> TextClassifier:
    """The pretrained encoder with a classifier for the classes of `data`, compiled."""
    classifier = TextClassifier.from_preset(
        preset,
        num_classes=data.num_classes,
        class_names=data.class_names,
        sequence_length=config.sequence_length,
        dropout=None if config.dropout < 0 else config.dropout,
        encoder_dropout=None if config.encoder_dropout < 0 else config.encoder_dropout,
        bilstm_units=None if config.bilstm_units < 0 else config.bilstm_units,
        bilstm_layers=config.bilstm_layers,
        load_weights=config.pretrained,
        dtype=resolve_precision(config.precision),
    )
    classifier.compile(optimizer=make_optimizer(config, len(data)))
    return classifier


def make_optimizer(config: TrainingOptions, num_rows: int) -> AdamW:
    """AdamW with warm-up and decay over all steps of a run.

    Args:
        config: what decides it.
        num_rows: rows in an epoch.
    """
    # The optimizer counts updates, and an accumulation goes on from one epoch to the next.
    batches = -(-num_rows // (config.batch_size // config.accumulation)) * config.epochs
    steps = max(1, batches // config.accumulation)
    return AdamW(
        config.learning_rate,
        num_train_steps=steps,
        num_warmup_steps=round(config.warmup * steps),
        weight_decay=config.weight_decay,
        layer_decay=None if config.layer_decay == 1 else config.layer_decay,
        gradient_accumulation_steps=config.accumulation if config.accumulation > 1 else None,
    )


def train(config: FinetuneConfig, data: FinetuneData, preset: str, seed_run: SeedRun) -> Run:
    """Trains with one seed, keeps the best epoch's model, and returns its scores."""
    keras.utils.set_random_seed(seed_run.seed)
    classifier = build_classifier(config, data.train, preset)

    def score(model: TextClassifier) -> DevScores:
        return {name: score_classifier(model, dev, data.metrics) for name, dev in data.dev.items()}

    evaluation = DevEvaluation(score, seed_run.model_path, config.patience)
    fit_epoch = epochs_of_text(classifier, data.train.inputs, data.train.labels, config)
    return fit_and_evaluate(
        classifier, fit_epoch, config, evaluation, seed_run, num_rows=len(data.train)
    )


def epochs_of_text(model: Any, x: Any, y: Any, config: TrainingOptions) -> FitEpoch:
    """How a task is fitted for an epoch, or the rest of one, as `SeedRun.fit` asks for it.

    Args:
        model: the task.
        x, y: what it trains on, in a form that its `fit` takes; what brings its labels has no y.
        config: what decides the run; a length_window below 0 takes the default of `fit`.
    """
    window = getattr(config, "length_window", None)

    def fit_epoch(epoch: int, batch: int, callbacks: list[keras.callbacks.Callback]) -> None:
        model.fit(
            x,
            y,
            batch_size=config.batch_size // config.accumulation,
            epochs=epoch + 1,
            initial_epoch=epoch,
            initial_batch=batch,
            length_window=window if window and window > 0 else None,
            callbacks=callbacks,
            verbose=0,
        )

    return fit_epoch


def fit_and_evaluate(
    model: keras.Model,
    fit_epoch: FitEpoch,
    config: TrainingOptions,
    evaluation: DevEvaluation,
    seed_run: SeedRun,
    *,
    num_rows: int,
) -> Run:
    """Fits a compiled model under an evaluation, and sums up what came of it.

    Args:
        model: the task.
        fit_epoch: as for `SeedRun.fit`.
        config: what decides the run.
        evaluation: scores and keeps the model.
        seed_run: where its checkpoints are, from which it goes on if it was stopped.
        num_rows: examples in an epoch, for the speed.
    """
    output_folder.check_room(evaluation.model_path.parent, _bytes_of(model))
    callbacks: list[keras.callbacks.Callback] = [evaluation, Progress(epochs=config.epochs)]
    if config.tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(os.fspath(seed_run.folder / "tensorboard")))
    records = seed_run.fit(model, fit_epoch, config.epochs, callbacks, evaluation)
    trained_rows = num_rows * len(evaluation.by_epoch)
    return Run(
        seed=seed_run.seed,
        final=evaluation.by_epoch[-1],
        best=evaluation.by_epoch[evaluation.best_epoch - 1],
        best_epoch=evaluation.best_epoch,
        history={name: [record[name] for record in records] for name in records[0]},
        evaluations=evaluation.records(),
        examples_per_second=trained_rows / evaluation.training_seconds,
        model_path=os.fspath(evaluation.model_path),
        seconds={"training": evaluation.training_seconds, "scoring": evaluation.scoring_seconds},
    )


def _bytes_of(model: keras.Model) -> int:
    """About what the model takes in a file, with its optimizer's state, which Keras saves too."""
    trainable = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    return 4 * (model.count_params() + 2 * trainable)


_EVALUATION_STATE = (
    "by_epoch",
    "best_epoch",
    "best_score",
    "training_seconds",
    "scoring_seconds",
)
# By the name of a dev set, its scores by the name of the metric.
DevScores = dict[str, dict[str, float]]


class DevEvaluation(keras.callbacks.Callback):
    """Scores the dev sets after each epoch, keeps the best model, and stops when it is time.

    Args:
        score: scores a model on every dev set.
        model_path: where the best epoch's model goes.
        patience: epochs without a better score after which training stops; 0 never stops.
        selection_score: the one number, of the scores on the first dev set, that decides which
            epoch is best.
        keep: called where an epoch is the best so far, before its model is saved.
    """

    def __init__(
        self,
        score: Callable[[Any], DevScores],
        model_path: Path,
        patience: int,
        selection_score: Callable[[dict[str, float]], float] = classifier_scores.selection_score,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.score = score
        self.model_path = model_path
        self.patience = patience
        self.selection_score = selection_score
        self.keep = keep
        self.by_epoch: list[DevScores] = []
        self.best_epoch = 0
        self.best_score = -math.inf
        self.training_seconds = 0.0
        self.scoring_seconds = 0.0
        self._epoch_start: float | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        state = {name: getattr(self, name) for name in _EVALUATION_STATE}
        if self._epoch_start is not None:
            state["training_seconds"] += time.perf_counter() - self._epoch_start
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from `state`."""
        for name in _EVALUATION_STATE:
            setattr(self, name, state[name])

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch_start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.training_seconds = self.state()["training_seconds"]
        self._epoch_start = None
        scoring_start = time.perf_counter()
        dev_scores = self.score(self.model)
        self.by_epoch.append(dev_scores)
        first = next(iter(dev_scores.values()))
        if logs is not None:
            logs.update({f"dev_{name}": value for name, value in first.items()})
        logging.info("epoch %d: %s", epoch + 1, json.dumps(dev_scores))
        if self.selection_score(first) > self.best_score:
            self.best_score, self.best_epoch = self.selection_score(first), epoch + 1
            self.keep()
            save_whole(self.model, self.model_path)
        elif self.patience and epoch + 1 - self.best_epoch >= self.patience:
            logging.info("stopping: no better dev score since epoch %d", self.best_epoch)
            self.model.stop_training = True
        self.scoring_seconds += time.perf_counter() - scoring_start

    def records(self) -> list[dict[str, float]]:
        """The scores on the first dev set, and the epoch of each."""
        firsts = [next(iter(dev_scores.values())) for dev_scores in self.by_epoch]
        return [{"epoch": number, **first} for number, first in enumerate(firsts, start=1)]


def answers(classifier: TextClassifier, data: LabelledText) -> np.ndarray:
    """Class ids, or the scores of a regression, for every row."""
    logits = classifier.predict(data.inputs, batch_size=64, verbose=0)
    return logits[:, 0] if classifier.is_regression else np.argmax(logits, axis=-1)


def score_classifier(
    classifier: TextClassifier, data: LabelledText, metric_names: tuple[str, ...]
) -> dict[str, float]:
    """The scores of a classifier on labelled text."""
    labels = data.labels
    if labels is None:
        raise ValueError(f"{data.path} has no labels to score against")
    return classifier_scores.score(metric_names, answers(classifier, data), labels)


def save_whole(model: keras.Model, path: Path) -> None:
    """Saves to a temporary name first, so that a file of this name is always whole.

    Raises:
        OSError: If there is no room; a file of this name is untouched.
    """
    temporary = path.with_name(f"{path.stem}.partial.keras")
    try:
        model.save(temporary)
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:  # HDF5 has errors of both kinds for a full disk
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(f"{path} could not be written: {error}") from error


def train_seeds(
    config: TrainingOptions, data: Any, train: Callable[[SeedRun], Run], title: str
) -> list[Run]:
    """A run for each of the config's seeds, with its curves beside its model.

    What was killed goes on, and what is finished is not done again.

    Args:
        config: Which seeds, and where to.
        data: What they learn from: runs of other data are not gone on from.
        train: Trains with a seed.
        title: What the curves are of.
    """
    runs = []
    fingerprint = run_fingerprint(config, data)
    for seed in range(config.seed, config.seed + config.num_seeds):
        folder = Path(config.output_dir) / f"seed_{seed}"
        seed_run = SeedRun(folder, seed, fingerprint, config.checkpoint_seconds)
        finished = seed_run.finished()
        if finished is not None:
            runs.append(Run(**{**finished, "model_path": os.fspath(seed_run.model_path)}))
            continue
        logging.info("seed %d", seed)
        start = time.perf_counter()
        run = train(seed_run)
        own = time.perf_counter() - start
        building = max(0.0, own - sum(run.seconds.values()))
        run = dataclasses.replace(run, seconds={"building": building, **run.seconds})
        runs.append(run)
        path = folder / "curves.png"
        try:
            curves.plot_curves(
                path,
                run.history,
                run.evaluations,
                title=f"{title}, seed {seed}",
                kept=run.best_epoch,
            )
        except (ImportError, OSError, ValueError) as error:
            # Nothing that was trained may be lost for a picture
            logging.warning("no curves in %s: %s", path, error)
        seed_run.finish(dataclasses.asdict(run))
    return runs


def summary(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """For each dev set and metric, the last epoch's score: mean, interval, and each seed's."""

    def of(dev: str, metric: str) -> dict[str, Any]:
        values = [run.final[dev][metric] for run in runs]
        mean, half_width = classifier_scores.summarise(values)
        interval = None if len(values) == 1 else round(half_width, 2)
        return {"mean": round(mean, 2), "interval_95": interval, "seeds": values}

    return {
        dev: {metric: of(dev, metric) for metric in runs[0].final[dev]} for dev in runs[0].final
    }


def results_of(
    config: Any, runs: Sequence[Run], best: Run, baselines: Mapping[str, Baselines]
) -> dict[str, Any]:
    """What `results.json` holds: the config, the backend, the runs, and what came of them.

    Args:
        config: of the runs.
        runs: a run a seed.
        best: the one whose model is kept.
        baselines: by the name of a dev set, what any model must beat on it.
    """
    return {
        "config": dataclasses.asdict(config),
        "backend": keras.backend.backend(),
        "runs": [dataclasses.asdict(run) for run in runs],
        "summary": summary(runs),
        "baselines": dict(baselines),
        "kept": {
            "seed": best.seed,
            "epoch": best.best_epoch,
            "epochs": len(best.evaluations),
            "by": next(iter(best.best)),
            "scores": best.best,
            "model": best.model_path,
        },
        "seconds": {part: sum(run.seconds[part] for run in runs) for part in best.seconds},
    }


def write_json(value: Mapping[str, Any], path: Path) -> None:
    """Writes to a temporary name first, so that a file of this name is always whole."""
    output_folder.write_text(path, json.dumps(value, indent=2) + "\n")
