# SPDX-License-Identifier: Apache-2.0
"""Outputs at selected positions match the full outputs, and no other outputs are computed."""

import keras
import numpy as np
import pytest

from keras_bert.layers import bidirectional_lstm
from keras_bert.models import Backbone
from keras_bert.models.inputs import token_inputs
from keras_bert.tasks import (
    MaskedLM,
    MultipleChoice,
    Pretrainer,
    TextClassifier,
    TextEmbedder,
)
from tests.models.packing_test import FEATURES
from tests.models.parts_test import ALL_VARIANTS
from tests.models.small_backbone import SMALL, features, random_weights, to_numpy

POSITIONS = np.array([[0, 6, 3], [4, 2, 0], [1, 0, 0]], "int32")
VARIANTS = {
    "bert": {},
    "one block": {"num_layers": 1},
    "shared blocks": {"num_layers": 4, "layer_sharing": "all"},
    "narrow embeddings": {"embedding_dim": 4},
    "no segments, no pooler": {"num_segments": 0, "pooler": False},
    "everything is returned": {"output_hidden_states": True, "output_attention_scores": True},
}


def make_position_model(backbone: Backbone) -> keras.Model:
    inputs = token_inputs(backbone.packed)
    positions = keras.Input((None,), dtype="int32", name="output_positions")
    outputs = backbone.encode(inputs, positions)
    return keras.Model({**inputs, "output_positions": positions}, outputs)


def select_positions(outputs) -> np.ndarray:
    """Selects the outputs at `POSITIONS`."""
    return np.take_along_axis(to_numpy(outputs), POSITIONS[..., None], axis=1)


@pytest.mark.parametrize(
    "changes",
    [
        *VARIANTS.values(),
        *(pytest.param(x, marks=pytest.mark.on_torch) for x in ALL_VARIANTS.values()),
    ],
)
def test_outputs_match_full_row(changes):
    backbone = Backbone(SMALL.replace(**changes))
    random_weights(backbone)
    inputs = features()
    full_outputs = backbone(inputs)
    outputs = make_position_model(backbone)({**inputs, "output_positions": POSITIONS})
    assert outputs.keys() == full_outputs.keys()
    expected = select_positions(full_outputs["sequence_output"])
    received = to_numpy(outputs["sequence_output"])
    np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-5)
    if backbone.pooler is not None:
        pooled = to_numpy(backbone.pooler(expected))
        np.testing.assert_allclose(to_numpy(outputs["pooled_output"]), pooled, atol=1e-4)
    for name in ("hidden_states", "attention_scores"):
        *lower, last = full_outputs.get(name, (None,))
        *tensors, last_tensor = outputs.get(name, (None,))
        for array, tensor in zip(lower, tensors, strict=True):
            np.testing.assert_allclose(to_numpy(tensor), to_numpy(array), atol=1e-5)
        if last is not None:
            expected_last = select_positions(last) if name == "hidden_states" else to_numpy(last)
            np.testing.assert_allclose(to_numpy(last_tensor), expected_last, atol=1e-5)


def test_packed_outputs_match_full_row():
    backbone = Backbone(SMALL, packed=True)
    random_weights(backbone)
    model = make_position_model(backbone)
    inputs = {**FEATURES, "padding_mask": None, "output_positions": POSITIONS}
    outputs = model(inputs)
    expected = select_positions(backbone(FEATURES)["sequence_output"])
    np.testing.assert_allclose(to_numpy(outputs["sequence_output"]), expected, atol=1e-5)


def test_position_model_shares_encoder_weights():
    backbone = Backbone(SMALL)
    model = make_position_model(backbone)
    assert [id(v) for v in model.trainable_variables] == [
        id(v) for v in backbone.trainable_variables
    ]
    backbone.trainable = False
    assert not model.trainable_variables


# The task, its inputs, and the number of tokens in its last feed-forward network
CASES = {
    "classifier": (lambda b: TextClassifier(b, num_classes=2), features(), 3),
    "classifier on a BiLSTM": (
        lambda b: TextClassifier(b, num_classes=2, top_layers=bidirectional_lstm(4)),
        features(),
        3 * 7,
    ),
    "vector of the first token": (
        lambda b: TextEmbedder(b, pooling="cls"),
        features(),
        3,
    ),
    "mean vector": (TextEmbedder, features(), 3 * 7),
    "choice": (
        MultipleChoice,
        {name: array[None] for name, array in features().items()},
        3,
    ),
    "masked LM": (MaskedLM, {**features(), "mask_positions": POSITIONS}, 3 * 3),
    "masked LM, next sentence": (
        Pretrainer,
        {**features(), "mask_positions": POSITIONS},
        3 * (1 + 3),
    ),
    "masked LM only": (
        lambda b: Pretrainer(b, next_sentence=False),
        {**features(), "mask_positions": POSITIONS},
        3 * 3,
    ),
}


# Positions for each layer that needs them, and for two heads
CASES_ON_EACH_BACKEND = "classifier on a BiLSTM", "masked LM, next sentence"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in CASES_ON_EACH_BACKEND else pytest.mark.on_torch)
        for case in CASES
    ],
)
def test_tasks_compute_only_used_positions(case, monkeypatch):
    make, inputs, num_tokens = CASES[case]
    backbone = Backbone(SMALL)
    task = make(backbone)
    rows = []
    for block in backbone.blocks:
        product = block.feed_forward.output_projection

        def call(x, training=None, product=product):
            rows.append(x.shape[0])
            return keras.ops.matmul(x, product.kernel)

        monkeypatch.setattr(product, "call", call)
    task(inputs)
    assert rows == [3 * 7, num_tokens]
