# SPDX-License-Identifier: Apache-2.0
"""What decides a fine-tuning run: one typed, frozen record, which recipes and flags fill in."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from absl import logging

from training.engine.training_config import TrainingConfig
from training.readers import glue, labelled_text
from training.readers.data_splits import Counts, hold_out_tenth, stratified_sample
from training.readers.labelled_text import LabelledText
from training.readers.text_rows import MissingColumnError


@dataclasses.dataclass(frozen=True)
class FinetuneConfig(TrainingConfig):
    """A fine-tuning run on a file of labelled text, or on a task of GLUE.

    Args:
        task: a GLUE task (sst2, cola, mrpc, stsb, rte, qnli, qqp, mnli, wnli), read from
            data_dir; empty for files of your own.
        data_dir: the folder of the GLUE download.
        train_file: labelled text to train on: .tsv, .csv, .jsonl or .json, also with .gz.
        dev_file: labelled text to select the best epoch by; empty holds a tenth of train_file out,
            at random and with each class's share.
        test_file: text to answer at the end, labelled or not; empty for none.
        text: the column of the text, by name or by number from 0; in JSON also a nested field,
            as in document.text.
        text_pair: the column of the second text; empty for single texts.
        label: the column of the label, likewise.
        header: whether the first row names the columns: auto, yes or no.
        format: tsv, csv or jsonl (JSON Lines, or an array); auto tells by the suffix.
        allow_empty: whether a text may be empty.
        regression: whether labels are scores rather than classes.
        train_rows: trains on so many rows only, a random sample with each class's share; 0 for
            all.
        dropout: rate before the classifier; negative takes the checkpoint's.
        encoder_dropout: both of the encoder's rates; negative takes the checkpoint's.
        bilstm_units: width of each direction of a fresh BiLSTM between encoder and classifier;
            0 for none, negative takes the checkpoint's.
        bilstm_layers: layers of that BiLSTM.
        epochs: passes over the training data; negative chooses by the number of rows.
        learning_rate: the peak, reached at the end of the warm-up; negative chooses by the size of
            the encoder.
    """

    may_be_chosen = ("epochs", "learning_rate")

    task: str = ""
    data_dir: str = ""
    train_file: str = ""
    dev_file: str = ""
    test_file: str = ""
    text: str = "text"
    text_pair: str = ""
    label: str = "label"
    header: str = "auto"
    format: str = "auto"
    allow_empty: bool = False
    regression: bool = False
    train_rows: int = 0
    dropout: float = -1.0
    encoder_dropout: float = -1.0
    bilstm_units: int = -1
    bilstm_layers: int = 2
    epochs: int = -1
    learning_rate: float = -1.0
    output_dir: str = "runs/finetune"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.train_rows < 0:
            raise ValueError(f"--train_rows is {self.train_rows}, expected 0 or more")
        labelled_text.check_options(self)


@dataclasses.dataclass(frozen=True)
class FinetuneData:
    """What a run trains, selects and answers on.

    Args:
        train: the training text.
        dev: by name, the development text; the first one selects the best epoch.
        test: the text to answer at the end, or None.
        metrics: the names of the metrics, as `training.scores.classifier_scores` calls them.
    """

    train: LabelledText
    dev: dict[str, LabelledText]
    test: LabelledText | None
    metrics: tuple[str, ...]

    def counts(self) -> Counts:
        """What each part consists of."""
        parts = {"train": self.train, **self.dev, **({"test": self.test} if self.test else {})}
        return {name: part.counts() for name, part in parts.items()}


def read_data(config: FinetuneConfig) -> FinetuneData:
    """Reads and checks every file before anything is trained.

    Raises:
        FileNotFoundError: if a file is not there.
        ValueError: if a file is malformed; the message names file, line and reason.
    """
    if bool(config.task) == bool(config.train_file):
        raise ValueError(
            f"expected either --task, a GLUE task, or --train_file, received "
            f"--task={config.task} and --train_file={config.train_file}"
        )
    data = _read_glue(config) if config.task else _read_files(config)
    if not 0 < config.train_rows < len(data.train):
        return data
    sample = stratified_sample(data.train.strata, config.train_rows)
    return dataclasses.replace(data, train=data.train.rows(sample))


def _read_glue(config: FinetuneConfig) -> FinetuneData:
    if not config.data_dir:
        raise ValueError(f"--task={config.task} needs --data_dir, the folder of the GLUE download")
    task = glue.find_task(config.task)
    return FinetuneData(
        train=glue.read_split(config.data_dir, task, "train"),
        dev={name: glue.read_split(config.data_dir, task, name) for name in task.dev_splits},
        test=None,
        metrics=task.metrics,
    )


def _read_files(config: FinetuneConfig) -> FinetuneData:
    from training.scores.classifier_scores import metrics_for

    train = _read_file(config, config.train_file)
    if config.dev_file:
        dev = _read_file(config, config.dev_file, train.class_names)
    else:
        train, dev = map(train.rows, hold_out_tenth(train.strata, train.path))
    test = _read_test_file(config, train.class_names) if config.test_file else None
    return FinetuneData(train, {"dev": dev}, test, metrics_for(train.num_classes))


def _read_file(
    config: FinetuneConfig,
    path: str,
    class_names: tuple[str, ...] | None = None,
    labelled: bool = True,
) -> LabelledText:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is not there, expected a file of labelled text")
    return labelled_text.read_labelled_text(
        path,
        label=config.label if labelled else None,
        class_names=class_names,
        regression=config.regression,
        **labelled_text.reading_options(config),
    )


def _read_test_file(config: FinetuneConfig, class_names: tuple[str, ...] | None) -> LabelledText:
    """Reads a test file with or without the column of the labels."""
    try:
        return _read_file(config, config.test_file, class_names)
    except MissingColumnError as error:
        data = _read_file(config, config.test_file, class_names, labelled=False)
        logging.warning(
            "the test file is answered and not scored, since it has no labels: %s", error
        )
        return data
