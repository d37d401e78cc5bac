# SPDX-License-Identifier: Apache-2.0
"""Feature-based tagging at a small scale, and its feature cache."""

import json

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

from keras_bert import Backbone, TokenClassifier  # noqa: E402
from keras_bert.data import TokenClassifierPreprocessor, read_conll  # noqa: E402
from keras_bert.tasks.batch_feeder import BatchFeeder  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402
from training.engine import finetuning  # noqa: E402
from training.jobs.tagging import read_data  # noqa: E402
from training.paper import recipes  # noqa: E402
from training.paper.feature_tagging_job import (  # noqa: E402
    ROWS,
    FeatureTagging,
    FeatureTaggingConfig,
    feature_tagger,
)
from training.paper.word_features import FeatureBatches, WordFeatures  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ann", "##e", "sings", "in", "rome", "."]
WORDS = [["Ann", "sings", "in", "Rome"], ["Anne"], ["."] * 9]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("preset")
    sizes = {"vocabulary_size": len(TOKENS), "num_layers": 4, "max_sequence_length": 16}
    config = small_config(**sizes, initializer_range=0.3)
    preprocessor = TokenClassifierPreprocessor(make_tokenizer(*TOKENS), 8)
    TokenClassifier(Backbone(config), 2, preprocessor).save_to_preset(directory)
    return str(directory)


@pytest.mark.filterwarnings("ignore:.*unused weights:keras_bert.checkpoints.CheckpointWarning")
@pytest.mark.parametrize("row", ["embeddings", "weighted_last_4"])
def test_features_are_hidden_states_of_first_subwords(preset, tmp_path, row):
    word_features = WordFeatures(
        preset, row, ROWS[row][0], tmp_path, sequence_length=8, batch_size=2
    )
    features = word_features(WORDS)
    assert isinstance(features, np.memmap)
    assert features.shape == (14, {"embeddings": 1}.get(row, 4), 8)
    backbone = Backbone.from_preset(preset)
    backbone = Backbone(backbone.config, output_hidden_states=True)
    backbone.set_weights(Backbone.from_preset(preset).get_weights())
    states = backbone(word_features.preprocessor([["Anne"]]))["hidden_states"][ROWS[row][0]]
    expected = [keras.ops.convert_to_numpy(state)[0, 1] for state in states]
    np.testing.assert_allclose(features[4], expected, atol=1e-5)


def test_features_are_computed_once(preset, tmp_path, monkeypatch):
    first = WordFeatures(preset, "last", ROWS["last"][0], tmp_path, sequence_length=8)(WORDS)
    (file,) = tmp_path.iterdir()
    cached = WordFeatures(preset, "last", ROWS["last"][0], tmp_path, sequence_length=8)
    monkeypatch.setattr(cached, "_write", None)
    np.testing.assert_array_equal(cached(WORDS), first)
    for row, length in (("last", 16), ("second_to_last", 8)):
        WordFeatures(preset, row, ROWS[row][0], tmp_path, sequence_length=length)(WORDS)
    assert len(list(tmp_path.iterdir())) == 3
    assert file in set(tmp_path.iterdir())


@pytest.mark.backend_independent
def test_batches_contain_each_sentence_once():
    lengths = [3, 0, 17, 5, 5, 1, 9]
    features = np.arange(sum(lengths), dtype="float32")[:, None, None]
    labels = np.arange(sum(lengths), dtype="int32")
    labels[0] = -1
    batches = FeatureBatches(features, lengths, 3, labels, seed=1)
    assert len(batches) == 3
    for epoch in range(2):
        rows = batches.rows(epoch)
        assert sorted(np.concatenate(rows)) == list(range(7))
        for inputs, targets, weights in map(batches.batch, rows):
            mask = inputs["padding_mask"]
            assert mask.shape[1] in (16, 17)
            values = inputs["features"][..., 0, 0]
            np.testing.assert_array_equal(weights, mask & (values != 0))
            np.testing.assert_array_equal(targets, values)
        resumed = list(batches.epoch(epoch, start_batch=1))
        for actual, expected in zip(resumed, map(batches.batch, rows[1:]), strict=True):
            keras.tree.map_structure(np.testing.assert_array_equal, actual, expected)


def test_training_accepts_batch_lengths_in_any_order():
    # Each seed yields two batches of the same length in a row.
    lengths = [5] * 8 + [20] * 8
    features = np.ones((sum(lengths), 1, 4), "float32")
    labels = np.arange(sum(lengths), dtype="int32") % 2
    model = feature_tagger(1, 4, 2, num_layers=1, units=2)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for seed in range(4):
        batches = FeatureBatches(features, lengths, 4, labels, seed)
        seen = [inputs["padding_mask"].shape[1] for inputs, _, _ in batches]
        assert sorted(seen) == [16, 16, 20, 20]
        model.fit(BatchFeeder(batches).to_keras_data(), shuffle=False, verbose=0)


def test_feature_tagging_recipe_runs(preset, tmp_path):
    path = tmp_path / "train.conll"
    path.write_text("-DOCSTART- O\n\nAnne I-PER\nsings O\n\nin O\nRome I-LOC\n\n" * 4)
    config = recipes.load("conll_features", FeatureTaggingConfig).replace(
        data_dir=str(tmp_path),
        train_file=path.name,
        dev_file=path.name,
        test_file=path.name,
        preset=preset,
        features="weighted_all",
        cache_dir=str(tmp_path / "features"),
        sequence_length=8,
        precision="float32",
        lstm_units=6,
        epochs=1,
        batch_size=4,
        num_seeds=1,
        output_dir=str(tmp_path / "run"),
    )
    data = read_data(config)
    results = finetuning.run(FeatureTagging, config, data)
    directory = tmp_path / "run"
    assert set(results["baselines"]["dev"]) == {"majority", "word_majority"}
    assert read_conll(directory / "test.conll").words == data.test.words
    scores = json.loads((directory / "dev_scores.json").read_text())
    assert scores["f1"] == pytest.approx(results["runs"][0]["best"]["dev"]["f1"])
