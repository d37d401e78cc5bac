# SPDX-License-Identifier: Apache-2.0
"""Multiple micro-batches per update are equivalent to one large batch.

Each row or token counts the same in all micro-batches, so the loss is not the mean of their means.
"""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert import Distiller, Pretrainer, TextClassifier, TokenClassifier
from keras_bert.optimizers import AdamW, StableAdamW
from keras_bert.tasks.batch_plan import BatchPlan
from keras_bert.tasks.micro_batches import MicroBatches
from tests.optimizers.compiled_apply import compiled_apply
from tests.optimizers.small_model import fit, get_weights, small_model
from tests.small_tasks import CONFIG, TASKS, make_task

PEAK, TOTAL, WARMUP = 1e-2, 8, 4


class RateTrace(keras.callbacks.Callback):
    """Records the rate of the next update before each batch."""

    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


@pytest.mark.parametrize(
    "optimizer", [AdamW, pytest.param(StableAdamW, marks=pytest.mark.on_torch)]
)
def test_four_micro_batches_match_one_batch(optimizer):
    """The clipping threshold is far below the norms, and applies only to the average."""
    whole = small_model(optimizer(PEAK, TOTAL, WARMUP, global_clipnorm=0.01))
    parts = small_model(
        optimizer(PEAK, TOTAL, WARMUP, global_clipnorm=0.01, gradient_accumulation_steps=4)
    )
    fit(whole, batch_size=16, epochs=3)
    fit(parts, batch_size=4, epochs=3)
    for a, b in zip(get_weights(whole), get_weights(parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_schedules_count_updates():
    trace = RateTrace()
    model = small_model(AdamW(PEAK, TOTAL, WARMUP, gradient_accumulation_steps=2))
    model.fit(np.zeros((8, 6), "int32"), np.zeros(8), batch_size=1, verbose=0, callbacks=[trace])
    expected = [PEAK * (update + 1) / WARMUP for update in range(4) for _ in range(2)]
    np.testing.assert_allclose(trace.rates, expected, rtol=1e-6)


def test_weights_wait_for_the_last_micro_batch():
    weight = keras.Variable(np.ones(3, "float32"), name="kernel")
    optimizer = AdamW(0.1, gradient_accumulation_steps=3)
    optimizer.build([weight])
    apply = compiled_apply(optimizer, [weight])
    moved = []
    for _ in range(6):
        before = ops.convert_to_numpy(weight.value).copy()
        apply([ops.ones(3)])
        moved.append(bool((ops.convert_to_numpy(weight.value) != before).any()))
    assert moved == [False, False, True, False, False, True]
    assert int(optimizer.iterations) == 2


def test_bfloat16_gradients_accumulate_in_float32():
    """In bfloat16, 1 + 1/256 is 1, so the small gradients would be lost."""
    weight = keras.Variable(np.ones(2), name="kernel", dtype="bfloat16")
    optimizer = AdamW(0.1, gradient_accumulation_steps=3)
    optimizer.build([weight])
    apply = compiled_apply(optimizer, [weight])
    for size in (1.0, 1 / 256):
        apply([ops.full((2,), size, dtype="bfloat16")])
    (accumulator,) = [v for v in optimizer.variables if "gradient_accumulator" in v.name]
    np.testing.assert_array_equal(ops.convert_to_numpy(accumulator.value), 1 + 1 / 256)


def make_batches(task):
    """Returns six batches whose rows and tokens have different weights."""
    random = np.random.default_rng(0)
    x, y, weights = TASKS[task]()[1]

    def weighted(part):
        rows = random.uniform(0.1, 2.0, len(part)) * (random.random(len(part)) < 0.7)
        return (part * rows.reshape(-1, *(1,) * (part.ndim - 1))).astype("float32")

    return [(x, y, keras.tree.map_structure(weighted, weights)) for _ in range(6)]


def join_batches(batches):
    return keras.tree.map_structure(lambda *parts: np.concatenate(parts), *batches)


def train(task, batches, micro_batches_per_update=None, loss=None, **arguments):
    """Returns the weights after two epochs of SGD, which does not hide the step size."""
    model = make_task(task, CONFIG.replace(dropout=0.0, attention_dropout=0.0))
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=micro_batches_per_update)
    model.compile(optimizer, loss, metrics=[] if loss else None)
    if task is TokenClassifier:  # `fit` initializes the bias only for arrays.
        model.head.dense.bias.assign(np.ones(model.head.dense.bias.shape))
    x = (batch for batch in batches) if isinstance(batches, list) else batches[0]
    y, weights = (None, None) if isinstance(batches, list) else batches[1:]
    model.fit(x, y, sample_weight=weights, epochs=2, shuffle=False, verbose=0, **arguments)
    return get_weights(model)


def assert_same(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "loss"),
    [
        (TokenClassifier, None),
        # Two losses whose divisors are not proportional
        pytest.param(Pretrainer, None, marks=pytest.mark.on_torch),
        pytest.param(Distiller, None, marks=pytest.mark.on_torch),
        pytest.param(TextClassifier, "mse", marks=pytest.mark.on_torch),
    ],
)
def test_task_micro_batches_match_one_batch(task, loss):
    """The last update of an epoch has two micro-batches, one of which is smaller."""
    x, y, weights = keras.tree.map_structure(
        lambda part: part[:18], join_batches(make_batches(task))
    )
    rows = x, np.eye(2)[y] if loss else y, weights
    first, last = (
        keras.tree.map_structure(lambda part, rows_slice=rows_slice: part[rows_slice], rows)
        for rows_slice in (slice(12), slice(12, None))
    )
    expected = train(task, [first, last] * 2, loss=loss, steps_per_epoch=2)
    assert_same(train(task, rows, 3, loss=loss, batch_size=4), expected)


@pytest.mark.on_torch
def test_updates_end_with_the_epoch():
    """A generator continues in the next epoch."""
    batches = make_batches(TokenClassifier)
    groups = [join_batches(batches[:2]), batches[2], join_batches(batches[3:5]), batches[5]]
    expected = train(TokenClassifier, groups, steps_per_epoch=2)
    assert_same(train(TokenClassifier, batches, 2, steps_per_epoch=3), expected)


def test_resumed_update_is_completed():
    model = make_task(TokenClassifier)
    model.compile("sgd")
    x, y, weights = join_batches(make_batches(TokenClassifier))
    data = {"x": x, "y": y, "sample_weight": weights, "batch_size": 4, "shuffle": False}

    def read(skipped):
        batches = MicroBatches(model, BatchPlan(skipped, batches_per_update=4), **data)
        assert batches.num_batches == 6 - skipped
        return list(batches.get_numpy_iterator())

    keras.tree.map_structure(np.testing.assert_array_equal, read(3), read(0)[3:])


@pytest.mark.needs_tensorflow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a dataset of TensorFlow")
def test_distributed_dataset_raises():
    tf = pytest.importorskip("tensorflow")
    dataset = tf.data.Dataset.from_tensors(make_batches(TokenClassifier)[0])
    distributed = tf.distribute.MirroredStrategy(["CPU:0"]).experimental_distribute_dataset(dataset)
    model = make_task(TokenClassifier)
    model.compile(AdamW(1e-3, gradient_accumulation_steps=2))
    message = r"with gradient_accumulation_steps\. Received: DistributedDataset"
    with pytest.raises(TypeError, match=message):
        model.fit(distributed, steps_per_epoch=1, shuffle=False, verbose=0)
