# SPDX-License-Identifier: Apache-2.0
"""Losses ignore the rows and tokens that only pad a batch."""

import functools

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import Distiller, ReplacedTokenDetector, TextClassifier
from keras_bert.metrics import ElementMean
from keras_bert.models.inputs import REAL_ROWS
from keras_bert.tasks.objective import new_objective
from tests.small_tasks import TASKS, make_task, make_text_task

GENERATOR = np.random.default_rng(0)
WEIGHTS = np.array([2.0, 0.0, 0.5], "float32")  # Rows with weight 0 count, as in Keras.
REDUCTIONS = ("sum_over_batch_size", "mean", "mean_with_sample_weight", "sum", "none")


class Squared(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.ops.square(y_true - y_pred)


def absolute(y_true, y_pred, factor=1.0):
    return factor * keras.ops.abs(y_true - y_pred)


def class_loss(reduction, **options):
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=reduction, **options
    )


CLASS_LOSSES = [
    *map(class_loss, REDUCTIONS),
    class_loss("mean", ignore_class=1),
    class_loss("mean_with_sample_weight", ignore_class=1),
]
REGRESSION_LOSSES = [
    *("mse", keras.losses.mean_absolute_error, absolute, functools.partial(absolute, factor=2.0)),
    *(Squared(reduction=reduction) for reduction in REDUCTIONS),
]


def value(loss, x, *parts):
    """Returns the loss of a batch, and the loss reported after it."""
    objective = new_objective(loss, None, {"": ElementMean("loss")})
    parts = [None if part is None else keras.ops.convert_to_tensor(part) for part in parts]
    computed = objective.loss(x, *parts, training=True), objective.logs()["loss"]
    return [float(keras.ops.convert_to_numpy(one)) for one in computed]


def keras_value(loss, y, y_pred, weights):
    """Returns the loss that Keras computes for rows without padding rows."""
    loss = keras.losses.get(loss)
    if not isinstance(loss, keras.losses.Loss):
        function = loss
        loss = Squared()
        loss.call = function
    parts = (y, y_pred, weights)
    computed = loss(
        *(None if part is None else keras.ops.convert_to_tensor(part) for part in parts)
    )
    return float(np.mean(keras.ops.convert_to_numpy(computed)))


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_losses_ignore_padding_rows(weights):
    cases = [(loss, np.array([0, 1, 2]), (3, 3)) for loss in CLASS_LOSSES]
    cases += [(loss, np.ones((3, 1), "float32"), (3, 1)) for loss in REGRESSION_LOSSES]
    cases += [(loss, np.ones((3, 2), "float32"), (3, 2)) for loss in REGRESSION_LOSSES[2:4]]
    more = np.array([0, 1, 2, 0, 1])
    real = np.array([1, 1, 1, 0, 0], "float32")
    for loss, y, shape in cases:
        y_pred = GENERATOR.normal(size=shape).astype("float32")
        repeated = weights
        if y.shape == (3, 2) and weights is not None:
            repeated = weights[:, None]
        expected = keras_value(loss, y, y_pred, repeated)
        padded_weights = real if weights is None else weights[more] * real
        padding_features = {REAL_ROWS: keras.ops.convert_to_tensor(real)}
        for received in (
            value(loss, {}, y, y_pred, weights),
            value(loss, padding_features, y[more], y_pred[more], padded_weights),
        ):
            np.testing.assert_allclose(received, [expected] * 2, rtol=1e-5, err_msg=str(loss))


def test_losses_ignore_padding_tokens():
    y, mask = np.array([[0, 2, 1], [1, 2, 0]]), np.array([[1, 1, 0], [1, 0, 0]], "float32")
    y_pred = GENERATOR.normal(size=(2, 3, 3)).astype("float32")
    for loss in CLASS_LOSSES:
        is_target = mask > 0
        expected = keras_value(loss, y[is_target], y_pred[is_target], mask[is_target])
        received = value(loss, {}, y, y_pred, mask)
        np.testing.assert_allclose(received, [expected] * 2, rtol=1e-5)


def test_class_ids_are_not_rounded():
    """In bfloat16, 257 would become 256."""
    classes = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="bfloat16")
    logits = 20 * np.eye(300, dtype="float32")[256:258]
    assert value(classes, {}, np.array([256, 257]), logits, None)[0] < 0.1
    negatives = keras_bert.losses.InBatchNegatives(1.0, dtype="bfloat16")
    texts = np.array([[256, 256], [257, 257]])
    vectors = np.eye(2, dtype="float32")[[[0, 0], [1, 1]]]
    received = value(negatives, {}, texts, vectors, None)[0]
    assert received == pytest.approx(np.log(1 + np.exp(-1)), abs=0.01)


@pytest.mark.on_torch
def test_batch_mean_loss_needs_full_batches():
    def mean(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_true - y_pred))

    y, y_pred = np.ones((3, 1), "float32"), np.zeros((3, 1), "float32")
    assert value(mean, {}, y, y_pred, None) == [1, 1]
    with pytest.raises(
        ValueError, match="The loss mean must return a value for each example or token"
    ):
        value(mean, {REAL_ROWS: np.ones(3)}, y, y_pred, np.ones(3))


def make_task_without_dropout(name, *arguments):
    task = make_text_task(name, *arguments)
    config = task.config.replace(dropout=0.0, attention_dropout=0.0, initializer_range=0.3)
    return getattr(keras_bert, name)(
        keras_bert.Backbone(config), *arguments, preprocessor=task.preprocessor
    )


def test_updates_ignore_padding_rows():
    """Regression: on JAX, the gradient of one row in a batch of 32 was divided by 32."""
    task = make_task_without_dropout("TextClassifier", 1)
    before, results = task.get_weights(), []
    for size in (2, 32):
        task.set_weights(before)
        task.compile(keras.optimizers.SGD(0.1), loss="mse")
        history = task.fit(["a", "b b b"], [1.0, 5.0], batch_size=size, verbose=0).history
        results.append([*history["loss"], *task.head.get_weights()[-1]])
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_token_loss_does_not_depend_on_batches():
    task = make_task_without_dropout("TokenClassifier", 2)
    task.compile(loss=class_loss("sum_over_batch_size"))
    rows = [["a"], ["b"] * 9], [[1], [0, 1, 1, 0, 1, 1, 0, 0, 0]]
    losses = [task.evaluate(*rows, batch_size=size, verbose=0)[0] for size in (1, 2)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def constant(value, _):
    return keras.ops.convert_to_tensor(value)


@pytest.mark.parametrize(
    "task_class",
    [
        TextClassifier,
        pytest.param(Distiller, marks=pytest.mark.on_torch),
        pytest.param(ReplacedTokenDetector, marks=pytest.mark.on_torch),
    ],
)
def test_layer_losses_count_in_every_task(task_class):
    """Regression: an activity regularizer in micro-batches failed on JAX and PyTorch."""
    task, (x, y, weights) = make_task(task_class), TASKS[task_class]()[0]
    losses = []
    for factor in (0.0, 1.0):
        task.backbone.blocks[0].activity_regularizer = functools.partial(constant, 0.0)
        task.trainable_variables[-1].regularizer = functools.partial(constant, 5.0 * factor)
        task.compile(keras.optimizers.SGD(0.0, gradient_accumulation_steps=2))
        losses.append(task.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True))
    difference = 5.0
    # A detector samples different tokens each time.
    tolerance = 2.0 if task_class is ReplacedTokenDetector else 1e-4
    assert losses[1]["loss"] - losses[0]["loss"] == pytest.approx(difference, abs=tolerance)
    history = task.fit(x, y, sample_weight=weights, batch_size=2, verbose=0).history
    assert history["loss"][0] > difference
