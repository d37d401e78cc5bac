# SPDX-License-Identifier: Apache-2.0

import json

import pytest

import keras_bert
from training.compare_models import CompareModelsConfig, compare
from training.engine.options import ENCODER_SIZES

pytestmark = pytest.mark.on_tensorflow


def rows_of(config):
    lines = compare(config).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[2:]}


def test_architectures_and_published_figures():
    rows = rows_of(CompareModelsConfig(models=("bert_tiny_uncased", "electra_small_discriminator")))
    config = keras_bert.BertConfig.from_name("bert_tiny_uncased")
    parameters = keras_bert.Backbone(config).count_params()
    assert rows["bert_tiny_uncased"]["million parameters"] == f"{parameters / 1e6:.1f}"
    assert rows["bert_tiny_uncased"]["published: GLUE dev"] == ""
    # 2 layers of 12 x 128 x 128 weights, and attention's products, for 128 tokens
    flops = 128 * 2 * (2 * 12 * 128 * 128 + 4 * 128 * 128)
    assert rows["bert_tiny_uncased"]["GFLOP a text"] == f"{flops / 1e9:.2f}"
    electra = rows["electra_small_discriminator"]
    assert electra["million parameters"] == "13.5"
    assert electra["published: pre-training"] == "1.4 EFLOP"
    assert electra["published: GLUE dev"] == "79.9"
    assert "own score" not in electra


def test_own_runs(tmp_path):
    results = {
        "kept": {"by": "dev", "scores": {"dev": {"accuracy": 91.5}}},
        "cost": {"hours": 0.25, "energy_kwh": 0.0123, "energy_is": "estimated"},
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    config = CompareModelsConfig(
        models=("bert_tiny_uncased", "bert_mini_uncased"), runs=(f"bert_tiny_uncased={tmp_path}",)
    )
    rows = rows_of(config)
    own = [rows["bert_tiny_uncased"][name] for name in ("own score", "own hours", "own kWh")]
    assert own == ["accuracy 91.50", "0.25", "0.0123 (estimated)"]
    assert rows["bert_mini_uncased"]["own score"] == ""
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="has no scores, expected that of a fine-tuning run"):
        compare(config)


def test_what_is_asked_for():
    with pytest.raises(ValueError, match="--runs has 'x', expected model=folder"):
        CompareModelsConfig(runs=("x",))
    with pytest.raises(ValueError, match="--runs has a run of 'x', expected one of --models"):
        CompareModelsConfig(runs=("x=y",))


def test_a_run_of_another_encoder_is_refused(tmp_path, caplog):
    tiny, mini = (
        {size: getattr(keras_bert.BertConfig.from_name(name), size) for size in ENCODER_SIZES}
        for name in ("bert_tiny_uncased", "bert_mini_uncased")
    )
    results = {"kept": {"by": "dev", "scores": {"dev": {"accuracy": 91.5}}}}
    config = CompareModelsConfig(
        models=("bert_tiny_uncased",), runs=(f"bert_tiny_uncased={tmp_path}",)
    )

    def write(encoder):
        content = {**results, "encoder": {**encoder, "parameters": 1}}
        (tmp_path / "results.json").write_text(json.dumps(content))

    write(tiny)
    assert rows_of(config)["bert_tiny_uncased"]["own score"] == "accuracy 91.50"
    write(mini)
    message = r"results\.json is of an encoder of num_layers 4, .*, expected 2, .* as in bert_tiny"
    with pytest.raises(ValueError, match=message):
        compare(config)
    (tmp_path / "results.json").write_text(json.dumps(results))
    compare(config)
    assert "does not tell of which encoder it is" in caplog.text
