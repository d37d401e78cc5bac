# SPDX-License-Identifier: Apache-2.0

import contextlib
import dataclasses
import re
import time

import numpy as np
import pytest

import keras_bert
from tests import small_tasks
from training import plan as plan_program
from training.costs import energy, model_flops
from training.plan import ACCELERATORS, PlanConfig, busy_note, parameters, plan

pytestmark = pytest.mark.on_tensorflow

TINY = small_tasks.CONFIG.replace(max_sequence_length=32)


@pytest.fixture(autouse=True)
def _short_probe(monkeypatch):
    """A model of a few weights needs no quarter of a minute."""
    monkeypatch.setattr(plan_program, "_PROBE_SECONDS", 0.2)


def lines_of(config):
    return dict(line.split(None, 1) for line in plan(config).splitlines())


def test_parameters_are_those_of_the_model():
    config = keras_bert.BertConfig.from_name("bert_tiny_uncased")
    model = keras_bert.MaskedLM(keras_bert.Backbone(config))
    assert parameters(config) == model.count_params()


def test_published_hardware():
    """BERT-base's 40 epochs: 256 rows of 512 tokens, a million updates."""
    config = PlanConfig(
        tokens=256 * 512 * 1e6,
        sequence_length=512,
        batch_size=256,
        next_sentence=True,
        hardware="a100",
        devices=8,
        mfu=0.5,
        cost_per_hour=2.0,
        measure_energy=False,
        country="FRA",
    )
    lines = lines_of(config)
    assert "positions" not in lines  # All 512 are the architecture's own
    # Six operations for each weight of the encoder and token, and attention's products; without
    # what the last block does not compute, with the head of the masked tokens
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


def test_power_is_that_of_the_metered_time(monkeypatch):
    """Steps are timed from the one after the first metered one: the power is not theirs."""
    begun = [0.0]

    @contextlib.contextmanager
    def meter_of_100_watts(country):
        def since_last_call():
            before, begun[0] = begun[0], time.perf_counter()
            return energy.Energy(0.1 * (begun[0] - before) / 3600)

        yield since_last_call

    monkeypatch.setattr(energy, "is_installed", lambda: True)
    monkeypatch.setattr(energy, "energy_meter", meter_of_100_watts)
    monkeypatch.setattr(energy, "grams_per_kwh", lambda country: 400.0)
    monkeypatch.setattr(plan_program, "_PROBE_SECONDS", 0.0)
    monkeypatch.setattr(keras_bert.BertConfig, "from_name", lambda name: TINY)
    config = PlanConfig(
        tokens=1e4,
        sequence_length=32,
        batch_size=64,
        objective="classification",
        precision="float32",
    )
    watts = int(re.search(r"at (\d+) W", lines_of(config)["energy"])[1])
    assert watts == pytest.approx(100, abs=2)


def test_without_codecarbon_the_energy_says_what_its_co2_needs(monkeypatch):
    config = PlanConfig(model="bert_tiny_uncased", hardware="a100", tokens=1e6)
    monkeypatch.setattr(energy, "is_installed", lambda: False)
    line = lines_of(config)["energy"]
    assert re.search(r"W \(for CO2: pip install -e '\.\[energy\]'", line)
    assert " of CO2" not in line


def test_fine_tuning_has_no_masked_tokens():
    """The head of masked tokens is most of the work of a narrow encoder."""
    config = PlanConfig(
        model="bert_tiny_uncased", hardware="t4", objective="classification", tokens=1e6
    )
    lines = lines_of(config)
    model = keras_bert.TextClassifier(keras_bert.Backbone(config.architecture()), 2)
    assert f"{model.count_params() / 1e6:.1f} million parameters" in lines["bert_tiny_uncased:"]
    per_token = float(re.search(r"([\d.]+) MFLOP per token", lines["FLOPs"])[1])
    flops_per_row = model_flops.fine_tuning_flops(config.architecture(), np.array([128]), False)
    assert per_token == pytest.approx(flops_per_row / 128 / 1e6, rel=0.01)
    # Padding takes time
    padded = []
    for share in (0.0, 0.5, None):
        priced = dataclasses.replace(config, padding=share, cost_per_hour=1e6)
        padded.append(float(lines_of(priced)["cost"].replace(",", "")))
    np.testing.assert_allclose(np.divide(padded, padded[0]), [1, 1.5, 1.25], rtol=1e-3)
    masked = lines_of(dataclasses.replace(config, objective="masked_lm"))
    assert float(re.search(r"([\d.]+) MFLOP", masked["FLOPs"])[1]) > 1.5 * per_token


def test_the_architecture_may_differ_from_the_named_one():
    config = PlanConfig(
        model="bert_tiny_uncased", vocabulary_size=4000, dropout=0.0, sequence_length=700
    )
    architecture = config.architecture()
    assert (architecture.vocabulary_size, architecture.max_sequence_length) == (4000, 700)
    assert (architecture.dropout, architecture.attention_dropout) == (0.0, 0.0)
    # As many slots as a run has
    assert PlanConfig(sequence_length=128).slots == 20


@pytest.mark.parametrize("objective", ["masked_lm", "classification"])
def test_both_objectives_are_timed(objective, tmp_path):
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
    assert "measured on this machine" in lines_of(config)["speed"]


def test_a_busy_machine_is_told():
    assert busy_note(0.9, cores=2) == ""
    assert "with a load of 5.6 on 2 cores" in busy_note(5.6, cores=2)


def test_a_batch_that_does_not_fit_is_told():
    config = PlanConfig(hardware="t4", batch_size=4096, sequence_length=512, measure_energy=False)
    assert "t4 has 16 GB, so use gradient accumulation" in plan(config)


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="--hardware must be one of this, t4"):
        PlanConfig(hardware="abacus")
    with pytest.raises(ValueError, match="--next_sentence=True is given, but the objective"):
        PlanConfig(objective="classification", next_sentence=True)
    with pytest.raises(ValueError, match="--devices must be 1 with --hardware=this"):
        PlanConfig(devices=2)


def test_more_positions_than_the_architecture_has_are_told():
    changes = {"model": "bert_tiny_uncased", "sequence_length": 1000, "hardware": "t4"}
    message = "--sequence_length must be at most 512, the positions of bert_tiny_uncased"
    with pytest.raises(ValueError, match=message):
        plan(PlanConfig(objective="classification", **changes))
    assert "positions   1,000, as in pretraining, instead of 512" in plan(PlanConfig(**changes))


def test_memory_of_long_rows_is_that_of_their_tokens():
    """XLA's analysis of the step on JAX is 21.1 GB in float32, 25.5 with 16 rows of 512."""
    estimates = [
        float(
            re.search(
                r"about ([\d.]+) GB",
                lines_of(
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
