# SPDX-License-Identifier: Apache-2.0
"""Which of several choices goes with a text: SWAG, CODAH, and files of your own."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_bert import atomic

from ..engine.job import DevScores, Job, Training
from ..engine.options import FineTuningConfig, check_at_least, check_one_of, optional
from ..readers.choice_files import FORMATS, ChoiceRows, read_choices
from ..readers.data_splits import Counts, hold_out_tenth, stratified_sample

if TYPE_CHECKING:
    from keras_bert import MultipleChoice

    from ..scores.baselines import Baselines


@dataclasses.dataclass(frozen=True)
class ChoiceConfig(FineTuningConfig):
    """Fine-tuning on texts with choices.

    Args:
        train_file: SWAG's CSV, CODAH's TSV, or JSON Lines with text, choices and label.
        dev_file: likewise, to select the best epoch by; empty holds a tenth of train_file out, at
            random and with the share of each right choice.
        test_file: likewise, to choose in at the end, scored if it has labels; empty for none.
        format: swag, codah or jsonl; auto tells by the suffix: .csv, .tsv or .jsonl.
        batch_size: texts in an optimizer step, each with all its choices.
        dropout: rate before the classifier; not given, it is the checkpoint's.
        sequence_length: the longest text with a choice in tokens; longer ones are cut.
    """

    format: str = "auto"
    batch_size: int = 16
    learning_rate: float = 2e-5
    dropout: float | None = optional(recorded=-1.0)
    output_dir: str = "runs/finetune_choice"

    def __post_init__(self) -> None:
        check_one_of(self, format=FORMATS)
        super().__post_init__()
        check_at_least(self, 0, "dropout")


@dataclasses.dataclass(frozen=True)
class ChoiceData:
    """What a run trains, selects and answers on.

    Args:
        train: the training rows.
        scored: by name, labelled rows to score after each epoch; the first decides which is best.
        test: the rows to answer at the end, or None.
    """

    train: ChoiceRows
    scored: dict[str, ChoiceRows]
    test: ChoiceRows | None

    def counts(self) -> Counts:
        """What each part consists of."""
        parts = {"train": self.train, "dev": self.scored["dev"]}
        parts |= {"test": self.test} if self.test else {}
        return {name: part.counts() for name, part in parts.items()}


def read_data(config: ChoiceConfig) -> ChoiceData:
    """Reads and checks every file before anything is trained.

    Raises:
        FileNotFoundError: if a file is not there.
        ValueError: if a file is malformed, or has no labels to learn from; the message names file,
            line and field.
    """
    if not config.train_file:
        raise ValueError("expected --train_file, texts with choices")
    train = _read(config, config.train_file, labelled=True)
    if config.dev_file:
        dev = _read(config, config.dev_file, labelled=True)
    else:
        train, dev = map(train.rows, hold_out_tenth(train.strata, train.path))
    if 0 < config.train_rows < len(train):
        train = train.rows(stratified_sample(train.strata, config.train_rows))
    test = _read(config, config.test_file, labelled=False) if config.test_file else None
    scored = {"dev": dev}
    if test is not None and test.labels is not None:
        scored["test"] = test
    return ChoiceData(train, scored, test)


def _read(config: ChoiceConfig, name: str, labelled: bool) -> ChoiceRows:
    path = Path(config.path(name, "a file of texts with choices"))
    data = read_choices(path, config.format)
    if labelled and data.labels is None:
        raise ValueError(f"{path} has no labels, expected which choice is right")
    return data


class Choosing(Job):
    """One of several choices, by `keras_bert.MultipleChoice`."""

    config_class = ChoiceConfig
    example_input = "choices.jsonl"
    config: ChoiceConfig
    data: ChoiceData

    read = staticmethod(read_data)

    def baselines(self) -> dict[str, Baselines]:
        from ..scores import baselines

        return {name: baselines.of_choices(rows) for name, rows in self.data.scored.items()}

    def build(self, seed: int) -> Training:
        from keras_bert import MultipleChoice

        from ..engine import finetuning

        config, train = self.config, self.data.train
        task = MultipleChoice.from_preset(
            self.preset,
            sequence_length=config.sequence_length,
            dropout=config.dropout,
            load_weights=config.pretrained,
            dtype=finetuning.resolve_precision(config.precision),
        )
        task.compile(finetuning.make_optimizer(config, len(train)))
        fit_epoch = finetuning.epochs_of_text(task, train.inputs, train.labels, config)
        return Training(task, fit_epoch, num_rows=len(train))

    def score(self, model: MultipleChoice) -> DevScores:
        return {name: score_task(model, rows) for name, rows in self.data.scored.items()}

    def report(self, load: Callable[[], Any], best: Path, folder: Path) -> dict[str, Any]:
        if self.data.test is not None:
            write_answers(load(), self.data.test, folder / "answers.tsv")
        return {}


def score_task(task: MultipleChoice, data: ChoiceRows) -> dict[str, float]:
    """The accuracy on labelled rows, times 100."""
    from ..scores import classifier_scores

    if data.labels is None:
        raise ValueError(f"{data.path} has no labels to score against")
    logits = task.predict(data.inputs, batch_size=64, verbose=0)
    return classifier_scores.score(("accuracy",), np.argmax(logits, axis=-1), data.labels)


def write_answers(task: MultipleChoice, data: ChoiceRows, path: Path) -> None:
    """One line a text: the index of the best choice from 0, its words and its probability."""
    with (
        atomic.atomic_path(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["choice", "text", "score"])
        for ranked in task.choose(data.inputs, batch_size=64):
            writer.writerow([ranked[0]["choice"], ranked[0]["text"], ranked[0]["score"]])
