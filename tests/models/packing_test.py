# SPDX-License-Identifier: Apache-2.0
"""Packed rows give the outputs of each sequence alone, without attention between sequences."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.checkpoints import CheckpointWarning
from keras_bert.models import Backbone
from keras_bert.tasks import MaskedLM
from tests.models.small_backbone import SMALL, WITHOUT_DROPOUT, random_weights, to_numpy

# Rows by the lengths of their sequences; the last two have padding
LENGTHS = [(4, 4, 4), (7, 4), (7,)]
LENGTH = 12


def packed(seed=0):
    """Packed rows, and where each of their sequences lies: a row and a slice."""
    random = np.random.default_rng(seed)
    names = ("token_ids", "segment_ids", "sequence_ids", "position_ids")
    features = {name: np.zeros((len(LENGTHS), LENGTH), "int32") for name in names}
    places = []
    for row, lengths in enumerate(LENGTHS):
        ends = np.cumsum(lengths)
        for number, (end, length) in enumerate(zip(ends, lengths, strict=True), 1):
            where = slice(end - length, end)
            features["token_ids"][row, where] = random.integers(1, 50, length)
            features["segment_ids"][row, where] = np.arange(length) > length // 2
            features["sequence_ids"][row, where] = number
            features["position_ids"][row, where] = np.arange(length)
            places.append((row, where))
    return features, places


FEATURES, PLACES = packed()


def alone(features, row, where):
    """One of the sequences, in a row without anything else."""
    return {name: features[name][row : row + 1, where] for name in ("token_ids", "segment_ids")}


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    model = Backbone(SMALL, packed=True)
    random_weights(model)
    return model


def squares(is_token, output):
    return ops.sum(is_token * ops.square(output))


def gradients(model, batches):
    """The sum over batches, by a step of gradient descent at rate 1 for each from one start."""
    model.compile(keras.optimizers.SGD(1.0), loss={"sequence_output": squares})
    before = [variable.numpy() for variable in model.weights]
    total = [np.zeros_like(value) for value in before]
    for batch in batches:
        is_token = batch.get("sequence_ids", np.ones_like(batch["token_ids"])) > 0
        model.train_on_batch(batch, {"sequence_output": is_token[..., None].astype("float32")})
        for step, variable, value in zip(total, model.weights, before, strict=True):
            step += value - variable.numpy()
        model.set_weights(before)
    return {v.path: step for v, step in zip(model.weights, total, strict=True)}


def test_packed_and_unpacked_have_the_same_gradients():
    model = Backbone(WITHOUT_DROPOUT, packed=True)
    random_weights(model)
    model.pooler.trainable = False  # which has none
    expected = gradients(model, [alone(FEATURES, *place) for place in PLACES])
    for path, gradient in gradients(model, [FEATURES]).items():
        scale = max(1.0, abs(expected[path]).max())
        np.testing.assert_allclose(
            gradient / scale, expected[path] / scale, atol=2e-5, err_msg=path
        )


def test_attention_is_within_sequences():
    model = Backbone(SMALL, packed=True, output_attention_scores=True)
    ids = FEATURES["sequence_ids"]
    same = np.broadcast_to((ids[:, :, None] == ids[:, None])[:, None], (3, 2, LENGTH, LENGTH))
    for scores in model(FEATURES)["attention_scores"]:
        scores = to_numpy(scores)
        assert (scores[~same] == 0).all()
        assert (scores[same] > 0).all()


@pytest.mark.on_tensorflow
def test_masked_positions_of_packed_rows(backbone):
    model = MaskedLM(backbone)
    positions = np.array([[0, 4, 11], [5, 7, 9], [0, 3, 6]], "int32")
    logits = to_numpy(model({**FEATURES, "mask_positions": positions}))
    for row, where in PLACES:
        slots = [i for i, p in enumerate(positions[row]) if where.start <= p < where.stop]
        own = {"mask_positions": positions[row : row + 1, slots] - where.start}
        expected = to_numpy(model({**alone(FEATURES, row, where), **own}))
        np.testing.assert_allclose(logits[row, slots], expected[0], atol=1e-5)


@pytest.mark.on_tensorflow
def test_unpacked_outputs_match_ordinary_model(backbone):
    ordinary = Backbone(SMALL)
    ordinary.set_weights(backbone.get_weights())
    inputs = alone(FEATURES, 2, slice(0, 7))
    expected = to_numpy(ordinary(inputs)["sequence_output"])
    empty = {"sequence_ids": None, "position_ids": None}
    for unpacked in (inputs, {**inputs, **empty}, {**inputs, "padding_mask": None}):
        np.testing.assert_array_equal(to_numpy(backbone(unpacked)["sequence_output"]), expected)
    explicit = {name: value[2:, :7] for name, value in FEATURES.items()}
    for left_out in ("sequence_ids", "position_ids", None):
        features = {name: value for name, value in explicit.items() if name != left_out}
        np.testing.assert_allclose(
            to_numpy(backbone(features)["sequence_output"]), expected, atol=1e-5
        )


@pytest.mark.on_tensorflow
def test_a_padding_mask_masks_within_sequences_too(backbone):
    mask = np.ones((3, LENGTH), bool)
    mask[0, 7] = False
    outputs = to_numpy(backbone({**FEATURES, "padding_mask": mask})["sequence_output"])
    inputs = {**alone(FEATURES, 0, slice(4, 8)), "padding_mask": mask[:1, 4:8]}
    expected = to_numpy(backbone(inputs)["sequence_output"])
    np.testing.assert_allclose(outputs[0, 4:7], expected[0, :3], atol=1e-5)


def test_packed_rows_may_be_longer_than_the_positions(backbone):
    long = {name: np.concatenate([value, value], axis=1) for name, value in FEATURES.items()}
    long["sequence_ids"][:, LENGTH:] += 3
    expected = to_numpy(backbone(FEATURES)["sequence_output"])
    outputs = to_numpy(backbone(long)["sequence_output"])
    np.testing.assert_allclose(outputs[:, LENGTH : LENGTH + 4], expected[:, :4], atol=1e-5)
    del long["position_ids"]
    with pytest.raises(ValueError, match=r"at most 12 tokens .*Received: 24 tokens"):
        backbone(long)


@pytest.mark.on_tensorflow
def test_a_preset_takes_packed_rows_where_asked_to(backbone, tmp_path):
    backbone.save_to_preset(tmp_path)
    expected = to_numpy(backbone(FEATURES)["sequence_output"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)  # there is no masked-LM head
        loaded = [
            Backbone.from_preset(tmp_path, packed=True),
            MaskedLM.from_preset(tmp_path, packed=True).backbone,
        ]
    for same in loaded:
        np.testing.assert_array_equal(to_numpy(same(FEATURES)["sequence_output"]), expected)
    assert not Backbone.from_preset(tmp_path).packed
