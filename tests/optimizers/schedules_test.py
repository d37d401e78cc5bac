# SPDX-License-Identifier: Apache-2.0
"""Learning rate schedules, against the formulas of the three reference codes."""

import keras
import numpy as np
import pytest

from keras_bert.optimizers import BertWarmupDecay, ElectraWarmupDecay, LinearWarmupDecay

PEAK, TOTAL, WARMUP = 1e-4, 200, 20


def common(step: int) -> float:
    return min((step + 1) / WARMUP, (TOTAL - step) / (TOTAL - WARMUP))


def hugging_face(step: int) -> float:
    return step / WARMUP if step < WARMUP else max(0, (TOTAL - step) / (TOTAL - WARMUP))


def original(step: int) -> float:
    return step / WARMUP if step < WARMUP else 1 - min(step, TOTAL) / TOTAL


def electra(step: int) -> float:
    return (1 - min(step, TOTAL) / TOTAL) * min(1, step / WARMUP)


@pytest.mark.parametrize(
    ("schedule", "share"),
    [
        (LinearWarmupDecay(PEAK, TOTAL, WARMUP), common),
        (LinearWarmupDecay(PEAK, TOTAL, WARMUP, warmup_from_zero=True), hugging_face),
        (BertWarmupDecay(PEAK, TOTAL, WARMUP), original),
        (ElectraWarmupDecay(PEAK, TOTAL, WARMUP), electra),
    ],
    ids=["common", "hugging_face", "original", "electra"],
)
def test_every_step_has_the_rate_of_the_formula(schedule, share):
    rates = [float(schedule(step)) for step in range(TOTAL + 1)]
    expected = [PEAK * share(step) for step in range(TOTAL + 1)]
    np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=1e-12)
    assert float(schedule(TOTAL + 7)) == 0


@pytest.mark.parametrize("schedule", [LinearWarmupDecay, BertWarmupDecay, ElectraWarmupDecay])
def test_without_warmup_the_first_rate_is_the_peak(schedule):
    rates = [float(schedule(PEAK, TOTAL)(step)) for step in (0, 50)]
    np.testing.assert_allclose(rates, [PEAK, 0.75 * PEAK], rtol=1e-6)


@pytest.mark.parametrize("schedule", [LinearWarmupDecay, BertWarmupDecay, ElectraWarmupDecay])
def test_training_may_be_all_warmup(schedule):
    rates = [float(schedule(PEAK, 4, 4)(step)) for step in range(5)]
    assert np.isfinite(rates).all()
    assert rates[4] == 0


@pytest.mark.parametrize(
    "schedule",
    [
        LinearWarmupDecay(PEAK, TOTAL, WARMUP, warmup_from_zero=True),
        BertWarmupDecay(PEAK, TOTAL, WARMUP),
        ElectraWarmupDecay(PEAK, TOTAL, WARMUP),
    ],
)
def test_a_schedule_comes_back_from_its_config(schedule):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert type(again) is type(schedule)
    assert again.get_config() == schedule.get_config()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_train_steps": 0}, "num_train_steps is 0; it must be a finite number of at least 1"),
        (
            {"num_train_steps": 5, "num_warmup_steps": 6},
            "num_warmup_steps is 6; it must be at most num",
        ),
        (
            {"num_train_steps": 5, "num_warmup_steps": -1},
            "num_warmup_steps is -1; it must be a finite number of",
        ),
    ],
)
def test_impossible_numbers_of_steps_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BertWarmupDecay(PEAK, **arguments)
    assert BertWarmupDecay(PEAK, 60, 0.1 * 60).get_config()["num_warmup_steps"] == 6.0
