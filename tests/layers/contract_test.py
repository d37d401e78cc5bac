# SPDX-License-Identifier: Apache-2.0
"""Keras's contract for every layer: a correct output spec, and a config round trip."""

import keras
import numpy as np
import pytest
from keras import tree

from keras_bert import layers

HIDDEN = np.linspace(-1, 1, 3 * 5 * 8, dtype="float32").reshape(3, 5, 8)
IDS = np.arange(15, dtype="int32").reshape(3, 5)
MASK = IDS % 5 < 4

PARTS = {
    "attention": layers.Attention(2, dropout=0.3),
    "attention_norm": layers.Norm(),
    "feed_forward": layers.FeedForward(12),
    "feed_forward_norm": layers.Norm("rms_norm"),
}

# A layer's class, its arguments, and its call arguments
LAYERS = [
    (layers.TokenEmbedding, {"vocabulary_size": 20, "hidden_dim": 8}, (IDS,)),
    (
        layers.EmbeddingPostprocessor,
        {"max_sequence_length": 6, "num_segments": 2, "dropout": 0.2, "layer_norm_epsilon": 1e-5},
        (HIDDEN, IDS % 2),
    ),
    (layers.Attention, {"num_heads": 2, "dropout": 0.2}, (HIDDEN,)),
    (layers.Attention, {"num_heads": 2, "return_scores": True}, (HIDDEN,)),
    (
        layers.Attention,
        {"num_heads": 4, "num_key_value_heads": 2, "window": 1, "rotary_base": 100.0},
        (HIDDEN,),
    ),
    (layers.Norm, {"kind": "rms_norm", "epsilon": 1e-5}, (HIDDEN,)),
    (layers.FeedForward, {"intermediate_dim": 12, "activation": "relu"}, (HIDDEN,)),
    (layers.GatedFeedForward, {"intermediate_dim": 12, "use_bias": False}, (HIDDEN,)),
    (layers.TransformerBlock, PARTS, (HIDDEN,)),
    (
        layers.TransformerBlock,
        {
            **PARTS,
            "attention": layers.Attention(4, return_scores=True),
            "attention_norm": None,
            "norm_placement": "pre",
        },
        (HIDDEN,),
    ),
    (layers.ConditionalRandomField, {}, (HIDDEN,)),
    (layers.Dense, {"units": 3}, (HIDDEN,)),
    (layers.Pooler, {"initializer_range": 0.1}, (HIDDEN,)),
    (layers.Pooler, {"pooling": "none", "norm": "layer_norm", "use_bias": False}, (HIDDEN,)),
    (layers.Pooler, {"pooling": "mean"}, (HIDDEN, MASK)),
    (layers.Pooler, {"pooling": "late"}, (HIDDEN, MASK)),
    (layers.ClassificationHead, {"num_classes": 3, "dropout": 0.2}, (HIDDEN[:, 0],)),
    (layers.ClassificationHead, {"num_classes": 3}, (HIDDEN,)),
    (
        layers.MaskedLMTransform,
        {"activation": "gelu_erf", "layer_norm_epsilon": 1e-5},
        (HIDDEN,),
    ),
    (layers.GatherTokens, {}, (HIDDEN, IDS[:, :2] % 5)),
    (layers.VocabularyBias, {}, (HIDDEN,)),
    (layers.ReplacedTokenHead, {"activation": "relu"}, (HIDDEN,)),
    (layers.TokenSampler, {"seed": 3}, (HIDDEN, IDS, IDS % 5)),
    (layers.TokenReplacer, {}, (IDS, IDS[:, :2] % 5, IDS[:, :2])),
    (layers.PositionIds, {"pad_token_id": 1, "max_sequence_length": 6}, (IDS,)),
    (layers.TokenProjection, {"dim": 3, "use_bias": True}, (HIDDEN, MASK)),
    (layers.SentencePooling, {"pooling": "cls", "normalize": False}, (HIDDEN, MASK)),
    (layers.SpladePooling, {"pooling": "sum", "activation": "log1p_relu"}, (HIDDEN, MASK)),
]
NAMES = [
    "".join((cls.__name__, "_scores" * arguments.get("return_scores", False)))
    for cls, arguments, _ in LAYERS
]
each_layer = pytest.mark.parametrize(("cls", "arguments", "inputs"), LAYERS, ids=NAMES)


def test_all_layers_are_covered():
    exported = [getattr(layers, name) for name in layers.__all__]
    # These layouts have `None` for unused inputs. Tests of encoders cover these layers.
    classes = {each for each in exported if isinstance(each, type)} - {
        layers.BatchLayoutBuilder,
        layers.RelativeEmbeddings,
        layers.RestorePadding,
    }
    # It accepts a model, and belongs to the task that creates it.
    assert {cls for cls, _, _ in LAYERS} == classes - {layers.FrozenModel}


def shapes_and_dtypes(outputs):
    return [
        (tuple(x.shape), keras.backend.standardize_dtype(x.dtype)) for x in tree.flatten(outputs)
    ]


@pytest.mark.parametrize(
    "policy",
    [
        "mixed_bfloat16",
        *(pytest.param(policy, marks=pytest.mark.on_torch) for policy in ("float32", "bfloat16")),
    ],
)
@each_layer
def test_outputs_match_the_spec(cls, arguments, inputs, policy):
    layer = cls(**arguments, dtype=policy)
    symbolic = [keras.KerasTensor(x.shape, dtype=str(x.dtype)) for x in inputs]
    assert shapes_and_dtypes(layer(*symbolic)) == shapes_and_dtypes(layer(*inputs))


@each_layer
def test_batch_and_length_can_be_unknown(cls, arguments, inputs):
    layer = cls(**arguments)
    symbolic = [
        keras.KerasTensor(
            (None, *(None,) * (x.ndim == 3), *x.shape[1:][x.ndim == 3 :]), str(x.dtype)
        )
        for x in inputs
    ]
    outputs = tree.flatten(layer(*symbolic))
    assert all(x.shape[0] is None for x in outputs)


@pytest.mark.on_torch
@each_layer
def test_layer_config_round_trip(cls, arguments, inputs):
    # Start from a config, because other tests may have built the parts in `arguments`.
    layer = cls.from_config(cls(**arguments, dtype="mixed_bfloat16", name="again").get_config())
    layer(*inputs)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    copy(*inputs)
    assert type(copy) is cls
    assert copy.get_config() == layer.get_config()
    config = copy.get_config()
    for name, value in arguments.items():
        if isinstance(value, keras.Layer):
            # The block builds its parts, whether or not they are built already.
            value = keras.saving.serialize_keras_object(value)
            value.pop("build_config", None)
        assert config[name] == value
    assert (copy.autocast, copy.compute_dtype) == (layer.autocast, layer.compute_dtype)
    assert [(v.path, tuple(v.shape), v.dtype) for v in copy.weights] == [
        (v.path, tuple(v.shape), v.dtype) for v in layer.weights
    ]
