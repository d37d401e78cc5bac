# SPDX-License-Identifier: Apache-2.0
"""Trains, exports and runs a classifier of emoji names in about a minute.

    python -m training.quickstart

It fine-tunes a pretrained encoder on the Unicode names of emoji, which require no download. Does
"steam locomotive" show an animal, food, something in an office, a vehicle, or weather? Most words
in the test set do not occur in the training set. Therefore, a bag of words has little information,
and the encoder's knowledge of word meaning is decisive. The command prints the test score next to
the majority class and bag-of-words scores, exports a model that accepts text, and starts a new
process that classifies unseen names without keras_bert. If TensorFlow or TF Text is not installed,
the export is skipped, and the new process loads the `.keras` file with keras_bert.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from absl import logging

from keras_bert import minilm

from .engine import child_commands, example_request, output_directory, program
from .engine.options import CommandConfig, PositiveInt, Seed
from .jobs.classification import logits, score_logits
from .readers.emoji import split_emoji, write_emoji
from .readers.labeled_text import LabeledText

if TYPE_CHECKING:
    from keras_bert import TextClassifier

_BATCH_SIZE = 16
_MODEL = "model.keras"
# Code for a process with only TensorFlow and TF Text. Texts and predictions are JSON lists.
_EXPORT_ANSWERS = """
import json, sys
import tensorflow as tf
import tensorflow_text
model = tf.saved_model.load(sys.argv[1])
answers = model.signatures["serving_default"](text=tf.constant(json.load(sys.stdin)))
labels = [label.decode() for label in answers["label"].numpy()]
print(json.dumps(list(zip(labels, answers["score"].numpy().tolist()))))
"""
_MODEL_ANSWERS = """
import json, sys
import keras_bert
answers = keras_bert.load_model(sys.argv[1]).classify(json.load(sys.stdin))
print(json.dumps([(row["label"], row["score"]) for row in answers]))
"""
# Number of wrong predictions to show
_NUM_WRONG = 3


class Answer(NamedTuple):
    """A label and its probability."""

    label: str
    score: float


@dataclasses.dataclass(frozen=True)
class QuickstartConfig(CommandConfig):
    """The settings of the quickstart.

    Args:
        epochs: Number of passes over the training names.
        seed: Seed for the split of the names, the weights of the new head and the order of the
            batches.
        output_dir: Directory for the data, the model and the export.
        overwrite: Whether to replace the model from an earlier quickstart in output_dir.
    """

    epochs: PositiveInt = 8
    seed: Seed = 1
    output_dir: str = "runs/quickstart"
    overwrite: bool = False


def main(config: QuickstartConfig) -> None:
    start = time.perf_counter()
    # TensorFlow logs every file that it writes.
    logging.set_verbosity(logging.WARNING)
    minilm.resolve(minilm.NAME)  # Importing Keras takes seconds, so raise errors before that.
    program.require(program.TRAINING_LIBRARIES, "training")
    with output_directory.lock_output_dir(config.output_dir, command="quickstart") as directory:
        if (directory / _MODEL).exists() and not config.overwrite:
            raise FileExistsError(
                f"--output_dir must not contain a model. Received: {directory}, with {_MODEL}. "
                "Choose another directory, or replace the model with --overwrite"
            )
        program.import_quietly()
        quickstart(config, minilm.NAME)
    print(f"\nIt took {time.perf_counter() - start:.0f} s.")


def quickstart(config: QuickstartConfig, preset: str) -> None:
    """Trains, scores and exports a classifier, runs it in a new process, and prints each step."""
    from keras_bert import TextClassifier
    from keras_bert.checkpoints import CheckpointWarning
    from keras_bert.ops.lazy_tensorflow import set_random_seed
    from keras_bert.optimizers import AdamW

    from .engine import finetuning
    from .engine.progress import Progress

    directory = Path(config.output_dir)
    rows = directory / "emoji.csv"
    write_emoji(rows)
    train, test = split_emoji(config.seed)
    print(
        f"{len(train)} emoji names for training, {len(test)} for the test (see {rows}). "
        f"The label is what they show: {', '.join(train.class_names or ())}."
    )
    set_random_seed(config.seed)
    with warnings.catch_warnings():
        # The missing head is expected, because it is trained here.
        warnings.filterwarnings("ignore", ".* has no classifier head", CheckpointWarning)
        classifier = TextClassifier.from_preset(
            preset, class_names=train.class_names, sequence_length=32
        )
    steps = classifier.num_steps(train.texts, batch_size=_BATCH_SIZE, epochs=config.epochs)
    classifier.compile(optimizer=AdamW(1e-4, num_train_steps=steps, num_warmup_steps=steps // 10))
    classifier.fit(
        *(train.texts, train.labels),
        epochs=config.epochs,
        batch_size=_BATCH_SIZE,
        verbose=0,
        callbacks=[Progress()],
    )
    _print_scores(classifier, train, test)

    model = directory / _MODEL
    classifier.save(model)
    if finetuning.can_export():
        model = directory / "export" / "1"
        classifier.export(model, overwrite=True, warm_up=False)
    print(f"\nThe model is in {model}.")
    answers = answer_in_fresh_process(model, test.texts)
    print("A new process has loaded it. These names were not in the training data:\n")
    print(answers_table(test, answers))
    curl = example_request.curl_command(["text"], text="a bowl of noodle soup")
    print(
        f"\nNext: {child_commands.command_name('serve')} --model={shlex.quote(os.fspath(model))}\n"
        f"      {curl}"
    )


def _print_scores(classifier: TextClassifier, train: LabeledText, test: LabeledText) -> None:
    """Prints the test scores as a table, baselines first."""
    from keras_bert.tables import replace_underscores, table_from_records, text_table

    from .scores import baselines, classifier_scores

    metrics = classifier_scores.metrics_for(train.num_classes)
    rows = replace_underscores(baselines.text_baselines(train, {"test": test}, metrics)["test"])
    rows = {
        **rows,
        "fine-tuned MiniLM": score_logits(classifier, logits(classifier, test), test, metrics),
    }
    print("\n" + text_table(*table_from_records("on the test set", rows)))


def answers_table(test: LabeledText, answers: Sequence[Answer]) -> str:
    """Formats the first correct prediction per label and some wrong predictions as a table."""
    from keras_bert.tables import text_table

    labels = [(test.class_names or ())[index] for index in test.strata]
    right: dict[str, list[str]] = {}
    wrong: list[list[str]] = []
    for text, label, answer in zip(test.texts, labels, answers, strict=True):
        row = [text, answer.label, f"{answer.score:.0%}"]
        if answer.label != label:
            wrong.append([*row, f"wrong: {label}"])
        elif label not in right:
            right[label] = [*row, "right"]
    return text_table(
        ["name", "answer", "probability", ""], [*right.values(), *wrong[:_NUM_WRONG]], 4
    )


def answer_in_fresh_process(model: Path, texts: Sequence[str]) -> list[Answer]:
    """Loads a classifier in a new Python process and classifies texts.

    An export only requires TensorFlow and TF Text, not keras_bert.

    Raises:
        RuntimeError: If the process fails. The message includes its standard error.
    """
    code = _MODEL_ANSWERS if model.suffix == ".keras" else _EXPORT_ANSWERS
    process = subprocess.run(
        [sys.executable, "-c", code, os.fspath(model)],
        input=json.dumps(list(texts)),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if process.returncode:
        raise RuntimeError(f"the model failed in a new process:\n{process.stderr}")
    return [Answer(*answer) for answer in json.loads(process.stdout.splitlines()[-1])]


if __name__ == "__main__":
    program.run(main, QuickstartConfig)
