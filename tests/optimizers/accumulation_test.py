# SPDX-License-Identifier: Apache-2.0
"""Several micro-batches per update are equivalent to one large batch."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.optimizers import LAMB, AdamW, AdamWeightDecay, StableAdamW
from tests.optimizers.compiled_apply import compiled_apply
from tests.optimizers.small_model import fit, small_model, weights_of

PEAK, TOTAL, WARMUP = 1e-2, 8, 4


class RateTrace(keras.callbacks.Callback):
    """The rate that the next update will use, before each batch."""

    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


@pytest.mark.parametrize("optimizer", [AdamW, AdamWeightDecay, LAMB, StableAdamW])
def test_four_micro_batches_are_one_batch(optimizer):
    """The clipping threshold lies far below the norms: it works on the average alone."""
    whole = small_model(optimizer(PEAK, TOTAL, WARMUP, global_clipnorm=0.01))
    parts = small_model(
        optimizer(PEAK, TOTAL, WARMUP, global_clipnorm=0.01, gradient_accumulation_steps=4)
    )
    fit(whole, batch_size=16, epochs=3)
    fit(parts, batch_size=4, epochs=3)
    for a, b in zip(weights_of(whole), weights_of(parts), strict=True):
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
    """In bfloat16, 1 + 1/256 is 1: the small gradients would be lost."""
    weight = keras.Variable(np.ones(2), name="kernel", dtype="bfloat16")
    optimizer = AdamW(0.1, gradient_accumulation_steps=3)
    optimizer.build([weight])
    apply = compiled_apply(optimizer, [weight])
    for size in (1.0, 1 / 256):
        apply([ops.full((2,), size, dtype="bfloat16")])
    (accumulator,) = [v for v in optimizer.variables if "gradient_accumulator" in v.name]
    np.testing.assert_array_equal(ops.convert_to_numpy(accumulator.value), 1 + 1 / 256)
