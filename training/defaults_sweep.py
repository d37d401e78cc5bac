# SPDX-License-Identifier: Apache-2.0
"""Measures the best learning rate and number of epochs by the number of rows, on GLUE tasks.

    python -m training.defaults_sweep --data_dir=glue --tasks=sst2,cola --rows=100,800
    python -m training.defaults_sweep --data_dir=glue --preset=hf://google-bert/bert-base-uncased \\
        --learning_rates=2e-5,3e-5,5e-5 --epochs=3,4 --results_file=runs/bert_base.jsonl

Samples of the given sizes are drawn from each task's training file, and the encoder is fine-tuned
on each of them with every learning rate, number of epochs and seed. The last epoch is scored on the
development file. Each run appends a line to `results_file`, and runs that are in the file are not
repeated: the same command resumes an interrupted sweep, and another grid with the same file adds to
it. At the end a table of all results in the file, baselines included, is printed.

The defaults in `training.engine.finetuning_defaults` were chosen with it.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from keras_bert.tables import markdown_table

from .engine import program
from .engine.config_flags import define_flags, read_flags
from .engine.options import NonNegativeInt, ProgramConfig
from .engine.pretrained import preset_or_minilm
from .jobs.classification import FinetuneConfig, build_classifier, score_classifier
from .readers.glue import find_task, read_split
from .readers.labeled_text import LabeledText

if TYPE_CHECKING:
    import keras

    from keras_bert.optimizers import AdamW

# A sample is the first rows of a permutation with this seed, so that a smaller sample is a subset
# of a larger one.
_SAMPLE_SEED = 0


@dataclasses.dataclass(frozen=True)
class DefaultsSweepConfig(ProgramConfig):
    """The grid: every combination of tasks, rows, learning rates, epochs and seeds.

    Args:
        data_dir: Folder of the GLUE download.
        tasks: GLUE tasks.
        rows: Numbers of training rows; a task with fewer rows uses all of them.
        learning_rates: Peak learning rates.
        epochs: Numbers of epochs; the learning rate decays to 0 at the end of the last.
        seeds: Seeds of the new head's weights, of dropout and of the order of the rows.
        dev_rows: Maximum number of development rows to score on, sampled likewise; 0 for all.
        preset: The checkpoint: a folder, hf://organization/model, or a KerasHub preset name; empty
            takes the MiniLM of the extra `quickstart`.
        precision: Precision, as for training.finetune.
        results_file: JSON Lines file that each run is appended to.
    """

    data_dir: str = "glue"
    tasks: tuple[str, ...] = ("sst2", "cola", "mrpc", "rte", "stsb")
    rows: tuple[str, ...] = ("100", "800", "8000")
    learning_rates: tuple[str, ...] = ("5e-5", "1e-4", "1.5e-4", "3e-4")
    epochs: tuple[str, ...] = ("3", "6", "10")
    seeds: tuple[str, ...] = ("1",)
    dev_rows: NonNegativeInt = 872
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
    """Performs the runs of a grid that are missing in a file, and appends them to it."""
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
    """Fine-tunes one compiled model repeatedly, from the same initial weights.

    The model is reused because compiling takes longer than training on a hundred rows.

    Args:
        config: The grid.
        data: The task's training text, which gives the classes.
        seed: Seed of the new head's weights, of dropout and of the order of the rows.
    """

    def __init__(self, config: DefaultsSweepConfig, data: LabeledText, seed: int) -> None:
        import keras

        from keras_bert.ops.lazy_tensorflow import set_random_seed
        from keras_bert.optimizers import AdamW

        keras.utils.clear_session()
        set_random_seed(seed)
        self.seed = seed
        self.config = FinetuneConfig(learning_rate=0, epochs=1, precision=config.precision)
        self.model = build_classifier(self.config, data, preset_or_minilm(config.preset))
        # A callback sets the learning rate before each update.
        optimizer = AdamW(0.0, weight_decay=self.config.weight_decay)
        self.model.compile(optimizer=optimizer)
        optimizer.build(self.model.trainable_variables)
        self.variables = [*self.model.variables, *optimizer.variables]
        self.initial = [np.array(variable) for variable in self.variables]

    def run(
        self,
        train: LabeledText,
        dev: LabeledText,
        metrics: tuple[str, ...],
        learning_rate: float,
        epochs: int,
    ) -> dict[str, Any]:
        """Trains once; returns the final scores and loss, and the times of both in seconds.

        If the training diverges, it returns `diverged`, the reason, instead.
        """
        from keras_bert.ops.lazy_tensorflow import set_random_seed

        from .engine import finetuning
        from .engine.run_checkpoints import NotFiniteError, StopWhereNotFinite

        for variable, value in zip(self.variables, self.initial, strict=True):
            variable.assign(value)
        set_random_seed(self.seed)
        run = dataclasses.replace(self.config, learning_rate=learning_rate, epochs=epochs)
        steps = self.model.num_steps(train.inputs, run.batch_size, epochs)
        schedule = _schedule(self.model, finetuning.make_optimizer(run, steps))
        guard = StopWhereNotFinite(lambda epoch, batch: f"epoch {epoch + 1}, batch {batch + 1}")
        start = time.perf_counter()
        try:
            history = self.model.fit(
                train.inputs,
                train.labels,
                batch_size=run.batch_size,
                epochs=epochs,
                callbacks=[schedule, guard],
                verbose=0,
            )
            trained = time.perf_counter()
            scores = score_classifier(self.model, dev, metrics)
        except NotFiniteError as error:
            return {"diverged": str(error)}
        return {
            "scores": scores,
            "loss": history.history["loss"][-1],
            "training_seconds": round(trained - start, 1),
            "scoring_seconds": round(time.perf_counter() - trained, 1),
        }


def _schedule(model: keras.Model, optimizer: AdamW) -> keras.callbacks.Callback:
    """Returns a callback that applies the learning rate schedule of another optimizer."""
    import keras

    def set_rate(batch: int, logs: dict[str, Any] | None = None) -> None:
        optimizer.iterations.assign(model.optimizer.iterations)
        model.optimizer.learning_rate = float(optimizer.learning_rate)

    return keras.callbacks.LambdaCallback(on_train_batch_begin=set_rate)


def sample(data: LabeledText, count: int) -> LabeledText:
    """Samples `count` rows with a fixed seed; takes all if `count` is 0 or there are no more."""
    if not 0 < count < len(data):
        return data
    return data.rows(np.random.default_rng(_SAMPLE_SEED).permutation(len(data))[:count].tolist())


def append(record: dict[str, Any], path: Path) -> None:
    """Appends a record to a JSON Lines file, and logs it.

    What an interrupted write has left behind the last whole line is replaced.
    """
    with open(path, "a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(record).encode() + b"\n")
    logging.info("%s", json.dumps(record))


def read_records(path: Path) -> list[dict[str, Any]]:
    """Reads the whole lines of a JSON Lines file; none if it does not exist."""
    if not path.exists():
        return []
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines]


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    fields = ("preset", "task", "rows", "learning_rate", "epochs", "seed")
    return tuple(record.get(field) for field in fields)


def format_table(records: list[dict[str, Any]]) -> str:
    """Formats means over seeds as a Markdown table, by task, number of rows and hyperparameters.

    The score is the mean of a task's metrics, as in `classifier_scores.selection_score`, over the
    runs that did not diverge.
    """
    from .scores import classifier_scores

    found: dict[tuple[str, int, str], list[float]] = collections.defaultdict(list)
    for record in records:
        of_rows = record["task"], record["rows"]
        for name, baseline in record.get("baselines", {}).items():
            found[*of_rows, name.replace("_", " ")].append(
                classifier_scores.selection_score(baseline)
            )
        if "learning_rate" in record:
            setting = f"{record['learning_rate']:g}, {record['epochs']} epochs"
            setting += f", {record['preset']}" if record["preset"] else ""
            scores = record.get("scores")
            found[*of_rows, setting].append(
                math.nan if scores is None else classifier_scores.selection_score(scores)
            )
    rows = [
        [*key, *_mean_and_count(values)]
        for key, values in sorted(found.items(), key=lambda item: item[0][:2])
    ]
    return markdown_table(["task", "rows", "setting", "score", "runs"], rows)


def _mean_and_count(values: list[float]) -> tuple[str, str]:
    """Formats the mean and the number of runs; NaN stands for one that diverged."""
    finite = [value for value in values if not math.isnan(value)]
    diverged = f", {len(values) - len(finite)} diverged" * (len(finite) < len(values))
    mean = f"{np.mean(finite):.1f}" if finite else "-"
    return mean, f"{len(finite)}{diverged}"


if __name__ == "__main__":
    define_flags(DefaultsSweepConfig())
    program.run(main)
