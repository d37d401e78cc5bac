# SPDX-License-Identifier: Apache-2.0
"""Family-specific options of the encoder: embeddings, positions, segments, pooler."""

import numpy as np
import pytest

from keras_bert.config import BertConfig
from keras_bert.models import Backbone
from tests.models.small_backbone import SMALL, to_numpy

TOKENS = np.array([[5, 6, 7, 8, 9], [5, 6, 7, 1, 1]])
VARIANTS = {
    "all": {"layer_sharing": "all"},
    "two groups": {"layer_sharing": "all", "num_layer_groups": 2},
    "attention": {"layer_sharing": "attention"},
    "feed_forward": {"layer_sharing": "feed_forward"},
    "narrow embeddings": {"embedding_dim": 4},
    "positions behind padding": {"position_offset": 2, "pad_token_id": 1, "num_segments": 1},
    "no segments, no pooler": {"num_segments": 0, "pooler": False},
}


def make_config(variant: str) -> BertConfig:
    return SMALL.replace(num_layers=4, **VARIANTS[variant])


def compute_output(model, inputs):
    return to_numpy(model(inputs)["sequence_output"])


@pytest.mark.on_torch
def test_positions_skip_padding():
    config = make_config("positions behind padding")
    backbone = Backbone(config)
    assert backbone.embeddings.position_embeddings.shape[0] == config.max_sequence_length + 2
    mask = TOKENS != 1
    right = compute_output(backbone, {"token_ids": TOKENS, "padding_mask": mask})
    left_tokens, left_mask = np.roll(TOKENS, 2, axis=1), np.roll(mask, 2, axis=1)
    left = compute_output(backbone, {"token_ids": left_tokens, "padding_mask": left_mask})
    np.testing.assert_allclose(left[1, 2:], right[1, :3], atol=1e-5)


@pytest.mark.on_torch
def test_too_long_row_raises():
    backbone = Backbone(make_config("positions behind padding"))
    length = backbone.config.max_sequence_length + 1
    with pytest.raises(ValueError, match=f"Received: {length} tokens"):
        backbone({"token_ids": np.full((1, length), 5)})


@pytest.mark.on_torch
def test_segment_ids_are_ignored_without_segments():
    backbone = Backbone(make_config("no segments, no pooler"))
    inputs = {"token_ids": TOKENS, "segment_ids": np.ones_like(TOKENS)}
    np.testing.assert_array_equal(
        compute_output(backbone, inputs), compute_output(backbone, TOKENS)
    )
    assert set(backbone.output) == {"sequence_output"}
    assert backbone.pooler is None


@pytest.mark.on_torch
def test_encoders_can_share_embeddings():
    wide = Backbone(SMALL.replace(embedding_dim=8))
    narrow = Backbone(
        SMALL.replace(embedding_dim=8, hidden_dim=4, intermediate_dim=8), embeddings_of=wide
    )
    assert narrow.token_embedding is wide.token_embedding
    assert narrow.embeddings is wide.embeddings
    assert narrow.embedding_projection is not wide.embedding_projection
    assert compute_output(narrow, TOKENS).shape == (2, 5, 4)
    with pytest.raises(ValueError, match=r"same embedding_width. Received: 16 and 8"):
        Backbone(SMALL, embeddings_of=wide)
