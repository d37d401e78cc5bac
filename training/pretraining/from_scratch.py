# SPDX-License-Identifier: Apache-2.0
"""The second part of the quickstart: a tiny BERT, pre-trained and from random weights."""

from __future__ import annotations

import dataclasses
import os
import warnings
from pathlib import Path

import keras

from keras_bert import MaskedLM
from keras_bert.atomic import atomic_path
from keras_bert.checkpoints import CheckpointWarning
from keras_bert.tables import text_table

from ..engine import finetuning
from ..jobs.classification import (
    ClassificationJob,
    FinetuneConfig,
    FinetuneData,
    score_classifier,
)
from ..readers.docstrings import DocstringData, raw_sentences
from ..scores import classifier_scores
from .config import PretrainConfig
from .run import pretrain

TO_FILL = ("Returns the [MASK] of an array.", "If True, the file is [MASK].")
# About two minutes on two CPU cores
NUM_STEPS = 1500


def from_scratch(
    folder: Path, docstrings: DocstringData, seed: int, *, epochs: int = 6, **changes: object
) -> None:
    """Pre-trains, fills masks and fine-tunes, and prints each step.

    Args:
        folder: Folder for all files; an interrupted run in it is resumed.
        docstrings: The data to fine-tune on; the texts to score on are excluded from pre-training.
        seed: Random seed.
        epochs: Epochs of fine-tuning.
        **changes: Changes to the `PretrainConfig`.
    """
    config = pretraining_config(folder, docstrings, seed)
    config = dataclasses.replace(config, **changes)
    print("\nPre-training a tiny BERT on the text of docstrings.")
    results = pretrain(config)
    last, first = results["last"], results["log"][0]
    print(
        f"{results['parameters']:,} parameters, {results['total']['seconds']:.0f} s: it predicts "
        f"{last['masked_accuracy']:.0%} of the masked tokens (after the first "
        f"{first['step']} steps: {first['masked_accuracy']:.0%})."
    )
    preset = folder / "preset"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        _fill_masks(MaskedLM.from_preset(preset))
        rows = {
            f"fine-tuned, {name}": _fine_tuned(folder, preset, docstrings, seed, epochs, pretrained)
            for name, pretrained in (("random weights", False), ("pre-trained", True))
        }
    print("\n" + text_table(["on the test set", "accuracy"], rows.items()))


def pretraining_config(folder: Path, docstrings: DocstringData, seed: int) -> PretrainConfig:
    """Returns the config of the pre-training; writes its text if it does not exist."""
    corpus = folder / "corpus.txt"
    if not corpus.exists():
        folder.mkdir(parents=True, exist_ok=True)
        left_out = [*docstrings.dev.texts, *docstrings.test.texts]
        with atomic_path(corpus) as temporary, open(temporary, "w", encoding="utf-8") as file:
            for sentences in raw_sentences(leave_out=left_out, seed=seed):
                file.write("\n".join(sentences) + "\n\n")
    return PretrainConfig(
        input_files=(os.fspath(corpus),),
        output_dir=os.fspath(folder),
        vocabulary_size=4000,
        kind="full_sentences",
        duplicate_factor=1,
        model="bert_tiny_uncased",
        dropout=0.0,
        phases=("64:1",),
        batch_size=32,
        num_steps=NUM_STEPS,
        warmup_steps=NUM_STEPS // 10,
        interval=NUM_STEPS // 5,
        optimizer="adamw",
        learning_rate=2e-3,
        seed=seed,
    )


def _fill_masks(masked_lm: MaskedLM) -> None:
    print()
    for text in TO_FILL:
        guesses = ", ".join(
            f"{guess['token']} ({guess['score']:.0%})" for guess in masked_lm.fill(text, top_k=4)
        )
        print(f"{text}  ->  {guesses}")


def _fine_tuned(
    folder: Path,
    preset: Path,
    docstrings: DocstringData,
    seed: int,
    epochs: int,
    pretrained: bool,
) -> float:
    """Fine-tunes, and returns the accuracy on the test set."""
    data = FinetuneData(
        docstrings.train,
        {"dev": docstrings.dev},
        docstrings.test,
        classifier_scores.metrics_for(docstrings.train.num_classes),
    )
    config = FinetuneConfig(
        epochs=epochs,
        learning_rate=5e-4,
        pretrained=pretrained,
        output_dir=os.fspath(folder / ("pretrained" if pretrained else "random")),
        sequence_length=64,
        seed=seed,
    )
    job = ClassificationJob(config, data, os.fspath(preset))
    job.title = "docstrings"
    (run,), _ = finetuning.train_seeds(job)
    classifier = keras.models.load_model(run.model_path)
    return score_classifier(classifier, docstrings.test, data.metrics)["accuracy"]
