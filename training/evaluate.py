# SPDX-License-Identifier: Apache-2.0
"""The official scores of a saved model, or of a file of answers, on any labelled file.

    python -m training.evaluate --data_file=dev.tsv --text=review --label=stars \
        --model=runs/finetune/seed_1/model.keras --plots_dir=plots
    python -m training.evaluate --data_file=dev-v1.1.json --answers=predictions.json
    python -m training.evaluate --data_file=dev.conll --answers=predicted.conll

What the file holds is told by its name, or by --kind: `text` (TSV, CSV, JSON Lines of texts and
labels), `squad` (SQuAD's JSON), `tagging` (CoNLL columns), `choice` (SWAG's CSV, CODAH's TSV).
Answers are the files that the programs of this folder write: `answers.tsv` or the JSON Lines of
`training.predict`, `predictions.json`, CoNLL columns with the answers last.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

from training import entity_scores, program, scores, squad_scores
from training.choice_files import read_choices
from training.classifier_plots import plot_calibration, plot_confusion
from training.config_flags import define_flags, read_flags
from training.labelled_text import LabelledText, read_labelled_text
from training.span_view import AnsweredQuestion, write_span_view
from training.text_rows import FORMATS

_KINDS = ("auto", "text", "squad", "tagging", "choice")
_SUFFIXES = {
    **dict.fromkeys(FORMATS, "text"),
    ".json": "squad",
    **dict.fromkeys((".conll", ".bio", ".iob"), "tagging"),
}


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """What is scored against what.

    Args:
        data_file: the labelled file.
        kind: what it holds: text, squad, tagging or choice; auto tells by its name.
        model: a .keras file of the task; or answers.
        answers: a file of answers; or a model.
        null_odds: for SQuAD 2.0, the odds of no answer that belong to the answers.
        text: for text, the column of the text, by name or by number from 0.
        text_pair: the column of the second text; empty for single texts.
        label: the column of the label.
        class_names: the classes in the order of their ids, where answers are scored whose model is
            not there; empty takes the labels in alphabetical order.
        regression: whether labels are scores.
        plots_dir: a folder for confusion.png and calibration.png of a classifier's answers, or for
            spans.html of a model's answers to questions; empty for none.
    """

    data_file: str = ""
    kind: str = "auto"
    model: str = ""
    answers: str = ""
    null_odds: str = ""
    text: str = "text"
    text_pair: str = ""
    label: str = "label"
    class_names: tuple[str, ...] = ()
    regression: bool = False
    plots_dir: str = ""

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"kind is {self.kind!r}, expected one of {', '.join(_KINDS)}")


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    with program.plain_errors():
        print(json.dumps(evaluate(read_flags(EvaluateConfig)), indent=2))


def evaluate(config: EvaluateConfig) -> dict[str, float]:
    """The scores.

    Raises:
        FileNotFoundError: if a file is not there.
        ValueError: if a file is malformed, or answers and labels do not belong together.
    """
    if bool(config.model) == bool(config.answers):
        raise ValueError("expected either a model or answers")
    for path in (config.data_file, config.model, config.answers):
        if path and not Path(path).is_file():
            raise FileNotFoundError(f"{path} is not there, expected a file")
    if not config.data_file:
        raise ValueError("data_file is empty, expected a labelled file")
    kinds: dict[str, Callable[[EvaluateConfig], dict[str, float]]] = {
        "text": _text,
        "squad": _squad,
        "tagging": _tagging,
        "choice": _choice,
    }
    return kinds[_kind(config)](config)


def _kind(config: EvaluateConfig) -> str:
    if config.kind != "auto":
        return config.kind
    suffix = Path(config.data_file.removesuffix(".gz")).suffix.lower()
    if suffix not in _SUFFIXES:
        raise ValueError(
            f"cannot tell from the name of {config.data_file} what it holds, expected an end of "
            f"{', '.join(_SUFFIXES)} (.gz may follow), or --kind: {', '.join(_KINDS[1:])}"
        )
    return _SUFFIXES[suffix]


def _load(path: str) -> Any:
    import keras_bert

    return keras_bert.load_model(path, compile=False)


def _text(config: EvaluateConfig) -> dict[str, float]:
    model = _load(config.model) if config.model else None
    class_names = config.class_names or (model.class_names if model else None)
    data = read_labelled_text(
        config.data_file,
        text=config.text,
        text_pair=config.text_pair or None,
        label=config.label,
        class_names=class_names,
        regression=config.regression,
    )
    rows = model.classify(data.inputs, batch_size=64) if model else _read_answers(config.answers)
    if len(rows) != len(data):
        raise ValueError(f"{config.answers} has {len(rows)} answers for {len(data)} rows")
    metrics = scores.metrics_for(data.num_classes)
    if data.class_names is None:
        return scores.score(metrics, [float(row["score"]) for row in rows], data.labels)
    predictions = [_class_id(data.class_names, row["label"], config) for row in rows]
    if config.plots_dir:
        _plot(config, data, predictions, [float(row["score"]) for row in rows])
    return scores.score(metrics, predictions, data.labels)


def _class_id(class_names: tuple[str, ...], label: Any, config: EvaluateConfig) -> int:
    if str(label) not in class_names:
        raise ValueError(
            f"{config.answers or config.model} answers {label!r}; the labels are "
            f"{', '.join(class_names)}"
        )
    return class_names.index(str(label))


def _plot(
    config: EvaluateConfig, data: LabelledText, predictions: list[int], given: list[float]
) -> None:
    folder = Path(config.plots_dir)
    folder.mkdir(parents=True, exist_ok=True)
    labels = data.labels.tolist()
    plot_confusion(folder / "confusion.png", labels, predictions, data.class_names)
    right = [label == answer for label, answer in zip(labels, predictions, strict=True)]
    plot_calibration(folder / "calibration.png", right, given)


def _read_answers(path: str) -> list[dict[str, Any]]:
    """The rows of JSON Lines, or of a table with a header."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        if Path(path).suffix in (".jsonl", ".ndjson"):
            return [json.loads(line) for line in file if line.strip()]
        rows = list(csv.DictReader(file, delimiter="," if Path(path).suffix == ".csv" else "\t"))
    if rows and not {"label", "score"} & set(rows[0]):
        raise ValueError(f"{path} has the columns {sorted(rows[0])}, expected label or score")
    return rows


def _squad(config: EvaluateConfig) -> dict[str, float]:
    if config.answers:
        return squad_scores.score_files(config.data_file, config.answers, config.null_odds)
    from keras_bert.data.squad import read_squad

    golds, is_version_2 = squad_scores.read_gold(config.data_file)
    examples = read_squad(config.data_file).examples
    found = _load(config.model).answer(
        [example.question for example in examples], [example.context for example in examples]
    )
    answers = {example.id: one["answer"] for example, one in zip(examples, found, strict=True)}
    score = squad_scores.score_squad_v2 if is_version_2 else squad_scores.score_squad_v1
    return score(golds, answers)


def _show_spans(config: EvaluateConfig, examples: Any, found: list[dict[str, Any]]) -> None:
    folder = Path(config.plots_dir)
    folder.mkdir(parents=True, exist_ok=True)
    write_span_view(
        folder / "spans.html",
        (
            AnsweredQuestion(
                example.question,
                example.context,
                (one["start"], one["end"]) if one["answer"] else None,
                one["score"],
                [(gold.start, gold.start + len(gold.text)) for gold in example.answers],
            )
            for example, one in zip(examples, found, strict=True)
        ),
    )


def _tagging(config: EvaluateConfig) -> dict[str, float]:
    from keras_bert.data.conll import read_conll

    gold = read_conll(config.data_file)
    if config.answers:
        answered = read_conll(config.answers)
        if answered.words != gold.words:
            raise ValueError(f"{config.answers} has other words than {config.data_file}")
        labels = answered.labels
    else:
        tags = _load(config.model).tag(gold.words, batch_size=64)
        labels = [[tag["label"] for tag in sentence] for sentence in tags]
    if all(label == "O" or label[1:2] == "-" for sentence in gold.labels for label in sentence):
        print(entity_scores.table(entity_scores.entity_scores(labels, gold.labels)))
    return entity_scores.tagging_scores(labels, gold.labels)


def _choice(config: EvaluateConfig) -> dict[str, float]:
    data = read_choices(Path(config.data_file))
    if data.labels is None:
        raise ValueError(f"{config.data_file} has no labels to score against")
    if config.model:
        logits = _load(config.model).predict(data.inputs, batch_size=64, verbose=0)
        return scores.score(("accuracy",), np.argmax(logits, axis=-1), data.labels)
    rows = _read_answers(config.answers)
    if len(rows) != len(data):
        raise ValueError(f"{config.answers} has {len(rows)} answers for {len(data)} rows")
    chosen = [_chosen(row) for row in rows]
    return scores.score(("accuracy",), chosen, data.labels)


def _chosen(row: dict[str, Any]) -> int:
    return int((row["answers"][0] if "answers" in row else row)["choice"])


if __name__ == "__main__":
    define_flags(EvaluateConfig(), flags.FLAGS)
    app.run(main)
