# SPDX-License-Identifier: Apache-2.0
"""Options for text input: iterators, class weights, batch sizes."""

import itertools

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

import keras_bert  # noqa: E402
from keras_bert import TokenClassifier  # noqa: E402
from tests.small_tasks import CONFIG, LETTERS, TASKS, make_task, make_text_task  # noqa: E402

TEXTS = ["a", "b a", "a a b", "b", "a b"]


def make_constant_task(task, **options):
    """Returns a task with different losses per row, whose weights `fit` does not change."""
    config = CONFIG.replace(
        max_sequence_length=32, dropout=0.0, attention_dropout=0.0, initializer_range=0.5
    )
    preprocessor = {"tokenizer": {"vocabulary": LETTERS}, "sequence_length": 32}
    backbone = keras_bert.Backbone(config)
    model = getattr(keras_bert, task)(backbone, preprocessor=preprocessor, **options)
    model.compile(keras.optimizers.SGD(0.0))
    return model


@pytest.fixture(scope="module")
def classifier():
    return make_constant_task("TextClassifier", class_names=["a", "b"])


def test_iterator_of_texts_is_read_completely():
    classifier, embedder = make_text_task("TextClassifier", 2), make_text_task("TextEmbedder")
    assert classifier.classify(iter(TEXTS)) == classifier.classify(TEXTS)
    assert embedder.embed(text for text in TEXTS).shape == (5, 8)
    tagger = make_text_task("TokenClassifier", 2)
    assert [len(tags) for tags in tagger.tag(iter(TEXTS))] == [1, 2, 3, 1, 2]


@pytest.mark.on_each_backend
def test_endless_feature_generator_with_steps():
    tagger = make_task(TokenClassifier)
    tagger.compile("sgd")
    batches = TASKS[TokenClassifier]()
    endless_batches = (batches[0] for _ in itertools.count())
    history = tagger.fit(endless_batches, steps_per_epoch=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    endless_batches = ((batches[0][0],) for _ in itertools.count())
    assert tagger.predict(endless_batches, steps=3, verbose=0).shape[0] == 12


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_class_weight_scales_loss_not_metrics(classifier):
    tf = pytest.importorskip("tensorflow")
    labels = np.array([0, 1, 1, 0, 1])
    plain, accuracy = classifier.evaluate(TEXTS, labels, verbose=0)
    weights = np.where(labels == 1, 9.0, 1.0)
    weighted, _ = classifier.evaluate(TEXTS, labels, sample_weight=weights, verbose=0)
    assert weighted != pytest.approx(plain, rel=1e-3)

    def train(*data, **options):
        history = classifier.fit(*data, verbose=0, **options).history
        return history["loss"][0], history["accuracy"][0]

    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, labels))
    features = {name: np.asarray(x) for name, x in classifier.preprocessor(TEXTS).items()}
    expected = pytest.approx((weighted, accuracy), rel=1e-5)
    for data in ((TEXTS, labels), (dataset,), (features, labels)):
        assert train(*data, class_weight={1: 9.0}) == expected
    # Class weights apply only to one call of `fit`.
    assert train(TEXTS, labels) == pytest.approx((plain, accuracy), rel=1e-5)


def test_class_weight_names_and_validation(classifier):
    losses = []
    for class_weight in (None, {1: 3.0}, {"b": 3.0}, {np.int64(1): 3, "a": 1}):
        options = {"class_weight": class_weight, "shuffle": False, "verbose": 0}
        history = classifier.fit(TEXTS, ["a", "b", "b", "a", "b"], **options)
        losses.append(history.history["loss"])
    assert losses[0] != losses[1] == losses[2] == losses[3]
    for class_weight, message in (
        ({"c": 1.0}, "must be one of a, b, or an id from 0 to 1. Received: 'c'"),
        ({2: 1.0}, "must be one of a, b, or an id from 0 to 1. Received: 2"),
        ({"0": 1.0}, "must be one of a, b, or an id from 0 to 1. Received: '0'"),
        ({0: float("nan")}, r"class_weight\[0\] must be a finite number of at least 0"),
        ({"a": -1.0}, r"class_weight\['a'\] must be a finite number of at least 0"),
        ("balanced", "class_weight must be a dict"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier.fit(TEXTS, [0, 1, 1, 0, 1], class_weight=class_weight, verbose=0)


def test_class_weight_for_words_and_choices():
    tagger, chooser = (
        make_constant_task("TokenClassifier", num_classes=2),
        make_constant_task("MultipleChoice"),
    )
    for model, rows, sample_weight in (
        (tagger, ([["a", "b"], ["b"]], [[0, 1], [1]]), [[1, 3], [3]]),
        (chooser, ([("a", ["a", "b"]), ("b", ["a", "b"])], [0, 1]), [1, 3]),
    ):
        plain, *results = (
            model.fit(*rows, shuffle=False, verbose=0, **weights).history["loss"]
            for weights in ({}, {"class_weight": {1: 3.0}}, {"sample_weight": sample_weight})
        )
        assert results[0] == pytest.approx(results[1], rel=1e-6)
        assert results[0] != pytest.approx(plain, rel=1e-3)
    with pytest.raises(ValueError, match="are not class IDs"):
        make_text_task("TextEmbedder").fit([("a", "b")], class_weight={0: 2.0})


def test_evaluation_batches_match_evaluate():
    classifier = make_text_task("TextClassifier", 2)
    classifier.compile()
    labels, weights = [0, 1, 1, 0, 1], [1.0, 2.0, 0.0, 1.0, 1.0]
    batches = list(classifier.evaluation_batches(TEXTS, labels, weights, batch_size=2))
    losses = [
        keras.ops.convert_to_numpy(
            classifier.batch_loss(keras.ops.convert_to_tensor(y), classifier(features), w)
        )
        for features, y, w in batches
    ]
    sums = [float(w.sum()) for _, _, w in batches]
    expected = classifier.evaluate(TEXTS, labels, sample_weight=np.array(weights), verbose=0)[0]
    assert sum(len(y) for _, y, _ in batches) == 5
    np.testing.assert_allclose(np.average(losses, weights=sums), expected, rtol=1e-5)
    ids = {"token_ids": np.ones((1, 3), "int32")}
    with pytest.raises(ValueError, match=r"in a form that `evaluate` accepts. Received: dict"):
        classifier.evaluation_batches(ids)


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_sample_weight_with_dataset_raises():
    tf = pytest.importorskip("tensorflow")
    classifier = make_text_task("TextClassifier", 2)
    classifier.compile()
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, [0, 1, 1, 0, 1]))
    for method in (classifier.fit, classifier.evaluate):
        with pytest.raises(ValueError, match="a dataset of text contains its labels and weights"):
            method(rows, sample_weight=np.ones(5), verbose=0)


@pytest.mark.parametrize("task", ["MaskedLM", "ReplacedTokenDetector"])
def test_evaluation_masks_ignore_batching(task):
    model = make_text_task(task)
    model.compile()
    texts = ["a b a b b a a b a a b", "a", "b b a", "a a a b b b", "b a b a b", "a b " * 12]
    results = [model.evaluate(texts, batch_size=size, verbose=0) for size in (1, 4)]
    results.append(model.evaluate(texts[::-1], batch_size=2, verbose=0))
    np.testing.assert_allclose(results, [results[0]] * 3, rtol=1e-5)


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
@pytest.mark.parametrize("is_counted", [True, False])
def test_empty_dataset_raises(is_counted):
    tf = pytest.importorskip("tensorflow")
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, [0, 1, 1, 0, 1]))
    rows = rows.take(0) if is_counted else rows.filter(lambda text, label: label > 1)
    classifier = make_text_task("TextClassifier", 2)
    classifier.compile("sgd")
    for method in (classifier.fit, classifier.evaluate):
        with pytest.raises(ValueError, match="Training and evaluation need at least one text"):
            method(rows, verbose=0)
