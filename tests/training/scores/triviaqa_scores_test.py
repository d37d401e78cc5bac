# SPDX-License-Identifier: Apache-2.0
"""Compares TriviaQA metrics with recorded scores of the official scorer."""

import pytest

from training.scores.answer_rules import TRIVIA_WORDS
from training.scores.squad_scores import GoldQuestion, score_squad_v1

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  U.S.\tPresident!", "u s president"),
        ("a-the_an", ""),
        ("Jay‑Z ’s `best´", "jay‑z s best"),
        ("“Quoted”", "“quoted”"),
        ("Theatre", "theatre"),
    ],
)
def test_normalize_replaces_punctuation_with_spaces(text, expected):
    assert TRIVIA_WORDS.normalize(text) == expected


def test_scores_match_official_scorer():
    golds = [
        GoldQuestion("a", ("sunset blvd", "sunset boulevard")),
        GoldQuestion("b", ("jay z", "Shawn Carter!")),
        GoldQuestion("c", ("the",)),
        GoldQuestion("d", ("x",)),
    ]
    predictions = {"a": "West Sunset Blvd.", "b": "Shawn_Carter", "c": "An", "other": "x"}
    scores = score_squad_v1(golds, predictions, TRIVIA_WORDS)
    assert scores == {"exact_match": 50.0, "f1": 45.0}
    for invalid, message in (([], "at least one"), ([GoldQuestion("e", ())], "'e' must have")):
        with pytest.raises(ValueError, match=message):
            score_squad_v1(invalid, {"e": "x"}, TRIVIA_WORDS)
