# SPDX-License-Identifier: Apache-2.0
"""What decides a run on multiple choice: one typed, frozen record, and the files it reads."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from training.engine.training_config import TrainingConfig
from training.readers.choice_files import FORMATS, ChoiceRows, read_choices
from training.readers.data_splits import Counts, hold_out_tenth


@dataclasses.dataclass(frozen=True)
class ChoiceConfig(TrainingConfig):
    """Fine-tuning on texts with choices.

    Args:
        data_dir: the folder that the files lie in, where they are named without one.
        train_file: SWAG's CSV, CODAH's TSV, or JSON Lines with text, choices and label.
        dev_file: likewise, to select the best epoch by; empty holds a tenth of train_file out, at
            random and with the share of each right choice.
        test_file: likewise, to choose in at the end, scored if it has labels; empty for none.
        format: swag, codah or jsonl; auto tells by the suffix: .csv, .tsv or .jsonl.
        batch_size: texts in an optimizer step, each with all its choices.
        dropout: rate before the classifier; negative takes the checkpoint's.
        sequence_length: the longest text with a choice in tokens; longer ones are cut.
    """

    data_dir: str = ""
    train_file: str = ""
    dev_file: str = ""
    test_file: str = ""
    format: str = "auto"
    batch_size: int = 16
    learning_rate: float = 2e-5
    dropout: float = -1.0
    output_dir: str = "runs/finetune_choice"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"--format is {self.format!r}, expected one of {', '.join(FORMATS)}")
        super().__post_init__()


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
    test = _read(config, config.test_file, labelled=False) if config.test_file else None
    scored = {"dev": dev}
    if test is not None and test.labels is not None:
        scored["test"] = test
    return ChoiceData(train, scored, test)


def _read(config: ChoiceConfig, name: str, labelled: bool) -> ChoiceRows:
    path = Path(os.path.join(config.data_dir, name))
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there, expected a file of texts with choices")
    data = read_choices(path, config.format)
    if labelled and data.labels is None:
        raise ValueError(f"{path} has no labels, expected which choice is right")
    return data
