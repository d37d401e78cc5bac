# SPDX-License-Identifier: Apache-2.0
"""Encoders that compute batches without padding against those that compute it."""

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


def batch_of(lengths, width=None):
    width = width or max(*lengths, 2)
    mask = np.arange(width) < np.array(lengths)[:, None]
    random = np.random.default_rng(1)
    return {
        "token_ids": np.where(mask, random.integers(1, 50, mask.shape), 0).astype("int32"),
        "segment_ids": np.zeros(mask.shape, "int32"),
        "padding_mask": mask,
    }


def pair(family="bert", **fields):
    """A padded and an unpadded encoder with the same weights."""
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


@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_match_padded_batches(family):
    padded, unpadded = pair(family)
    for lengths in LENGTHS.values():
        batch = batch_of(lengths)
        expected = padded(batch)
        check_same_outputs(expected, unpadded(batch), batch)
        if keras.backend.backend() == "tensorflow":  # Graphs call another one.
            check_same_outputs(expected, unpadded.predict_on_batch(batch), batch)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="graphs of TensorFlow")
def test_all_layers_of_a_kind_call_one_graph():
    import tensorflow as tf

    _, encoder = pair("modernbert")
    specs = {
        name: tf.TensorSpec((None, None), values.dtype) for name, values in batch_of([2]).items()
    }
    graph = tf.function(encoder).get_concrete_function(specs).graph
    called = collections.Counter(
        op.get_attr("f").name
        for op in graph.get_operations()
        if op.type in ("PartitionedCall", "StatefulPartitionedCall")
    )
    # Where the tokens are, and the context of two global and of two local layers
    assert sorted(called.values()) == [1, 2, 2]


def test_padding_is_not_computed_and_zero_in_the_output():
    _, unpadded = pair()
    batch = batch_of(LENGTHS["mixed"])
    output = to_numpy(unpadded(batch)["sequence_output"])
    assert not output[~batch["padding_mask"]].any()
    assert output[batch["padding_mask"]].any(axis=-1).all()


def test_masks_with_holes_and_padding_on_the_left():
    batch = batch_of([6, 6, 6, 6])
    # More of it would leave a first token with nothing within ModernBERT's window, and no meaning
    batch["padding_mask"][0, :1] = False
    batch["padding_mask"][1, 2:4] = False
    batch["padding_mask"][2, 5:] = False
    for family in ("bert", "window", "modernbert", "causal"):
        padded, unpadded = pair(family)
        if family == "causal":  # there the first tokens have nothing to attend to
            batch["padding_mask"][0, :1] = True
        assert_same_outputs(padded, unpadded, batch)


@pytest.mark.parametrize("family", ["bert", "window", "modernbert"])
def test_rows_of_more_than_one_block_of_a_window(family):
    padded, unpadded = pair(family, max_sequence_length=300)
    assert_same_outputs(padded, unpadded, batch_of([3, 290, 40, 270, 7]), rtol=1e-4, atol=1e-4)


def test_packed_rows_are_computed_as_they_are():
    config = WITHOUT_DROPOUT
    encoders = [Backbone(config, packed=True, unpadded=value) for value in (False, True)]
    for encoder in encoders:
        random_weights(encoder)
    batch = batch_of([6, 4])
    batch["sequence_ids"] = np.array([[1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 0, 0]], "int32")
    batch["position_ids"] = np.array([[0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 0, 0]], "int32")
    assert_same_outputs(*encoders, batch)
    # Position ids by themselves are those of unpadded rows
    del batch["sequence_ids"]
    assert_same_outputs(*encoders, batch)


@pytest.mark.parametrize("family", ["modernbert", "deberta"])
def test_training_updates_the_weights_alike(family):
    labels = np.array([0, 1, 1, 0, 1, 0])
    updated = []
    for encoder in pair(family):
        keras.utils.set_random_seed(0)
        task = TextClassifier(encoder, num_classes=2)
        random_weights(task)
        loss = keras.losses.SparseCategoricalCrossentropy(True)
        task.compile(keras.optimizers.SGD(0.1), loss)
        losses = [task.train_on_batch(batch_of(LENGTHS["mixed"]), labels) for _ in range(3)]
        updated.append((losses, [to_numpy(weight) for weight in task.weights]))
    (expected, weights), (losses, unpadded_weights) = updated
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    for ours, theirs in zip(unpadded_weights, weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="XLA compiles TensorFlow")
def test_xla_computes_the_same():
    updated = []
    for encoder, jit_compile in zip(pair(), (False, True), strict=True):
        task = TextClassifier(encoder, num_classes=2)
        random_weights(task)
        loss = keras.losses.SparseCategoricalCrossentropy(True)
        task.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit_compile)
        batches = [batch_of([3, 11, 1, 7]), batch_of([3, 5, 1, 7])]
        losses = [task.train_on_batch(batch, np.array([0, 1, 1, 0]))[0] for batch in batches]
        updated.append((losses, task.get_weights()))
    (expected, weights), (losses, unpadded_weights) = updated
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for ours, theirs in zip(unpadded_weights, weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cls", [TextClassifier, QuestionAnswerer, MaskedLM])
def test_tasks_predict_alike(cls):
    arguments = {"num_classes": 3} if cls is TextClassifier else {}
    batch = batch_of([3, 11, 1, 7, 4, 12])
    if cls is MaskedLM:
        batch["mask_positions"] = np.array([[0, 2]] + [[0, 0]] * 5, "int32")
    tasks = [cls(encoder, **arguments) for encoder in pair()]
    for task in tasks:
        random_weights(task)
    expected, outputs = (keras.tree.flatten(task.predict_on_batch(batch)) for task in tasks)
    for ours, theirs in zip(outputs, expected, strict=True):
        if ours.shape[1:2] == batch["token_ids"].shape[1:] and cls is QuestionAnswerer:
            ours, theirs = ours[batch["padding_mask"]], theirs[batch["padding_mask"]]
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_rows_longer_than_the_positions_are_refused():
    config = BertConfig(**{**WITHOUT_DROPOUT.to_dict(), "max_sequence_length": 8})
    with pytest.raises(ValueError, match="must have at most 8 tokens"):
        Backbone(config, unpadded=True)(batch_of([9, 3]))


def is_unpadded(outputs):
    """Whether a batch of the lengths 3 and 6 was computed without its padding."""
    return not to_numpy(outputs["sequence_output"])[0, 3:].any()


def test_by_default_predict_computes_no_padding_on_tensorflow():
    encoder, expected = Backbone(WITHOUT_DROPOUT), keras.backend.backend() == "tensorflow"
    batch = batch_of([3, 6])
    assert is_unpadded(encoder.predict(batch, verbose=0)) == expected
    assert is_unpadded(encoder.predict_on_batch(batch)) == expected
    padded = Backbone(WITHOUT_DROPOUT, unpadded=False)
    assert not is_unpadded(padded.predict(batch, verbose=0))
    # Blocks are computed again in training alone.
    rematerialized = Backbone(WITHOUT_DROPOUT, rematerialize=True)
    assert is_unpadded(rematerialized.predict(batch, verbose=0)) == expected


def test_by_default_all_else_is_padded():
    encoder, batch = Backbone(WITHOUT_DROPOUT), batch_of([3, 6])
    assert not is_unpadded(encoder(batch))
    assert not is_unpadded(encoder(batch, training=True))
    # Such models may be exported to runtimes that lack operations of unpadded batches
    own = keras.Model(encoder.input, encoder.output)
    assert not is_unpadded(own.predict(batch, verbose=0))
    if keras.backend.backend() == "tensorflow":
        encoder.compile(jit_compile=True)
        assert not is_unpadded(encoder.predict(batch, verbose=0))


def test_by_default_training_is_padded():
    config = WITHOUT_DROPOUT.replace(dropout=0.5, attention_dropout=0.5)
    results = []
    for unpadded in (False, None):
        keras.utils.set_random_seed(0)
        task = TextClassifier(Backbone(config, unpadded=unpadded), num_classes=2)
        random_weights(task)
        task.compile("sgd", keras.losses.SparseCategoricalCrossentropy(True))
        batch, labels = batch_of(LENGTHS["mixed"]), np.array([0, 1, 1, 0, 1, 0])
        losses = [task.train_on_batch(batch, labels) for _ in range(2)]
        results.append((losses, task.test_on_batch(batch, labels)))
    assert results[0][0] == results[1][0]
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-5)


def test_places_of_groups_hold_each_token_once():
    lengths = np.array(LENGTHS["mixed"])
    mask = np.arange(12) < lengths[:, None]
    varlen = varlen_of(ops.convert_to_tensor(mask), training=True)
    gather, scatter = to_numpy(varlen.group_gather), to_numpy(varlen.group_scatter)
    np.testing.assert_array_equal(gather[scatter.astype(int)], np.arange(lengths.sum()))
    assert sum(to_numpy(part).sum() for part in varlen.key_masks) == lengths.sum()
    # In groups of similar lengths there is less padding than in the batch
    assert gather.size < mask.size


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="oneDNN's kernels")
@pytest.mark.parametrize("lengths", [[5], [9, 1, 6], [8, 16]])
def test_inference_has_few_shapes(lengths):
    mask = np.arange(16) < np.reshape(lengths, (-1, 1))
    varlen = varlen_of(ops.convert_to_tensor(mask))
    tokens = to_numpy(varlen.token_indices)
    assert len(tokens) == -(-sum(lengths) // 8) * 8
    assert not any(part.shape[1] % 8 for part in varlen.key_masks if part is not None)
    # What follows the tokens is the last of them
    np.testing.assert_array_equal(tokens[: mask.sum()], np.flatnonzero(mask))
    assert set(tokens[mask.sum() :]) <= set(tokens[mask.sum() - 1 : mask.sum()])
    assert to_numpy(varlen.is_key).sum() == sum(lengths)


@pytest.mark.parametrize("unpadded", [None, True])
def test_batches_may_have_no_rows(unpadded):
    inputs = {name: value[:0] for name, value in features().items()}
    assert Backbone(WITHOUT_DROPOUT, unpadded=unpadded)(inputs)["sequence_output"].shape == (
        0,
        7,
        16,
    )
