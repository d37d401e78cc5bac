# SPDX-License-Identifier: Apache-2.0
"""Text sources are read once, and `fit` trains on all of their batches."""

import functools
import itertools
import random
import types

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import TextClassifier
from keras_bert.layers import SentencePooling
from keras_bert.models.inputs import LOSS_DIVISORS
from keras_bert.tasks.batch_plan import BatchPlan
from keras_bert.tasks.micro_batches import MicroBatches
from tests.small_tasks import make_text_task

pytestmark = [
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),
    pytest.mark.on_torch,
]

TEXTS = ["a", "b a", "a b", "b b"]
LABELS = [0, 1, 1, 0]
BATCH = (TEXTS[:2], LABELS[:2])


class BatchCounter(keras.callbacks.Callback):
    """Counts the training batches."""

    count = 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1


def count_trained_batches(task, *data, **options):
    steps = BatchCounter()
    task.fit(*data, verbose=0, callbacks=[steps], **options)
    return steps.count


def make_classifier(micro_batches_per_update=None):
    task = make_text_task("TextClassifier", 2)
    task.compile(
        keras_bert.optimizers.AdamW(1e-3, gradient_accumulation_steps=micro_batches_per_update)
    )
    return task


@pytest.fixture(scope="module")
def task():
    return make_classifier()


def generator(count):
    return (BATCH for _ in range(count))


def read_once_rows(count):
    """Returns an iterator over the rows of `count` batches."""
    return iter([*zip(TEXTS * count, LABELS * count, strict=True)][: 2 * count])


def stream(count):
    data = pytest.importorskip("torch.utils.data")

    class Rows(data.IterableDataset):
        rows = read_once_rows(count)

        def __iter__(self):
            return self.rows

    return data.DataLoader(Rows(), batch_size=2)


def dataset(count):
    tf = pytest.importorskip("tensorflow")
    rows = read_once_rows(count)
    signature = tf.TensorSpec((), tf.string), tf.TensorSpec((), tf.int32)
    return tf.data.Dataset.from_generator(lambda: rows, output_signature=signature)


def batched_dataset(count):
    return dataset(count).batch(2)


@pytest.mark.parametrize("micro_batches_per_update", [None, 4])
@pytest.mark.parametrize("source", [generator, stream])
def test_fit_trains_on_each_batch_once(task, source, micro_batches_per_update):
    model = make_classifier(micro_batches_per_update) if micro_batches_per_update else task
    assert count_trained_batches(model, source(10), batch_size=2) == 10
    with pytest.raises(ValueError, match="can only be read once"):
        count_trained_batches(model, source(3), batch_size=2, epochs=2)
    assert count_trained_batches(model, source(11), initial_batch=6) == 5
    with pytest.raises(ValueError, match="Received: 3, with fewer batches"):
        count_trained_batches(model, source(3), initial_batch=3)
    if source is generator:
        batches = generator(11)
        assert count_trained_batches(model, batches, steps_per_epoch=3, epochs=2) == 6
        assert count_trained_batches(model, batches) == 5
        features = ((dict(task.preprocessor(TEXTS)), np.array(LABELS)) for _ in range(11))
        assert count_trained_batches(model, features) == 11


@pytest.mark.needs_tensorflow
@pytest.mark.on_each_backend
@pytest.mark.parametrize(
    "source", [dataset, pytest.param(batched_dataset, marks=pytest.mark.on_tensorflow)]
)
def test_fit_trains_on_each_dataset_batch(task, source):
    assert count_trained_batches(task, source(10), batch_size=2) == 10
    with pytest.raises(ValueError, match="can only be read once"):
        count_trained_batches(task, source(3), batch_size=2, epochs=2)


@pytest.mark.needs_tensorflow
@pytest.mark.on_each_backend
def test_predict_accepts_read_once_sources(task):
    expected = task.predict(TEXTS * 5, verbose=0)[:10]
    for source in (generator, stream, dataset, batched_dataset):
        logits = task.predict(source(5), verbose=0)
        assert logits.shape == (10, 2), source
        if source is not generator:
            np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_initial_batch_beyond_the_data_raises(task):
    with pytest.raises(ValueError, match="Received: 2, with 1 epochs of 2 batches"):
        task.fit(TEXTS, LABELS, batch_size=2, initial_batch=2)


def test_initial_batch_with_keras_loss():
    """The skipped batches are not needed for loss divisors."""
    model = make_classifier(micro_batches_per_update=4)
    model.compile(model.optimizer, loss_weights=[1.0])
    assert not model._has_loss_divisors()
    assert count_trained_batches(model, TEXTS * 4, LABELS * 4, batch_size=2, initial_batch=6) == 2


def test_validation_generator_repeats_each_epoch():
    task = make_text_task("TextClassifier", 2)
    task.compile(keras.optimizers.SGD(0.0))
    for steps in (2, None):
        batches = ((TEXTS[row : row + 1], LABELS[row : row + 1]) for row in (0, 1, 2))
        options = {"validation_data": batches, "validation_steps": steps, "verbose": 0}
        losses = task.fit(TEXTS, LABELS, epochs=2, **options).history["val_loss"]
        expected = task.evaluate(TEXTS[: steps or 3], LABELS[: steps or 3], verbose=0)[0]
        assert losses == pytest.approx([expected] * 2, rel=1e-5)


class ModelCallingDataset(keras.utils.PyDataset):
    """Batches that call the model, for example to find hard negatives."""

    def __init__(self, task):
        super().__init__()
        self.task = task
        self.call = lambda: task.predict(TEXTS, verbose=0, batch_size=2)
        self.epochs = []

    def __len__(self):
        return 2

    def __getitem__(self, index):
        self.call()
        return BATCH

    def on_epoch_begin(self):
        self.epochs.append("start")

    def on_epoch_end(self):
        self.call()
        self.epochs.append("end")


@pytest.mark.on_each_backend
def test_py_dataset_can_call_the_model(task):
    data = ModelCallingDataset(task)
    expected = task.evaluate(*BATCH, verbose=0)
    assert task.evaluate(data, verbose=0) == pytest.approx(expected, rel=1e-5)
    assert count_trained_batches(task, data) == 2
    data.call = lambda: task.evaluate(*BATCH, verbose=0)
    assert count_trained_batches(task, data, epochs=2) == 4
    assert task.predict(data, verbose=0).shape == (4, 2)
    assert data.epochs == ["start", "end"] * 5


def test_weights_are_not_used_as_labels(task):
    loss = functools.partial(keras.losses.sparse_categorical_crossentropy, from_logits=True)
    weights = np.ones(2, "float32")
    other = make_text_task("TextClassifier", 2)
    other.compile("sgd", loss)
    for data in (
        {"x": ((TEXTS[:2], None, weights) for _ in range(2))},
        {"x": TEXTS[:2], "sample_weight": weights},
        {"x": TEXTS[:2]},
    ):
        with pytest.raises(ValueError, match="y must have labels"):
            other.fit(**data)
    column = ((*BATCH, weights[:, None]) for _ in range(2))
    assert count_trained_batches(task, column) == 2


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_micro_batches_are_grouped_by_update():
    tf = pytest.importorskip("tensorflow")
    from keras_bert.data.tfdata.text_datasets import map_with_group_mean

    cases = [*itertools.product(range(12), (1, 2, 3, 5), (None, 4, 5, 7), (False, True))]
    for count, size, period, resumes in random.Random(0).sample(cases, 24):
        steps = period or size
        first = size if resumes and size < steps else 0
        numbers = np.arange(first, first + count, dtype="float32")
        updates = [(number // steps, number % steps // size) for number in numbers]
        expected = [
            (
                number,
                np.mean([n for n, other in zip(numbers, updates, strict=True) if other == own]),
            )
            for number, own in zip(numbers, updates, strict=True)
        ]
        rows = tf.data.Dataset.from_tensor_slices(numbers)
        mapped = map_with_group_mean(
            rows,
            measure=lambda element: element[0],
            function=lambda element, mean: (element[0], mean),
            size=size,
            period=period,
            first=first,
        )
        rows = [*mapped.as_numpy_iterator()]
        model = types.SimpleNamespace(_loss_divisors=lambda x, *_: x["token_ids"][0])
        batches = [({"token_ids": number[None]},) for number in numbers]
        micro_batches = MicroBatches(model, BatchPlan(first, period, size), x=np.zeros((1, 1)))
        found = [
            (batch["token_ids"][0], batch[LOSS_DIVISORS][0, 0])
            for (batch,) in micro_batches._with_mean_divisors(batches)
        ]
        np.testing.assert_allclose(rows, expected, rtol=1e-6)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_micro_batches_include_layer_losses():
    """The loss of an activity regularizer exists from the first step."""
    task = make_text_task("TextClassifier", 2)
    top_layers = [keras.layers.Dense(4, activity_regularizer="l2"), SentencePooling()]
    model = TextClassifier(
        task.backbone, preprocessor=task.preprocessor, num_classes=2, top_layers=top_layers
    )
    model.compile(keras_bert.optimizers.AdamW(1e-3, gradient_accumulation_steps=2))
    assert count_trained_batches(model, generator(5)) == 5
