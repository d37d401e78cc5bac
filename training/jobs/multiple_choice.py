# SPDX-License-Identifier: Apache-2.0
"""Multiple choice: SWAG, CODAH, and your own files."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from keras_bert import atomic

from ..engine.job import DevScores, Job, Training, finite
from ..engine.options import (
    FineTuningConfig,
    NonNegativeFloat,
    PositiveInt,
    ProperFraction,
    added,
    check_one_of,
    optional,
)
from ..readers.choice_files import FORMATS, ChoiceRows, read_choices
from ..readers.data_splits import hold_out_tenth, stratified_sample
from ..readers.text_rows import Quoting

if TYPE_CHECKING:
    from keras_bert import MultipleChoice

    from ..scores.baselines import Baselines


@dataclasses.dataclass(frozen=True)
class ChoiceConfig(FineTuningConfig):
    """Fine-tuning on texts with choices.

    Args:
        train_file: The training file: SWAG's CSV, CODAH's TSV, or JSON Lines with text, choices and
            label.
        dev_file: The development file, which selects the best epoch; empty holds out a random tenth
            of train_file, stratified by the index of the correct choice.
        test_file: The test file, predicted at the end and scored if it has labels; empty for none.
        format: Swag, codah or jsonl; auto infers it from the suffix: .csv, .tsv or .jsonl.
        quoting: Quotes in TSV: csv, they enclose cells and are doubled inside, as Excel and pandas
            write them; none, they are text; auto infers it from the file.
        batch_size: Texts in an optimizer step, each with all its choices.
        dropout: Dropout rate before the classifier; the checkpoint's by default.
        sequence_length: Maximum length of a text with a choice in tokens; longer ones are
            truncated.
        epochs: Number of passes over the training data; chosen by the number of texts by default.
        learning_rate: Peak learning rate, reached at the end of the warm-up; chosen by the size of
            the encoder by default.
    """

    format: str = "auto"
    quoting: str = added("auto")
    batch_size: PositiveInt = 16
    epochs: PositiveInt | None = optional(recorded=3)
    learning_rate: NonNegativeFloat | None = optional(recorded=2e-5)
    dropout: ProperFraction | None = optional(recorded=-1.0)
    output_dir: str = "runs/finetune_choice"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, format=FORMATS, quoting=get_args(Quoting))


@dataclasses.dataclass(frozen=True)
class ChoiceData:
    """The data of a run.

    Args:
        train: The training rows.
        scored: Labeled rows to score after each epoch, by name; the first set selects the best
            epoch.
        test: The rows to predict at the end, or `None`.
    """

    train: ChoiceRows
    scored: dict[str, ChoiceRows]
    test: ChoiceRows | None

    def parts(self) -> dict[str, ChoiceRows]:
        """Returns the parts by name."""
        parts = {"train": self.train, "dev": self.scored["dev"]}
        return parts | ({"test": self.test} if self.test else {})


def read_data(config: ChoiceConfig) -> ChoiceData:
    """Reads and validates every file before anything is trained.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is malformed or has no labels to train on; the message names the file,
            the line and the field.
    """
    if not config.train_file:
        raise ValueError("--train_file is empty, expected a file of texts with choices")
    train = _read(config, config.train_file, labeled=True)
    if config.dev_file:
        dev = _read(config, config.dev_file, labeled=True)
    else:
        train, dev = map(train.rows, hold_out_tenth(train.strata, train.path))
    if 0 < config.train_rows < len(train):
        train = train.rows(stratified_sample(train.strata, config.train_rows))
    test = _read(config, config.test_file, labeled=False) if config.test_file else None
    scored = {"dev": dev}
    if test is not None and test.labels is not None:
        scored["test"] = test
    return ChoiceData(train, scored, test)


def _read(config: ChoiceConfig, name: str, labeled: bool) -> ChoiceRows:
    path = Path(config.path(name, "a file of texts with choices"))
    data = read_choices(path, config.format, config.quoting)
    if labeled and data.labels is None:
        raise ValueError(f"{path} has no labels, expected the index of the correct choice")
    return data


class ChoiceJob(Job):
    """Multiple choice with `keras_bert.MultipleChoice`."""

    config_class = ChoiceConfig
    example_input = "choices.jsonl"
    config: ChoiceConfig
    data: ChoiceData

    read = staticmethod(read_data)

    def __init__(self, config: ChoiceConfig, data: ChoiceData, preset: str) -> None:
        from ..engine import finetuning_defaults

        super().__init__(
            finetuning_defaults.complete(config, len(data.train), preset), data, preset
        )

    def baselines(self) -> dict[str, Baselines]:
        from ..scores import baselines

        return {name: baselines.of_choices(rows) for name, rows in self.data.scored.items()}

    def build(self, seed: int) -> Training:
        from keras_bert import MultipleChoice

        from ..engine import finetuning, precision

        config, train = self.config, self.data.train
        task = MultipleChoice.from_preset(
            self.preset,
            sequence_length=config.sequence_length,
            dropout=config.dropout,
            load_weights=config.pretrained,
            dtype=precision.resolve(config.precision, config.output_dir),
        )
        finetuning.compile_task(task, config, train.inputs)
        fit_epoch = finetuning.epochs_of_text(task, train.inputs, train.labels, config)
        return Training(task, fit_epoch, len(train), finetuning.epoch_flops(task, train.inputs))

    def score(self, model: MultipleChoice) -> DevScores:
        return {name: score_task(model, rows) for name, rows in self.data.scored.items()}

    def report(self, load: Callable[[], Any], best: Path, folder: Path) -> dict[str, Any]:
        if self.data.test is not None:
            write_answers(load(), self.data.test, folder / "answers.tsv")
        return {}


def score_task(task: MultipleChoice, data: ChoiceRows) -> dict[str, float]:
    """Returns the accuracy on labeled rows, in percent."""
    from ..scores import classifier_scores

    if data.labels is None:
        raise ValueError(f"{data.path} has no labels to score against")
    logits = finite(task.predict(data.inputs, batch_size=64, verbose=0))
    return classifier_scores.score(("accuracy",), np.argmax(logits, axis=-1), data.labels)


def write_answers(task: MultipleChoice, data: ChoiceRows, path: Path) -> None:
    """Writes one line per text: the index of the best choice, its text and its probability."""
    with (
        atomic.atomic_path(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["choice", "text", "score"])
        for ranked in task.choose(data.inputs, batch_size=64):
            writer.writerow([ranked[0]["choice"], ranked[0]["text"], ranked[0]["score"]])
