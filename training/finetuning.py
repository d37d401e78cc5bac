# SPDX-License-Identifier: Apache-2.0
"""One fine-tuning run: a checkpoint and labelled text in; a model, its scores and answers out."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging

from keras_bert import TextClassifier
from keras_bert.optimizers import AdamW
from training import scores
from training.finetune_config import FinetuneConfig, FinetuneData
from training.labelled_text import LabelledText


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
    """

    seed: int
    final: dict[str, dict[str, float]]
    best: dict[str, dict[str, float]]
    best_epoch: int
    history: dict[str, list[float]]
    evaluations: list[dict[str, float]]
    examples_per_second: float
    model_path: str


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
        dtype=resolve_precision(config.precision),
    )
    steps = -(-len(data) // config.batch_size) * config.epochs
    classifier.compile(
        optimizer=AdamW(
            config.learning_rate,
            num_train_steps=steps,
            num_warmup_steps=round(config.warmup * steps),
            weight_decay=config.weight_decay,
            layer_decay=None if config.layer_decay == 1 else config.layer_decay,
            gradient_accumulation_steps=config.accumulation if config.accumulation > 1 else None,
        )
    )
    return classifier


def train(config: FinetuneConfig, data: FinetuneData, preset: str, seed: int) -> Run:
    """Trains with one seed, keeps the best epoch's model, and returns its scores."""
    keras.utils.set_random_seed(seed)
    folder = Path(config.output_dir) / f"seed_{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    classifier = build_classifier(config, data.train, preset)
    evaluation = DevEvaluation(data, folder / "model.keras", config.patience)
    callbacks: list[keras.callbacks.Callback] = [evaluation]
    if config.tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(os.fspath(folder / "tensorboard")))
    history = classifier.fit(
        data.train.inputs,
        data.train.labels,
        batch_size=config.batch_size // config.accumulation,
        epochs=config.epochs,
        callbacks=callbacks,
    )
    trained_rows = len(data.train) * len(evaluation.by_epoch)
    best = evaluation.by_epoch[evaluation.best_epoch - 1]
    return Run(
        seed=seed,
        final=evaluation.by_epoch[-1],
        best=best,
        best_epoch=evaluation.best_epoch,
        history=history.history,
        evaluations=evaluation.records(),
        examples_per_second=trained_rows / evaluation.training_seconds,
        model_path=os.fspath(evaluation.model_path),
    )


class DevEvaluation(keras.callbacks.Callback):
    """Scores the dev sets after each epoch, keeps the best model, and stops when it is time.

    Args:
        data: the dev sets and the names of the metrics.
        model_path: where the best epoch's model goes.
        patience: epochs without a better score after which training stops; 0 never stops.
    """

    def __init__(self, data: FinetuneData, model_path: Path, patience: int) -> None:
        super().__init__()
        self.data = data
        self.model_path = model_path
        self.patience = patience
        self.by_epoch: list[dict[str, dict[str, float]]] = []
        self.best_epoch = 0
        self.best_score = -np.inf
        self.training_seconds = 0.0
        self._epoch_start = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch_start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.training_seconds += time.perf_counter() - self._epoch_start
        dev_scores = {
            name: score_classifier(self.model, dev, self.data.metrics)
            for name, dev in self.data.dev.items()
        }
        self.by_epoch.append(dev_scores)
        first = next(iter(dev_scores.values()))
        if logs is not None:
            logs.update({f"dev_{name}": value for name, value in first.items()})
        logging.info("epoch %d: %s", epoch + 1, json.dumps(dev_scores))
        if scores.selection_score(first) > self.best_score:
            self.best_score, self.best_epoch = scores.selection_score(first), epoch + 1
            save_whole(self.model, self.model_path)
        elif self.patience and epoch + 1 - self.best_epoch >= self.patience:
            logging.info("stopping: no better dev score since epoch %d", self.best_epoch)
            self.model.stop_training = True

    def records(self) -> list[dict[str, float]]:
        """The scores on the first dev set, and the epoch of each."""
        first = next(iter(self.data.dev))
        return [{"epoch": n, **epoch[first]} for n, epoch in enumerate(self.by_epoch, start=1)]


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
    return scores.score(metric_names, answers(classifier, data), labels)


def save_whole(model: keras.Model, path: Path) -> None:
    """Saves to a temporary name first, so that a file of this name is always whole."""
    temporary = path.with_name(f"{path.stem}.partial.keras")
    model.save(temporary)
    os.replace(temporary, path)
