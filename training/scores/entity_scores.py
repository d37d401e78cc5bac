# SPDX-License-Identifier: Apache-2.0
"""Precision, recall and F1 of entities, as `conlleval` and `seqeval` count them.

An entity is right if its type, its first and its last word are. These are our own few lines and no
use of `seqeval`, which has had no release since 2020 and needs scikit-learn; a test holds them to
its numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from keras_bert.data.tagging_schemes import Scheme, are_span_labels, entities

Labels = Sequence[Sequence[str]]


class EntityScore(NamedTuple):
    """Scores times 100; one whose denominator is 0 is 0.

    Args:
        precision: Right ones among those that were found.
        recall: Right ones among those that there are.
        f1: The harmonic mean of both.
        support: How many there are.
    """

    precision: float
    recall: float
    f1: float
    support: int


class EntityScores(NamedTuple):
    """The scores of a tagger.

    Args:
        micro: Over all entities, whatever their type: the official F1 of CoNLL-2003 and WNUT-17.
        macro: The mean over the types that occur in the labels or the predictions.
        weighted: That mean, each type by its support.
        by_type: Of each type, sorted by name.
    """

    micro: EntityScore
    macro: EntityScore
    weighted: EntityScore
    by_type: dict[str, EntityScore]


def entity_scores(
    predictions: Labels, labels: Labels, strict: Scheme | None = None
) -> EntityScores:
    """Scores the entities that predicted labels spell.

    Args:
        predictions: For each sentence the label of each word: IOB1, IOB2 or BIOES.
        labels: The right ones, in the same order.
        strict: The scheme that entities must be spelled in to count, as `seqeval` has it with
            `mode="strict"`; `None` reads what can be read, as `conlleval` and `seqeval` do.

    Raises:
        ValueError: If the numbers of sentences or words differ, or a label spells no span.

    Example:

    >>> scores = entity_scores([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "B-PER"]])
    >>> scores.micro
    EntityScore(precision=50.0, recall=50.0, f1=50.0, support=2)
    """
    _check_alike(predictions, labels)
    right: Counter[str] = Counter()
    found: Counter[str] = Counter()
    true: Counter[str] = Counter()
    for predicted_labels, true_labels in zip(predictions, labels, strict=True):
        predicted_spans = set(entities(predicted_labels, strict))
        true_spans = set(entities(true_labels, strict))
        found.update(span.type for span in predicted_spans)
        true.update(span.type for span in true_spans)
        right.update(span.type for span in predicted_spans & true_spans)
    types = sorted(found.keys() | true.keys())
    by_type = {name: _score(right[name], found[name], true[name]) for name in types}
    support = true.total()
    return EntityScores(
        micro=_score(right.total(), found.total(), support),
        macro=_mean(by_type.values(), [1] * len(by_type), support),
        weighted=_mean(by_type.values(), [true[name] for name in types], support),
        by_type=by_type,
    )


def tagging_scores(predictions: Labels, labels: Labels) -> dict[str, float]:
    """The scores of tags as `training.scores.classifier_scores` gives those of classes.

    Args:
        predictions: For each sentence the label of each word.
        labels: The right ones, in the same order.

    Returns:
        `f1`, `precision` and `recall` of entities, where the labels spell spans; and `accuracy`,
        of words. All times 100.
    """
    _check_alike(predictions, labels)
    pairs = [
        pair
        for sentences in zip(predictions, labels, strict=True)
        for pair in zip(*sentences, strict=True)
    ]
    if not pairs:
        raise ValueError("expected one word or more, received none")
    accuracy = 100.0 * sum(predicted == true for predicted, true in pairs) / len(pairs)
    if not are_span_labels(label for pair in pairs for label in pair):
        return {"accuracy": accuracy}
    micro = entity_scores(predictions, labels).micro
    return {
        "f1": micro.f1,
        "precision": micro.precision,
        "recall": micro.recall,
        "accuracy": accuracy,
    }


def selection_score(scores: dict[str, float]) -> float:
    """The one number by which taggers are compared: F1 of entities, or the accuracy of words."""
    return scores.get("f1", scores["accuracy"])


def table(scores: EntityScores) -> str:
    """The scores as text: a line for each type, and the means.

    Example:

    >>> print(table(entity_scores([["B-PER", "B-LOC"]], [["B-PER", "O"]])))
                 precision    recall        F1   support
    LOC               0.00      0.00      0.00         0
    PER             100.00    100.00    100.00         1
    micro            50.00    100.00     66.67         1
    macro            50.00     50.00     50.00         1
    weighted        100.00    100.00    100.00         1
    """
    rows = {
        **scores.by_type,
        "micro": scores.micro,
        "macro": scores.macro,
        "weighted": scores.weighted,
    }
    width = max(12, *(len(name) for name in rows))
    heading = f"{'':{width}}{'precision':>10}{'recall':>10}{'F1':>10}{'support':>10}"
    lines = [
        f"{name:{width}}{row.precision:10.2f}{row.recall:10.2f}{row.f1:10.2f}{row.support:10d}"
        for name, row in rows.items()
    ]
    return "\n".join([heading, *lines])


def _score(right: int, found: int, true: int) -> EntityScore:
    precision = 100.0 * right / found if found else 0.0
    recall = 100.0 * right / true if true else 0.0
    f1 = 200.0 * right / (found + true) if right else 0.0
    return EntityScore(precision, recall, f1, true)


def _mean(scores: Iterable[EntityScore], weights: Sequence[int], support: int) -> EntityScore:
    total = sum(weights)
    columns = zip(*(score[:3] for score in scores), strict=True)
    means = [
        sum(weight * value for weight, value in zip(weights, column, strict=True)) / total
        for column in columns
        if total
    ]
    return EntityScore(*(means or [0.0, 0.0, 0.0]), support)


def _check_alike(predictions: Labels, labels: Labels) -> None:
    if len(predictions) != len(labels):
        raise ValueError(
            f"predictions are of {len(predictions)} sentences and labels of {len(labels)}, "
            "expected as many"
        )
    for index, (predicted, true) in enumerate(zip(predictions, labels, strict=True)):
        if len(predicted) != len(true):
            raise ValueError(
                f"sentence {index} has {len(predicted)} predictions and {len(true)} labels, "
                "expected one of each a word"
            )
