# SPDX-License-Identifier: Apache-2.0
"""TriviaQA's metrics: exact match and F1 over all aliases, as in the official scorer."""

from __future__ import annotations

import functools
import string
from collections.abc import Mapping, Sequence

from .answer_rules import ARTICLES, AnswerRule
from .squad_scores import GoldQuestion

_SPACES = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))


@functools.lru_cache(maxsize=200_000)
def normalized(text: str) -> str:
    """Removes case and English articles, and makes of punctuation single spaces.

    Example:

    >>> normalized("The Jay-Z  song, a `hit`")
    'jay z song hit'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(_SPACES)).split())


_RULE = AnswerRule("words, as in TriviaQA's scorer", normalized)


def score_triviaqa(
    golds: Sequence[GoldQuestion], predictions: Mapping[str, str]
) -> dict[str, float]:
    """Returns the scores of TriviaQA, in percent; a key without a prediction counts 0.

    Args:
        golds: The keys of predictions, each with its aliases and answers of people: question ids
            for Wikipedia, `<question id>--<file name>` for the Web.
        predictions: The predicted answers by key; other keys are ignored.

    Returns:
        `exact_match` and `f1`.

    Raises:
        ValueError: If there is no question, or a question has no answer.
    """
    if not golds:
        raise ValueError("expected at least one question, received none")
    exact_sum = f1_sum = 0.0
    for gold in golds:
        if not gold.texts:
            raise ValueError(f"question {gold.id!r} of TriviaQA has no answers")
        prediction = predictions.get(gold.id)
        if prediction is not None:
            exact_sum += max(_RULE.exact_match(prediction, text) for text in gold.texts)
            f1_sum += best_f1(prediction, gold.texts)
    return {"exact_match": 100 * exact_sum / len(golds), "f1": 100 * f1_sum / len(golds)}


def best_f1(prediction: str, texts: Sequence[str]) -> float:
    """Returns the F1 of a prediction with the alias that it is nearest to, in [0, 1]."""
    return max(_RULE.f1(prediction, text, both_empty=0.0) for text in texts)
