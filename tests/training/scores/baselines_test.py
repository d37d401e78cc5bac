# SPDX-License-Identifier: Apache-2.0
"""Baselines on data with predictions that can be counted by hand."""

import numpy as np
import pytest

from keras_bert.data.conll import TaggedText
from keras_bert.data.squad import QuestionExample, SpanAnswer
from training.readers.choice_files import ChoiceRows
from training.readers.labeled_text import LabeledText
from training.scores import baselines

pytestmark = [pytest.mark.backend_independent, pytest.mark.needs_tensorflow]


def labeled(texts, labels, class_names, text_pairs=None):
    dtype = "float32" if class_names is None else "int32"
    return LabeledText(texts, text_pairs, np.array(labels, dtype), class_names, "memory")


def dev_baselines(train, dev, metrics):
    return baselines.text_baselines(train, {"dev": dev}, metrics)["dev"]


def test_classes():
    texts = ["good film", "good play", "good cast", "bad film", "bad play"]
    train = labeled(texts, [1, 1, 1, 0, 0], ("bad", "good"))
    dev = labeled(["good story", "bad story"], [1, 0], ("bad", "good"))
    scores = dev_baselines(train, dev, ["accuracy", "f1"])
    assert scores["majority"] == {"accuracy": 50.0, "f1": pytest.approx(200 / 3)}
    assert scores["bag_of_words"] == {"accuracy": 100.0, "f1": 100.0}


def test_scores_of_pairs_by_the_words_that_both_texts_have():
    words = ["red", "green", "blue", "white"]
    dev_pairs = [("red", "red"), ("blue", "green"), ("white", "red")]
    pairs = [(a, b) for a in words for b in words if (a, b) not in dev_pairs]
    train, dev = (
        labeled([a for a, _ in of], [5.0 * (a == b) for a, b in of], None, [b for _, b in of])
        for of in (pairs, dev_pairs)
    )
    scores = dev_baselines(train, dev, ["pearson", "mse"])
    assert scores["mean"]["pearson"] == 0.0
    # No single word predicts the score, only whether both texts have it.
    assert scores["bag_of_words"]["pearson"] > 90
    assert scores["bag_of_words"]["mse"] < scores["mean"]["mse"] / 2


def test_text_without_spaces_is_a_bag_of_characters():
    texts = ["良い映画", "良い芝居", "とても良い", "悪い映画", "悪い芝居"]
    train = labeled(texts, [1, 1, 1, 0, 0], ("bad", "good"))
    dev = labeled(["良い話", "悪い話"], [1, 0], ("bad", "good"))
    scores = dev_baselines(train, dev, ["accuracy"])
    assert scores["bag_of_characters"] == {"accuracy": 100.0}
    assert "bag_of_words" not in scores


def test_single_class_has_only_majority():
    dev = labeled(["?", "good film"], [0, 1], ("a", "b"))
    for train in (
        labeled(["!", "?"], [0, 1], ("a", "b")),
        labeled(["bad film", "good film"], [0, 0], ("a", "b")),
    ):
        assert list(dev_baselines(train, dev, ["accuracy"])) == ["majority"]


def test_a_long_file_of_long_texts_is_cut(monkeypatch):
    monkeypatch.setattr(baselines, "MAX_TRAINING_ROWS", 4)
    monkeypatch.setattr(baselines, "MAX_CHARACTERS", 4)
    train = labeled(["good bad", "evil good"] * 50, [0, 1] * 50, ("a", "b"))
    dev = labeled(["good evil", "evil good"], [0, 1], ("a", "b"))
    assert dev_baselines(train, dev, ["accuracy"])["bag_of_words"] == {"accuracy": 100.0}


def test_unlabeled_text_is_refused():
    train = labeled(["good one", "bad one"], [1, 0], ("bad", "good"))
    dev = LabeledText(["one"], None, None, ("bad", "good"), "dev.tsv")
    with pytest.raises(ValueError, match=r"dev\.tsv has no labels"):
        dev_baselines(train, dev, ["accuracy"])


def test_tags():
    def tagged(words, labels):
        return TaggedText([words], [labels], path="memory")

    train = tagged(["Ann", "saw", "Ann", "in", "Ann", "bay"], ["B-P", "O", "B-P", "O", "B-L", "O"])
    dev = tagged(["Ann", "in", "Bonn"], ["B-P", "O", "B-L"])
    scores = baselines.tag_baselines(train, dev)
    assert scores["majority"]["f1"] == 0.0
    assert scores["majority"]["accuracy"] == pytest.approx(100 / 3)
    assert scores["word_majority"]["precision"] == 100.0
    assert scores["word_majority"]["recall"] == 50.0


def test_choices():
    rows = ChoiceRows(
        ["t"] * 3,
        [["a", "bb"], ["a", "b", "cc", "d"], ["aaa", "b"]],
        np.array([1, 0, 0], "int32"),
        "memory",
    )
    scores = baselines.choice_baselines(rows)
    assert scores["random"]["accuracy"] == pytest.approx(100 * (1 / 2 + 1 / 4 + 1 / 2) / 3)
    assert scores["longest"]["accuracy"] == pytest.approx(200 / 3)


def test_questions():
    context = "The river Rhine rises in Switzerland. The moon has no water."

    def question(id, text, *answers):
        spans = tuple(SpanAnswer(answer, context.index(answer)) for answer in answers)
        return QuestionExample(id, text, context, spans)

    examples = [
        question("a", "Where rises the river Rhine?", "in Switzerland"),
        question("b", "Has the moon ice?"),
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
        [question("c", "ライン川はどこから流れる?", "瑞西")], False
    )
    assert scores["sliding_window"]["f1"] == 100.0
