# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

from keras_bert import Backbone, Ensemble, MaskedLM, TextClassifier, insight, load_model  # noqa: E402
from keras_bert.checkpoints import CheckpointWarning  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from keras_bert.data.arrays import NUMPY  # noqa: E402
from keras_bert.optimizers import AdamW  # noqa: E402
from tests import small_tasks  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "a", "very"]


def make_classifier(**arguments):
    # With such a high initializer_range, a few steps are enough.
    config = small_tasks.CONFIG.replace(
        vocabulary_size=len(TOKENS), max_sequence_length=32, initializer_range=0.3
    )
    preprocessor = TextClassifierPreprocessor(make_tokenizer(*TOKENS), sequence_length=32)
    arguments = {
        "class_names": ["negative", "positive"],
        "preprocessor": preprocessor,
        **arguments,
    }
    return TextClassifier(Backbone(config), **arguments)


@pytest.fixture
def classifier():
    classifier = make_classifier()
    classifier.compile("sgd")
    return classifier


def make_reviews(count=70):
    """Generates texts of many lengths. One word determines the label."""
    labels = np.arange(count) % 2
    texts = [
        "a " * (index % 11) + ("good" if label else "bad") + " film" * (index % 5)
        for index, label in enumerate(labels)
    ]
    return texts, labels


def test_from_preset_sets_encoder_dropout(classifier, tmp_path):
    classifier.save_to_preset(tmp_path / "preset")
    loaded = TextClassifier.from_preset(tmp_path / "preset", encoder_dropout=0.3)
    assert (loaded.config.dropout, loaded.config.attention_dropout) == (0.3, 0.3)
    assert loaded.head.dropout == classifier.head.dropout
    texts, _ = make_reviews(5)
    np.testing.assert_allclose(
        loaded.predict(texts, verbose=0), classifier.predict(texts, verbose=0), atol=1e-6
    )


def test_new_num_classes_warns_and_replaces_head(classifier, tmp_path):
    classifier.save_to_preset(tmp_path / "preset")
    with pytest.warns(UserWarning, match="for 2 classes instead of 3"):
        other = TextClassifier.from_preset(tmp_path / "preset", num_classes=3)
    assert other.predict(["good"], verbose=0).shape == (1, 3)


@pytest.mark.on_tensorflow
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda c: c.fit(np.array([[99]]), np.array([0])),
            "token_ids must be at least 0 and below 9. Received: 99",
        ),
        (
            lambda c: c.predict(np.array([[99]])),
            "token_ids must be at least 0 and below 9. Received: 99",
        ),
        (
            lambda c: c.predict(
                pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices((["a"], ["b"]))
            ),
            "pair of texts, or a text and its label",
        ),
        (lambda c: c.classify("good", top_k=0), "top_k must be an integer above 0"),
        (
            lambda _: make_classifier(class_names=None, num_classes=1).classify("good", top_k=2),
            "top_k must be None for a regression",
        ),
        (
            lambda _: make_classifier(class_names=None, num_classes=1).calibrate(["a"], [0.5]),
            r"calibrate requires classes. Received: a regression",
        ),
        (
            lambda _: make_classifier(multi_label=True).abstain(["a"], [[]]),
            "abstain requires one class for each text. Received: multi_label=True",
        ),
    ],
)
def test_invalid_input_raises(classifier, call, message):
    with pytest.raises(ValueError, match=message):
        call(classifier)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"class_names": None}, "num_classes"),
        (
            {"num_classes": 0, "class_names": None},
            "num_classes must be an integer above 0. Received: 0",
        ),
        ({"num_classes": 3}, "num_classes must be the number of class_names, 2. Received: 3"),
        ({"multi_label": True, "min_score": 0.5}, "min_score must be None for a regression and"),
    ],
)
def test_invalid_classes_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_classifier(**arguments)


@pytest.fixture(scope="module")
def labeler():
    """A multi-label classifier with tuned thresholds, its texts and its labels."""
    keras.utils.set_random_seed(1)
    labeler = make_classifier(class_names=["bad", "film", "good"], multi_label=True)
    labeler.compile(AdamW(1e-2))
    texts = make_reviews()[0]
    labels = [[name for name in labeler.class_names if name in text] for text in texts]
    labeler.fit(texts, labels, batch_size=16, verbose=0)
    labeler.tune_thresholds(texts[::2], labels[::2])
    return labeler, texts, labels


def test_multi_label_thresholds_and_scores(labeler):
    labeler, texts, labels = labeler
    probabilities = 1 / (1 + np.exp(-labeler.predict(texts, verbose=0).astype("float64")))
    # No other threshold has a higher F1 on the rows used for tuning.
    truth = np.array([[name in row for name in labeler.class_names] for row in labels])
    for index, threshold in enumerate(labeler.thresholds):
        column, scores = truth[::2, index], probabilities[::2, index]
        best = max(sklearn_f1(column, scores >= other) for other in scores)
        assert sklearn_f1(column, scores >= threshold) == pytest.approx(best)
    answers = labeler.classify(texts)
    for answer, row in zip(answers, probabilities, strict=True):
        indices = [index for index in np.argsort(-row) if row[index] >= labeler.thresholds[index]]
        assert [label["label"] for label in answer] == [labeler.class_names[i] for i in indices]
    assert [label["label"] for label in labeler.classify(texts[0])] == [
        label["label"] for label in answers[0]
    ]
    assert [len(answer) for answer in labeler.classify(texts[:2], top_k=5)] == [3, 3]
    # Labels as rows of 0 and 1 and as a table column are equivalent.
    scores = labeler.evaluate(texts, labels, verbose=0)
    assert labeler.evaluate({"text": texts, "label": truth.tolist()}, verbose=0) == scores
    loss = -np.mean(np.log(np.where(truth, probabilities, 1 - probabilities)))
    assert scores[0] == pytest.approx(loss, rel=1e-5)
    assert scores[1:] == pytest.approx(
        [sklearn_f1(truth, probabilities >= 0.5, average=average) for average in ("micro", "macro")]
    )


def sklearn_f1(truth, predicted, **options):
    from sklearn.metrics import f1_score

    return f1_score(truth, predicted, zero_division=0, **options)


def test_thresholds_are_saved_with_labels(labeler, tmp_path):
    labeler, texts, _ = labeler
    labeler.save(tmp_path / "labeler.keras")
    labeler.save_to_preset(tmp_path / "preset")
    assert load_model(tmp_path / "labeler.keras").thresholds == labeler.thresholds
    names = ["good", "bad", "film"]
    other = TextClassifier.from_preset(tmp_path / "preset", class_names=names)
    order = [labeler.class_names.index(name) for name in names]
    assert other.thresholds == tuple(labeler.thresholds[index] for index in order)
    assert other.classify(texts[:9]) == [
        [{**label, "score": pytest.approx(label["score"], abs=1e-5)} for label in row]
        for row in labeler.classify(texts[:9])
    ]
    with pytest.warns(CheckpointWarning, match="for 3 labels instead of 3 classes"):
        assert TextClassifier.from_preset(tmp_path / "preset", multi_label=False).thresholds is None


def test_calibrate_changes_saved_probabilities(tmp_path):
    keras.utils.set_random_seed(1)
    classifier = make_classifier(class_names=["bad", "film", "good"])
    texts, _ = make_reviews(30)
    labels = [classifier.class_names[index % 3] for index in range(30)]
    logits = classifier.predict(texts, verbose=0)
    truth = logits + np.random.default_rng(0).gumbel(size=logits.shape)
    labels = [classifier.class_names[index] for index in np.argmax(truth, axis=1)]
    scaling = classifier.calibrate(texts, labels)
    assert abs(scaling.temperature - 1) > 0.01
    assert scaling.bias == (0, 0, 0)
    calibrated = classifier.predict(texts, verbose=0)
    np.testing.assert_allclose(calibrated, logits / scaling.temperature, atol=1e-5)
    classifier.save(tmp_path / "model.keras")
    classifier.save_to_preset(tmp_path / "preset")
    classifier.save_hugging_face(tmp_path / "hugging_face")
    for loaded in (
        load_model(tmp_path / "model.keras"),
        TextClassifier.from_preset(tmp_path / "preset"),
        TextClassifier.from_preset(tmp_path / "hugging_face"),
    ):
        np.testing.assert_allclose(loaded.predict(texts, verbose=0), calibrated, atol=1e-5)
    assert classifier.calibrate(texts, labels).temperature == pytest.approx(1, abs=1e-3)


def test_calibrate_keeps_labels_that_apply(labeler):
    labeler, texts, labels = labeler
    flipped = [row if index % 5 else [] for index, row in enumerate(labels)]
    before = [[label["label"] for label in row] for row in labeler.classify(texts)]
    thresholds = labeler.thresholds
    scaling = labeler.calibrate(texts, flipped)
    assert all(scaling.bias)
    after = [[label["label"] for label in row] for row in labeler.classify(texts)]
    assert [sorted(row) for row in after] == [sorted(row) for row in before]
    assert labeler.thresholds != thresholds
    # The mean probability of each label is its frequency.
    probabilities = 1 / (1 + np.exp(-labeler.predict(texts, verbose=0)))
    truth = [[name in row for name in labeler.class_names] for row in flipped]
    np.testing.assert_allclose(probabilities.mean(axis=0), np.mean(truth, axis=0), atol=1e-4)


@pytest.mark.parametrize("long_texts", ["mean", "max"])
def test_long_texts_are_read_in_windows(long_texts, tmp_path):
    preprocessor = TextClassifierPreprocessor(
        make_tokenizer(*TOKENS), sequence_length=8, long_texts=long_texts
    )
    task = make_classifier(preprocessor=preprocessor)
    texts = ["good film", "a very " * 20 + "bad", "", "very " * 7]
    sequences, counts = preprocessor.pack_windows(texts)
    assert counts.tolist() == [1, 8, 1, 2]
    features = sequences.padded_to_longest(NUMPY, 2, 0)
    parts = np.split(task.predict(features, verbose=0), np.cumsum(counts)[:-1])
    expected = np.array([getattr(np, long_texts)(part, axis=0) for part in parts])
    np.testing.assert_allclose(task.predict(texts, verbose=0), expected, atol=1e-6)
    assert [answer["num_windows"] for answer in task.classify(texts)] == counts.tolist()
    np.testing.assert_allclose(task.predict(iter_batches(texts), verbose=0), expected, atol=1e-6)
    task.compile("sgd", metrics=["accuracy"])
    labels = ["positive", "negative"] * 2
    assert task.num_steps(texts, 2, 1) == task.num_steps(TextBatches(texts, labels), 2, 1) == 6
    assert len(task.sequence_lengths(texts)) == 12
    task.fit(texts, labels, batch_size=2, verbose=0)
    assert task.optimizer.iterations == 6
    history = task.fit(
        TextBatches(texts, labels), validation_data=(texts, labels), verbose=0
    ).history
    assert task.optimizer.iterations == 12
    # Evaluation counts texts.
    logits, ids = task.predict(texts, verbose=0), np.array([1, 0, 1, 0])
    expected = float(task.batch_loss(ids, logits)), np.mean(logits.argmax(axis=1) == ids)
    for scores in (
        (history["val_loss"][0], history["val_accuracy"][0]),
        task.evaluate(texts, labels, verbose=0),
        task.evaluate(TextBatches(texts, labels), verbose=0),
    ):
        assert scores == pytest.approx(expected, abs=1e-6)
    first_loss, _ = task.evaluate(texts, labels, batch_size=2, steps=1, verbose=0)
    assert first_loss == pytest.approx(float(task.batch_loss(ids[:2], logits[:2])), abs=1e-6)
    expected = task.classify([(text, "a film") for text in texts])
    task.save_to_preset(tmp_path / "preset")
    task.save_hugging_face(tmp_path / "hugging_face")
    for name in ("preset", "hugging_face"):
        loaded = TextClassifier.from_preset(tmp_path / name)
        answers = loaded.classify([(text, "a film") for text in texts])
        assert [answer["label"] for answer in answers] == [answer["label"] for answer in expected]
        scores = [answer["score"] for answer in expected]
        assert [answer["score"] for answer in answers] == pytest.approx(scores, abs=1e-6)
    windows = [row for row in insight.model_inputs(task, texts, labels) if row.example == 1]
    assert windows[7].part == "window 8 of 8"
    assert windows[7].token_labels == {}
    assert windows[7].texts["text"][slice(*windows[7].spans[-2][1:])] == "bad"
    nli = make_classifier(preprocessor=preprocessor, class_names=["entailment", "other"])
    with pytest.warns(UserWarning, match="pairs for zero-shot classification are always trunc"):
        nli.classify_zero_shot("good " * 9, ["bad"], hypothesis="{}")
    with pytest.raises(ValueError, match="long_texts must be 'truncate' for a MaskedLM"):
        MaskedLM(task.backbone, preprocessor=preprocessor)


def iter_batches(texts):
    yield texts


class TextBatches(keras.utils.PyDataset):
    """Batches of two texts."""

    def __init__(self, texts, labels):
        super().__init__()
        self.columns = texts, np.array([int(label == "positive") for label in labels])

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return tuple(column[2 * index : 2 * index + 2] for column in self.columns)


@pytest.mark.parametrize("weights_first", [True, False])
def test_windows_of_batches_with_other_columns_raise(weights_first):
    preprocessor = TextClassifierPreprocessor(
        make_tokenizer(*TOKENS), sequence_length=8, long_texts="mean"
    )
    task = make_classifier(preprocessor=preprocessor)
    task.compile("sgd")
    labeled = ["a film", "bad " * 30], np.array([0, 1])
    weighted = *labeled, np.array([1.0, 2.0])
    batches = [weighted, labeled] if weights_first else [labeled, weighted]
    for method in (task.fit, task.evaluate):
        with pytest.raises(ValueError, match="Batch 1 must have the columns of batch 0, text, lab"):
            method((batch for batch in batches), verbose=0)


def test_windows_are_counted_in_the_predicted_texts():
    data = pytest.importorskip("torch.utils.data")
    preprocessor = TextClassifierPreprocessor(
        make_tokenizer(*TOKENS), sequence_length=8, long_texts="mean"
    )
    task = make_classifier(preprocessor=preprocessor)
    texts = ["good film", "a very " * 20 + "bad", "", "very " * 7, "bad " * 30, "a film"]

    def results(x):
        return sorted((answer["score"], answer["num_windows"]) for answer in task.classify(x))

    expected = results(texts)
    for _ in range(4):  # Each reading has another order.
        loader = data.DataLoader(texts, batch_size=1, shuffle=True)
        np.testing.assert_allclose(results(loader), expected, rtol=1e-5)


def test_abstain_omits_uncertain_labels(tmp_path):
    keras.utils.set_random_seed(1)
    classifier = make_classifier(class_names=["bad", "film", "good"])
    texts, _ = make_reviews(60)
    logits = classifier.predict(texts, verbose=0).astype("float64")
    scores = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    best = logits.argmax(axis=1)
    # All labels below the median score are wrong.
    labels = np.where(scores > np.median(scores), best, (best + 1) % 3)
    abstention = classifier.abstain(texts * 20, np.tile(labels, 20), error=0.05)
    assert abstention.error < abstention.error_bound < 0.05
    is_answered = scores >= abstention.min_score
    assert abstention.coverage == pytest.approx(is_answered.mean())
    answers = classifier.classify(texts)
    names = [classifier.class_names[index] for index in best]
    expected = [name if kept else None for name, kept in zip(names, is_answered, strict=True)]
    assert [answer["label"] for answer in answers] == expected
    assert [answer["label"] for (answer,) in classifier.classify(texts, top_k=1)] == names
    served = classifier.serving_answers([{"text": text} for text in texts])
    assert [answer["label"] for answer in served] == [label or "" for label in expected]
    classifier.save(tmp_path / "model.keras")
    classifier.save_to_preset(tmp_path / "preset")
    classifier.save_hugging_face(tmp_path / "hugging_face")
    for loaded in (
        load_model(tmp_path / "model.keras"),
        TextClassifier.from_preset(tmp_path / "preset"),
        TextClassifier.from_preset(tmp_path / "hugging_face"),
        Ensemble([classifier, classifier]),
    ):
        assert loaded.min_score == pytest.approx(classifier.min_score)
    with pytest.warns(UserWarning, match="for 3 classes instead of 2"):
        assert TextClassifier.from_preset(tmp_path / "preset", num_classes=2).min_score is None
    classifier.calibrate(texts, np.where(np.arange(60) % 5, best, (best + 1) % 3))
    assert classifier.min_score is None
