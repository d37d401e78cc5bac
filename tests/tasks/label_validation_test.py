# SPDX-License-Identifier: Apache-2.0
"""Invalid labels raise an error with the row before they reach the backend."""

import keras
import numpy as np
import pytest

from keras_bert import (
    Backbone,
    Distiller,
    MaskedLM,
    QuestionAnswerer,
    TextClassifier,
    TokenClassifier,
)
from tests.small_tasks import CONFIG, make_task, make_text_task

pytestmark = pytest.mark.on_torch

IDS = np.ones((4, 3), "int32")


def make_compiled(task, **arguments):
    model = task(Backbone(CONFIG), **arguments)
    model.compile("sgd")
    return model


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            [1, 2, 5, 3],
            r"row 2 must be an id from 0 to 4\. Received: 5\. If labels do not count from 0",
        ),
        ([1, 2, 0, -1], r"row 3 must be an id from 0 to 4"),
        ([1, 0.5, 2, 0], r"row 1 must be an id"),
        ([1, 2, 0, np.nan], r"row 3 must be an id"),
    ],
)
def test_invalid_class_ids_raise(labels, message):
    classifier = make_compiled(TextClassifier, num_classes=5)
    for method in (classifier.fit, classifier.evaluate):
        with pytest.raises(ValueError, match=message):
            method(IDS, np.array(labels), verbose=0)
    with pytest.raises(ValueError, match=message):
        classifier.fit(IDS, np.zeros(4), validation_data=(IDS, np.array(labels)), verbose=0)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            "sparse_categorical_crossentropy",
            "sparse_categorical_crossentropy, which expects probabilities",
        ),
        (
            keras.losses.categorical_crossentropy,
            "categorical_crossentropy, which expects probabilities",
        ),
        (
            keras.losses.SparseCategoricalCrossentropy(),
            "SparseCategoricalCrossentropy, which expects",
        ),
        (keras.losses.BinaryCrossentropy(from_logits=True), "any number of labels"),
    ],
)
def test_unsuitable_loss_raises(loss, message):
    with pytest.raises(ValueError, match=message):
        make_compiled(TextClassifier, num_classes=5).compile("sgd", loss=loss)
    if "probabilities" in message:
        losses = {"start_logits": loss, "end_logits": "mse"}
        with pytest.raises(
            ValueError, match=f"loss of a QuestionAnswerer must expect logits. Received: {message}"
        ):
            make_compiled(QuestionAnswerer).compile("sgd", loss=losses)


@pytest.mark.parametrize("kind", ["Binary", "SparseCategorical"])
def test_classification_loss_for_regression_raises(kind):
    """With such a loss, `classify`, presets and exports would treat logits as scores."""
    loss = getattr(keras.losses, f"{kind}Crossentropy")(from_logits=True)
    with pytest.raises(ValueError, match=f"Received: {kind}Crossentropy, which is for classes"):
        make_compiled(TextClassifier, num_classes=1).compile("sgd", loss=loss)


def test_invalid_answer_position_raises():
    answerer = make_compiled(QuestionAnswerer)
    targets = {"start_logits": np.array([0, 1, 2, 3]), "end_logits": np.zeros(4, int)}
    with pytest.raises(ValueError, match="start_logits in row 3 must be an id from 0 to 2"):
        answerer.fit(IDS, targets, verbose=0)


def test_invalid_masked_token_id_raises():
    masked_lm = make_compiled(MaskedLM)
    x = {"token_ids": IDS, "mask_positions": np.ones((4, 2), "int32")}
    y = np.full((4, 2), 7)
    y[2, 1] = 50
    with pytest.raises(ValueError, match="row 2, position 1 must be an id from 0 to 49"):
        masked_lm.fit(x, y, sample_weight=np.ones((4, 2)), verbose=0)


def test_distiller_accepts_unlabeled_rows():
    student, teacher = make_task(TextClassifier), make_task(TextClassifier)
    distiller = Distiller(student, teacher)
    distiller.compile("sgd")
    distiller.fit(IDS, np.array([0, -1, 1, -1]), verbose=0)
    with pytest.raises(ValueError, match="row 0 must be an id from -1 to 1"):
        distiller.fit(IDS, np.array([2, -1, 1, -1]), verbose=0)


def test_duplicate_class_names_raise():
    with pytest.raises(ValueError, match=r"unique. Received: 'a' twice"):
        TextClassifier(Backbone(CONFIG), class_names=["a", "b", "a"])


def test_row_weight_applies_to_each_target():
    """Regression: the loss was a multiple, because weights were summed before repeating."""
    x = {"token_ids": IDS, "mask_positions": np.array([[1, 2]] * 4)}
    y, weights = np.array([[5, 6]] * 4), np.array([1.0, 2.0, 0.0, 4.0], "float32")
    for task, data in ((MaskedLM, (x, y)), (TokenClassifier, (IDS, IDS % 2))):
        model = make_task(task)
        model.compile("sgd")
        each = np.repeat(weights[:, None], data[1].shape[1], axis=1)
        expected = model.evaluate(*data, sample_weight=each, verbose=0)
        model.compile("sgd")
        np.testing.assert_allclose(
            model.evaluate(*data, sample_weight=weights, verbose=0), expected, rtol=1e-6
        )
    logits, (labels, row_weights, token_weights) = (
        model(IDS),
        map(keras.ops.array, (data[1], weights, each)),
    )
    losses = [model.batch_loss(labels, logits, weights) for weights in (row_weights, token_weights)]
    np.testing.assert_allclose(*map(keras.ops.convert_to_numpy, losses), rtol=1e-6)


@pytest.mark.on_tensorflow
def test_weights_may_be_a_mask():
    model, mask = make_task(TokenClassifier), np.array([True, True, False, True])
    losses = [model.batch_loss(IDS % 2, model(IDS), weights) for weights in (mask, mask * 1.0)]
    np.testing.assert_allclose(*map(keras.ops.convert_to_numpy, losses), rtol=1e-6)


class Batches(keras.utils.PyDataset):
    """Yields its parts as a single batch."""

    def __init__(self, *parts) -> None:
        super().__init__()
        self.parts = parts

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int):
        return self.parts


def custom_loss(y, y_pred):
    """Returns 1 for each label, and NaN for negative labels."""
    return keras.ops.where(y < 0, float("nan"), 1.0)


def test_tagger_batches_match_arrays():
    """Regression: in batches, negative labels and padding were counted or raised an error."""
    tagger = make_task(TokenClassifier)
    tagger.compile("sgd")
    ids = np.array([[2, 5, 6, 3], [2, 5, 3, 0]])
    labels = np.array([[-100, 0, 1, -100], [-100, 1, 0, 1]])
    x = {"token_ids": ids, "padding_mask": ids > 0}
    expected = tagger.evaluate(x, labels, sample_weight=np.array([1.0, 2.0]), verbose=0)
    padded = {name: np.pad(values, ((0, 0), (0, 3))) for name, values in x.items()}
    batches = Batches(padded, np.pad(labels, ((0, 0), (0, 3))), np.array([1.0, 2.0]))
    np.testing.assert_allclose(tagger.evaluate(batches, verbose=0), expected, rtol=1e-6)
    tagger.compile("sgd", loss=custom_loss)
    np.testing.assert_allclose(tagger.evaluate(x, labels, verbose=0)[0], 1)
    tagger.compile("sgd")
    counted = np.array([[0, 1, 1, 0], [0, 2, 2, 0]])
    right = tagger.evaluate(x, np.maximum(labels, 0), sample_weight=counted, verbose=0)
    np.testing.assert_allclose(expected, right, rtol=1e-6)


def test_tagger_class_weight_scales_token_losses():
    config = CONFIG.replace(dropout=0.0, attention_dropout=0.0, initializer_range=0.5)
    tagger = TokenClassifier(Backbone(config), num_classes=2)
    tagger.compile(keras.optimizers.SGD(0.0))
    ids = np.array([[2, 5, 6, 3], [2, 5, 3, 0]])
    labels = np.array([[-100, 0, 1, -100], [-100, 1, 0, 1]])
    x = {"token_ids": ids, "padding_mask": ids > 0}
    weights = np.where(labels == 1, 2.0, 1.0)
    for data in ((x, labels), (Batches(x, labels, np.ones(2)),)):
        history = tagger.fit(*data, class_weight={1: 2.0}, verbose=0).history
        weighted, _ = tagger.evaluate(x, labels, sample_weight=weights, verbose=0)
        _, accuracy = tagger.evaluate(x, labels, verbose=0)
        actual = history["loss"][0], history["accuracy"][0]
        assert actual == pytest.approx((weighted, accuracy), rel=1e-6)


def test_tagger_accepts_one_hot_labels():
    tagger = make_task(TokenClassifier)
    x = {"token_ids": IDS, "padding_mask": np.arange(3) < np.array([[3], [2], [3], [1]])}
    losses = []
    for loss, labels in ((None, IDS % 2), ("one-hot", np.eye(2)[IDS % 2])):
        one_hot = keras.losses.CategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )
        tagger.compile("sgd", loss=loss and one_hot)
        losses.append(tagger.evaluate(x, labels, verbose=0)[0])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_distiller_class_weight_accepts_names():
    names = ["bad", "good"]
    parts = [TextClassifier(Backbone(CONFIG), class_names=names) for _ in range(2)]
    distiller = Distiller(*parts)
    distiller.compile("sgd")
    labels = np.array([0, 1, 0, 1])
    distiller.fit(IDS, labels, class_weight={"good": 2.0}, verbose=0)
    with pytest.raises(
        ValueError,
        match=r"class_weight must be one of bad, good, or an id from 0 to 1\. Received: 7",
    ):
        distiller.fit(IDS, labels, class_weight={7: 2.0}, verbose=0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([["a"], ["c"]], r"row 1 must be one of a, b. Received: 'c'"),
        (["a", "b"], r"row 0 must be a list of names, or 2 values 0 or 1"),
        ([[0, 1], [0, 2]], r"row 1 must be a list of names, or 2 values 0 or 1"),
        ([[0, 1], [0]], r"row 1 must be a list of names, or 2 values 0 or 1\. Received: \[0\]"),
        ([["a"], None], r"row 1 must be a list of names, or 2 values 0 or 1\. Received: None"),
        (
            [["a"], ["b", None]],
            r"row 1 must be a list of names, or 2 values 0 or 1\. Received: \['b', None\]",
        ),
        ([["a"]], r"each of the 2 texts. Received: shape \(1, 2\)"),
    ],
)
def test_invalid_multi_label_targets_raise(labels, message):
    task = make_multi_label_task()
    with pytest.raises(ValueError, match=message):
        task.fit(["a", "b b"], labels, verbose=0)


def make_multi_label_task():
    other = make_text_task("TextEmbedder")
    names = ["a", "b"]
    task = TextClassifier(
        other.backbone, preprocessor=other.preprocessor, class_names=names, multi_label=True
    )
    task.compile("sgd")
    return task


def test_multi_label_rejects_class_weight():
    task = make_multi_label_task()
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    with pytest.raises(ValueError, match="for one class for each text"):
        task.compile(loss=loss)
    # Keras would use the weight of the first label in each row.
    for x in (["a", "b"], IDS[:2]):
        with pytest.raises(
            ValueError, match="class_weight must be None if labels are not class IDs"
        ):
            task.fit(x, np.eye(2), class_weight={0: 1.0, 1: 2.0}, verbose=0)
    with pytest.raises(ValueError, match="multi_label=True"):
        Distiller(task, make_multi_label_task())


def focal_loss(y, y_pred):
    """A loss for class IDs whose name does not show it."""
    y = keras.ops.cast(y, "int32")
    return keras.ops.sparse_categorical_crossentropy(y, y_pred, from_logits=True)


def test_label_format_is_inferred_from_shape():
    """Regression: the loss name decided. Soft labels raised an error, and IDs were not checked."""
    classifier = make_compiled(TextClassifier, num_classes=2)
    classifier.compile("sgd", "mse")
    classifier.fit(IDS, np.full((4, 2), 0.5), class_weight={1: 2.0}, verbose=0)
    assert "accuracy" in classifier.evaluate(IDS, np.eye(2)[[0, 1, 1, 0]], return_dict=True)
    classifier.compile("sgd", focal_loss)
    weighted = {"class_weight": {1: 2.0}, "sample_weight": np.ones((4, 1))}
    classifier.fit(IDS, np.array([0, 1, 1, 0]), **weighted, verbose=0)
    with pytest.raises(ValueError, match=r"row 1 must be an id"):
        classifier.fit(IDS, np.array([0.0, 7.0, 1.0, 0.0]), verbose=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    classifier.compile("sgd", loss)
    received = classifier.evaluate(IDS, np.array([0, -1, -1, 0]), verbose=0)
    assert received == pytest.approx(classifier.evaluate(IDS[:2], np.zeros(2), verbose=0), rel=1e-5)
    answerer = make_compiled(QuestionAnswerer)
    answerer.compile("sgd", {"start_logits": loss, "end_logits": loss})
    targets = {name: y.argmax(axis=1) for name, y in answerer.predict(IDS, verbose=0).items()}
    for target in targets.values():
        target[:2] = -1
    for weights in (None, {name: np.ones(4) for name in targets}):
        received = answerer.evaluate(IDS, targets, sample_weight=weights, return_dict=True)
        assert (received["start_logits_accuracy"], received["end_logits_accuracy"]) == (1, 1)
