# SPDX-License-Identifier: Apache-2.0
"""Layer-wise learning rates: the depth of each path, and the updates."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.config import BertConfig
from keras_bert.models.backbone import Backbone
from keras_bert.optimizers import AdamW, layer_depth
from keras_bert.tasks import TextClassifier


@pytest.mark.on_torch
@pytest.mark.parametrize(
    ("path", "depth"),
    [
        ("token_embedding/embeddings", 0),
        ("embeddings/position_embeddings", 0),
        ("backbone/embeddings/gamma", 0),
        ("embedding_projection/kernel", 0),
        ("layer_0/attention/query_key_value/kernel", 1),
        ("backbone/layer_3/feed_forward_norm/beta", 4),
        ("layer_11/intermediate/kernel", 12),
        ("pooler/dense/kernel", 13),
        ("classifier/dense/kernel", 14),
        ("masked_lm_transform/embeddings", 14),
    ],
)
def test_layer_depth_from_path(path, depth):
    assert layer_depth(path, num_layers=12) == depth


@pytest.mark.on_torch
def test_backbone_variables_use_their_layer_rate():
    config = BertConfig(
        vocabulary_size=5,
        num_layers=2,
        hidden_dim=4,
        num_heads=2,
        intermediate_dim=8,
        max_sequence_length=3,
    )
    backbone = Backbone(config)
    head = keras.Variable(np.zeros((4, 2), "float32"), name="kernel")
    variables = [*backbone.trainable_variables, head]
    before = [ops.convert_to_numpy(variable.value).copy() for variable in variables]
    optimizer = AdamW(1e-2, layer_decay=0.5, weight_decay=0.0, global_clipnorm=None)
    optimizer.apply([ops.ones(variable.shape) for variable in variables], variables)
    for variable, old in zip(variables, before, strict=True):
        moved = old - ops.convert_to_numpy(variable.value)
        rate = 1e-2 * 0.5 ** (4 - layer_depth(variable.path, num_layers=2))
        np.testing.assert_allclose(moved, rate, rtol=1e-4, atol=1e-7, err_msg=variable.path)


def test_layer_depths_of_electra_classifier():
    config = BertConfig.from_name("electra_small_discriminator").replace(
        vocabulary_size=5,
        num_layers=2,
        hidden_dim=4,
        num_heads=2,
        intermediate_dim=8,
        embedding_dim=2,
        max_sequence_length=3,
    )
    classifier = TextClassifier(Backbone(config), num_classes=2)
    backbone = classifier.backbone
    # The projection has the depth of the embeddings. The task's pooler has the depth of its head.
    layers = {
        0: [backbone.token_embedding, backbone.embeddings, backbone.embedding_projection],
        1: [backbone.blocks[0]],
        2: [backbone.blocks[1]],
        4: [classifier.pooler, classifier.head],
    }
    variables_by_depth = {
        depth: [variable for layer in parts for variable in layer.trainable_variables]
        for depth, parts in layers.items()
    }
    assert sum(map(len, variables_by_depth.values())) == len(classifier.trainable_variables)
    for depth, variables in variables_by_depth.items():
        assert {layer_depth(variable.path, num_layers=2) for variable in variables} == {depth}


@pytest.mark.on_torch
def test_num_layers_sets_depth_with_frozen_layers():
    variable = keras.Variable(np.zeros(2, "float32"), name="kernel")
    variable._path = "layer_0/kernel"
    optimizer = AdamW(1e-2, layer_decay=0.5, num_layers=12, weight_decay=0.0)
    optimizer.apply([ops.ones(2)], [variable])
    np.testing.assert_allclose(ops.convert_to_numpy(variable.value), -1e-2 * 0.5**13, rtol=1e-4)
