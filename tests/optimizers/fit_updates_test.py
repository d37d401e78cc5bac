# SPDX-License-Identifier: Apache-2.0
"""Every micro-batch is part of an update, and no update has a learning rate of 0 unnoticed."""

import keras
import numpy as np
import pytest

from keras_bert.optimizers import AdamW, AdamWeightDecay
from keras_bert.optimizers.fit_updates import FitUpdates, with_fit_updates
from tests.optimizers.small_model import LABELS, TOKENS, small_model, weights_of

pytestmark = pytest.mark.on_tensorflow


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
def test_fewer_micro_batches_than_in_an_update_are_one_batch(optimizer):
    """The validation, which precedes the end of an epoch, sees their update, too."""
    whole = small_model(optimizer())
    parts = small_model(optimizer(gradient_accumulation_steps=6))
    validation = {"validation_data": (TOKENS, LABELS)}
    expected = fit(whole, batch_size=16, epochs=3, **validation)
    received = fit(parts, batch_size=4, epochs=3, **validation)
    np.testing.assert_allclose(received["val_loss"], expected["val_loss"], rtol=1e-5)
    for a, b in zip(weights_of(whole), weights_of(parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    assert int(parts.optimizer.iterations) == int(whole.optimizer.iterations) == 3


def test_the_remaining_micro_batches_of_each_epoch_make_an_update():
    model = small_model(AdamW(1e-2, num_train_steps=4, gradient_accumulation_steps=3))
    fit(model, epochs=2)
    assert int(model.optimizer.iterations) == 4
    with pytest.raises(ValueError, match="has made 4 updates"):
        fit(model)


def test_loss_scaling_hides_no_gradients():
    scaled = keras.optimizers.LossScaleOptimizer(AdamW(1e-2, gradient_accumulation_steps=6))
    model = small_model(scaled, auto_scale_loss=False)
    before = weights_of(model)
    fit(model)
    assert any((a != b).any() for a, b in zip(before, weights_of(model), strict=True))


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
def test_a_schedule_that_is_over_is_an_error(make, schedule):
    model = small_model(make())
    fit(model)
    before = weights_of(model)
    with pytest.raises(ValueError, match=f"no weight. .* made 4 updates, .* schedule, {schedule}"):
        fit(model)
    for a, b in zip(before, weights_of(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_schedule_that_ends_early_is_a_warning():
    model = small_model(AdamW(1e-2, num_train_steps=10, gradient_accumulation_steps=2))
    with pytest.warns(UserWarning, match="The last 4 of 14 updates of this training change no"):
        fit(model, epochs=7)
    # The first update of a warm-up changes nothing either, as a rate of 0 by intention
    fit(small_model(AdamWeightDecay(1e-2, 4, 2)), batch_size=16)
    fit(small_model(AdamW(0.0, 2)), epochs=2)


def test_it_precedes_other_callbacks():
    model, other = keras.Sequential(), keras.callbacks.Callback()
    for callbacks in (None, other, [other]):
        first, *others = with_fit_updates(callbacks, model)
        assert isinstance(first, FitUpdates)
        assert others == ([] if callbacks is None else [other])
    callback_list = keras.callbacks.CallbackList([other], epochs=1)
    for _ in range(2):
        assert with_fit_updates(callback_list, model) is callback_list
        assert [type(callback) for callback in callback_list.callbacks] == [FitUpdates, type(other)]
