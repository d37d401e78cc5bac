# SPDX-License-Identifier: Apache-2.0
"""Baselines on small data sets whose scores are easy to compute by hand."""

import numpy as np
import pytest

from keras_bert.data.conll import TaggedText
from keras_bert.data.squad import QuestionExample, SpanAnswer
from training.readers.choice_files import ChoiceRows
from training.readers.labeled_text import LabeledText
from training.scores import baselines

pytestmark = [pytest.mark.backend_independent, pytest.mark.needs_tensorflow]


def make_labeled_text(texts, labels, class_names, text_pairs=None):
    dtype = "float32" if class_names is None else "int32"
    return LabeledText(texts, text_pairs, np.array(labels, dtype), class_names, "memory")


def dev_baselines(train, dev, metrics):
    return baselines.text_baselines(train, {"dev": dev}, metrics)["dev"]


def test_text_classification_baselines():
    texts = ["good film", "good play", "good cast", "bad film", "bad play"]
    train = make_labeled_text(texts, [1, 1, 1, 0, 0], ("bad", "good"))
    dev = make_labeled_text(["good story", "bad story"], [1, 0], ("bad", "good"))
    scores = dev_baselines(train, dev, ["accuracy", "f1"])
    assert scores["majority"] == {"accuracy": 50.0, "f1": pytest.approx(200 / 3)}
    assert scores["bag_of_words"] == {"accuracy": 100.0, "f1": 100.0}


def test_pair_regression_baseline_uses_shared_words():
    words = ["red", "green", "blue", "white"]
    dev_pairs = [("red", "red"), ("blue", "green"), ("white", "red")]
    pairs = [(a, b) for a in words for b in words if (a, b) not in dev_pairs]
    train, dev = (
        make_labeled_text(
            [a for a, _ in text_pairs],
            [5.0 * (a == b) for a, b in text_pairs],
            None,
            [b for _, b in text_pairs],
        )
        for text_pairs in (pairs, dev_pairs)
    )
    scores = dev_baselines(train, dev, ["pearson", "mse"])
    assert scores["mean"]["pearson"] == 0.0
    # No single word predicts the score. Only a word in both texts does.
    assert scores["bag_of_words"]["pearson"] > 90
    assert scores["bag_of_words"]["mse"] < scores["mean"]["mse"] / 2


def test_text_without_spaces_uses_bag_of_characters():
    texts = ["良い映画", "良い芝居", "とても良い", "悪い映画", "悪い芝居"]
    train = make_labeled_text(texts, [1, 1, 1, 0, 0], ("bad", "good"))
    dev = make_labeled_text(["良い話", "悪い話"], [1, 0], ("bad", "good"))
    scores = dev_baselines(train, dev, ["accuracy"])
    assert scores["bag_of_characters"] == {"accuracy": 100.0}
    assert "bag_of_words" not in scores


def test_single_class_has_only_majority():
    dev = make_labeled_text(["?", "good film"], [0, 1], ("a", "b"))
    for train in (
        make_labeled_text(["!", "?"], [0, 1], ("a", "b")),
        make_labeled_text(["bad film", "good film"], [0, 0], ("a", "b")),
    ):
        assert list(dev_baselines(train, dev, ["accuracy"])) == ["majority"]


def test_baselines_truncate_long_files_and_texts(monkeypatch):
    monkeypatch.setattr(baselines, "MAX_TRAINING_ROWS", 4)
    monkeypatch.setattr(baselines, "MAX_CHARACTERS", 4)
    train = make_labeled_text(["good bad", "evil good"] * 50, [0, 1] * 50, ("a", "b"))
    dev = make_labeled_text(["good evil", "evil good"], [0, 1], ("a", "b"))
    assert dev_baselines(train, dev, ["accuracy"])["bag_of_words"] == {"accuracy": 100.0}


def test_unlabeled_text_raises():
    train = make_labeled_text(["good one", "bad one"], [1, 0], ("bad", "good"))
    dev = LabeledText(["one"], None, None, ("bad", "good"), "dev.tsv")
    with pytest.raises(ValueError, match=r"dev\.tsv must have labels"):
        dev_baselines(train, dev, ["accuracy"])


def test_tag_baselines_by_hand():
    def make_tagged_text(words, labels):
        return TaggedText([words], [labels], path="memory")

    train = make_tagged_text(
        ["Ann", "saw", "Ann", "in", "Ann", "bay"], ["B-P", "O", "B-P", "O", "B-L", "O"]
    )
    dev = make_tagged_text(["Ann", "in", "Bonn"], ["B-P", "O", "B-L"])
    scores = baselines.tag_baselines(train, dev)
    assert scores["majority"]["f1"] == 0.0
    assert scores["majority"]["accuracy"] == pytest.approx(100 / 3)
    assert scores["word_majority"]["precision"] == 100.0
    assert scores["word_majority"]["recall"] == 50.0


def test_choice_baselines_by_hand():
    rows = ChoiceRows(
        ["t"] * 3,
        [["a", "bb"], ["a", "b", "cc", "d"], ["aaa", "b"]],
        np.array([1, 0, 0], "int32"),
        "memory",
    )
    scores = baselines.choice_baselines(rows)
    assert scores["random"]["accuracy"] == pytest.approx(100 * (1 / 2 + 1 / 4 + 1 / 2) / 3)
    assert scores["longest"]["accuracy"] == pytest.approx(200 / 3)


def test_question_baselines_by_hand():
    context = "The river Rhine rises in Switzerland. The moon has no water."

    def make_question(id, text, *answers):
        spans = tuple(SpanAnswer(answer, context.index(answer)) for answer in answers)
        return QuestionExample(id, text, context, spans)

    examples = [
        make_question("a", "Where rises the river Rhine?", "in Switzerland"),
        make_question("b", "Has the moon ice?"),
    ]
    scores = baselines.question_baselines(examples, has_unanswerable=True)
    assert scores["no_answer"]["exact"] == 50.0
    assert scores["sliding_window"]["HasAns_exact"] == 100.0
    assert scores["sliding_window"]["NoAns_exact"] == 0.0
    assert baselines.question_baselines(examples[:1], has_unanswerable=False) == {
        "sliding_window": {"exact_match": 100.0, "f1": 100.0}
    }
    context = "ライン川は瑞西から流れる。月には水がない。"
    scores = baselines.question_baselines(
        [make_question("c", "ライン川はどこから流れる?", "瑞西")], False
    )
    assert scores["sliding_window"]["f1"] == 100.0
