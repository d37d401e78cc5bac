# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder to choose what goes with a text: SWAG, CODAH.

On files of your own:

    python -m training.finetune_choice --train_file=train.jsonl --dev_file=dev.jsonl

By a recipe, with any of its values changed by a flag:

    python -m training.finetune_choice --recipe=minilm_codah --data_dir=codah --epochs=1

It writes into `output_dir`: for each seed the best model (`seed_N/model.keras`) and the curves of
loss and accuracy (`seed_N/curves.png`); `results.json`; of the best seed the answers to the test
file (`answers.tsv`); and a SavedModel that takes text (`export/1`).
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.engine import config_flags, program
from training.engine.pretrained import preset_or_minilm
from training.engine.run_report import Stopwatch
from training.jobs.multiple_choice import ChoiceConfig, ChoiceData, read_data
from training.readers.choice_files import ChoiceRows

if TYPE_CHECKING:
    from keras_bert import MultipleChoice
    from training.engine import finetuning
    from training.engine.seed_runs import SeedRun


def main(arguments: list[str]) -> None:
    program.train_and_report(arguments, ChoiceConfig, read_data, finetune, "choices.jsonl")


def finetune(config: ChoiceConfig, data: ChoiceData) -> dict[str, Any]:
    """Trains every seed, writes what came of it, and returns the results.

    Args:
        config: what to do.
        data: what `read_data` read.

    Returns:
        What `results.json` holds: the config, the runs, and for the dev file, and a test file that
        has labels, the mean over the seeds of the last epoch's accuracy, with half the width of
        its 95 % interval.
    """
    from training.engine import finetuning
    from training.scores import baselines

    preset = preset_or_minilm(config.preset)
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    to_beat = {name: baselines.of_choices(rows) for name, rows in data.scored.items()}
    baselines.show(to_beat)
    runs = finetuning.train_seeds(
        config,
        data,
        lambda seed_run: train(config, data, preset, seed_run),
        Path(config.train_file).name,
    )
    best = max(runs, key=lambda run: run.best["dev"]["accuracy"])
    results = finetuning.results_of(config, runs, best, to_beat)
    finetuning.write_json(results, folder / "results.json")
    _finish(config, data, results, folder)
    finetuning.write_json(results, folder / "results.json")
    return results


def train(config: ChoiceConfig, data: ChoiceData, preset: str, seed_run: SeedRun) -> finetuning.Run:
    """Trains with one seed, keeps the best epoch's model, and returns its scores."""
    import keras

    from keras_bert import MultipleChoice
    from training.engine import finetuning

    keras.utils.set_random_seed(seed_run.seed)
    task = MultipleChoice.from_preset(
        preset,
        sequence_length=config.sequence_length,
        dropout=None if config.dropout < 0 else config.dropout,
        load_weights=config.pretrained,
        dtype=finetuning.resolve_precision(config.precision),
    )
    task.compile(finetuning.make_optimizer(config, len(data.train)))

    def score(model: MultipleChoice) -> finetuning.DevScores:
        return {name: score_task(model, rows) for name, rows in data.scored.items()}

    evaluation = finetuning.DevEvaluation(score, seed_run.model_path, config.patience)
    fit_epoch = finetuning.epochs_of_text(task, data.train.inputs, data.train.labels, config)
    return finetuning.fit_and_evaluate(
        task, fit_epoch, config, evaluation, seed_run, num_rows=len(data.train)
    )


def score_task(task: MultipleChoice, data: ChoiceRows) -> dict[str, float]:
    """The accuracy on labelled rows, times 100."""
    if data.labels is None:
        raise ValueError(f"{data.path} has no labels to score against")
    from training.scores import classifier_scores

    logits = task.predict(data.inputs, batch_size=64, verbose=0)
    return classifier_scores.score(("accuracy",), np.argmax(logits, axis=-1), data.labels)


def _finish(config: ChoiceConfig, data: ChoiceData, results: dict[str, Any], folder: Path) -> None:
    """What is done once, with the best model of all seeds; adds to the results."""
    from keras_bert import load_model

    if not (config.export or data.test):
        return
    watch = Stopwatch(results["seconds"])
    task = load_model(results["kept"]["model"])
    if data.test is not None:
        with watch.part("answers"):
            write_answers(task, data.test, folder / "answers.tsv")
    if config.export:
        with watch.part("export"):
            task.export(folder / "export" / "1", overwrite=True)


def write_answers(task: MultipleChoice, data: ChoiceRows, path: Path) -> None:
    """One line a text: the place of the best choice from 0, its words and its probability."""
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["choice", "text", "score"])
        for ranked in task.choose(data.inputs, batch_size=64):
            writer.writerow([ranked[0]["choice"], ranked[0]["text"], ranked[0]["score"]])
    os.replace(temporary, path)


if __name__ == "__main__":
    config_flags.define_program_flags(ChoiceConfig())
    program.run(main)
