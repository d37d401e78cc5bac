# SPDX-License-Identifier: Apache-2.0
"""A classifier on a BiLSTM over the encoder's sequence output."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_tensorflow

from keras_bert import Backbone, BertConfig, TextClassifier  # noqa: E402
from keras_bert.checkpoints import CheckpointWarning  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from keras_bert.layers import bidirectional_lstm  # noqa: E402
from keras_bert.optimizers import AdamW  # noqa: E402
from tests.text.small_tokenizers import of_tokens  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "a"]
TEXTS = ["a good film", "bad", "a bad film", "good", "a a film good"]


def make_classifier(causal=False, **arguments):
    config = BertConfig(
        vocabulary_size=len(TOKENS),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=16,
        causal=causal,
    )
    preprocessor = TextClassifierPreprocessor(of_tokens(*TOKENS), sequence_length=16)
    arguments = {"top_layers": bidirectional_lstm(6), **arguments}
    return TextClassifier(Backbone(config), 2, preprocessor, **arguments)


def logits(classifier, texts=TEXTS):
    return classifier.predict(texts, verbose=0)


@pytest.fixture(scope="module")
def classifier():
    return make_classifier()


@pytest.mark.on_each_backend
def test_padding_changes_nothing(classifier):
    together = logits(classifier)
    for text, row in zip(TEXTS[:2], together[:2], strict=True):
        np.testing.assert_allclose(logits(classifier, [text])[0], row, atol=1e-5)
        features = {k: v[None] for k, v in classifier.preprocessor(text).items()}
        del features["padding_mask"]
        np.testing.assert_allclose(classifier.predict(features, verbose=0)[0], row, atol=1e-5)


@pytest.mark.on_each_backend
def test_every_weight_of_a_causal_encoder_with_a_bilstm_trains():
    model = make_classifier(causal=True, top_layers=bidirectional_lstm(6, 1))
    before = [variable.numpy() for variable in model.trainable_variables]
    model.compile(AdamW(0.01, weight_decay=0.0))
    model.fit(TEXTS, [1, 0, 0, 1, 1], batch_size=5, verbose=0)
    for variable, value in zip(model.trainable_variables, before, strict=True):
        assert abs(variable.numpy() - value).max() > 0, variable.path


def test_it_comes_back_from_files(classifier, tmp_path):
    classifier.save(tmp_path / "classifier.keras")
    classifier.save_to_preset(tmp_path / "preset")
    features = classifier.preprocessor(TEXTS)
    expected = keras.ops.convert_to_numpy(classifier(features))
    for same in (
        keras.saving.load_model(tmp_path / "classifier.keras"),
        TextClassifier.from_preset(tmp_path / "preset"),
    ):
        assert same.head_options == {"bilstm_units": 6, "bilstm_layers": 2}
        np.testing.assert_allclose(keras.ops.convert_to_numpy(same(features)), expected, atol=1e-6)


@pytest.mark.parametrize("numbers", [(), (4, 2), (6, 1)])
def test_another_bilstm_starts_fresh_and_says_so(classifier, numbers, tmp_path):
    classifier.save_to_preset(tmp_path / "preset")
    top_layers = bidirectional_lstm(*numbers) if numbers else []
    with pytest.warns(
        CheckpointWarning,
        match=r"for 2 classes \(bilstm_units=6, bilstm_layers=2\), but expected 2",
    ):
        other = TextClassifier.from_preset(tmp_path / "preset", top_layers=top_layers)
    assert tuple(other.head_options.values()) == numbers


def test_it_is_exported(classifier, tmp_path):
    tf = pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_text")
    with pytest.warns(UserWarning, match="no warm-up|version numbers|^$"):
        classifier.export(tmp_path / "model", warm_up=False)
    served = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    probabilities = served(text=tf.constant(TEXTS))["probabilities"].numpy()
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(logits(classifier)))
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)


def pooling_layers():
    return [
        keras.layers.Dense(4, name="reduction"),
        keras.layers.GlobalAveragePooling1D(name="mean"),
    ]


@pytest.mark.on_each_backend
def test_any_layers_may_stand_on_top(tmp_path):
    model = make_classifier(top_layers=pooling_layers())
    features = model.preprocessor(TEXTS)
    sequence_output, mask = model.backbone(features)["sequence_output"], features["padding_mask"]
    reduced = keras.ops.convert_to_numpy(model.top_layers[0](sequence_output))
    means = (reduced * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    expected = keras.ops.convert_to_numpy(model.head(means))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(model(features)), expected, atol=1e-5)
    model.save(tmp_path / "classifier.keras")
    same = keras.saving.load_model(tmp_path / "classifier.keras")
    np.testing.assert_allclose(keras.ops.convert_to_numpy(same(features)), expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"presets have only those of .*bidirectional_lstm"):
        model.save_to_preset(tmp_path / "preset")
    make_classifier().save_to_preset(tmp_path / "preset")
    with pytest.warns(CheckpointWarning, match=r"but expected 2 classes \(other top_layers\)"):
        TextClassifier.from_preset(tmp_path / "preset", top_layers=pooling_layers())


def test_a_top_that_leaves_tokens_is_refused():
    with pytest.raises(ValueError, match=r"top_layers return the shape .*\(batch, features\)"):
        make_classifier(top_layers=bidirectional_lstm(6, return_sequences=True))
