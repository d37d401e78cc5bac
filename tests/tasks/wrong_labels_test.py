# SPDX-License-Identifier: Apache-2.0
"""Invalid labels: one error on every backend, which names the row."""

import keras
import numpy as np
import pytest

from keras_bert import Backbone, Distiller, MaskedLM, QuestionAnswerer, TextClassifier
from tests.small_tasks import CONFIG, make_task

IDS = np.ones((4, 3), "int32")


def compiled(task, **arguments):
    model = task(Backbone(CONFIG), **arguments)
    model.compile("sgd")
    return model


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 2, 5, 3], r"row 2 is 5; expected an id from 0 to 4.*class_names"),
        ([1, 2, 0, -1], r"row 3 is -1; expected an id from 0 to 4"),
        ([1, 0.5, 2, 0], r"row 1 is 0\.5; expected an id"),
        ([1, 2, 0, np.nan], r"row 3 is nan; expected an id"),
    ],
)
def test_class_ids_are_checked(labels, message):
    classifier = compiled(TextClassifier, num_classes=5)
    for method in (classifier.fit, classifier.evaluate):
        with pytest.raises(ValueError, match=message):
            method(IDS, np.array(labels), verbose=0)
    with pytest.raises(ValueError, match=message):
        classifier.fit(IDS, np.zeros(4), validation_data=(IDS, np.array(labels)), verbose=0)


def test_whole_numbers_may_be_floats_and_other_losses_take_other_labels():
    classifier = compiled(TextClassifier, num_classes=5)
    classifier.fit(IDS, np.array([1.0, 2.0, 0.0, 4.0]), verbose=0)
    classifier.compile("sgd", loss=keras.losses.CategoricalCrossentropy(from_logits=True))
    classifier.fit(IDS, np.eye(5)[:4], verbose=0)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("sparse_categorical_crossentropy", "sparse_categorical_crossentropy takes probabilities"),
        (keras.losses.categorical_crossentropy, "categorical_crossentropy takes probabilities"),
        (keras.losses.SparseCategoricalCrossentropy(), "SparseCategoricalCrossentropy takes prob"),
        (keras.losses.BinaryCrossentropy(from_logits=True), "any number of labels"),
    ],
)
def test_losses_that_logits_are_not_for(loss, message):
    with pytest.raises(ValueError, match=message):
        compiled(TextClassifier, num_classes=5).compile("sgd", loss=loss)
    if "probabilities" in message:
        losses = {"start_logits": loss, "end_logits": "mse"}
        with pytest.raises(ValueError, match=f"{message}.* QuestionAnswerer"):
            compiled(QuestionAnswerer).compile("sgd", loss=losses)


def test_a_model_with_such_a_loss_is_loaded_with_its_default(tmp_path, monkeypatch):
    classifier = compiled(TextClassifier, num_classes=5)
    with monkeypatch.context() as context:
        context.setattr(TextClassifier, "_check_loss", lambda self, loss: None)
        classifier.compile("sgd", loss="sparse_categorical_crossentropy")
        classifier.save(tmp_path / "old.keras")
    with pytest.warns(UserWarning, match="loaded with its default loss: The loss sparse_cat"):
        loaded = keras.models.load_model(tmp_path / "old.keras")
    assert loaded.loss.from_logits
    np.testing.assert_array_equal(
        loaded.predict(IDS, verbose=0), classifier.predict(IDS, verbose=0)
    )


def test_scores_of_a_regression_are_checked():
    regression = compiled(TextClassifier, num_classes=1)
    with pytest.raises(ValueError, match="row 1 is nan; expected a finite number"):
        regression.fit(IDS, np.array([0.5, np.nan, 1, 2]), verbose=0)


def test_positions_of_answers_are_checked():
    answerer = compiled(QuestionAnswerer)
    targets = {"start_logits": np.array([0, 1, 2, 3]), "end_logits": np.zeros(4, int)}
    with pytest.raises(ValueError, match="start_logits in row 3 is 3; expected an id from 0 to 2"):
        answerer.fit(IDS, targets, verbose=0)


def test_masked_tokens_are_checked_unless_they_weigh_nothing():
    masked_lm = compiled(MaskedLM)
    x = {"token_ids": IDS, "mask_positions": np.ones((4, 2), "int32")}
    y = np.full((4, 2), 7)
    y[2, 1] = 50
    with pytest.raises(ValueError, match="row 2, position 1 is 50; expected an id from 0 to 49"):
        masked_lm.fit(x, y, sample_weight=np.ones((4, 2)), verbose=0)


def test_a_distiller_takes_rows_without_a_label():
    student, teacher = make_task(TextClassifier), make_task(TextClassifier)
    distiller = Distiller(student, teacher)
    distiller.compile("sgd")
    distiller.fit(IDS, np.array([0, -1, 1, -1]), verbose=0)
    with pytest.raises(ValueError, match="row 0 is 2; expected an id from -1 to 1"):
        distiller.fit(IDS, np.array([2, -1, 1, -1]), verbose=0)


def test_two_classes_of_one_name_are_refused():
    with pytest.raises(ValueError, match="'a' more than once"):
        TextClassifier(Backbone(CONFIG), class_names=["a", "b", "a"])
