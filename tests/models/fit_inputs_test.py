# SPDX-License-Identifier: Apache-2.0
"""Inputs of Keras's training loops: arrays, dicts with or without optional inputs, datasets."""

import keras
import numpy as np
import pytest

from keras_bert.models import Backbone
from tests.models.small_backbone import WITHOUT_DROPOUT, random_weights, token_ids

IDS = token_ids(batch=4)
EXPLICIT = {
    "token_ids": IDS,
    "segment_ids": np.zeros_like(IDS),
    "padding_mask": np.ones_like(IDS, dtype="bool"),
}
TARGETS = {"pooled_output": np.ones((4, 16), "float32")}
# The same input in different forms
FORMS = {
    "array": IDS,
    "ids": {"token_ids": IDS},
    "int64": {"token_ids": IDS.astype("int64")},
    "none": {"token_ids": IDS, "segment_ids": None, "padding_mask": None},
    "mask": {"token_ids": IDS, "padding_mask": np.ones_like(IDS)},
    "segments": {"token_ids": IDS, "segment_ids": np.zeros_like(IDS)},
}


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow traces graphs")
def test_predict_traces_once_for_all_shapes(caplog):
    class TracedBackbone(Backbone):
        def call(self, inputs, training=None, mask=None):
            traces.append(inputs["token_ids"].shape)
            return super().call(inputs, training=training, mask=mask)

    for _ in range(5):  # TensorFlow's warnings count the traces of all models.
        traces = []
        model = TracedBackbone(WITHOUT_DROPOUT.replace(num_layers=1))
        traces.clear()
        for rows, length in ((1, 4), (3, 4), (4, 2)):
            output = model.predict(IDS[:rows, :length], verbose=0)["sequence_output"]
            assert output.shape == (rows, length, 16)
        assert len(traces) == 1
        on_batch = model.predict_on_batch(IDS[:4, :2])["sequence_output"]
        np.testing.assert_allclose(output, on_batch, atol=1e-6)
    assert not caplog.records


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow traces graphs")
def test_train_step_traces_once():
    class TracedBackbone(Backbone):
        def call(self, inputs, training=None, mask=None):
            traces.append(inputs["token_ids"].shape)
            return super().call(inputs, training=training, mask=mask)

    traces = []
    model = TracedBackbone(WITHOUT_DROPOUT.replace(num_layers=1))
    model.compile("adam", loss={"pooled_output": "mse"})
    traces.clear()
    model.fit(IDS, {"pooled_output": np.zeros((len(IDS), 16))}, batch_size=2, verbose=0)
    assert len(traces) == 1


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    model = Backbone(WITHOUT_DROPOUT.replace(num_layers=1))
    random_weights(model)
    model.compile(keras.optimizers.SGD(0.0), loss={"pooled_output": "mse"})
    return model


@pytest.fixture(scope="module")
def expected(backbone) -> dict[str, np.ndarray]:
    return backbone.predict(EXPLICIT, verbose=0)


def assert_close(outputs, expected):
    for name in expected:
        np.testing.assert_allclose(outputs[name], expected[name], atol=1e-5)


@pytest.mark.parametrize(
    "form", ["array", *(pytest.param(form, marks=pytest.mark.on_torch) for form in [*FORMS][1:])]
)
def test_predict_accepts_input_forms(backbone, expected, form):
    assert_close(backbone.predict(FORMS[form], batch_size=2, verbose=0), expected)


@pytest.mark.parametrize("form", [pytest.param("ids", marks=pytest.mark.on_torch), "mask"])
def test_fit_and_evaluate_accept_input_forms(backbone, expected, form):
    loss = np.square(expected["pooled_output"] - 1).mean()
    history = backbone.fit(FORMS[form], TARGETS, batch_size=2, verbose=0)
    np.testing.assert_allclose(history.history["loss"], loss, rtol=1e-5)
    evaluated = backbone.evaluate(FORMS[form], TARGETS, batch_size=2, verbose=0)
    np.testing.assert_allclose(evaluated, loss, rtol=1e-5)


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize(
    "form",
    ["mask", *(pytest.param(form, marks=pytest.mark.on_tensorflow) for form in ("array", "ids"))],
)
def test_keras_methods_accept_datasets(backbone, expected, form):
    tf = pytest.importorskip("tensorflow")
    dataset = tf.data.Dataset.from_tensor_slices((FORMS[form], TARGETS)).batch(2)
    assert_close(backbone.predict(dataset.map(lambda x, y: x), verbose=0), expected)
    loss = np.square(expected["pooled_output"] - 1).mean()
    np.testing.assert_allclose(backbone.evaluate(dataset, verbose=0), loss, rtol=1e-5)
    history = backbone.fit(dataset, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["loss"], loss, rtol=1e-5)


def test_predict_too_long_input_raises():
    with pytest.raises(ValueError, match="Received: 13 tokens"):
        Backbone(WITHOUT_DROPOUT).predict(np.zeros((2, 13), "int32"), verbose=0)


def test_predict_without_token_ids_raises():
    with pytest.raises(ValueError, match="must contain token_ids"):
        Backbone(WITHOUT_DROPOUT).predict({"segment_ids": IDS}, verbose=0)
