# SPDX-License-Identifier: Apache-2.0
"""Tasks with a BiLSTM or other layers between the encoder and the head."""

import dataclasses

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import Backbone, TextClassifier
from keras_bert.checkpoints import CheckpointWarning
from keras_bert.layers import bidirectional_lstm
from keras_bert.optimizers import AdamW
from tests.checkpoints.small_models import small_config
from tests.export.served_tasks import OPTIONS
from tests.small_tasks import LETTERS

pytestmark = pytest.mark.on_torch

IDS = np.array([[2, 5, 6, 6, 5, 3], [2, 6, 3, 0, 0, 0]])
FEATURES = {"token_ids": IDS, "padding_mask": IDS != 0}
# The arguments of each task, the options of its preprocessor, and its targets
TASKS = {
    "TextClassifier": ((2,), {}, np.array([1, 0])),
    "QuestionAnswerer": (
        (),
        {"doc_stride": 5, "max_query_length": 4},
        {"start_logits": np.array([3, 0]), "end_logits": np.array([4, 0])},
    ),
}


def make_task(name="TextClassifier", top_layers=None, **config):
    arguments, options, _ = TASKS[name]
    if top_layers is None:
        top_layers = bidirectional_lstm(6, return_sequences=name == "QuestionAnswerer")
    tokens = {"vocabulary_size": len(LETTERS), "num_layers": 1, "max_sequence_length": 16}
    backbone = Backbone(small_config(**tokens, **config))
    preprocessor = {"tokenizer": {"vocabulary": LETTERS}, "sequence_length": 16, **options}
    task_class = getattr(keras_bert, name)
    return task_class(backbone, *arguments, preprocessor=preprocessor, top_layers=top_layers)


def compute_outputs(task, features=FEATURES):
    return list(map(keras.ops.convert_to_numpy, keras.tree.flatten(task(features))))


@pytest.fixture(scope="module", params=TASKS)
def task(request):
    return make_task(request.param)


@pytest.fixture(scope="module")
def classifier():
    return make_task()


@pytest.mark.on_each_backend
def test_outputs_ignore_padding(task):
    unpadded_outputs = compute_outputs(task, {"token_ids": IDS[1:, :3]})
    for one, padded in zip(unpadded_outputs, compute_outputs(task), strict=True):
        np.testing.assert_allclose(one[0], padded[1][:3], atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [pytest.param("TextClassifier", marks=pytest.mark.on_each_backend), "QuestionAnswerer"],
)
def test_all_causal_encoder_weights_train(name):
    layers = bidirectional_lstm(6, 1, return_sequences=name == "QuestionAnswerer")
    model = make_task(name, layers, causal=True)
    before = [keras.ops.convert_to_numpy(variable.value) for variable in model.trainable_variables]
    model.compile(AdamW(0.01, weight_decay=0.0))
    model.fit(FEATURES, TASKS[name][-1], verbose=0)
    for variable, value in zip(model.trainable_variables, before, strict=True):
        assert abs(keras.ops.convert_to_numpy(variable.value) - value).max() > 0, variable.path


def test_bilstm_round_trip(task, tmp_path):
    task.save(tmp_path / "task.keras")
    task.save_to_preset(tmp_path / "preset")
    for loaded in (
        keras.saving.load_model(tmp_path / "task.keras"),
        type(task).from_preset(tmp_path / "preset"),
    ):
        assert loaded.head_options == {"bilstm_units": 6, "bilstm_layers": 2}
        for received, expected in zip(compute_outputs(loaded), compute_outputs(task), strict=True):
            np.testing.assert_allclose(received, expected, atol=1e-6)


@pytest.mark.parametrize("numbers", [(), (4, 2), (6, 1)])
def test_different_bilstm_warns_and_starts_new(classifier, numbers, tmp_path):
    classifier.save_to_preset(tmp_path / "preset")
    top_layers = bidirectional_lstm(*numbers) if numbers else []
    with pytest.warns(
        CheckpointWarning,
        match=r"for 2 classes \(bilstm_units=6, bilstm_layers=2\) instead of 2",
    ):
        other = TextClassifier.from_preset(tmp_path / "preset", top_layers=top_layers)
    assert tuple(other.head_options.values()) == numbers


@pytest.mark.on_tensorflow
def test_bilstm_signature_matches_predict(classifier):
    tf = pytest.importorskip("tensorflow")
    texts = ["a b", "b", "a a b a"]
    options = dataclasses.replace(OPTIONS, class_names=("0", "1"))
    serve = classifier.serving_signatures(options)["serving_default"]
    probabilities = serve(tf.constant(texts))["probabilities"].numpy()
    expected = keras.ops.softmax(classifier.predict(texts, verbose=0))
    np.testing.assert_allclose(probabilities, keras.ops.convert_to_numpy(expected), atol=1e-5)


def pooling_layers():
    return [
        keras.layers.Dense(4, name="reduction"),
        keras.layers.GlobalAveragePooling1D(name="mean"),
    ]


@pytest.mark.on_each_backend
def test_custom_top_layers(classifier, tmp_path):
    model = make_task(top_layers=pooling_layers())
    sequence_output, mask = model.backbone(FEATURES)["sequence_output"], FEATURES["padding_mask"]
    reduced = keras.ops.convert_to_numpy(model.top_layers[0](sequence_output))
    means = (reduced * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    expected = keras.ops.convert_to_numpy(model.head(means))
    np.testing.assert_allclose(*compute_outputs(model), expected, atol=1e-5)
    model.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    np.testing.assert_allclose(*compute_outputs(loaded), expected, atol=1e-5)
    with pytest.raises(
        ValueError,
        match=r"In presets, top_layers must be from keras_bert\.layers\.bidirectional_lstm",
    ):
        model.save_to_preset(tmp_path / "preset")
    classifier.save_to_preset(tmp_path / "preset")
    with pytest.warns(CheckpointWarning, match=r"instead of 2 classes \(other top_layers\)"):
        TextClassifier.from_preset(tmp_path / "preset", top_layers=pooling_layers())


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("TextClassifier", r"\(batch, features\)"),
        ("QuestionAnswerer", r"\(batch, length, features\)"),
    ],
)
def test_wrong_top_layer_shape_raises(name, shape):
    layers = bidirectional_lstm(6, return_sequences=name == "TextClassifier")
    with pytest.raises(ValueError, match=f"top_layers must return {shape}"):
        make_task(name, layers)
