# SPDX-License-Identifier: Apache-2.0
"""From text to a served prediction in minutes: which package does a docstring come from?

    python -m training.quickstart
    python -m training.quickstart --from_scratch

It fine-tunes a real pretrained encoder on real text that every machine has: the first sentences of
docstrings from fourteen packages. It prints the test score beside those of the majority class and
of a bag of words, exports a model that takes text, and has a new process, which does not import
this project, classify an unseen docstring.

With --from_scratch it then pre-trains a tiny BERT on the text of docstrings, fills masks with it,
and fine-tunes it and the same network with random weights.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

from absl import logging

from keras_bert import minilm

from .engine import output_folder, program
from .engine.options import PositiveInt, ProgramConfig, Seed
from .jobs.classification import (
    ClassificationJob,
    FinetuneConfig,
    FinetuneData,
    score_classifier,
)
from .plots.curves import curves_figure
from .plots.style import save
from .readers.docstrings import DocstringData, collect_docstrings

# What a server does, with TensorFlow and TF Text only. The text is read from standard input.
_ANSWER = """
import sys
import tensorflow as tf
import tensorflow_text
model = tf.saved_model.load(sys.argv[1])
answer = model.signatures["serving_default"](text=tf.constant([sys.stdin.read()]))
print(answer["label"].numpy()[0].decode(), float(answer["score"].numpy()[0]))
"""


@dataclasses.dataclass(frozen=True)
class QuickstartConfig(ProgramConfig):
    """The settings of the quickstart.

    Args:
        max_per_package: Maximum number of docstrings from one package, over all three sets.
        epochs: Passes over the training docstrings.
        seed: Seed of the choice of docstrings, of the head's initial weights and of the order.
        from_scratch: Whether to pre-train a tiny BERT too, which takes a few minutes more and
            requires the extra `pretraining`.
        output_dir: Folder for the model, the plot and the export.
    """

    max_per_package: PositiveInt = 200
    epochs: PositiveInt = 6
    seed: Seed = 1
    from_scratch: bool = False
    output_dir: str = "runs/quickstart"


def main(config: QuickstartConfig) -> None:
    started = time.perf_counter()
    # TensorFlow logs every file that it writes.
    logging.set_verbosity(logging.WARNING)
    preset = minilm.folder()
    program.require((*program.TRAINING_LIBRARIES, "tensorflow", "tensorflow_text"), "training")
    with output_folder.claimed(config.output_dir):
        docstrings = collect_docstrings(max_per_package=config.max_per_package, seed=config.seed)
        program.import_quietly()
        quickstart(config, preset, docstrings)
        if config.from_scratch:
            from .pretraining.from_scratch import from_scratch

            from_scratch(Path(config.output_dir) / "from_scratch", docstrings, config.seed)
    print(f"\nIt took {time.perf_counter() - started:.0f} s.")


def quickstart(config: QuickstartConfig, preset: Path, docstrings: DocstringData) -> None:
    """Trains, scores and exports a classifier, queries the export, and prints each step."""
    from keras_bert import load_model

    from .engine import finetuning
    from .scores import classifier_scores

    train, test = docstrings.train, docstrings.test
    classes = ", ".join(train.class_names or ())
    print(
        f"{len(train)} docstrings for training, {len(docstrings.dev)} for development and "
        f"{len(test)} for the test; docstrings of one file are all in the same set. The label is "
        f"the package: {classes}."
    )
    data = FinetuneData(
        train, {"dev": docstrings.dev}, test, classifier_scores.metrics_for(train.num_classes)
    )
    finetune_config = FinetuneConfig(
        epochs=config.epochs,
        learning_rate=2e-4,
        output_dir=config.output_dir,
        sequence_length=64,
        seed=config.seed,
    )
    job = ClassificationJob(finetune_config, data, os.fspath(preset))
    job.title = "docstrings"
    (run,), _ = finetuning.train_seeds(job)
    drawn = curves_figure(
        run.history,
        run.evaluations,
        title="Which package is this docstring from?",
        kept=run.best_epoch,
    )
    plot = save(drawn, Path(config.output_dir) / "curves.png")
    classifier = load_model(run.model_path)
    _print_scores(score_classifier(classifier, test, data.metrics), data)

    export = Path(config.output_dir) / "export" / "1"
    classifier.export(export, overwrite=True, warm_up=False)
    print(f"\nExported to {export}; curves in {plot}.")
    label, score = answer_in_fresh_process(export, docstrings.held_out_text)
    print(
        f"\nA new process with TensorFlow only classified an unseen docstring:\n"
        f"    {docstrings.held_out_text}\n"
        f"Predicted: {label} ({score:.0%}). Correct: {docstrings.held_out_label}."
    )


def _print_scores(ours: dict[str, float], data: FinetuneData) -> None:
    """Prints the test scores as a table, the baselines first."""
    from keras_bert.tables import of_records, text_table, with_spaces

    from .scores import baselines

    if data.test is None:
        raise ValueError("the quickstart's data has no test set")
    rows = with_spaces(baselines.of_text(data.train, data.test, data.metrics))
    rows = {**rows, "fine-tuned MiniLM": ours}
    print("\n" + text_table(*of_records("on the test set", rows)))


def answer_in_fresh_process(export: Path, text: str) -> tuple[str, float]:
    """Loads an exported classifier in a new Python process and classifies a text.

    Returns:
        The label and its probability.

    Raises:
        RuntimeError: If the process fails; the message includes its standard error.
    """
    finished = subprocess.run(
        [sys.executable, "-c", _ANSWER, os.fspath(export)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if finished.returncode:
        raise RuntimeError(f"the exported model failed in a new process:\n{finished.stderr}")
    label, score = finished.stdout.split()[-2:]
    return label, float(score)


if __name__ == "__main__":
    program.run(main, QuickstartConfig)
