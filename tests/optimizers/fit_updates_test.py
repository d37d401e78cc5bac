# SPDX-License-Identifier: Apache-2.0
"""Each micro-batch is part of an update, and a learning rate of 0 does not go unnoticed."""

import keras
import numpy as np
import pytest

from keras_bert.optimizers import AdamW, AdamWeightDecay
from keras_bert.optimizers.fit_updates import FitUpdates, with_fit_updates
from tests.optimizers.small_model import LABELS, TOKENS, get_weights, small_model

pytestmark = pytest.mark.on_torch


def fit(model, batch_size=4, epochs=1, **arguments):
    arguments = {"callbacks": [FitUpdates()], "shuffle": False, "verbose": 0, **arguments}
    return model.fit(TOKENS, LABELS, batch_size=batch_size, epochs=epochs, **arguments).history


@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(
            lambda **size: AdamW(1e-2, global_clipnorm=0.01, **size),
            marks=pytest.mark.on_each_backend,
        ),
        keras.optimizers.SGD,
    ],
)
def test_incomplete_update_matches_one_batch(optimizer):
    """Validation runs before the end of the epoch, and must include the update."""
    whole = small_model(optimizer())
    parts = small_model(optimizer(gradient_accumulation_steps=6))
    validation = {"validation_data": (TOKENS, LABELS)}
    expected = fit(whole, batch_size=16, epochs=3, **validation)
    received = fit(parts, batch_size=4, epochs=3, **validation)
    np.testing.assert_allclose(received["val_loss"], expected["val_loss"], rtol=1e-5)
    for a, b in zip(get_weights(whole), get_weights(parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    assert int(parts.optimizer.iterations) == int(whole.optimizer.iterations) == 3


def test_remaining_micro_batches_make_an_update():
    model = small_model(AdamW(1e-2, num_train_steps=4, gradient_accumulation_steps=3))
    fit(model, epochs=2)
    assert int(model.optimizer.iterations) == 4
    with pytest.raises(ValueError, match="has made 4 updates"):
        fit(model)


def test_loss_scaling_keeps_gradients():
    scaled = keras.optimizers.LossScaleOptimizer(AdamW(1e-2, gradient_accumulation_steps=6))
    model = small_model(scaled, auto_scale_loss=False)
    before = get_weights(model)
    fit(model)
    assert any((a != b).any() for a, b in zip(before, get_weights(model), strict=True))


POLYNOMIAL = keras.optimizers.schedules.PolynomialDecay


@pytest.mark.parametrize(
    ("make", "schedule"),
    [
        (lambda: AdamW(1e-2, num_train_steps=4), "a LinearWarmupDecay of 4 steps"),
        (lambda: AdamWeightDecay(1e-2, 4, 2), "a BertWarmupDecay of 4 steps"),
        (
            lambda: keras.optimizers.SGD(POLYNOMIAL(1e-2, 4, end_learning_rate=0.0)),
            "a PolynomialDecay",
        ),
    ],
)
def test_finished_schedule_raises(make, schedule):
    model = small_model(make())
    fit(model)
    before = get_weights(model)
    with pytest.raises(
        ValueError,
        match=f"has made 4 updates, and the learning rate of its schedule, {schedule}, falls to 0",
    ):
        fit(model)
    for a, b in zip(before, get_weights(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_schedule_that_ends_early_warns():
    model = small_model(AdamW(1e-2, num_train_steps=10, gradient_accumulation_steps=2))
    with pytest.warns(UserWarning, match="The last 4 of 14 updates of this training change no"):
        fit(model, epochs=7)
    # An initial warm-up step and an intentional rate of 0 do not warn.
    fit(small_model(AdamWeightDecay(1e-2, 4, 2)), batch_size=16)
    fit(small_model(AdamW(0.0, 2)), epochs=2)


def test_fit_updates_runs_before_other_callbacks():
    model, other = keras.Sequential(), keras.callbacks.Callback()
    for callbacks in (None, other, [other]):
        first, *remaining = with_fit_updates(callbacks, model)
        assert isinstance(first, FitUpdates)
        assert remaining == ([] if callbacks is None else [other])
    callback_list = keras.callbacks.CallbackList([other], epochs=1)
    for _ in range(2):
        assert with_fit_updates(callback_list, model) is callback_list
        assert [type(callback) for callback in callback_list.callbacks] == [FitUpdates, type(other)]
