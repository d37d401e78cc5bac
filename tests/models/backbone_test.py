# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of the encoder, and their independence of padding."""

import numpy as np
import pytest
from keras import ops

from keras_bert.models import Backbone
from tests.models.small_backbone import (
    SMALL,
    features,
    random_weights,
    to_numpy,
    token_ids,
)

WITH_ALL_OUTPUTS = SMALL.replace(output_hidden_states=True, output_attention_scores=True)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    model = Backbone(SMALL)
    random_weights(model)
    return model


@pytest.mark.parametrize("option_source", ["config", "argument"])
def test_hidden_states_and_scores_are_optional(option_source):
    if option_source == "config":
        model = Backbone(WITH_ALL_OUTPUTS)
    else:
        model = Backbone(SMALL, output_hidden_states=True, output_attention_scores=True)
    outputs = model(features())
    hidden_states, scores = outputs["hidden_states"], outputs["attention_scores"]
    assert model.config == WITH_ALL_OUTPUTS
    assert [tuple(x.shape) for x in hidden_states] == [(3, 7, 16)] * 3
    assert [tuple(x.shape) for x in scores] == [(3, 2, 7, 7)] * 2
    np.testing.assert_array_equal(to_numpy(hidden_states[-1]), to_numpy(outputs["sequence_output"]))


def test_argument_overrides_config():
    assert "hidden_states" not in Backbone(WITH_ALL_OUTPUTS, output_hidden_states=False).output


def assert_same(outputs, expected, rows=slice(None), atol=1e-5):
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(
            to_numpy(outputs[name])[rows], to_numpy(expected[name])[rows], atol=atol
        )


def test_token_ids_accept_array_list_or_tensor(backbone):
    ids = token_ids()
    expected = backbone({"token_ids": ids})
    assert_same(backbone(ids), expected, atol=0)
    assert_same(backbone(ids.tolist()), expected, atol=0)
    assert_same(backbone(ops.convert_to_tensor(ids)), expected, atol=0)
    assert_same(backbone({"token_ids": ids.tolist()}), expected, atol=0)


def test_padding_does_not_change_other_positions(backbone):
    inputs = features()
    expected = backbone(inputs)
    rows = ((0, 0), (0, SMALL.max_sequence_length - 7))
    padded = backbone({name: np.pad(value, rows) for name, value in inputs.items()})
    is_token = inputs["padding_mask"]
    np.testing.assert_allclose(
        to_numpy(padded["sequence_output"])[:, :7][is_token],
        to_numpy(expected["sequence_output"])[is_token],
        atol=1e-5,
    )
    np.testing.assert_allclose(
        to_numpy(padded["pooled_output"]), to_numpy(expected["pooled_output"]), atol=1e-5
    )


def test_ids_at_padding_are_ignored(backbone):
    inputs = features()
    is_token = inputs["padding_mask"]
    expected = to_numpy(backbone(inputs)["sequence_output"])[is_token]
    other = {**inputs, "token_ids": np.where(is_token, inputs["token_ids"], 49)}
    np.testing.assert_allclose(
        to_numpy(backbone(other)["sequence_output"])[is_token], expected, atol=1e-5
    )


def test_dropout_is_active_only_in_training():
    model = Backbone(SMALL)
    inputs = features()
    first, second = model(inputs, training=True), model(inputs, training=True)
    inference_output = model(inputs)["sequence_output"]
    assert abs(to_numpy(first["sequence_output"] - second["sequence_output"])).max() > 1e-2
    assert abs(to_numpy(first["sequence_output"] - inference_output)).max() > 1e-2
    np.testing.assert_array_equal(
        to_numpy(model(inputs, training=False)["sequence_output"]), to_numpy(inference_output)
    )


def test_initial_values():
    model = Backbone(SMALL.replace(vocabulary_size=2000, hidden_dim=32, initializer_range=0.05))
    for variable in model.weights:
        values = variable.numpy()
        if variable.name == "gamma":
            assert (values == 1).all(), variable.path
        elif variable.name == "beta" or variable.name.endswith("bias"):
            assert (values == 0).all(), variable.path
        else:
            # Truncation at two standard deviations reduces the standard deviation to 88%.
            assert variable.name in (
                "kernel", "embeddings", "position_embeddings", "segment_embeddings"
            )  # fmt: skip
            assert abs(values).max() <= 0.1001, variable.path
            assert abs(values.std() - 0.044) < 0.01, variable.path
            assert abs(values.mean()) < 0.02, variable.path


INVALID_INPUTS = [
    (
        {"token_ids": np.zeros((1, 13), "int32")},
        r"at most 12 tokens \(max_sequence_length\). Received: 13",
    ),
    (
        {"token_ids": np.zeros((2, 5), "int32"), "padding_mask": np.ones((2, 4))},
        r"padding_mask must have the same shape as token_ids, \(2, 5\). Received: \(2, 4\)",
    ),
    (
        {"token_ids": np.zeros((2, 5), "int32"), "padding_mask": np.ones((3, 5))},
        r"padding_mask must have the same shape as token_ids, \(2, 5\). Received: \(3, 5\)",
    ),
    (
        {"token_ids": np.zeros((2, 5), "int32"), "segment_ids": np.zeros((2, 1))},
        r"segment_ids must have the same shape as token_ids, \(2, 5\). Received: \(2, 1\)",
    ),
    ({"token_ids": np.array([[1, 50]])}, "token_ids must be at least 0 and below 50. Received: 50"),
    ({"token_ids": [[1, -1]]}, "token_ids must be at least 0 and below 50. Received: -1"),
    (
        {"token_ids": np.array([[1, 2]]), "segment_ids": np.array([[0, 2]])},
        "segment_ids must be at least 0 and below 2. Received: 2",
    ),
    ({"token_ids": np.array([[1, 2.5]])}, "token_ids must be integers. Received: 2.5"),
    (["a gripping film"], "token_ids must be integers. Received the dtype: <U15"),
    (
        {"segment_ids": np.zeros((1, 2), "int32")},
        r"must contain token_ids. Received the inputs: \['segment_ids'\]",
    ),
    (
        {"token_ids": np.array([[1, 2]]), "attention_mask": np.ones((1, 2))},
        "among token_ids, segment_ids, padding_mask. Received: 'attention_mask'",
    ),
    ({"token_ids": np.array([1, 2])}, r"Expected shape \(None, None\), but input has .*\(?2"),
]


@pytest.mark.parametrize(("inputs", "message"), INVALID_INPUTS)
def test_invalid_inputs_raise(backbone, inputs, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        backbone(inputs)


@pytest.mark.parametrize("config", ["bert_base_uncased", SMALL.to_dict()])
def test_config_of_wrong_type_raises(config):
    with pytest.raises(
        TypeError, match=r"config must be a BertConfig\. Received: .*`BertConfig\.from_name` has"
    ):
        Backbone(config)
