# SPDX-License-Identifier: Apache-2.0
"""Encoders that skip padding match encoders that compute it."""

import collections

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.config import BertConfig
from keras_bert.models import Backbone
from keras_bert.ops.varlen import varlen_of
from keras_bert.tasks import MaskedLM, QuestionAnswerer, TextClassifier
from tests.models.parts_test import ALL_VARIANTS
from tests.models.small_backbone import WITHOUT_DROPOUT, features, random_weights, to_numpy

pytestmark = pytest.mark.skipif(
    keras.backend.backend() == "jax", reason="JAX has static shapes, and only padded batches"
)

FAMILIES = {
    **ALL_VARIANTS,
    "causal": {"causal": True},
    "albert": {"layer_sharing": "all", "embedding_dim": 8},
    "roberta": {"position_offset": 1, "num_segments": 1},
}
LENGTHS = {
    "mixed": [3, 11, 1, 7, 4, 12],
    "equal": [5, 5, 5, 5],
    "one row": [6],
    "empty rows": [0, 9, 0, 2],
    "all empty": [0, 0],
}


def make_batch(lengths, width=None):
    width = width or max(*lengths, 2)
    mask = np.arange(width) < np.array(lengths)[:, None]
    random = np.random.default_rng(1)
    return {
        "token_ids": np.where(mask, random.integers(1, 50, mask.shape), 0).astype("int32"),
        "segment_ids": np.zeros(mask.shape, "int32"),
        "padding_mask": mask,
    }


def make_encoder_pair(family="bert", **fields):
    """Returns a padded and an unpadded encoder with the same weights."""
    config = WITHOUT_DROPOUT.replace(**FAMILIES[family], **fields)
    encoders = [Backbone(config, unpadded=unpadded) for unpadded in (False, True)]
    for encoder in encoders:
        random_weights(encoder)
    return encoders


def assert_same_outputs(padded, unpadded, batch, **tolerance):
    check_same_outputs(padded(batch), unpadded(batch), batch, **tolerance)


def check_same_outputs(expected, outputs, batch, **tolerance):
    tolerance = tolerance or {"rtol": 1e-5, "atol": 1e-5}
    mask = batch["padding_mask"]
    vectors = to_numpy(outputs["sequence_output"])
    assert vectors.shape == expected["sequence_output"].shape
    np.testing.assert_allclose(
        vectors[mask], to_numpy(expected["sequence_output"])[mask], **tolerance
    )
    assert np.isfinite(vectors).all()
    if "pooled_output" in expected:
        rows = mask.any(axis=1)
        np.testing.assert_allclose(
            to_numpy(outputs["pooled_output"])[rows],
            to_numpy(expected["pooled_output"])[rows],
            **tolerance,
        )
        assert np.isfinite(to_numpy(outputs["pooled_output"])).all()


# All kinds of positions and masks. TensorFlow traces each for seconds.
ON_TENSORFLOW = "modernbert", "deberta"


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(
            family,
            marks=()
            if keras.backend.backend() == "torch" or family in ON_TENSORFLOW
            else pytest.mark.release,
        )
        for family in FAMILIES
    ],
)
def test_outputs_match_padded_batches(family):
    padded, unpadded = make_encoder_pair(family)
    for lengths in LENGTHS.values():
        batch = make_batch(lengths)
        expected = padded(batch)
        check_same_outputs(expected, unpadded(batch), batch)
        if keras.backend.backend() == "tensorflow":  # Graphs use a different implementation.
            check_same_outputs(expected, unpadded.predict_on_batch(batch), batch)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="graphs of TensorFlow")
def test_layers_of_same_type_share_a_graph():
    import tensorflow as tf

    _, encoder = make_encoder_pair("modernbert")
    specs = {
        name: tf.TensorSpec((None, None), values.dtype) for name, values in make_batch([2]).items()
    }
    graph = tf.function(encoder).get_concrete_function(specs).graph
    called = collections.Counter(
        op.get_attr("f").name
        for op in graph.get_operations()
        if op.type in ("PartitionedCall", "StatefulPartitionedCall")
    )
    # The token positions, and the context of two global and of two local layers
    assert sorted(called.values()) == [1, 2, 2]


def test_padding_is_zero_in_the_output():
    _, unpadded = make_encoder_pair()
    batch = make_batch(LENGTHS["mixed"])
    output = to_numpy(unpadded(batch)["sequence_output"])
    assert not output[~batch["padding_mask"]].any()
    assert output[batch["padding_mask"]].any(axis=-1).all()


def test_masks_with_holes_and_left_padding():
    batch = make_batch([6, 6, 6, 6])
    # With more left padding, ModernBERT's window around the first token would contain no key.
    batch["padding_mask"][0, :1] = False
    batch["padding_mask"][1, 2:4] = False
    batch["padding_mask"][2, 5:] = False
    for family in ("bert", "window", "modernbert", "causal"):
        padded, unpadded = make_encoder_pair(family)
        if family == "causal":  # In a causal encoder, the first tokens would have no key.
            batch["padding_mask"][0, :1] = True
        assert_same_outputs(padded, unpadded, batch)


@pytest.mark.parametrize("family", ["bert", "window", "modernbert"])
def test_rows_longer_than_one_window_block(family):
    padded, unpadded = make_encoder_pair(family, max_sequence_length=300)
    assert_same_outputs(padded, unpadded, make_batch([3, 290, 40, 270, 7]), rtol=1e-4, atol=1e-4)


def test_packed_rows_match_padded():
    config = WITHOUT_DROPOUT
    encoders = [Backbone(config, packed=True, unpadded=value) for value in (False, True)]
    for encoder in encoders:
        random_weights(encoder)
    batch = make_batch([6, 4])
    batch["sequence_ids"] = np.array([[1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 0, 0]], "int32")
    batch["position_ids"] = np.array([[0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 0, 0]], "int32")
    assert_same_outputs(*encoders, batch)
    # Without sequence ids, position ids belong to unpacked rows.
    del batch["sequence_ids"]
    assert_same_outputs(*encoders, batch)


@pytest.mark.parametrize(
    "family", ["modernbert", pytest.param("deberta", marks=pytest.mark.on_torch)]
)
def test_training_matches_padded(family):
    labels = np.array([0, 1, 1, 0, 1, 0])
    updated = []
    for encoder in make_encoder_pair(family):
        keras.utils.set_random_seed(0)
        task = TextClassifier(encoder, num_classes=2)
        random_weights(task)
        loss = keras.losses.SparseCategoricalCrossentropy(True)
        task.compile(keras.optimizers.SGD(0.1), loss)
        losses = [task.train_on_batch(make_batch(LENGTHS["mixed"]), labels) for _ in range(3)]
        updated.append((losses, [to_numpy(weight) for weight in task.weights]))
    (expected, weights), (losses, unpadded_weights) = updated
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    for actual, reference in zip(unpadded_weights, weights, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="XLA compiles TensorFlow")
def test_xla_unpadded_training_matches_padded():
    updated = []
    for encoder, jit_compile in zip(make_encoder_pair(num_layers=1), (False, True), strict=True):
        task = TextClassifier(encoder, num_classes=2)
        random_weights(task)
        loss = keras.losses.SparseCategoricalCrossentropy(True)
        task.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit_compile)
        # The number of tokens changes, but not the shape, for which XLA compiles the step.
        batches = [make_batch([3, 11, 1, 7]), make_batch([3, 5, 1, 7], width=11)]
        losses = [task.train_on_batch(batch, np.array([0, 1, 1, 0]))[0] for batch in batches]
        updated.append((losses, task.get_weights()))
    (expected, weights), (losses, unpadded_weights) = updated
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for actual, reference in zip(unpadded_weights, weights, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "cls",
    [
        QuestionAnswerer,
        *(pytest.param(cls, marks=pytest.mark.on_torch) for cls in (TextClassifier, MaskedLM)),
    ],
)
def test_task_predictions_match_padded(cls):
    arguments = {"num_classes": 3} if cls is TextClassifier else {}
    batch = make_batch([3, 11, 1, 7, 4, 12])
    if cls is MaskedLM:
        batch["mask_positions"] = np.array([[0, 2]] + [[0, 0]] * 5, "int32")
    tasks = [cls(encoder, **arguments) for encoder in make_encoder_pair()]
    for task in tasks:
        random_weights(task)
    expected, outputs = (keras.tree.flatten(task.predict_on_batch(batch)) for task in tasks)
    for actual, reference in zip(outputs, expected, strict=True):
        if actual.shape[1:2] == batch["token_ids"].shape[1:] and cls is QuestionAnswerer:
            actual, reference = actual[batch["padding_mask"]], reference[batch["padding_mask"]]
        np.testing.assert_allclose(actual, reference, rtol=1e-4, atol=1e-4)


def test_too_long_rows_raise():
    config = BertConfig(**{**WITHOUT_DROPOUT.to_dict(), "max_sequence_length": 8})
    with pytest.raises(ValueError, match="must have at most 8 tokens"):
        Backbone(config, unpadded=True)(make_batch([9, 3]))


def is_unpadded(outputs):
    """Returns whether a batch with lengths 3 and 6 was computed without its padding."""
    return not to_numpy(outputs["sequence_output"])[0, 3:].any()


def test_predict_default_skips_padding_on_tensorflow():
    encoder, expected = Backbone(WITHOUT_DROPOUT), keras.backend.backend() == "tensorflow"
    batch = make_batch([3, 6])
    assert is_unpadded(encoder.predict(batch, verbose=0)) == expected
    assert is_unpadded(encoder.predict_on_batch(batch)) == expected
    padded = Backbone(WITHOUT_DROPOUT, unpadded=False)
    assert not is_unpadded(padded.predict(batch, verbose=0))
    # Blocks are rematerialized only in training.
    rematerialized = Backbone(WITHOUT_DROPOUT, rematerialize=True)
    assert is_unpadded(rematerialized.predict(batch, verbose=0)) == expected


def test_other_calls_are_padded_by_default():
    encoder, batch = Backbone(WITHOUT_DROPOUT), make_batch([3, 6])
    assert not is_unpadded(encoder(batch))
    assert not is_unpadded(encoder(batch, training=True))
    # Such models can be exported to runtimes that lack operations for unpadded batches.
    functional_model = keras.Model(encoder.input, encoder.output)
    assert not is_unpadded(functional_model.predict(batch, verbose=0))
    if keras.backend.backend() == "tensorflow":
        encoder.compile(jit_compile=True)
        assert not is_unpadded(encoder.predict(batch, verbose=0))


def test_training_is_padded_by_default():
    config = WITHOUT_DROPOUT.replace(num_layers=1, dropout=0.5, attention_dropout=0.5)
    results = []
    for unpadded in (False, None):
        keras.utils.set_random_seed(0)
        task = TextClassifier(Backbone(config, unpadded=unpadded), num_classes=2)
        random_weights(task)
        task.compile("sgd", keras.losses.SparseCategoricalCrossentropy(True))
        batch, labels = make_batch(LENGTHS["mixed"]), np.array([0, 1, 1, 0, 1, 0])
        losses = [task.train_on_batch(batch, labels) for _ in range(2)]
        results.append((losses, task.test_on_batch(batch, labels)))
    assert results[0][0] == results[1][0]
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-5)


def test_groups_contain_each_token_once():
    lengths = np.array(LENGTHS["mixed"])
    mask = np.arange(12) < lengths[:, None]
    varlen = varlen_of(ops.convert_to_tensor(mask), training=True)
    gather, scatter = to_numpy(varlen.group_gather), to_numpy(varlen.group_scatter)
    np.testing.assert_array_equal(gather[scatter.astype(int)], np.arange(lengths.sum()))
    assert sum(to_numpy(part).sum() for part in varlen.key_masks) == lengths.sum()
    # Groups of similar lengths have less padding than the batch.
    assert gather.size < mask.size


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="oneDNN's kernels")
@pytest.mark.parametrize("lengths", [[5], [9, 1, 6], [8, 16]])
def test_inference_has_few_shapes(lengths):
    mask = np.arange(16) < np.reshape(lengths, (-1, 1))
    varlen = varlen_of(ops.convert_to_tensor(mask))
    tokens = to_numpy(varlen.token_indices)
    assert len(tokens) == -(-sum(lengths) // 8) * 8
    assert not any(part.shape[1] % 8 for part in varlen.key_masks if part is not None)
    # The last token is repeated after the tokens.
    np.testing.assert_array_equal(tokens[: mask.sum()], np.flatnonzero(mask))
    assert set(tokens[mask.sum() :]) <= set(tokens[mask.sum() - 1 : mask.sum()])
    assert to_numpy(varlen.is_key).sum() == sum(lengths)


@pytest.mark.parametrize("unpadded", [None, True])
def test_batches_can_be_empty(unpadded):
    inputs = {name: value[:0] for name, value in features().items()}
    assert Backbone(WITHOUT_DROPOUT, unpadded=unpadded)(inputs)["sequence_output"].shape == (
        0,
        7,
        16,
    )
