# SPDX-License-Identifier: Apache-2.0
"""SQuAD metrics on answers whose scores are easy to compute by hand."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.source_imports import ROOT
from training.scores.answer_rules import CHARACTERS, SEGMENTS, WORDS, normalized, rule_for
from training.scores.question_scores import read_gold
from training.scores.squad_scores import (
    GoldQuestion,
    best_threshold,
    read_null_odds,
    read_predictions,
    score_squad_v1,
    score_squad_v2,
)

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  U.S.\tPresident!", "us president"),
        ("theatre anna", "theatre anna"),
        ("a-the", "athe"),
        ("“Quoted” – 東京。", "“quoted” – 東京。"),
    ],
)
def test_normalized_removes_articles_and_punctuation(text, expected):
    assert normalized(text) == expected


def test_f1_counts_shared_words():
    # 2 of 3 predicted words and 2 of 4 gold words match, so precision is 2/3 and recall is 1/2.
    f1 = WORDS.f1
    assert f1("red red car", "red red big bus") == pytest.approx(2 * (2 / 3) * 0.5 / (2 / 3 + 0.5))
    assert f1("red", "blue") == 0
    assert f1("the", "an") == 1
    assert f1("the", "an", both_empty=0.0) == 0
    assert f1("red", "the") == 0
    assert WORDS.exact_match("The Car", "car!") == 1


@pytest.mark.parametrize(
    ("answers", "rule", "prediction", "gold", "exact", "expected"),
    [
        (["이순신", "서울"], CHARACTERS, "《이순신》은", "이순신", 0, 2 * 3 / (3 + 4)),
        (["東京タワー", "富士山"], CHARACTERS, "東京", "東京タワー", 0, 2 * 2 / (2 + 5)),
        (["北京", "上海市"], SEGMENTS, "北京，海市", "北京市", 0, 2 * 2 / (4 + 3)),
        (["red car", "東京"], WORDS, "red", "red car", 0, 2 / 3),
    ],
)
def test_rule_for_depends_on_the_language(answers, rule, prediction, gold, exact, expected):
    assert rule_for(answers) is rule
    assert rule.exact_match(prediction, gold) == exact
    assert rule.f1(prediction, gold) == pytest.approx(expected)


def test_scores_use_the_rule_of_the_language():
    golds = [GoldQuestion("a", ("北京市",)), GoldQuestion("b", ("上海",))]
    predictions = {"a": "北京", "b": "《上海》"}
    expected = {"exact_match": 50.0, "f1": pytest.approx(100 * (4 / 5 + 1) / 2)}
    assert score_squad_v1(golds, predictions) == expected
    assert score_squad_v2(golds, predictions)["f1"] == expected["f1"]


GOLDS = [
    GoldQuestion("a", ("red car", "car")),
    GoldQuestion("b", ("1999",)),
    GoldQuestion("c", ("the",)),
    GoldQuestion("d", ("x",)),
]


def test_squad_v1_counts_missing_predictions_as_wrong():
    scores = score_squad_v1(GOLDS, {"a": "a red car", "b": "in 1999", "c": "a", "e": "?"})
    # After normalization, the answers to c are equal but empty, so they share no word.
    assert scores == pytest.approx({"exact_match": 100 * 2 / 4, "f1": 100 * (1 + 2 / 3) / 4})
    with pytest.raises(ValueError, match="'n' must have answers"):
        score_squad_v1([GoldQuestion("n", ())], {})


def test_squad_v2_scores_missing_and_empty_answers():
    golds = [*GOLDS[:3], GoldQuestion("n", ()), GoldQuestion("m", ()), GOLDS[3]]
    predictions = {"a": "a red car", "b": "in 1999", "c": "", "n": "", "m": "y"}
    scores = score_squad_v2(golds, predictions)
    assert scores == pytest.approx(
        {
            # The gold answer of c is empty after normalization, so an empty answer is correct.
            "exact": 60.0, "f1": 100 * (1 + 2 / 3 + 1 + 1) / 5, "total": 5,
            "HasAns_exact": 100 * 2 / 3, "HasAns_f1": 100 * (1 + 2 / 3 + 1) / 3, "HasAns_total": 3,
            "NoAns_exact": 50.0, "NoAns_f1": 50.0, "NoAns_total": 2,
            "missing": 1,
        }
    )  # fmt: skip
    with pytest.raises(ValueError, match="at least one of the"):
        score_squad_v2(golds, {})


def test_null_odds_above_threshold_empty_predictions():
    golds = [GOLDS[0], GOLDS[1], GoldQuestion("n", ())]
    predictions = {"a": "car", "b": "1999", "n": "y"}
    odds = {"a": -1.0, "b": 2.0, "n": 1.0}
    assert score_squad_v2(golds, predictions)["exact"] == pytest.approx(200 / 3)
    scores = score_squad_v2(golds, predictions, odds, threshold=0.5)
    assert scores["exact"] == pytest.approx(200 / 3)
    assert (scores["HasAns_exact"], scores["NoAns_exact"]) == (50.0, 100.0)
    # A threshold between -1 and 1 keeps the answer to a but not to n. A threshold above 2 keeps
    # the answers to a and b, but also the wrong answer to n.
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (pytest.approx(200 / 3), -1.0)
    with pytest.raises(ValueError, match=r"must have null odds. Received: no null odds for 'a'"):
        score_squad_v2(golds, predictions, {"b": 1.0})


def test_best_threshold_is_optimal():
    generator = np.random.default_rng(0)
    for _ in range(50):
        scores, null = generator.random((2, 12)).round(1)
        odds = generator.integers(-3, 4, 12) / 2  # many are equal
        threshold = best_threshold(scores, null, odds)

        def total(limit, arrays=(scores, null, odds)):
            scores, null, odds = arrays
            return np.where(odds > limit, null, scores).sum()

        assert total(threshold) == pytest.approx(max(map(total, np.arange(-5, 5, 0.25))))
        # The threshold is not close to any odds, because other runtimes may round them differently.
        assert np.min(np.abs(odds - threshold)) >= 0.25
    # If empty answers score no better, the threshold keeps all answers.
    assert best_threshold(np.zeros(3), np.zeros(3), np.arange(3.0)) == 3


def write_data(directory, is_version_2):
    questions = [
        {"id": gold.id, "answers": [{"text": text} for text in gold.texts]} for gold in GOLDS[:2]
    ]
    if is_version_2:
        questions.append({"id": "n", "answers": None, "is_impossible": True})
    else:
        questions = [{**question, "is_impossible": False} for question in questions]
    path = directory / "data.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"qas": questions}]}]}))
    return str(path)


def write_json(path, value):
    path.write_text(json.dumps(value))
    return str(path)


def score_files(data, predictions, odds=""):
    golds = read_gold(data)
    answers = read_predictions(predictions)
    if golds.data_set == "squad_v1":
        return golds.scores(answers)
    return score_squad_v2(golds.questions, answers, read_null_odds(odds) if odds else None)


def test_evaluate_infers_the_squad_version(tmp_path):
    predictions = write_json(tmp_path / "predictions.json", {"a": "car", "b": "", "n": ""})
    assert score_files(write_data(tmp_path, False), predictions)["exact_match"] == 50.0
    odds = write_json(tmp_path / "odds.json", {"a": 0, "b": 1.5, "n": 2})
    data = write_data(tmp_path, True)
    assert score_files(data, predictions, odds)["NoAns_exact"] == 100.0
    finished = subprocess.run(
        [
            sys.executable, "-m", "training.evaluate", f"--data_file={data}",
            f"--predictions={predictions}", f"--null_odds={odds}",
        ],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == pytest.approx(score_files(data, predictions, odds))


def test_invalid_squad_files_raise(tmp_path):
    data = write_data(tmp_path, True)
    with pytest.raises(ValueError, match=r"bad\.json: 'a' must be a string\. Received: 3"):
        score_files(data, write_json(tmp_path / "bad.json", {"a": 3}))
    with pytest.raises(ValueError, match=r"list\.json must be an object .* Received: a list"):
        score_files(data, write_json(tmp_path / "list.json", []))
    with pytest.raises(ValueError, match=r"empty\.json must be in SQuAD's format.*: KeyError"):
        read_gold(write_json(tmp_path / "empty.json", {"data": [{}]}))
