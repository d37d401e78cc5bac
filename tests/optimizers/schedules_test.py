# SPDX-License-Identifier: Apache-2.0
"""Learning rate schedules match the formulas of papers and reference implementations."""

import keras
import numpy as np
import pytest

from keras_bert.optimizers import (
    BertWarmupDecay,
    ElectraWarmupDecay,
    LinearWarmupDecay,
    PhasedSchedule,
    TrapezoidalWarmupDecay,
)

pytestmark = pytest.mark.on_torch

PEAK, TOTAL, WARMUP, FALL = 1e-4, 200, 20, 50


def common(step: int) -> float:
    return min((step + 1) / WARMUP, (TOTAL - step) / (TOTAL - WARMUP))


def hugging_face(step: int) -> float:
    return step / WARMUP if step < WARMUP else max(0, (TOTAL - step) / (TOTAL - WARMUP))


def original(step: int) -> float:
    return step / WARMUP if step < WARMUP else 1 - min(step, TOTAL) / TOTAL


def electra(step: int) -> float:
    return (1 - min(step, TOTAL) / TOTAL) * min(1, step / WARMUP)


def trapezoid(step: int, decay: str) -> float:
    if step < WARMUP:
        return (step + 1) / WARMUP
    fallen = max(0.0, step - (TOTAL - FALL)) / FALL
    return 1 - (fallen if decay == "linear" else fallen**0.5)


@pytest.mark.parametrize(
    ("schedule", "factor"),
    [
        (LinearWarmupDecay(PEAK, TOTAL, WARMUP), common),
        (LinearWarmupDecay(PEAK, TOTAL, WARMUP, warmup_from_zero=True), hugging_face),
        (BertWarmupDecay(PEAK, TOTAL, WARMUP), original),
        (ElectraWarmupDecay(PEAK, TOTAL, WARMUP), electra),
        (
            TrapezoidalWarmupDecay(PEAK, TOTAL, WARMUP, FALL),
            lambda step: trapezoid(step, "one_minus_sqrt"),
        ),
        (
            TrapezoidalWarmupDecay(PEAK, TOTAL, WARMUP, FALL, decay="linear"),
            lambda step: trapezoid(step, "linear"),
        ),
    ],
    ids=["common", "hugging_face", "original", "electra", "one_minus_sqrt", "linear"],
)
def test_rates_match_formulas(schedule, factor):
    rates = [float(schedule(step)) for step in range(TOTAL + 1)]
    expected = [PEAK * factor(step) for step in range(TOTAL + 1)]
    np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=1e-12)
    assert float(schedule(TOTAL + 7)) == 0


def trapezoid_without_fall(peak: float, total: int, warmup: int) -> TrapezoidalWarmupDecay:
    return TrapezoidalWarmupDecay(peak, total, warmup, num_decay_steps=0)


@pytest.mark.parametrize(
    "schedule", [LinearWarmupDecay, BertWarmupDecay, ElectraWarmupDecay, trapezoid_without_fall]
)
def test_training_can_be_only_warmup(schedule):
    rates = [float(schedule(PEAK, 4, 4)(step)) for step in range(5)]
    assert np.isfinite(rates).all()
    assert rates[4] == 0


def test_trapezoid_decay_steps():
    tenth = TrapezoidalWarmupDecay(1.0, 20, decay="linear")
    assert [float(tenth(step)) for step in (0, 18, 19, 20)] == [1.0, 1.0, 0.5, 0.0]
    assert TrapezoidalWarmupDecay(1.0, 20, 19).num_decay_steps == 1
    constant = TrapezoidalWarmupDecay(1.0, 20, num_decay_steps=0)
    assert [float(constant(step)) for step in (0, 19, 20)] == [1.0, 1.0, 0.0]


def test_phases_multiply_the_rate():
    schedule = TrapezoidalWarmupDecay(PEAK, TOTAL, WARMUP, FALL)
    phased = PhasedSchedule(schedule, [0, 30, 180], [1.0, 2.0, 0.5])
    for step, factor in ((0, 1), (29, 1), (30, 2), (179, 2), (180, 0.5), (TOTAL, 0)):
        assert float(phased(step)) == pytest.approx(factor * float(schedule(step)))
    assert phased.num_train_steps == TOTAL


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 5], [1.0, 1.0]), r"first_steps must ascend from 0\. Received: \[1, 5\]"),
        (([0, 5, 5], [1.0] * 3), "must ascend"),
        (([], []), "must ascend"),
        (([0, 5], [1.0]), r"factors must have one value for each of the 2 phases"),
        (([0], [-1.0]), "factors must be a finite number of at least 0"),
    ],
)
def test_invalid_phases_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        PhasedSchedule(LinearWarmupDecay(PEAK, TOTAL), *arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_decay_steps": 181},
            r"num_decay_steps must be at most num_train_steps \(200\)\. Received: 20 \+ 181",
        ),
        (
            {"num_decay_steps": -1},
            "num_decay_steps must be a finite number of at least 0. Received: -1",
        ),
        ({"decay": "cosine"}, "decay must be one of one_minus_sqrt, linear"),
    ],
)
def test_invalid_trapezoid_raises(changes, message):
    with pytest.raises(ValueError, match=message):
        TrapezoidalWarmupDecay(PEAK, TOTAL, WARMUP, **changes)


@pytest.mark.parametrize(
    "schedule",
    [
        LinearWarmupDecay(PEAK, TOTAL, WARMUP, warmup_from_zero=True),
        BertWarmupDecay(PEAK, TOTAL, WARMUP),
        ElectraWarmupDecay(PEAK, TOTAL, WARMUP),
        TrapezoidalWarmupDecay(PEAK, TOTAL, WARMUP, FALL, decay="linear"),
        PhasedSchedule(TrapezoidalWarmupDecay(PEAK, TOTAL), [0, 100], [1.0, 0.1]),
    ],
)
def test_schedule_config_round_trip(schedule):
    loaded = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert type(loaded) is type(schedule)
    assert loaded.get_config() == schedule.get_config()
    rates = [float(schedule(step)) for step in (0, 99, 100, 190)]
    assert [float(loaded(step)) for step in (0, 99, 100, 190)] == rates


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_train_steps": 0}, "num_train_steps must be a finite number of at least 1"),
        (
            {"num_train_steps": 5, "num_warmup_steps": 6},
            "num_warmup_steps must be at most num",
        ),
        (
            {"num_train_steps": 5, "num_warmup_steps": -1},
            "num_warmup_steps must be a finite number of",
        ),
    ],
)
def test_invalid_step_counts_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        BertWarmupDecay(PEAK, **arguments)
    assert BertWarmupDecay(PEAK, 60, 0.1 * 60).get_config()["num_warmup_steps"] == 6.0
