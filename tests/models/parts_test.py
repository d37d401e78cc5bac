# SPDX-License-Identifier: Apache-2.0
"""Encoders with many combinations of architecture options match NumPy."""

import keras
import numpy as np
import pytest

from keras_bert.checkpoints import weights
from keras_bert.models import Backbone
from tests.models import family_test, numpy_bert
from tests.models.small_backbone import WITHOUT_DROPOUT, features, random_weights, to_numpy

ROTARY = {"positions": "rotary", "rotary_base": 100.0, "num_segments": 0}
GATED = {"feed_forward": "gated", "activation": "silu"}
WITHOUT_BIASES = {"attention_bias": False, "feed_forward_bias": False}
VARIANTS = {
    "bert": {},
    "rotary": ROTARY,
    "gated": GATED,
    "gated without biases": {**GATED, **WITHOUT_BIASES},
    "pre-norm": {"norm_placement": "pre"},
    "post-norm with rms": {"norm": "rms_norm", "layer_norm_epsilon": 1e-3},
    "window": {"attention_window": 2, "num_layers": 3, "global_attention_every": 2},
    "shared keys": {"num_heads": 4, "num_key_value_heads": 2},
    "modernbert": {
        **ROTARY,
        **GATED,
        **WITHOUT_BIASES,
        "num_layers": 4,
        "local_rotary_base": 7.0,
        "attention_window": 1,
        "global_attention_every": 3,
        "norm_bias": False,
        "norm_placement": "pre",
        "first_attention_norm": False,
    },
    "eurobert": {
        **ROTARY,
        **GATED,
        **WITHOUT_BIASES,
        "num_heads": 4,
        "num_key_value_heads": 1,
        "norm": "rms_norm",
        "norm_placement": "pre",
        "embedding_norm": False,
    },
    "nomic": {**ROTARY, **GATED, **WITHOUT_BIASES, "num_segments": 2},
}
# tests/checkpoints/families_test.py compares these with `transformers`.
RELATIVE = {
    "mpnet": {"relative_positions": "bucketed", "relative_buckets": 8, "relative_distance": 20},
    "deberta": {
        "positions": "none",
        "relative_positions": "disentangled",
        "relative_buckets": 4,
        "relative_distance": 12,
    },
}
ALL_VARIANTS = {**VARIANTS, **RELATIVE}


def make_backbone(variant: str, **arguments) -> Backbone:
    backbone = Backbone(WITHOUT_DROPOUT.replace(**ALL_VARIANTS[variant]), **arguments)
    random_weights(backbone)
    return backbone


# The first test runs all variants of its reference on each backend, the next tests only some.
ON_EACH_BACKEND = "bert", "modernbert", "shared keys", "deberta"
each_variant = pytest.mark.parametrize(
    "variant",
    [
        pytest.param(name, marks=() if name in ON_EACH_BACKEND else pytest.mark.on_torch)
        for name in ALL_VARIANTS
    ],
)


@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_match_numpy(variant):
    options = {"output_hidden_states": True, "output_attention_scores": True}
    backbone, inputs = make_backbone(variant, **options), features()
    expected = numpy_bert.encoder(numpy_bert.get_weights(backbone), backbone.config, inputs)
    is_token = inputs["padding_mask"]
    for name, output in backbone(inputs).items():
        pairs = zip(keras.tree.flatten(output), keras.tree.flatten(expected[name]), strict=True)
        for actual, reference in pairs:
            actual = to_numpy(actual)
            if name in ("sequence_output", "hidden_states"):
                actual, reference = actual[is_token], reference[is_token]
            elif name == "attention_scores":
                actual, reference = (
                    np.moveaxis(each, 1, 2)[is_token] for each in (actual, reference)
                )
            np.testing.assert_allclose(actual, reference, rtol=1e-4, atol=1e-4)


@each_variant
def test_training_outputs_match_inference(variant):
    backbone, inputs = make_backbone(variant), features()
    is_token = inputs["padding_mask"]
    outputs = [
        to_numpy(backbone(inputs, training=training)["sequence_output"])[is_token]
        for training in (False, True)
    ]
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-4)


@each_variant
def test_packed_sequences_match_separate_rows(variant):
    backbone = make_backbone(variant, packed=True)
    ids = features(1, 9)["token_ids"]
    packed = backbone(
        {
            "token_ids": ids,
            "sequence_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 0, 0]]),
            "position_ids": np.array([[0, 1, 2, 3, 0, 1, 2, 0, 0]]),
        }
    )
    packed = to_numpy(packed["sequence_output"])
    for start, end in ((0, 4), (4, 7)):
        separate = to_numpy(backbone({"token_ids": ids[:, start:end]})["sequence_output"])
        np.testing.assert_allclose(packed[:, start:end], separate, rtol=1e-4, atol=1e-4)


@pytest.mark.on_torch
@pytest.mark.parametrize(
    "changes",
    [
        *ALL_VARIANTS.values(),
        *family_test.VARIANTS.values(),
        {"pooler_norm": True, "head_bias": False},
    ],
)
def test_backbone_weight_shapes(changes):
    backbone = Backbone(WITHOUT_DROPOUT.replace(**changes))
    shapes = {
        name: tuple(weight.shape) for name, weight in weights.backbone_weights(backbone).items()
    }
    assert shapes == weights.backbone_weight_shapes(backbone.config)
    assert sum(map(np.prod, shapes.values())) == backbone.count_params()
