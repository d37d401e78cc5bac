# SPDX-License-Identifier: Apache-2.0
"""Multiple choice: SWAG, CODAH and your own files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from ..engine.finetuning_config import SCORED_ROWS, LabeledFilesConfig
from ..engine.job import (
    DevScores,
    Evaluation,
    InsightRows,
    Job,
    JobData,
    Training,
    finite,
    read_probabilities,
)
from ..engine.options import PositiveInt, ProperFraction, check_one_of
from ..readers.choice_files import FORMATS, ChoiceRows, check_choice_files, read_choices
from ..readers.data_splits import hold_out_tenth, stratified_sample
from ..readers.row_values import required_labels
from ..readers.separated_values import Quoting
from .classification import write_answers
from .report_configs import EvaluateConfig, InsightConfig

if TYPE_CHECKING:
    from keras_bert import MultipleChoice

    from ..scores.baselines import Baselines


@dataclasses.dataclass(frozen=True)
class ChoiceConfig(LabeledFilesConfig):
    """Fine-tuning on texts with choices.

    Args:
        train_file: Training file: SWAG's CSV, CODAH's TSV, or JSON Lines or Parquet with the fields
            text, choices and label, or with the fields of CommonsenseQA, ARC, OpenBookQA, COPA,
            RACE, DREAM, Cosmos QA or QuAIL. If an example has a passage (`context`) and a
            `question`, the question is put before each choice, so that overlong examples lose the
            end of the passage.
        dev_file: Validation file, used to select the best epoch. If empty, a random tenth of
            train_file is held out, stratified by the index of the correct choice.
        test_file: Test file, predicted after training and scored if it has labels. Optional.
        format: One of auto, swag (CSV), codah (TSV), jsonl, arrow (Parquet, Arrow) and xlsx. auto
            infers the format from the suffix.
        quoting: How to read quotes in TSV. With csv, they enclose cells and are doubled inside, as
            written by Excel and pandas. With none, they are text. auto infers it from the file.
        batch_size: Number of texts per optimizer step, each with all of its choices.
        dropout: Dropout rate before the classifier. Defaults to the checkpoint's rate.
        sequence_length: Maximum length of each text with one choice, in tokens. Longer texts are
            truncated.
    """

    format: str = "auto"
    quoting: str = "auto"
    batch_size: PositiveInt = 16
    dropout: ProperFraction | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, format=("auto", *FORMATS), quoting=get_args(Quoting))


def read_data(config: ChoiceConfig) -> JobData:
    """Reads and validates all files before training starts.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is invalid or has no labels to train on. The message contains the
            file, the line and the field.
    """
    if not config.train_file:
        raise ValueError(
            "--train_file must be a file of texts with choices. Received: no --train_file"
        )
    files = filter(None, (config.train_file, config.dev_file, config.test_file))
    check_choice_files(config, *(config.path(name, "a file of choices") for name in files))
    train = _read(config, config.train_file, labeled=True)
    if config.dev_file:
        dev = _read(config, config.dev_file, labeled=True)
    else:
        train, dev = map(train.rows, hold_out_tenth(train.strata, train.path))
    train = train.rows(stratified_sample(train.strata, config.train_rows))
    test = _read(config, config.test_file, labeled=False) if config.test_file else None
    # A labeled test file is also scored after each epoch.
    is_scored = test is not None and test.labels is not None
    return JobData(train, {"dev": dev} | ({"test": test} if is_scored else {}), test)


def _read(config: ChoiceConfig, name: str, labeled: bool) -> ChoiceRows:
    path = Path(config.path(name, "a file of texts with choices"))
    data = read_choices(path, config.format, config.quoting, encoding=config.encoding)
    if labeled and data.labels is None:
        raise ValueError(f"{path} must have labels, the indices of the correct choices")
    return data


def _read_data_file(config: EvaluateConfig | InsightConfig) -> ChoiceRows:
    path = Path(config.data_file)
    return read_choices(path, config.format, config.quoting, encoding=config.encoding)


def evaluate(config: EvaluateConfig, model: Any) -> Evaluation:
    """Scores a multiple-choice task, or a file of its predictions, see `Job.evaluate`."""
    from ..plots import error_report
    from ..readers import answer_files
    from ..scores import classifier_scores

    data = _read_data_file(config)
    labels = required_labels(data.labels, data.path)
    if model:
        first = [ranked[0] for ranked in model.choose(data.inputs, batch_size=SCORED_ROWS)]
    else:
        first = answer_files.matched_answers(
            Path(config.predictions),
            answer_files.read_choice,
            config.data_file,
            len(data),
            data.ids,
        )
    choices = [one["choice"] for one in first]
    for number, (choice, own) in enumerate(zip(choices, data.choices, strict=True), start=1):
        if choice >= len(own):
            raise ValueError(
                f"{config.predictions or config.model}, row {number}: choice must be an integer "
                f"from 0 to {len(own) - 1}. Received: {choice}"
            )
    return Evaluation(
        classifier_scores.score(("accuracy",), choices, labels),
        lambda: error_report.choice_sections(data, choices, read_probabilities(first)),
    )


def texts_with_choices(config: InsightConfig, model: MultipleChoice) -> InsightRows:
    """Reads texts with choices, see `Job.read_insight_inputs`."""
    choices = _read_data_file(config)
    inputs = list(zip(*choices.inputs, strict=True))
    texts = [(text, options[0]) for text, options in inputs]
    right = [] if choices.labels is None else choices.labels.tolist()
    return InsightRows(inputs, texts, [inputs[row][1][label] for row, label in enumerate(right)])


def predicted_choice(model: MultipleChoice, row: Any) -> tuple[Any, Any, str]:
    """Returns a text, its choices and the best choice, see `Job.predict_for_attribution`."""
    best = model.choose((row[0], list(row[1])))[0]
    return row, best["choice"], f"answer: {row[1][best['choice']]} ({best['score']:.3f})"


class ChoiceJob(Job):
    """Multiple choice with `keras_bert.MultipleChoice`."""

    config_class = ChoiceConfig
    predict_method = "choose"
    example_input = "choices.jsonl"
    fields = ("text", "choices")
    config: ChoiceConfig

    read = staticmethod(read_data)
    evaluate = staticmethod(evaluate)
    read_insight_inputs = staticmethod(texts_with_choices)
    predict_for_attribution = staticmethod(predicted_choice)

    def baselines(self) -> dict[str, Baselines]:
        from ..scores import baselines

        return {name: baselines.choice_baselines(rows) for name, rows in self.data.dev.items()}

    def build(self, seed: int) -> Training:
        from keras_bert import MultipleChoice

        from ..engine import finetuning

        config, train = self.config, self.data.train
        task = MultipleChoice.from_preset(
            self.preset,
            dropout=config.dropout,
            **finetuning.preset_options(config),
        )
        return finetuning.training_of_text(task, train.inputs, train.labels, config, len(train))

    def score(self, model: MultipleChoice) -> DevScores:
        from ..scores import classifier_scores

        logits = {
            name: finite(model.predict(rows.inputs, batch_size=SCORED_ROWS, verbose=0))
            for name, rows in self.data.dev.items()
        }
        labels = {
            name: required_labels(rows.labels, rows.path) for name, rows in self.data.dev.items()
        }
        self.dev_loss = float(model.batch_loss(labels["dev"], logits["dev"]))
        return {
            name: classifier_scores.score(("accuracy",), np.argmax(outputs, axis=-1), labels[name])
            for name, outputs in logits.items()
        }

    def report(self, load: Callable[[], Any], best: Path, directory: Path) -> dict[str, Any]:
        if self.data.test is not None:
            ranked_choices = load().choose(self.data.test.inputs, batch_size=SCORED_ROWS)
            columns = {"true_choice": self.data.test.labels, "text": self.data.test.texts}
            best_choices = [choices[0] for choices in ranked_choices]
            write_answers(best_choices, directory / "predictions.tsv", columns)
        return {}
