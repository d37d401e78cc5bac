# SPDX-License-Identifier: Apache-2.0

import contextlib
import dataclasses
import re
import time

import numpy as np
import pytest

import keras_bert
from tests import small_tasks
from training import plan as plan_module
from training.costs import energy, model_flops
from training.plan import ACCELERATORS, PlanConfig, busy_note, parameters, plan

pytestmark = pytest.mark.on_torch

TINY = small_tasks.CONFIG.replace(max_sequence_length=32)


@pytest.fixture(autouse=True)
def _short_probe(monkeypatch):
    """A tiny model is timed in less than the default 15 seconds."""
    monkeypatch.setattr(plan_module, "_PROBE_SECONDS", 0.2)


def plan_lines(config):
    return dict(line.split(None, 1) for line in plan(config).splitlines())


def test_parameters_match_the_model():
    config = keras_bert.BertConfig.from_name("bert_tiny_uncased")
    model = keras_bert.MaskedLM(keras_bert.Backbone(config))
    assert parameters(config) == model.count_params()


def test_plan_for_published_hardware():
    """BERT-base was trained for a million steps on batches of 256 examples with 512 tokens."""
    config = PlanConfig(
        tokens=256 * 512 * 1e6,
        sequence_length=512,
        batch_size=256,
        next_sentence=True,
        hardware="a100",
        devices=8,
        mfu=0.5,
        cost_per_device_hour=2.0,
        measure_energy=False,
        country="FRA",
    )
    lines = plan_lines(config)
    assert "positions" not in lines  # BERT-base already has 512 positions.
    # Each token needs six FLOPs for each weight of the encoder, and the matmuls of attention. The
    # positions that the last layer omits and the masked-LM head are within the tolerance.
    weights = 85_054_464
    attention = 12 * 3 * 4 * 512 * 768
    per_token = float(re.search(r"([\d.]+) MFLOP per token", lines["FLOPs"])[1])
    assert per_token == pytest.approx((6 * weights + attention) / 1e6, rel=0.05)
    rate = 8 * 0.5 * ACCELERATORS["a100"].flops / (1e6 * per_token)
    hours = 256 * 512 * 1e6 / rate / 3600
    assert float(lines["cost"].replace(",", "")) == pytest.approx(8 * 2.0 * hours, rel=0.01)
    kwh = float(lines["energy"].split()[0])
    assert kwh == pytest.approx(8 * 0.4 * hours, rel=0.01)
    assert "at 50% of the published peak of 8 x a100" in lines["speed"]


def test_power_is_measured_over_the_metered_time(monkeypatch):
    """The timed steps start one step after the metered steps, so their durations differ."""
    last_call = [0.0]

    @contextlib.contextmanager
    def meter_100_watts(country):
        def since_last_call():
            before, last_call[0] = last_call[0], time.perf_counter()
            return energy.Energy(0.1 * (last_call[0] - before) / 3600)

        yield since_last_call

    monkeypatch.setattr(energy, "is_installed", lambda: True)
    monkeypatch.setattr(energy, "energy_meter", meter_100_watts)
    monkeypatch.setattr(energy, "grams_per_kwh", lambda country: 400.0)
    monkeypatch.setattr(plan_module, "_PROBE_SECONDS", 0.0)
    monkeypatch.setattr(keras_bert.BertConfig, "from_name", lambda name: TINY)
    config = PlanConfig(
        tokens=1e4,
        sequence_length=32,
        batch_size=64,
        objective="classification",
        precision="float32",
    )
    watts = int(re.search(r"at (\d+) W", plan_lines(config)["energy"])[1])
    assert watts == pytest.approx(100, abs=2)


def test_missing_codecarbon_is_reported(monkeypatch):
    config = PlanConfig(model="bert_tiny_uncased", hardware="a100", tokens=1e6)
    monkeypatch.setattr(energy, "is_installed", lambda: False)
    line = plan_lines(config)["energy"]
    assert re.search(r"W \(for CO2: pip install -e '\.\[energy\]'", line)
    assert " of CO2" not in line


def test_classification_flops_exclude_the_mlm_head():
    """The masked-LM head needs more FLOPs than a narrow encoder."""
    config = PlanConfig(
        model="bert_tiny_uncased", hardware="t4", objective="classification", tokens=1e6
    )
    lines = plan_lines(config)
    model = keras_bert.TextClassifier(keras_bert.Backbone(config.architecture()), 2)
    assert f"{model.count_params() / 1e6:.1f} million parameters" in lines["bert_tiny_uncased:"]
    per_token = float(re.search(r"([\d.]+) MFLOP per token", lines["FLOPs"])[1])
    flops_per_row = model_flops.fine_tuning_flops(config.architecture(), np.array([128]), False)
    assert per_token == pytest.approx(flops_per_row / 128 / 1e6, rel=0.01)
    # Padding increases the cost.
    costs = []
    for padding in (0.0, 0.5, None):
        padded = dataclasses.replace(config, padding=padding, cost_per_device_hour=1e6)
        costs.append(float(plan_lines(padded)["cost"].replace(",", "")))
    np.testing.assert_allclose(np.divide(costs, costs[0]), [1, 1.5, 1.25], rtol=1e-3)
    masked = plan_lines(dataclasses.replace(config, objective="masked_lm"))
    assert float(re.search(r"([\d.]+) MFLOP", masked["FLOPs"])[1]) > 1.5 * per_token


def test_flags_change_the_named_architecture():
    config = PlanConfig(
        model="bert_tiny_uncased", vocabulary_size=4000, dropout=0.0, sequence_length=700
    )
    architecture = config.architecture()
    assert (architecture.vocabulary_size, architecture.max_sequence_length) == (4000, 700)
    assert (architecture.dropout, architecture.attention_dropout) == (0.0, 0.0)
    # A training run has the same number of prediction positions.
    assert PlanConfig(sequence_length=128).slots == 20


@pytest.mark.parametrize("objective", ["masked_lm", "classification"])
def test_plan_times_both_objectives(objective, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(TINY.to_json())
    config = PlanConfig(
        model=str(path),
        objective=objective,
        tokens=1e5,
        sequence_length=16,
        batch_size=4,
        precision="float32",
        measure_energy=False,
    )
    assert "measured on this machine" in plan_lines(config)["speed"]


def test_busy_note_reports_high_load():
    assert busy_note(0.9, cores=2) == ""
    assert "with a load of 5.6 on 2 cores" in busy_note(5.6, cores=2)


def test_plan_reports_insufficient_memory():
    config = PlanConfig(hardware="t4", batch_size=4096, sequence_length=512, measure_energy=False)
    assert "t4 has 16 GB, so use gradient accumulation" in plan(config)


def test_invalid_options_raise():
    with pytest.raises(ValueError, match="--hardware must be one of this, t4"):
        PlanConfig(hardware="abacus")
    with pytest.raises(ValueError, match="--next_sentence=True is given, but the objective"):
        PlanConfig(objective="classification", next_sentence=True)
    with pytest.raises(ValueError, match="--devices must be 1 with --hardware=this"):
        PlanConfig(devices=2)


def test_missing_positions_are_reported():
    changes = {"model": "bert_tiny_uncased", "sequence_length": 1000, "hardware": "t4"}
    message = "--sequence_length must be at most 512, the positions of bert_tiny_uncased"
    with pytest.raises(ValueError, match=message):
        plan(PlanConfig(objective="classification", **changes))
    assert "positions   1,000, as in pretraining, instead of 512" in plan(PlanConfig(**changes))


def test_memory_estimate_matches_xla():
    """XLA's analysis of the float32 step on JAX gives 21.1 GB for one example of 8,192 tokens.

    It gives 25.5 GB for 16 examples of 512 tokens.
    """
    estimates = [
        float(
            re.search(
                r"about ([\d.]+) GB",
                plan_lines(
                    PlanConfig(
                        model="modernbert_base",
                        sequence_length=length,
                        batch_size=8192 // length,
                        precision="float32",
                        hardware="h100",
                        tokens=1e9,
                    )
                )["memory"],
            )[1]
        )
        for length in (8192, 512)
    ]
    np.testing.assert_allclose(estimates, [21.1, 25.5], rtol=0.35)
