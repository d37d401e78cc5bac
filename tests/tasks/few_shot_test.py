# SPDX-License-Identifier: Apache-2.0
"""Few-shot training of a classifier: pairs, logistic regression and the trained classifier."""

import random

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.multiclass import OneVsRestClassifier  # noqa: E402

import keras_bert  # noqa: E402
from keras_bert import Backbone, TextClassifier  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from keras_bert.layers import SentencePooling  # noqa: E402
from keras_bert.tasks import few_shot  # noqa: E402
from keras_bert.tasks.few_shot import FewShotTraining, logistic_regression  # noqa: E402
from tests import small_tasks  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

COLORS = ["red", "pink", "rose", "green", "lime", "olive", "blue", "navy", "teal"]
NAMES = ["reds", "greens", "blues"]
FILL = ["a", "the", "very", "dark", "pale", "sky", "sea", "leaf"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *COLORS, *FILL]


def make_rows(seed, count=8):
    """Generates texts of four words, one of which is a color."""
    draw = random.Random(seed)
    texts, labels = [], []
    for number in range(count * len(NAMES)):
        label = number % len(NAMES)
        words = [draw.choice(COLORS[3 * label : 3 * label + 3]), *draw.sample(FILL, 3)]
        draw.shuffle(words)
        texts.append(" ".join(words))
        labels.append(NAMES[label])
    return texts, labels


def make_classifier(**arguments):
    keras.utils.set_random_seed(1)
    config = small_tasks.CONFIG.replace(vocabulary_size=len(TOKENS), max_sequence_length=16)
    preprocessor = TextClassifierPreprocessor(make_tokenizer(*TOKENS), sequence_length=16)
    arguments = {"class_names": NAMES, "top_layers": [SentencePooling()], **arguments}
    return TextClassifier(Backbone(config), preprocessor=preprocessor, **arguments)


def accuracy(classifier, texts, labels):
    answers = [answer["label"] for answer in classifier.classify(texts)]
    return np.mean([a == b for a, b in zip(answers, labels, strict=True)])


@pytest.fixture(scope="module")
def classifier():
    classifier = make_classifier(top_layers=[SentencePooling(normalize=False)])
    classifier.fit_few_shot(*make_rows("train"), epochs=4, learning_rate=1e-2, verbose=0)
    return classifier


@pytest.mark.on_tensorflow
def test_few_shot_learns_from_eight_texts_per_class(classifier):
    texts, labels = make_rows("test", 40)
    assert accuracy(classifier, texts, labels) > 0.8
    head_only = make_classifier(top_layers=[SentencePooling(normalize=False)])
    head_only.fit_few_shot(*make_rows("train"), epochs=0)
    assert accuracy(head_only, texts, labels) < 0.75


def test_few_shot_classifier_can_be_saved(classifier, tmp_path):
    texts, _ = make_rows("test")
    expected = classifier.predict(texts, verbose=0)
    classifier.save(tmp_path / "classifier.keras")
    classifier.save_to_preset(tmp_path / "preset")
    for loaded in (
        keras_bert.load_model(tmp_path / "classifier.keras"),
        TextClassifier.from_preset(tmp_path / "preset"),
    ):
        np.testing.assert_allclose(loaded.predict(texts, verbose=0), expected, atol=1e-5)
    # No transformers class pools tokens and then classifies without a dense layer in between.
    with pytest.raises(keras_bert.checkpoints.CheckpointError, match="sentence_pooling"):
        classifier.save_hugging_face(tmp_path / "hugging_face")


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_few_shot_export_matches_classify(tmp_path):
    tf = pytest.importorskip("tensorflow")
    classifier = make_classifier(top_layers=[SentencePooling(normalize=False)])
    classifier.fit_few_shot(*make_rows("train"), epochs=0)
    texts, _ = make_rows("test")
    classifier.export(tmp_path / "1", warm_up=False)
    served = tf.saved_model.load(tmp_path / "1").signatures["serving_default"]
    answers = [answer.decode() for answer in served(text=tf.constant(texts))["label"].numpy()]
    assert answers == [answer["label"] for answer in classifier.classify(texts)]
    assert len(set(answers)) > 1


@pytest.mark.parametrize("rows_at_once", [5, 16, 256])
def test_pairs_match_setfit(rows_at_once, monkeypatch):
    """There are 72 positive and 64 negative pairs. Some negative pairs are repeated to reach 72."""
    texts, labels = [f"{number}" for number in range(16)], np.arange(16) % 2
    monkeypatch.setattr(few_shot, "_ROWS_AT_ONCE", rows_at_once)
    training = FewShotTraining(make_classifier(class_names=["a", "b"]), texts, labels)
    (first, second), scores = training.pairs()
    assert len(scores) == 144
    pairs = [(int(a), int(b), float(s)) for a, b, s in zip(first, second, scores, strict=True)]
    expected = {(a, b, float(a % 2 == b % 2)) for a in range(16) for b in range(a, 16)}
    assert set(pairs) == expected
    assert sum(scores) == 72 == len({pair for pair in pairs if pair[2]})
    (first, second), scores = training.pairs(max_pairs=20)
    sampled = {(int(a), int(b), float(s)) for a, b, s in zip(first, second, scores, strict=True)}
    assert sampled < expected
    assert (len(sampled), len(first), sum(scores)) == (20, 20, 10)


def test_texts_sharing_a_label_are_positive_pairs():
    labels = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0]], "float32")
    training = FewShotTraining(make_classifier(multi_label=True), list("abcd"), labels)
    (first, second), scores = training.pairs()
    pairs = {a + b: s for a, b, s in zip(first, second, scores, strict=True)}
    assert {pair for pair, score in pairs.items() if score} == {"aa", "ab", "ac", "bb", "cc"}
    assert {pair for pair, score in pairs.items() if not score} == {"bc", "ad", "bd", "cd"}


@pytest.mark.parametrize(("num_classes", "scale"), [(2, 1), (4, 1), (4, 30)])
def test_logistic_regression_matches_scikit_learn(num_classes, scale):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 30))
    vectors *= scale / np.linalg.norm(vectors, axis=1, keepdims=True)
    labels = rng.integers(num_classes, size=40)
    expected = LogisticRegression(tol=1e-8, max_iter=10_000).fit(vectors, labels)
    weights = logistic_regression(vectors, np.eye(num_classes)[labels])
    logits = vectors @ weights[:-1] + weights[-1]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected.predict_proba(vectors), atol=1e-4)


def test_multi_label_head_matches_one_vs_rest():
    texts, _ = make_rows("train")
    labels = np.random.default_rng(0).integers(2, size=(len(texts), 3)).astype("float32")
    classifier = make_classifier(multi_label=True)
    training = FewShotTraining(classifier, texts, labels)
    training.fit_head()
    vectors = training.embedder.embed(texts)
    expected = OneVsRestClassifier(LogisticRegression(tol=1e-8)).fit(vectors, labels)
    logits = classifier.predict(texts, verbose=0)
    np.testing.assert_allclose(
        1 / (1 + np.exp(-logits)), expected.predict_proba(vectors), atol=1e-4
    )


@pytest.mark.parametrize(
    ("arguments", "x", "y", "message"),
    [
        (
            {"top_layers": None},
            ["a", "sea"],
            ["reds", "blues"],
            r"SentencePooling\(\)\]\. Received: top_layers=\[\]",
        ),
        ({"class_names": None, "num_classes": 1}, ["a", "sea"], [0.5, 1], "Received: a regression"),
        ({}, ["a", "sea"], ["reds", "reds"], "at least two different labels"),
        ({}, [("a", "sea")], ["reds"], "x must be single texts"),
        ({}, ["a", "sea"], None, "label"),
    ],
)
def test_unsupported_data_or_model_raises(arguments, x, y, message):
    with pytest.raises(ValueError, match=message):
        make_classifier(**arguments).fit_few_shot(x, y)
