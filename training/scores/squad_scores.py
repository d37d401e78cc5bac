# SPDX-License-Identifier: Apache-2.0
"""Exact match and F1 for SQuAD 1.1, SQuAD 2.0 and TriviaQA, as in the official scorers.

Answers in Japanese, Korean and Chinese are compared as described in `answer_rules`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert.data.squad import question_id

from ..readers.row_values import as_id, excerpt
from .answer_rules import KLUE, AnswerRule, is_korean, rule_for


@dataclasses.dataclass(frozen=True)
class GoldQuestion:
    """A question's ID and its gold answers.

    Args:
        id: The question's ID. It is also the key of its prediction.
        texts: The gold answers. Empty if the question is unanswerable.
    """

    id: str
    texts: tuple[str, ...]


def score_squad_v1(
    golds: Sequence[GoldQuestion], predictions: Mapping[str, str], rule: AnswerRule | None = None
) -> dict[str, float]:
    """Returns SQuAD 1.1's scores in percent. A question without a prediction counts as 0.

    Args:
        golds: The questions, each with at least one answer.
        predictions: The predicted answers by question ID. Other IDs are ignored.
        rule: How answers are compared, such as TriviaQA's `TRIVIA_WORDS`. Defaults to the rule for
            their script.

    Returns:
        `exact_match` and `f1`.

    Raises:
        ValueError: If `golds` is empty, or if a question has no answer.
    """
    rule = rule_of(golds, rule)
    exact_sum = f1_sum = 0.0
    for gold in golds:
        if not gold.texts:
            raise ValueError(
                f"question {gold.id!r} must have answers. Only SQuAD 2.0 has unanswerable questions"
            )
        prediction = predictions.get(gold.id)
        if prediction is not None:
            exact_sum += max(rule.exact_match(prediction, text) for text in gold.texts)
            f1_sum += max(rule.f1(prediction, text, both_empty=0.0) for text in gold.texts)
    return {"exact_match": 100 * exact_sum / len(golds), "f1": 100 * f1_sum / len(golds)}


def score_squad_v2(
    golds: Sequence[GoldQuestion],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """Returns SQuAD 2.0's scores in percent.

    Questions without a prediction are ignored, as in the official scorer. `missing` counts them.

    Args:
        golds: The questions.
        predictions: The predicted answers by question ID. An empty string means no answer.
        null_odds: The null odds by question ID, in any unit. By default, 0 for all questions.
        threshold: The null odds above which a prediction counts as no answer.

    Returns:
        - `exact`, `f1` and `total`. With the prefix `HasAns_`, they only count answerable
          questions; with `NoAns_`, only unanswerable questions.
        - With `null_odds`, `best_exact` and `best_f1`, and their thresholds `best_exact_thresh` and
          `best_f1_thresh`.
        - `missing`, unless it is 0.

    Raises:
        ValueError: If `golds` is empty, or if all predictions or some null odds are missing.
    """
    rule = rule_of(golds)
    questions = {gold.id: gold for gold in golds}
    subset = [gold for gold in questions.values() if gold.id in predictions]
    if not subset:
        raise ValueError(
            f"predictions must have the id of at least one of the {len(golds)} questions. "
            f"Received: {len(predictions)} other ids"
        )
    raw = {
        name: np.array([_best(score, predictions[gold.id], gold, rule) for gold in subset])
        for name, score in (("exact", rule.exact_match), ("f1", rule.f1))
    }
    has_answer = np.array([bool(gold.texts) for gold in subset])
    odds = np.zeros(len(subset)) if null_odds is None else _null_odds(subset, null_odds)
    final = {name: np.where(odds > threshold, ~has_answer, values) for name, values in raw.items()}
    results: dict[str, float] = {}
    for prefix, mask in (
        ("", has_answer | True),
        ("HasAns_", has_answer),
        ("NoAns_", ~has_answer),
    ):
        if mask.any():
            for name, values in final.items():
                # The official scorer also adds in the order of the file. This rounds the same.
                results[prefix + name] = 100 * sum(values[mask].tolist()) / int(mask.sum())
            results[f"{prefix}total"] = int(mask.sum())
    if null_odds is not None:
        results |= _official_thresholds(subset, predictions, raw, null_odds, questions)
    num_missing = len(questions) - len(subset)
    return results | ({"missing": num_missing} if num_missing else {})


def score_klue(golds: Sequence[GoldQuestion], predictions: Mapping[str, str]) -> dict[str, float]:
    """Returns KLUE-MRC's scores in percent if the gold answers are Korean, and `{}` otherwise.

    Questions without a prediction are ignored, as in the official scorer.

    Returns:
        `klue_exact` and `klue_rouge_w`. KLUE's ROUGE-W is the F1 of the longest common substring
        in characters.

    Reference:
        [Park et al., 2021](https://arxiv.org/abs/2105.09680), section 3.7.
    """
    subset = [gold for gold in golds if gold.id in predictions]
    if not subset or not is_korean(text for gold in golds for text in gold.texts):
        return {}
    scores: dict[str, float] = {}
    for name, score in (("klue_exact", KLUE.exact_match), ("klue_rouge_w", KLUE.f1)):
        values = [
            max(score(predictions[gold.id], text) for text in gold.texts or ("",))
            for gold in subset
        ]
        scores[name] = 100 * float(np.mean(values))
    return scores


def f1_scores(
    golds: Sequence[GoldQuestion], texts: Sequence[str], rule: AnswerRule | None = None
) -> np.ndarray:
    """Returns the F1 of each answer in [0, 1], of shape `(questions,)`, as in SQuAD 2.0."""
    rule = rule_of(golds, rule)
    pairs = zip(golds, texts, strict=True)
    return np.array([_best(rule.f1, text, gold, rule) for gold, text in pairs])


def best_threshold(scores: np.ndarray, null_scores: np.ndarray, odds: np.ndarray) -> float:
    """Returns the null threshold with the largest sum of scores.

    If multiple thresholds are equally good, those with the fewest empty answers are best. The
    result lies in the middle between two odds, so that rounding errors in a different runtime do
    not change predictions.

    Args:
        scores: The score of the best answer to each question, of shape `(questions,)`.
        null_scores: The score of no answer to each question, of shape `(questions,)`.
        odds: The null odds, of shape `(questions,)`. A question counts as unanswerable if they are
            above the threshold.
    """
    order = np.argsort(odds, kind="stable")
    gains = np.concatenate([[0.0], np.cumsum((scores - null_scores)[order])])
    # A threshold cannot separate equal odds. Only the position after the last of them is valid.
    is_boundary = np.append(np.append(True, odds[order][1:] > odds[order][:-1]), True)
    gains = np.where(is_boundary, gains.round(9), -np.inf)  # Sums of the same scores may differ.
    best = len(odds) - int(np.argmax(gains[::-1]))
    below, above = odds[order][best - 1 : best], odds[order][best : best + 1]
    if not len(below) or not len(above):
        return float(above[0]) - 1.0 if len(above) else float(below[0]) + 1.0
    return float(below[0] + above[0]) / 2


def _official_thresholds(
    scored: Sequence[GoldQuestion],
    predictions: Mapping[str, str],
    raw: Mapping[str, np.ndarray],
    null_odds: Mapping[str, float],
    questions: Mapping[str, GoldQuestion],
) -> dict[str, float]:
    """Returns the best scores and thresholds, as in the official scorer.

    The official scorer also separates questions with equal odds.
    """
    position = {gold.id: index for index, gold in enumerate(scored)}
    order = [
        position[name] for name in sorted(null_odds, key=null_odds.__getitem__) if name in position
    ]
    num_unanswerable = sum(not gold.texts for gold in questions.values())
    results = {}
    for name, values in raw.items():
        gains = np.array(
            [
                values[i] if scored[i].texts else -float(bool(predictions[scored[i].id]))
                for i in order
            ]
        )
        sums = np.cumsum([num_unanswerable, *gains])[1:]
        best = int(np.argmax(sums))
        is_better = sums[best] > num_unanswerable
        results[f"best_{name}"] = 100 * float(max(sums[best], num_unanswerable)) / len(scored)
        threshold = float(null_odds[scored[order[best]].id]) if is_better else 0.0
        results[f"best_{name}_thresh"] = threshold
    return results


def _best(
    score: Callable[[str, str], float], prediction: str, gold: GoldQuestion, rule: AnswerRule
) -> float:
    texts = [text for text in gold.texts if rule.normalize(text)] or [""]
    return float(max(score(prediction, text) for text in texts))


def _null_odds(scored: Iterable[GoldQuestion], null_odds: Mapping[str, float]) -> np.ndarray:
    without_odds = [gold.id for gold in scored if gold.id not in null_odds]
    if without_odds:
        raise ValueError(
            f"each question must have null odds. Received: no null odds for {without_odds[0]!r}"
        )
    return np.array([null_odds[gold.id] for gold in scored], "float64")


def rule_of(golds: Sequence[GoldQuestion], rule: AnswerRule | None = None) -> AnswerRule:
    """Returns the given rule, or by default the rule for the script of the gold answers.

    Raises:
        ValueError: If `golds` is empty.
    """
    if not golds:
        raise ValueError("there must be at least one question. Received: no questions")
    return rule or rule_for(text for gold in golds for text in gold.texts)


def parse_gold(content: Any, path: str) -> tuple[list[GoldQuestion], bool]:
    """Returns the questions in a SQuAD file, and whether its version is 2.0.

    Offsets of answers are ignored. The version is 2.0 if `is_impossible` is true for any question.

    Raises:
        ValueError: If the file is not in SQuAD's format.
    """
    try:
        questions = [
            question
            for article in content["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
        golds = [
            GoldQuestion(
                as_id(question["id"] if question_id(question) is None else question_id(question)),
                ()
                if question.get("is_impossible")
                else tuple(answer["text"] for answer in question.get("answers") or ()),
            )
            for question in questions
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f'{path} must be in SQuAD\'s format, an object with "data", a list of articles with '
            f'"paragraphs" and their "qas". Received: {excerpt(error)}. For other formats, use '
            "--kind"
        ) from error
    return golds, any(question.get("is_impossible") for question in questions)


def read_predictions(path: str) -> dict[str, str]:
    """Reads the predicted answers by question ID.

    Raises:
        ValueError: If the file is invalid.
    """
    return _read_by_id(path, str, "a string")


def _read_by_id(path: str, kind: type | tuple[type, ...], what: str) -> dict[str, Any]:
    from keras_bert.data.squad import load_json

    values = load_json(path)
    if not isinstance(values, dict):
        raise ValueError(
            f"{path} must be an object with question ids as keys. Received: a "
            f"{type(values).__name__}"
        )
    for name, value in values.items():
        if not isinstance(value, kind):
            raise ValueError(f"{path}: {excerpt(name)} must be {what}. Received: {excerpt(value)}")
    return values


def read_null_odds(path: str) -> dict[str, float]:
    """Reads the null odds by question ID.

    Raises:
        ValueError: If the file is invalid.
    """
    return _read_by_id(path, (int, float), "a number")


def with_null_threshold(
    predictions: Mapping[str, str], null_odds: Mapping[str, float] | None, threshold: float
) -> dict[str, str]:
    """Replaces predictions whose null odds are above the threshold with empty strings."""
    odds = null_odds or {}
    return {
        name: "" if odds.get(name, 0.0) > threshold else text for name, text in predictions.items()
    }
