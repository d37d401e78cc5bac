# SPDX-License-Identifier: Apache-2.0
"""Measures which learning rate and number of epochs suit a number of rows, on tasks of GLUE.

    python -m training.defaults_sweep --data_dir=glue --tasks=sst2,cola --rows=100,800
    python -m training.defaults_sweep --data_dir=glue --preset=hf://google-bert/bert-base-uncased \
        --learning_rates=2e-5,3e-5,5e-5 --epochs=3,4 --results_file=runs/bert_base.jsonl

Each task's training file is cut to samples of so many rows, and the encoder is fine-tuned on each
of them with every learning rate, number of epochs and seed. The last epoch is scored on the
development file. Each run is a line of `results_file`, and what is in it is not run again:
stopped and started with the same command, the sweep continues, and another grid with the same file
adds to it. A table of all that the file holds ends the program, baselines among it.

`training.engine.finetuning_defaults` was chosen by it.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from .engine import program
from .engine.config_flags import define_flags, read_flags
from .engine.pretrained import preset_or_minilm
from .jobs.classification import FinetuneConfig, build_classifier, score_classifier
from .readers.glue import find_task, read_split
from .readers.labelled_text import LabelledText

if TYPE_CHECKING:
    import keras

    from keras_bert.optimizers import AdamW

# The first so many rows of a permutation with this seed, so that a smaller sample is a part of a
# larger one.
_SAMPLE_SEED = 0


@dataclasses.dataclass(frozen=True)
class DefaultsSweepConfig:
    """What is measured: every combination of tasks, rows, learning rates, epochs and seeds.

    Args:
        data_dir: the folder of the GLUE download.
        tasks: tasks of GLUE.
        rows: how many training rows to take; all, where a task has fewer.
        learning_rates: the peaks of the learning rate.
        epochs: passes over those rows; the learning rate's decay ends with the last.
        seeds: of the new head's weights, dropout and the order of the rows.
        dev_rows: the most development rows to score on, sampled likewise; 0 for all.
        preset: a checkpoint: a folder, hf://organisation/model, or a name KerasHub knows; empty
            takes the MiniLM of the extra `quickstart`.
        precision: as for training.finetune.
        results_file: JSON Lines, to which each run is appended.
    """

    data_dir: str = "glue"
    tasks: tuple[str, ...] = ("sst2", "cola", "mrpc", "rte", "stsb")
    rows: tuple[str, ...] = ("100", "800", "8000")
    learning_rates: tuple[str, ...] = ("5e-5", "1e-4", "1.5e-4", "3e-4")
    epochs: tuple[str, ...] = ("3", "6", "10")
    seeds: tuple[str, ...] = ("1",)
    dev_rows: int = 872
    preset: str = ""
    precision: str = "auto"
    results_file: str = "runs/defaults_sweep.jsonl"


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    program.require(program.TRAINING_LIBRARIES, "training")
    config = read_flags(DefaultsSweepConfig)
    path = Path(config.results_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    program.import_quietly()
    sweep(config, path)
    print(format_table(read_records(path)))


def sweep(config: DefaultsSweepConfig, path: Path) -> None:
    """Appends to a file what it lacks of a grid."""
    from .scores.baselines import of_text

    done = {_key(record) for record in read_records(path)}
    for name in config.tasks:
        task = find_task(name)
        whole = read_split(config.data_dir, task, "train")
        dev = sample(read_split(config.data_dir, task, task.dev_splits[0]), config.dev_rows)
        samples = {count: sample(whole, count) for count in map(int, config.rows)}
        for train in samples.values():
            record: dict[str, Any] = {"task": task.name, "rows": len(train)}
            if _key(record) not in done:
                append({**record, "baselines": of_text(train, dev, task.metrics)}, path)
                done.add(_key(record))
        for seed in map(int, config.seeds):
            trainer = None
            for count, epochs, rate in itertools.product(
                samples, map(int, config.epochs), map(float, config.learning_rates)
            ):
                train = samples[count]
                record = {
                    "preset": config.preset,
                    "task": task.name,
                    "rows": len(train),
                    "learning_rate": rate,
                    "epochs": epochs,
                    "seed": seed,
                }
                if _key(record) not in done:
                    trainer = trainer or Trainer(config, whole, seed)
                    append({**record, **trainer.run(train, dev, task.metrics, rate, epochs)}, path)
                    done.add(_key(record))


class Trainer:
    """Fine-tunes one compiled model again and again, from the same weights.

    Compiling it takes longer than training on a hundred rows.

    Args:
        config: What is measured.
        data: A file of the task, for its classes.
        seed: Of the new head's weights, dropout and the order of the rows.
    """

    def __init__(self, config: DefaultsSweepConfig, data: LabelledText, seed: int) -> None:
        import keras

        from keras_bert.optimizers import AdamW

        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        self.seed = seed
        self.config = FinetuneConfig(learning_rate=0, epochs=1, precision=config.precision)
        self.model = build_classifier(self.config, data, preset_or_minilm(config.preset))
        # The rate is set before each update.
        optimizer = AdamW(0.0, weight_decay=self.config.weight_decay)
        self.model.compile(optimizer=optimizer)
        optimizer.build(self.model.trainable_variables)
        self.variables = [*self.model.variables, *optimizer.variables]
        self.initial = [np.array(variable) for variable in self.variables]

    def run(
        self,
        train: LabelledText,
        dev: LabelledText,
        metrics: tuple[str, ...],
        learning_rate: float,
        epochs: int,
    ) -> dict[str, Any]:
        """The scores after the last epoch, the last loss, and the seconds that both took."""
        import keras

        from .engine import finetuning

        for variable, value in zip(self.variables, self.initial, strict=True):
            variable.assign(value)
        keras.utils.set_random_seed(self.seed)
        run = dataclasses.replace(self.config, learning_rate=learning_rate, epochs=epochs)
        start = time.perf_counter()
        history = self.model.fit(
            train.inputs,
            train.labels,
            batch_size=run.batch_size,
            epochs=epochs,
            callbacks=[_schedule(self.model, finetuning.make_optimizer(run, len(train)))],
            verbose=0,
        )
        trained = time.perf_counter()
        return {
            "scores": score_classifier(self.model, dev, metrics),
            "loss": history.history["loss"][-1],
            "training_seconds": round(trained - start, 1),
            "scoring_seconds": round(time.perf_counter() - trained, 1),
        }


def _schedule(model: keras.Model, optimizer: AdamW) -> keras.callbacks.Callback:
    """Gives a compiled model the learning rates that another optimizer would have."""
    import keras

    def set_rate(batch: int, logs: dict[str, Any] | None = None) -> None:
        optimizer.iterations.assign(model.optimizer.iterations)
        model.optimizer.learning_rate = float(optimizer.learning_rate)

    return keras.callbacks.LambdaCallback(on_train_batch_begin=set_rate)


def sample(data: LabelledText, count: int) -> LabelledText:
    """So many rows, drawn with a fixed seed; all of them if `count` is 0 or there are no more."""
    if not 0 < count < len(data):
        return data
    return data.rows(np.random.default_rng(_SAMPLE_SEED).permutation(len(data))[:count].tolist())


def append(record: dict[str, Any], path: Path) -> None:
    """Adds a line to a file of JSON Lines, and shows it."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    logging.info("%s", json.dumps(record))


def read_records(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; none if it is not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    fields = ("preset", "task", "rows", "learning_rate", "epochs", "seed")
    return tuple(record.get(field) for field in fields)


def format_table(records: list[dict[str, Any]]) -> str:
    """A Markdown table, a row for each task, number of rows, and setting; means over the seeds.

    The score is the mean of a task's metrics, as `classifier_scores.selection_score` has it.
    """
    from .scores import classifier_scores

    found: dict[tuple[str, int, str], list[float]] = collections.defaultdict(list)
    for record in records:
        rows = record["task"], record["rows"]
        for name, baseline in record.get("baselines", {}).items():
            found[*rows, name.replace("_", " ")].append(classifier_scores.selection_score(baseline))
        if "scores" in record:
            setting = f"{record['learning_rate']:g}, {record['epochs']} epochs"
            setting += f", {record['preset']}" if record["preset"] else ""
            found[*rows, setting].append(classifier_scores.selection_score(record["scores"]))
    lines = ["| task | rows | setting | score | runs |", "|---|---|---|---|---|"]
    lines += [
        f"| {task} | {rows} | {name} | {np.mean(values):.1f} | {len(values)} |"
        for (task, rows, name), values in sorted(found.items(), key=lambda item: item[0][:2])
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    define_flags(DefaultsSweepConfig())
    program.run(main)
