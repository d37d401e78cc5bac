# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from keras_bert import BertConfig, TextClassifier, load_model
from training.paper.directional_backbone import DirectionalBackbone

CONFIG = BertConfig(
    vocabulary_size=50, num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16, causal=True
)
IDS = np.array([[5, 6, 7, 8, 0, 0], [9, 10, 11, 12, 13, 14]])
INPUTS = {"token_ids": IDS, "padding_mask": IDS != 0}


@pytest.mark.on_torch
@pytest.mark.parametrize("concatenates", [True, False])
def test_rows_are_read_from_right_to_left(concatenates, tmp_path):
    backbone = DirectionalBackbone(CONFIG, concatenates=concatenates)
    outputs = backbone.predict(INPUTS, verbose=0)
    for row, length in enumerate((4, 6)):
        reverse = {"token_ids": IDS[row : row + 1, :length][:, ::-1]}
        expected = backbone.get_layer("backward").predict(reverse, verbose=0)
        states = outputs["sequence_output"][row, :length, -8:]
        np.testing.assert_allclose(states[::-1], expected["sequence_output"][0], atol=1e-5)
        pooled = outputs["pooled_output"][row, -8:]
        np.testing.assert_allclose(pooled, expected["pooled_output"][0], atol=1e-5)
    if concatenates:
        forward = backbone.get_layer("forward").predict(INPUTS, verbose=0)
        states = outputs["sequence_output"][..., :8]
        np.testing.assert_allclose(states, forward["sequence_output"], atol=1e-5)
    classifier = TextClassifier(backbone, num_classes=2)
    classifier.save(tmp_path / "model.keras")
    logits = load_model(tmp_path / "model.keras").predict(INPUTS, verbose=0)
    np.testing.assert_allclose(logits, classifier.predict(INPUTS, verbose=0), atol=1e-5)
