# SPDX-License-Identifier: Apache-2.0
"""In causal encoders, no token depends on a later token, in any implementation."""

import numpy as np
import pytest

from keras_bert.models import Backbone
from tests.models.small_backbone import WITHOUT_DROPOUT, features, random_weights, to_numpy

CAUSAL = WITHOUT_DROPOUT.replace(causal=True)
LENGTH = 8
IDS = np.random.default_rng(0).integers(1, 50, (2, LENGTH)).astype("int32")
MASK = np.arange(LENGTH) < np.array([[LENGTH], [6]])
PACKED = {
    "token_ids": IDS,
    "sequence_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 2, 2, 2, 0, 0]]),
    "position_ids": np.array([[0, 1, 2, 3, 0, 1, 2, 3], [0, 1, 2, 0, 1, 2, 0, 0]]),
}
INPUTS = {"whole": {}, "padded": {"padding_mask": MASK}, "packed": PACKED}


def causal_backbone(**arguments):
    backbone = Backbone(CAUSAL, **arguments)
    random_weights(backbone)
    return backbone


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize(("training", "scores"), [(False, False), (True, True)])
def test_token_changes_only_later_outputs(inputs, training, scores):
    backbone = causal_backbone(packed=inputs == "packed", output_attention_scores=scores)
    features = {"token_ids": IDS, **INPUTS[inputs]}
    before = to_numpy(backbone(features, training=training)["sequence_output"])
    for place in (0, 3, 5):
        changed = IDS.copy()
        changed[:, place] = 50 - changed[:, place]
        after = backbone({**features, "token_ids": changed}, training=training)
        difference = abs(to_numpy(after["sequence_output"]) - before).max(-1)
        assert difference[:, :place].max(initial=0) == 0
        assert (difference[:, place] > 0).all()
        is_in_sequence = PACKED["sequence_ids"][0] == PACKED["sequence_ids"][0, place]
        later = (np.arange(LENGTH) >= place) & (is_in_sequence if inputs == "packed" else True)
        assert (difference[0, later] > 0).all()
        assert (difference[0, ~later] == 0).all()


def test_attention_paths_match():
    fused = to_numpy(causal_backbone()(features())["sequence_output"])
    trained = to_numpy(causal_backbone()(features(), training=True)["sequence_output"])
    scored = to_numpy(causal_backbone(output_attention_scores=True)(features())["sequence_output"])
    is_token = features()["padding_mask"]
    np.testing.assert_allclose(trained[is_token], fused[is_token], atol=1e-5)
    np.testing.assert_allclose(scored[is_token], fused[is_token], atol=1e-5)


def test_pooled_output_uses_last_token():
    backbone = causal_backbone(packed=True)

    def pool(features):
        outputs = backbone(features)
        dense = backbone.pooler.dense
        return to_numpy(outputs["pooled_output"]), to_numpy(dense(outputs["sequence_output"]))

    for extra_inputs, last in [({}, (7, 7)), ({"padding_mask": MASK}, (7, 5)), (PACKED, (7, 5))]:
        actual, everywhere = pool({"token_ids": IDS, **extra_inputs})
        np.testing.assert_allclose(actual, everywhere[[0, 1], last], atol=1e-6)
    all_padding = pool({"token_ids": IDS, "padding_mask": np.zeros_like(MASK)})
    assert np.isfinite(all_padding[0]).all()
