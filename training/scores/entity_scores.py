# SPDX-License-Identifier: Apache-2.0
"""Precision, recall and F1 of entities, as in `conlleval` and `seqeval`.

An entity is correct if its type, its first word and its last word are correct. This module does not
use `seqeval`, because its last release was in 2020 and it requires scikit-learn. A test checks that
the scores are equal.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from keras_bert.data.tagging_schemes import Scheme, are_span_labels, entities
from keras_bert.tables import text_table

Labels = Sequence[Sequence[str]]


class EntityScore(NamedTuple):
    """Scores in percent. A score whose denominator is 0 is 0.

    Args:
        precision: The percentage of correct entities among the predicted entities.
        recall: The percentage of correctly predicted entities among the labeled entities.
        f1: The harmonic mean of precision and recall.
        support: The number of labeled entities.
    """

    precision: float
    recall: float
    f1: float
    support: int


class EntityScores(NamedTuple):
    """A tagger's scores.

    Args:
        micro: Scores over all entities, the official metric for CoNLL-2003 and WNUT-17.
        macro: The mean over the types that occur in the labels or the predictions.
        weighted: The mean over the types, weighted by their support.
        by_type: The scores of each type, sorted by name.
    """

    micro: EntityScore
    macro: EntityScore
    weighted: EntityScore
    by_type: dict[str, EntityScore]


def entity_scores(
    predictions: Labels, labels: Labels, strict: Scheme | None = None
) -> EntityScores:
    """Scores the entities of predicted labels.

    Args:
        predictions: The predicted labels of the words in each sentence, in IOB1, IOB2 or BIOES.
        labels: The correct labels, in the same order.
        strict: Only count entities whose labels follow this scheme, as in `seqeval` with
            `mode="strict"`. By default, all entities count, as in `conlleval` and `seqeval`.

    Raises:
        ValueError: If the numbers of sentences or words differ, or if a label is not a span label.

    Example:

    >>> scores = entity_scores([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "B-PER"]])
    >>> scores.micro
    EntityScore(precision=50.0, recall=50.0, f1=50.0, support=2)
    """
    right: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    true: Counter[str] = Counter()
    for predicted_labels, true_labels in zip(predictions, labels, strict=True):
        predicted_spans = set(entities(predicted_labels, strict))
        true_spans = set(entities(true_labels, strict))
        counts.update(span.type for span in predicted_spans)
        true.update(span.type for span in true_spans)
        right.update(span.type for span in predicted_spans & true_spans)
    types = sorted(counts.keys() | true.keys())
    by_type = {name: _score(right[name], counts[name], true[name]) for name in types}
    support = true.total()
    return EntityScores(
        micro=_score(right.total(), counts.total(), support),
        macro=_mean(by_type.values(), [1] * len(by_type), support),
        weighted=_mean(by_type.values(), [true[name] for name in types], support),
        by_type=by_type,
    )


def tagging_scores(predictions: Labels, labels: Labels) -> dict[str, float]:
    """Scores predicted labels of words.

    Returns:
        The word `accuracy`, and if the labels mark spans, the entity `f1`, `precision` and
        `recall`. All scores are in percent.
    """
    pairs = [
        pair
        for sentences in zip(predictions, labels, strict=True)
        for pair in zip(*sentences, strict=True)
    ]
    if not pairs:
        raise ValueError("there must be at least one word. Received: no words")
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


def macro_scores(predictions: Labels, labels: Labels, scheme: Scheme | None) -> dict[str, float]:
    """Averages F1 over entity types and over labels, as in KLUE.

    Args:
        predictions: The predicted labels of the words in each sentence.
        labels: The correct labels, in the same order.
        scheme: The scheme that entities must follow. `None` if labels do not mark spans.

    Returns:
        `label_f1`, the mean over the labels including `O` of each label's F1 on words. KLUE calls
        it the character F1. With a scheme, also `macro_f1`, the mean over the entity types of the
        F1 on entities. Both are in percent.

    Example:

    >>> macro_scores([["B-PER", "O", "O"]], [["B-PER", "O", "B-LOC"]], "IOB2")
    {'macro_f1': 50.0, 'label_f1': 55.555555555555564}

    Reference:
        [KLUE](https://arxiv.org/abs/2105.09680), section 3.4.
    """
    flat = [list(itertools.chain.from_iterable(part)) for part in (predictions, labels)]
    counts = [Counter(part) for part in flat]
    right = Counter(one for one, other in zip(*flat, strict=True) if one == other)
    f1s = [
        _score(right[name], *(part[name] for part in counts)).f1 for name in counts[0] | counts[1]
    ]
    scores = {"label_f1": sum(f1s) / len(f1s)}
    if scheme is None:
        return scores
    return {"macro_f1": entity_scores(predictions, labels, scheme).macro.f1, **scores}


def selection_score(scores: dict[str, float]) -> float:
    """Returns the score that selects taggers, either entity F1 or word accuracy."""
    return scores.get("f1", scores["accuracy"])


def table(scores: EntityScores) -> str:
    """Formats scores as a plain-text table, with a line for each type and for the means.

    Example:

    >>> print(table(entity_scores([["B-PER", "B-LOC"]], [["B-PER", "O"]])))
              precision  recall      F1  support
    LOC            0.00    0.00    0.00        0
    PER          100.00  100.00  100.00        1
    micro         50.00  100.00   66.67        1
    macro         50.00   50.00   50.00        1
    weighted     100.00  100.00  100.00        1
    """
    rows = {
        **scores.by_type,
        "micro": scores.micro,
        "macro": scores.macro,
        "weighted": scores.weighted,
    }
    columns = ["", "precision", "recall", "F1", "support"]
    return text_table(columns, ([name, *row] for name, row in rows.items()))


def _score(right: int, predicted: int, true: int) -> EntityScore:
    precision = 100.0 * right / predicted if predicted else 0.0
    recall = 100.0 * right / true if true else 0.0
    f1 = 200.0 * right / (predicted + true) if right else 0.0
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
