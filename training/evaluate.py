# SPDX-License-Identifier: Apache-2.0
"""Scores a saved model, or a file of predictions, on a labeled file with the official metrics.

    python -m training.evaluate --data_file=dev.tsv --text=review --label=stars \\
        --model=runs/finetune/seed_1/model.keras --report_dir=report
    python -m training.evaluate --data_file=dev-v1.1.json --answers=predictions.json
    python -m training.evaluate --data_file=dev.conll --answers=predicted.conll

The kind of data is that of the model; with --answers it is inferred from the file's name, or given
by --kind: `text` (texts and labels in TSV, CSV, JSON Lines or a JSON array), `squad` (SQuAD's
JSON), `tagging` (CoNLL columns), `choice` (SWAG's CSV, CODAH's TSV, JSON Lines).

Predictions are read from the files that the other programs write: `answers.tsv`, the JSON Lines of
`predict` (`.jsonl`), `predictions.json`, or CoNLL columns with the predictions last. Predictions
for texts and choices are matched by `id` if both files have ids, and by their order otherwise.

With --report_dir, the page report.html shows where the model fails: scores beside a baseline, by
class and by length, and the most confident mistakes with their text.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags, logging

from keras_bert import atomic

from .engine import output_folder, program
from .engine.config_flags import define_flags, read_flags
from .engine.options import check_one_of
from .plots import error_report, page
from .plots.classifier_plots import calibration_figure, confusion_figure
from .plots.span_view import AnsweredQuestion, write_span_view
from .plots.style import save
from .readers import answer_files
from .readers.choice_files import read_choices
from .readers.labeled_text import LabeledText, TextColumns
from .readers.tagged_words import WordColumns, in_scheme
from .readers.text_rows import KINDS, excerpt, kind_of
from .scores import classifier_scores, entity_scores, squad_scores

_REPORT = "report.html"


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(TextColumns, WordColumns):
    """The labeled file, and the model or the predictions to score on it.

    Args:
        data_file: The labeled file.
        kind: The kind of data: text, squad, tagging or choice; auto takes that of the model, or
            infers it from the file's name.
        model: The .keras file of the task to score. Give either --model or --answers.
        answers: The file of predictions to score. Give either --model or --answers.
        null_odds: For SQuAD 2.0, the file of null odds that belongs to --answers.
        null_threshold: Null odds above which a question counts as unanswered.
        text: For text, the column of the text, by name or by index from 0.
        format: For text, tsv, csv or jsonl (JSON Lines or an array); for choices, swag, codah or
            jsonl; auto infers it from the suffix.
        class_names: With --answers, the class names in the order of their ids; empty takes the
            labels in alphabetical order.
        word_column: For tagging, the index of the words' column from 0, or a negative index from
            the end.
        plots_dir: Folder for the plots: confusion.png and calibration.png for a classifier,
            spans.html for a question answerer given by --model; empty for no plots.
        report_dir: Folder for report.html, a self-contained page of errors, and scores.json; empty
            for no report.
    """

    data_file: str = ""
    kind: str = "auto"
    model: str = ""
    answers: str = ""
    null_odds: str = ""
    null_threshold: float = 1.0
    class_names: tuple[str, ...] = ()
    plots_dir: str = ""
    report_dir: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, kind=KINDS)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of one kind of data.

    Args:
        scores: The score of each metric.
        sections: Returns the sections of the error report.
    """

    scores: dict[str, float]
    sections: Callable[[], list[page.Html]]


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    config = read_flags(EvaluateConfig)
    print(json.dumps(evaluate(config), indent=2))
    if config.report_dir:
        print(f"report: {Path(config.report_dir, _REPORT)}", file=sys.stderr)


def evaluate(config: EvaluateConfig) -> dict[str, float]:
    """Returns the scores by metric.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is malformed, or predictions and labels do not match.
    """
    if bool(config.model) == bool(config.answers):
        raise ValueError("expected either --model or --answers, and not both")
    for path in (config.data_file, config.model, config.answers):
        if Path(path, "saved_model.pb").is_file():
            raise ValueError(
                f"{path} is an exported model, expected the .keras file that it was made from, "
                "such as seed_1/model.keras; predictions of an export are scored with --answers"
            )
        if path and not Path(path).is_file():
            raise FileNotFoundError(f"{path} does not exist, expected a file")
    if not config.data_file:
        raise ValueError("--data_file is empty, expected a labeled file")
    model, kind = None, config.kind
    if config.model:
        model = _load(config.model)
        kind = _kind_of_model(model, config)
    kind = kind_of(Path(config.data_file), kind)
    if config.plots_dir and not (kind == "text" or (kind == "squad" and config.model)):
        raise ValueError(
            "--plots_dir: plots are available for text classification, and for question answering "
            "with --model"
        )
    if config.report_dir or kind in ("text", "choice"):
        program.require(program.TRAINING_LIBRARIES, "training")
    found = _KINDS[kind](config, model)
    if config.report_dir:
        folder = Path(config.report_dir)
        folder.mkdir(parents=True, exist_ok=True)
        title = f"{config.model or config.answers} on {config.data_file}"
        page.write_page(folder / _REPORT, title, found.sections())
        atomic.write_json(folder / "scores.json", found.scores)
    return found.scores


def _load(path: str) -> Any:
    program.import_quietly()
    import keras_bert

    return keras_bert.load_model(path, compile=False)


def _kind_of_model(model: Any, config: EvaluateConfig) -> str:
    """Returns the kind of data that a model is scored on.

    Raises:
        ValueError: If it is another than --kind, or the model predicts no labels.
    """
    kinds = {"classify": "text", "answer": "squad", "tag": "tagging", "choose": "choice"}
    name = f"{config.model} is a {type(model).__name__}"
    kind = kinds.get(getattr(model, "verb", ""))
    if kind is None:
        raise ValueError(f"{name}, expected a task that can {', '.join(kinds)}")
    if config.kind not in ("auto", kind):
        raise ValueError(f"{name}, which is scored with --kind={kind}, not {config.kind}")
    return kind


def _text(config: EvaluateConfig, model: Any) -> Evaluation:
    if model and not config.text_pair and output_folder.trained_on_pairs(config.model):
        raise ValueError(
            f"{config.model} was trained on pairs of texts: name the column of the second one by "
            "--text_pair"
        )
    class_names = config.class_names or (model.class_names if model else None)
    regression = config.regression or (model is not None and model.is_regression)
    if regression and config.plots_dir:
        raise ValueError("--plots_dir: plots are available for classes, not for regression")
    data = config.read_text(config.data_file, None if regression else class_names, regression)
    if model:
        rows = model.classify(data.inputs, batch_size=64)
    else:
        names = data.class_names

        def read_row(row: dict[str, Any]) -> dict[str, Any]:
            return (
                answer_files.number_of(row) if names is None else answer_files.class_of(row, names)
            )

        rows = answer_files.matched_answers(
            Path(config.answers), read_row, config.data_file, len(data), data.ids
        )
    metrics = classifier_scores.metrics_for(data.num_classes)
    if data.class_names is None:
        numbers = [row["score"] for row in rows]
        return Evaluation(
            classifier_scores.score(metrics, numbers, data.labels),
            lambda: error_report.of_numbers(data, numbers),
        )
    predictions = [_class_id(data.class_names, row, config) for row in rows]
    probabilities = _probabilities(rows)
    if config.plots_dir:
        _plot(config, data, predictions, probabilities)
    return Evaluation(
        classifier_scores.score(metrics, predictions, data.labels),
        lambda: error_report.of_classes(data, predictions, probabilities),
    )


def _class_id(class_names: tuple[str, ...], row: dict[str, Any], config: EvaluateConfig) -> int:
    label = str(row.get("label"))
    if label not in class_names:
        raise ValueError(
            f"{config.answers or config.model} predicts {excerpt(label)}, expected one of "
            f"{excerpt(list(class_names), 300)}"
        )
    return class_names.index(label)


def _plot(
    config: EvaluateConfig,
    data: LabeledText,
    predictions: list[int],
    probabilities: list[float] | None,
) -> None:
    folder = Path(config.plots_dir)
    folder.mkdir(parents=True, exist_ok=True)
    labels = data.labels.tolist()
    drawn = confusion_figure(labels, predictions, data.class_names)
    save(drawn, folder / "confusion.png")
    if probabilities is not None:
        right = [label == answer for label, answer in zip(labels, predictions, strict=True)]
        save(calibration_figure(right, probabilities), folder / "calibration.png")


def _squad(config: EvaluateConfig, model: Any) -> Evaluation:
    from keras_bert.data.squad import read_squad

    golds, is_version_2 = squad_scores.read_gold(config.data_file)
    if config.null_odds and not (config.answers and is_version_2):
        raise ValueError("--null_odds is for --answers to questions of SQuAD 2.0")
    odds = squad_scores.read_null_odds(config.null_odds) if config.null_odds else None
    if config.answers and Path(config.answers).suffix == ".jsonl":
        texts = answer_files.answers_by_id(Path(config.answers), answer_files.text_of)
    elif config.answers:
        texts = squad_scores.read_predictions(config.answers)
    else:
        examples = read_squad(config.data_file).examples
        found = model.answer(
            [example.question for example in examples], [example.context for example in examples]
        )
        texts = {example.id: one["answer"] for example, one in zip(examples, found, strict=True)}
    missing = [gold.id for gold in golds if gold.id not in texts]
    if missing and len(missing) == len(golds):
        raise ValueError(f"{config.answers} has no answer to any question of {config.data_file}")
    if missing:
        logging.warning(
            "%s has no answer to %d of %d questions, such as %s",
            config.answers,
            len(missing),
            len(golds),
            missing[0],
        )
    if not is_version_2:
        scores = squad_scores.score_squad_v1(golds, texts)
    else:
        threshold = config.null_threshold
        scores = squad_scores.score_squad_v2(golds, texts, odds, threshold)
        texts = squad_scores.with_null_threshold(texts, odds, threshold)

    def answered() -> list[AnsweredQuestion]:
        if not config.answers:
            return [
                _as_answered(example, one["answer"], one["start"], one["score"])
                for example, one in zip(examples, found, strict=True)
            ]
        # Scores of predictions require no passages, but the report does.
        return [
            _as_answered(example, texts.get(example.id, ""))
            for example in read_squad(config.data_file).examples
        ]

    if config.plots_dir:
        folder = Path(config.plots_dir)
        folder.mkdir(parents=True, exist_ok=True)
        write_span_view(folder / "spans.html", answered())

    def sections() -> list[page.Html]:
        f1 = squad_scores.f1_scores(golds, [texts.get(gold.id, "") for gold in golds])
        return error_report.of_questions(answered(), f1, scores)

    return Evaluation(scores, sections)


def _as_answered(
    example: Any, answer: str, start: int = -1, score: float | None = None
) -> AnsweredQuestion:
    """Returns a question with its answer; of a text without a position, its first occurrence."""
    start = start if start >= 0 else example.context.find(answer)
    return AnsweredQuestion(
        example.question,
        example.context,
        (start, start + len(answer)) if answer and start >= 0 else None,
        score,
        [(gold.start, gold.start + len(gold.text)) for gold in example.answers or ()],
    )


def _tagging(config: EvaluateConfig, model: Any) -> Evaluation:
    from keras_bert.data.conll import read_conll
    from keras_bert.data.tagging_schemes import OUTSIDE, are_span_labels, detect_scheme

    gold = config.read_words(config.data_file)
    if config.answers:
        if Path(config.answers).suffix == ".jsonl":
            rows = answer_files.matched_answers(
                Path(config.answers), answer_files.tags_of, config.data_file, len(gold.words)
            )
            words = [[word for word, _ in row] for row in rows]
            labels = [[label for _, label in row] for row in rows]
        else:
            answered = read_conll(config.answers)
            words, labels = answered.words, answered.labels
        if words != gold.words:
            raise ValueError(f"{config.answers} and {config.data_file} have different words")
        scheme = detect_scheme(labels)
    else:
        tags = model.tag(gold.words, batch_size=64)
        labels = [[tag["label"] for tag in sentence] for sentence in tags]
        scheme = _scheme_of(model.class_names) or detect_scheme(labels)
    if scheme is None and all(label == OUTSIDE for sentence in labels for label in sentence):
        scheme = "IOB2"
    if scheme is not None:
        # In another scheme, labels of the same entities would count as errors in the word accuracy.
        gold = in_scheme(gold, scheme)
    if are_span_labels(label for sentence in gold.labels for label in sentence):
        if scheme is None:
            raise ValueError(
                f"{config.answers or config.model} predicts labels that are not those of spans, "
                f"unlike the labels of {config.data_file}; expected O, B-TYPE, I-TYPE …"
            )
        print(entity_scores.table(entity_scores.entity_scores(labels, gold.labels)))
    return Evaluation(
        entity_scores.tagging_scores(labels, gold.labels),
        lambda: error_report.of_tags(gold, labels),
    )


def _scheme_of(class_names: Sequence[str]) -> Any:
    """The scheme that a tagger was trained with, if its class names determine it."""
    from keras_bert.data.tagging_schemes import are_span_labels

    if not are_span_labels(class_names):
        return None
    letters: dict[str, set[str]] = {}
    for name in class_names:
        letter, _, kind = name.partition("-")
        letters.setdefault(kind, set()).add(letter)
    if any(found & set("ESLUW") for found in letters.values()):
        return "BIOES"
    # In IOB2 every type has a B- label. In IOB1 every type has an I- label, and a B- label only
    # where two spans are adjacent.
    types = [found for found in letters.values() if found != {"O"}]
    if any("B" not in found for found in types):
        return "IOB1"
    return "IOB2" if any("I" not in found for found in types) else None


def _choice(config: EvaluateConfig, model: Any) -> Evaluation:
    data = read_choices(Path(config.data_file), config.format, config.quoting)
    if data.labels is None:
        raise ValueError(f"{config.data_file} has no labels to score against")
    if model:
        first = [ranked[0] for ranked in model.choose(data.inputs, batch_size=64)]
    else:
        first = answer_files.matched_answers(
            Path(config.answers), answer_files.choice_of, config.data_file, len(data), data.ids
        )
    chosen = [one["choice"] for one in first]
    for number, (choice, own) in enumerate(zip(chosen, data.choices, strict=True), start=1):
        if choice >= len(own):
            raise ValueError(
                f"{config.answers or config.model}: the choice of row {number} is {choice}, "
                f"expected an integer from 0 to {len(own) - 1}"
            )
    return Evaluation(
        classifier_scores.score(("accuracy",), chosen, data.labels),
        lambda: error_report.of_choices(data, chosen, _probabilities(first)),
    )


# How each kind of data is scored
_KINDS: dict[str, Callable[[EvaluateConfig, Any], Evaluation]] = {
    "text": _text,
    "squad": _squad,
    "tagging": _tagging,
    "choice": _choice,
}


def _probabilities(rows: Sequence[dict[str, Any]]) -> list[float] | None:
    """Returns the probability of each prediction, or `None` if a file of predictions has none."""
    return [float(row["score"]) for row in rows] if all("score" in row for row in rows) else None


if __name__ == "__main__":
    define_flags(EvaluateConfig(), flags.FLAGS)
    program.run(main)
