# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder on labelled text, reports its score, and exports it.

On a file of your own:

    python -m training.finetune --train_file=reviews.tsv --text=review --label=stars

By a recipe, with any of its values changed by a flag:

    python -m training.finetune --recipe=minilm_sst2 --data_dir=glue --epochs=1

Killed at any moment and started again with the same command, it goes on from its last checkpoint,
and ends with the same weights and scores; seeds that are finished are not trained again.

It writes into `output_dir`: for each seed the best model (`seed_N/model.keras`) and the curves of
loss and metric (`seed_N/curves.png`), `results.json`, the answers to the test file
(`answers.tsv`), and a SavedModel that takes text (`export/1`).
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging

from training.engine import config_flags, program
from training.engine.pretrained import preset_or_minilm
from training.engine.run_report import Stopwatch
from training.jobs.classification import FinetuneConfig, FinetuneData, read_data
from training.readers.labelled_text import LabelledText

if TYPE_CHECKING:
    from keras_bert import TextClassifier


def main(arguments: list[str]) -> None:
    program.train_and_report(arguments, FinetuneConfig, read_data, finetune, "texts.txt")


def finetune(config: FinetuneConfig, data: FinetuneData) -> dict[str, Any]:
    """Trains every seed, writes what came of it, and returns the results.

    Args:
        config: what to do.
        data: what `read_data` read.

    Returns:
        What `results.json` holds: the config, the runs, and for each dev set and metric the mean
        over the seeds of the last epoch's score, with half the width of its 95 % interval.
    """
    from training.engine import finetuning, finetuning_defaults
    from training.scores import baselines, classifier_scores

    preset = preset_or_minilm(config.preset)
    config = finetuning_defaults.complete(config, len(data.train), preset)
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    to_beat = {
        name: baselines.of_text(data.train, dev, data.metrics) for name, dev in data.dev.items()
    }
    baselines.show(to_beat)
    runs = finetuning.train_seeds(
        config,
        data,
        lambda seed_run: finetuning.train(config, data, preset, seed_run),
        config.task or Path(config.train_file).name,
    )
    best = max(
        runs, key=lambda run: classifier_scores.selection_score(next(iter(run.best.values())))
    )
    results = finetuning.results_of(config, runs, best, to_beat)
    finetuning.write_json(results, folder / "results.json")
    _finish(config, data, results, folder)
    finetuning.write_json(results, folder / "results.json")
    return results


def _finish(
    config: FinetuneConfig, data: FinetuneData, results: dict[str, Any], folder: Path
) -> None:
    """What is done once, with the best model of all seeds; adds to the results."""
    from keras_bert import load_model
    from training.engine import finetuning
    from training.scores import classifier_scores

    watch = Stopwatch(results["seconds"])
    classifier = load_model(results["kept"]["model"])
    dev = next(iter(data.dev.values()))
    with watch.part("answers"):
        if dev.class_names is not None:
            predictions = finetuning.answers(classifier, dev)
            results["by_class"] = classifier_scores.by_class(
                predictions, dev.labels, dev.class_names
            )
        if data.test is not None:
            write_answers(classifier, data.test, folder / "answers.tsv")
            if data.test.labels is not None:
                test_scores = finetuning.score_classifier(classifier, data.test, data.metrics)
                logging.info("test: %s", json.dumps(test_scores))
                finetuning.write_json(test_scores, folder / "test_scores.json")
    if config.export:
        with watch.part("export"):
            target = folder / "export" / "1"
            classifier.export(target, pair=data.train.text_pairs is not None, overwrite=True)


def write_answers(classifier: TextClassifier, data: LabelledText, path: Path) -> None:
    """One line an example: the class and its probability, or the score of a regression."""
    rows = classifier.classify(data.inputs)
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(temporary, path)


if __name__ == "__main__":
    config_flags.define_program_flags(FinetuneConfig())
    program.run(main)
