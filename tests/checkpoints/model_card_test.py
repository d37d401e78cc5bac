# SPDX-License-Identifier: Apache-2.0
"""Saves directories in Hugging Face's format with a model card."""

import json

import pytest

import keras_bert
from keras_bert.checkpoints.model_card import model_card
from tests.checkpoints.small_models import small_config

pytestmark = pytest.mark.on_torch

RESULTS = {
    "config": {
        "train_file": "/home/somebody/reviews.csv",
        "preset": "hf://google-bert/bert-base-uncased",
        "epochs": 3,
        "learning_rate": 2e-5,
    },
    "backend": "jax",
    "kept": {"epoch": 2, "epochs": 3, "by": "dev", "scores": {"dev": {"accuracy": 91.25}}},
    "baselines": {"dev": {"majority": {"accuracy": 50.0}, "bag_of_words": {"accuracy": 80.0}}},
    "by_class": {"good|fine": {"f1": 90.0, "rows": 12}, "_a_b*_": {"f1": 80.0, "rows": 9}},
    "cost": {
        "hours": 0.5,
        "training_flops": 2e15,
        "energy_kwh": 0.125,
        "energy_is": "estimated",
        "co2_kg": 0.05,
        "country": "DEU",
    },
}


@pytest.fixture(scope="module")
def classifier():
    config = small_config(vocabulary_size=8, num_layers=1, max_sequence_length=16)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc"]
    tokenizer = {"kind": "wordpiece", "vocabulary": vocabulary, "lowercase": True}
    return keras_bert.TextClassifier(
        keras_bert.Backbone(config),
        class_names=["bad", "good"],
        preprocessor={"tokenizer": tokenizer, "sequence_length": 16},
    )


def test_saved_card_is_read_by_hub_and_transformers(classifier, tmp_path):
    transformers = pytest.importorskip("transformers")
    huggingface_hub = pytest.importorskip("huggingface_hub")
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    directory = tmp_path / "reviews"
    classifier.save_hugging_face(directory, results=tmp_path / "results.json", license="apache-2.0")
    card = huggingface_hub.ModelCard.load(directory / "README.md")
    assert card.data.pipeline_tag == "text-classification"
    assert card.data.base_model == "google-bert/bert-base-uncased"
    assert card.data.license == "apache-2.0"
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("accuracy", 91.25)
    assert "# reviews" in card.text
    assert "Its labels are bad, good." in card.text
    assert "| bag of words | 80.00 |" in card.text
    assert "| good\\|fine | 90.00 | 12 |" in card.text
    assert "| \\_a_b\\*\\_ | 80.00 | 9 |" in card.text
    assert "| train file | reviews.csv |" in card.text
    assert "somebody" not in card.text
    assert "0.125 kWh (estimated), 0.05 kg of CO2 (DEU)" in card.text
    assert "no reason to prefer" not in card.text
    loaded = transformers.BertForSequenceClassification.from_pretrained(directory)
    assert loaded.config.id2label == {0: "bad", 1: "good"}
    restored = keras_bert.TextClassifier.from_preset(str(directory))
    assert restored.class_names == ("bad", "good")


def test_card_without_results_or_improvement():
    card = model_card("m", head="masked_lm", family="bert", parameters=10**6)
    assert "pipeline_tag: fill-mask" in card
    assert "This model has not been scored." in card
    assert "The training data and settings are unknown" in card
    assert "Cost" not in card
    baselines = {"dev": {"bag_of_words": {"accuracy": 91.25}}}
    card = model_card(
        "m",
        head="classifier",
        family="bert",
        parameters=10**6,
        results={**RESULTS, "baselines": baselines},
    )
    assert "**Its accuracy is not above the best baseline (91.25).**" in card
