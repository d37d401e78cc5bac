# SPDX-License-Identifier: Apache-2.0
"""Creates the sections for error reports, such as scores, slices and mistakes.

Each task has its own function. `training.evaluate --report_dir` writes the page.
"""

from __future__ import annotations

import dataclasses
import html
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_bert.intervals import bootstrap_interval, proportion_interval
from keras_bert.tables import table_from_records
from keras_bert.text.words import WordUnit, infer_word_unit, join_words

from ..readers.choice_files import ChoiceRows
from ..readers.labeled_text import LabeledText
from ..readers.row_values import required_labels
from ..scores import classifier_scores, entity_scores
from . import page
from .classifier_plots import calibration_figure, confusion_figure
from .span_view import LEGEND, AnsweredQuestion, answered_question
from .style import GRAY, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from keras_bert.data import TaggedText

_MAX_MISTAKES = 30
_MAX_CONFUSIONS = 15
# A confusion matrix with more classes is illegible.
_MAX_CLASSES_DRAWN = 40
_NUM_SLICES = 4
_NUM_RESAMPLES = 1000
_LONGEST_TEXT = 2000
_CONFIDENT = (
    "The most confident mistakes come first. Often, these examples are hard or have a wrong label."
)


def scores_section(
    scores: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]] | None = None
) -> page.Html:
    """Returns the model's scores next to the baselines."""
    records = {"this model": scores, **(baselines or {})}
    return page.section("Scores", page.table(*table_from_records("", records)))


def classifier_sections(
    data: LabeledText, predictions: Sequence[int], probabilities: Sequence[float] | None
) -> list[page.Html]:
    """Returns the sections for a classifier."""
    names, labels = data.class_names or (), required_labels(data.labels, data.path)
    right = np.asarray(predictions) == labels
    majority = np.full_like(labels, np.bincount(labels).argmax())
    metrics = classifier_scores.metrics_for(data.num_classes)
    sections = [
        scores_section(
            classifier_scores.score(metrics, predictions, labels),
            {"the most frequent class": classifier_scores.score(metrics, majority, labels)},
        ),
        _classes_section(labels, predictions, names),
    ]
    if probabilities is not None:
        about = (
            "For example, a calibrated model is right for 80% of the examples with a predicted "
            "probability of 0.8."
        )
        sections.append(_calibration_section(right, probabilities, about))
    lengths = [len(text) for text in data.texts]
    sections.append(page.section("Accuracy by length", _slices("characters", lengths, right)))
    rows = [
        [
            names[labels[index]],
            names[predictions[index]],
            None if probabilities is None else probabilities[index],
            _shown(data, index),
        ]
        for index in _worst(right, probabilities)
    ]
    table = page.table(["label", "prediction", "probability", "text"], rows)
    sections.append(_mistakes(int(np.sum(~right)), len(labels), page.text(_CONFIDENT), table))
    return sections


def _calibration_section(
    right: np.ndarray, probabilities: Sequence[float] | np.ndarray, about: str
) -> page.Html:
    figure = page.figure(calibration_figure(right, probabilities), "reliability diagram")
    return page.section("Calibration", page.text(about), figure)


def _classes_section(
    labels: np.ndarray, predictions: Sequence[int], names: Sequence[str]
) -> page.Html:
    by_class = classifier_scores.per_class_scores(predictions, labels, names)
    columns = ["class", "precision", "recall", "f1", "rows"]
    rows = [[name, *values.values()] for name, values in by_class.items()]
    blocks = [page.table(columns, rows)]
    pairs = Counter(zip(labels.tolist(), predictions, strict=True))
    confusions = [
        [names[label], names[predicted], count]
        for (label, predicted), count in pairs.most_common()
        if label != predicted
    ]
    if len(names) > 2 and confusions:
        blocks.append(
            page.table(
                ["label", "predicted as", "rows"],
                confusions[:_MAX_CONFUSIONS],
                "The most frequent confusions",
            )
        )
    if len(names) <= _MAX_CLASSES_DRAWN:
        figure = confusion_figure(labels.tolist(), predictions, names)
        blocks.append(page.figure(figure, "confusion matrix"))
    return page.section("Classes", *blocks)


def multi_label_sections(
    data: LabeledText,
    probabilities: np.ndarray,
    thresholds: Sequence[float],
    scores: Mapping[str, float],
) -> list[page.Html]:
    """Returns the sections for a multi-label classifier.

    Args:
        data: The examples with their labels.
        probabilities: The probability of each label, of shape `(examples, classes)`.
        thresholds: The lowest probability for predicting each label.
        scores: The model's scores by metric name.
    """
    names, labels = data.class_names or (), required_labels(data.labels, data.path)
    predicted_labels = (probabilities >= thresholds).astype(labels.dtype)
    by_class = classifier_scores.per_class_scores(predicted_labels, labels, names)
    rows = [
        [name, threshold, *values.values()]
        for (name, values), threshold in zip(by_class.items(), thresholds, strict=True)
    ]
    columns = ["label", "threshold", "precision", "recall", "f1", "rows"]
    lengths = [len(text) for text in data.texts]
    is_right = (predicted_labels == labels).all(axis=1)
    # Sort by the largest error among an example's probabilities.
    worst = np.argsort(-np.abs(probabilities - labels).max(axis=1), kind="stable")
    wrong = [index for index in worst.tolist() if not is_right[index]]
    predictions = dataclasses.replace(data, labels=predicted_labels).shown_labels
    mistakes = [
        [data.shown_labels[index], predictions[index], _shown(data, index)]
        for index in wrong[:_MAX_MISTAKES]
    ]
    table = page.table(["labels", "predictions", "text"], mistakes)
    about = (
        "Each label of each example counts. For example, in a calibrated model a label with a "
        "predicted probability of 0.8 applies to 80% of the examples."
    )
    return [
        scores_section(scores),
        page.section("Labels", page.table(columns, rows)),
        _calibration_section(labels.reshape(-1) > 0, probabilities.reshape(-1), about),
        page.section("Exact match by length", _slices("characters", lengths, is_right)),
        _mistakes(len(wrong), len(labels), page.text(_CONFIDENT), table),
    ]


def regression_sections(data: LabeledText, predictions: Sequence[float]) -> list[page.Html]:
    """Returns the sections for a regression model."""
    labels, answers = (
        required_labels(data.labels, data.path).astype("float64"),
        np.asarray(predictions, "float64"),
    )
    metrics = classifier_scores.metrics_for(1)
    errors = np.abs(answers - labels)
    lengths = [len(text) for text in data.texts]
    worst = np.argsort(-errors, kind="stable")[:_MAX_MISTAKES].tolist()
    rows = [[float(labels[i]), float(answers[i]), _shown(data, i)] for i in worst]
    mean = np.full_like(labels, labels.mean())
    return [
        scores_section(
            classifier_scores.score(metrics, answers, labels),
            {"the mean of the labels": classifier_scores.score(metrics, mean, labels)},
        ),
        page.section(
            "Predictions",
            page.figure(_scatter(labels, answers), "predictions over labels"),
        ),
        page.section(
            "Mean absolute error by length",
            _slices("characters", lengths, errors, is_proportion=False),
        ),
        page.section("Largest errors", page.table(["label", "prediction", "text"], rows)),
    ]


@style()
def _scatter(labels: np.ndarray, predicted: np.ndarray) -> Figure:
    figure, (axes,) = new_figure(4.0, 3.6)
    ends = [min(labels.min(), predicted.min()), max(labels.max(), predicted.max())]
    axes.plot(ends, ends, "--", color=GRAY)
    axes.plot(labels, predicted, "o", alpha=0.4)
    axes.set(xlabel="label", ylabel="prediction")
    return figure


def question_sections(
    answered: Sequence[AnsweredQuestion], f1: np.ndarray, scores: Mapping[str, float]
) -> list[page.Html]:
    """Returns the sections for a question answerer.

    Args:
        answered: The questions with their predicted and gold answers.
        f1: The F1 of each answer in [0, 1], of shape `(examples,)`.
        scores: The model's scores by metric name.
    """
    first_words = [(one.question.split() or [""])[0].lower() for one in answered]
    common = [word for word, _ in Counter(first_words).most_common(8)]
    first_word_slices = {
        word: np.array([first == word for first in first_words]) for word in common
    } | {"others": np.array([first not in common for first in first_words])}
    lengths = [len(one.context) for one in answered]
    wrong = np.flatnonzero(f1 < 1)
    probabilities = np.array([one.score if one.score is not None else 0.0 for one in answered])
    worst = wrong[np.lexsort((-probabilities[wrong], f1[wrong]))][:_MAX_MISTAKES]
    sections = [
        scores_section(scores),
        page.section(
            "F1 by the question's first word", _slices_table(first_word_slices, 100 * f1, False)
        ),
        page.section(
            "F1 by the passage's length",
            _slices("characters", lengths, 100 * f1, is_proportion=False),
        ),
    ]
    if any(not one.golds for one in answered):
        answerable = np.array([bool(one.golds) for one in answered])
        kinds = {"answerable": answerable, "unanswerable": ~answerable}
        sections.append(page.section("F1 by kind", _slices_table(kinds, 100 * f1, False)))
    passages = [answered_question(answered[index]) for index in worst]
    return [*sections, _mistakes(len(wrong), len(answered), LEGEND, *passages)]


def tagging_sections(gold: TaggedText, labels: Sequence[Sequence[str]]) -> list[page.Html]:
    """Returns the sections for a tagger."""
    from keras_bert.data.tagging_schemes import are_span_labels

    true = gold.labels or []
    sections = [scores_section(entity_scores.tagging_scores(labels, true))]
    if are_span_labels(label for sentence in true for label in sentence):
        scores = entity_scores.entity_scores(labels, true)
        rows = [[kind, *values] for kind, values in scores.by_type.items()]
        columns = ["type", "precision", "recall", "f1", "entities"]
        sections.append(page.section("Entities", page.table(columns, rows)))
    confusions: dict[tuple[str, str], Counter[str]] = {}
    errors = []
    for words, true_labels, predicted in zip(gold.words, true, labels, strict=True):
        wrong = [one for one in zip(words, true_labels, predicted, strict=True) if one[1] != one[2]]
        errors.append(len(wrong))
        for word, label, answer in wrong:
            confusions.setdefault((label, answer), Counter())[word] += 1
    largest = sorted(confusions.items(), key=lambda item: -item[1].total())[:_MAX_CONFUSIONS]
    rows = [
        [label, answer, words.total(), ", ".join(word for word, _ in words.most_common(5))]
        for (label, answer), words in largest
    ]
    columns = ["label", "prediction", "words", "such as"]
    sections.append(page.section("Confused labels", page.table(columns, rows)))
    right = np.array([not count for count in errors])
    lengths = [len(words) for words in gold.words]
    sections.append(
        page.section("Sentences without an error, by length", _slices("words", lengths, right))
    )
    worst = np.argsort(-np.array(errors), kind="stable")[:_MAX_MISTAKES].tolist()
    unit = infer_word_unit(gold.words)
    examples = [
        _sentence(gold.words[index], true[index], labels[index], unit)
        for index in worst
        if errors[index]
    ]
    sections.append(_mistakes(int(np.sum(~right)), len(gold), *examples, unit="sentences"))
    return sections


def _sentence(
    words: Sequence[str], true: Sequence[str], predicted: Sequence[str], unit: WordUnit | None
) -> page.Html:
    """Marks each wrong word in a sentence with its label and the prediction."""
    parts = []
    for word, label, answer in zip(words, true, predicted, strict=True):
        text = html.escape(word)
        if label == answer:
            parts.append(text)
        else:
            parts.append(
                f'<mark class="wrong">{text}</mark> <small class="faint">{html.escape(label)} '
                f"&rarr; {html.escape(answer)}</small>"
            )
    return page.Html(f"<p>{join_words(parts, unit)}</p>")


def choice_sections(
    data: ChoiceRows, chosen: Sequence[int], probabilities: Sequence[float] | None
) -> list[page.Html]:
    """Returns the sections for a multiple-choice model."""
    labels = required_labels(data.labels, data.path)
    right = np.asarray(chosen) == labels
    random = 100 * float(np.mean([1 / len(choices) for choices in data.choices]))
    lengths = [len(text) for text in data.texts]
    rows = [
        [
            data.texts[index][:_LONGEST_TEXT],
            data.choices[index][labels[index]],
            data.choices[index][chosen[index]],
            None if probabilities is None else probabilities[index],
        ]
        for index in _worst(right, probabilities)
    ]
    table = page.table(["text", "correct choice", "chosen", "probability"], rows)
    scores = classifier_scores.score(("accuracy",), chosen, labels)
    return [
        scores_section(scores, {"a random choice": {"accuracy": random}}),
        page.section("Accuracy by length", _slices("characters", lengths, right)),
        _mistakes(int(np.sum(~right)), len(data), page.text(_CONFIDENT), table),
    ]


def _worst(right: np.ndarray, probabilities: Sequence[float] | None) -> list[int]:
    """Returns the indices of mistakes, most confident first, or in order without probabilities."""
    wrong = np.flatnonzero(~right)
    if probabilities is not None:
        wrong = wrong[np.argsort(-np.asarray(probabilities)[wrong], kind="stable")]
    return wrong[:_MAX_MISTAKES].tolist()


def _mistakes(count: int, total: int, *blocks: page.Html, unit: str = "rows") -> page.Html:
    title = f"Mistakes: {count:,} of {total:,} {unit}"
    if not count:
        return page.section(title, page.text("The model made no mistakes."))
    note = f"The first {_MAX_MISTAKES} are shown." if count > _MAX_MISTAKES else "All are shown."
    return page.section(title, page.text(note), *blocks)


def _shown(data: LabeledText, index: int) -> str:
    texts = [data.texts[index], *([data.text_pairs[index]] if data.text_pairs else [])]
    return "\n— ".join(text[:_LONGEST_TEXT] for text in texts)


def _slices(
    unit: str, sizes: Sequence[int], values: np.ndarray, *, is_proportion: bool = True
) -> page.Html:
    """Returns a table of scores by size quartile. For example, the size is the text length.

    Args:
        unit: The unit of the sizes.
        sizes: The size of each example.
        values: Whether each example is right, or its score without `is_proportion`.
        is_proportion: Whether `values` are boolean.
    """
    array = np.asarray(sizes)
    edges = np.unique(np.quantile(array, np.linspace(0, 1, _NUM_SLICES + 1), method="nearest"))
    members: dict[str, np.ndarray] = {}
    for index in range(max(1, len(edges) - 1)):
        last = edges[min(index + 1, len(edges) - 1)]
        # Each slice starts after the last size in the previous slice.
        first = edges[0] if index == 0 else edges[index] + 1
        members[f"{first:,} to {last:,} {unit}"] = (array >= first) & (array <= last)
    return _slices_table(members, values, is_proportion)


def _slices_table(
    members: Mapping[str, np.ndarray], values: np.ndarray, is_proportion: bool
) -> page.Html:
    rows: list[list[page.Cell]] = []
    for name, mask in members.items():
        part = values[mask]
        if not len(part):
            continue
        mean, low, high = (_share if is_proportion else _mean)(part)
        rows.append([name, len(part), mean, f"{low:.2f} to {high:.2f}"])
    return page.table(["", "rows", "score", "95% interval"], rows)


def _share(right: np.ndarray) -> tuple[float, float, float]:
    """Returns a percentage and its 95% confidence interval."""
    low, high = proportion_interval(int(right.sum()), len(right))
    return 100 * float(right.mean()), 100 * low, 100 * high


def _mean(values: np.ndarray) -> tuple[float, float, float]:
    """Returns a mean and its bootstrap interval, so that it stays in the range of the values."""
    low, high = bootstrap_interval(values[:, np.newaxis], samples=_NUM_RESAMPLES)
    return float(values.mean()), low, high
