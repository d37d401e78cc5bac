# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest

from keras_bert.layers.scalar_mix import ScalarMix
from training.paper.feature_tagging_job import feature_tagger


def random_inputs(rows=3, words=6, features=4, hidden=8):
    generator = np.random.default_rng(0)
    mask = np.arange(words) < words - np.arange(rows)[:, None]
    vectors = generator.normal(size=(rows, words, features, hidden)).astype("float32")
    return {"features": vectors, "padding_mask": mask}


def test_scalar_mix_is_a_weighted_sum():
    x = random_inputs()["features"]
    layer = ScalarMix()
    actual = keras.ops.convert_to_numpy(layer(x))
    np.testing.assert_allclose(actual, x.mean(axis=2), atol=1e-6)
    layer.mixing_weights.assign(np.log([1.0, 2.0, 3.0, 4.0]))
    layer.scale.assign(5.0)
    expected = 5 * np.einsum("bwfh,f->bwh", x, np.array([1, 2, 3, 4]) / 10)
    actual = keras.ops.convert_to_numpy(layer(x))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("mix", [True, pytest.param(False, marks=pytest.mark.on_torch)])
def test_feature_tagger_ignores_padding(mix):
    model = feature_tagger(4, 8, 3, mix=mix, units=5)
    x = random_inputs()
    batched = model.predict(x, verbose=0)
    assert batched.shape == (3, 6, 3)
    # The last row has two words of padding. The other rows are omitted, because each length takes
    # time to compile.
    single = {name: value[2:, :4] for name, value in x.items()}
    np.testing.assert_allclose(model.predict(single, verbose=0)[0], batched[2, :4], atol=1e-5)


@pytest.mark.on_torch
def test_feature_tagger_trains_and_round_trips(tmp_path):
    model = feature_tagger(4, 8, 3, mix=True, units=5, dropout=0.1)
    x = random_inputs()
    before = [variable.numpy() for variable in model.trainable_variables]
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    labels = np.random.default_rng(1).integers(0, 3, (3, 6))
    model.fit(x, labels, sample_weight=x["padding_mask"].astype("float32"), verbose=0)
    for variable, value in zip(model.trainable_variables, before, strict=True):
        assert np.abs(variable.numpy() - value).max() > 0, variable.path
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-6)
