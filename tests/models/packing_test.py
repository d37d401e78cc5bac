# SPDX-License-Identifier: Apache-2.0
"""Packed rows give the same outputs as separate sequences."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.checkpoints import CheckpointWarning
from keras_bert.models import Backbone
from keras_bert.tasks import MaskedLM
from tests.models.small_backbone import SMALL, WITHOUT_DROPOUT, random_weights, to_numpy

# The lengths of the sequences in each row. The last two rows have padding.
LENGTHS = [(4, 4, 4), (7, 4), (7,)]
LENGTH = 12


def pack_sequences(seed=0):
    """Returns packed rows, and the row and the slice of each sequence."""
    random = np.random.default_rng(seed)
    names = ("token_ids", "segment_ids", "sequence_ids", "position_ids")
    features = {name: np.zeros((len(LENGTHS), LENGTH), "int32") for name in names}
    places = []
    for row, lengths in enumerate(LENGTHS):
        ends = np.cumsum(lengths)
        for number, (end, length) in enumerate(zip(ends, lengths, strict=True), 1):
            span = slice(end - length, end)
            features["token_ids"][row, span] = random.integers(1, 50, length)
            features["segment_ids"][row, span] = np.arange(length) > length // 2
            features["sequence_ids"][row, span] = number
            features["position_ids"][row, span] = np.arange(length)
            places.append((row, span))
    return features, places


FEATURES, PLACES = pack_sequences()


def unpack(features, row, span):
    """Returns one of the sequences in a separate row."""
    return {name: features[name][row : row + 1, span] for name in ("token_ids", "segment_ids")}


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    model = Backbone(SMALL, packed=True)
    random_weights(model)
    return model


def squares(is_token, output):
    return ops.sum(is_token * ops.square(output))


def sum_gradients(model, batches):
    """Sums the gradients of the batches, each from a step of gradient descent at rate 1."""
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


@pytest.mark.on_torch
def test_packed_gradients_match_unpacked():
    model = Backbone(WITHOUT_DROPOUT, packed=True)
    random_weights(model)
    model.pooler.trainable = False  # The pooler has no gradients.
    expected = sum_gradients(model, [unpack(FEATURES, *place) for place in PLACES])
    for path, gradient in sum_gradients(model, [FEATURES]).items():
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


@pytest.mark.on_torch
def test_packed_masked_lm_matches_unpacked(backbone):
    model = MaskedLM(backbone)
    positions = np.array([[0, 4, 11], [5, 7, 9], [0, 3, 6]], "int32")
    logits = to_numpy(model({**FEATURES, "mask_positions": positions}))
    for row, span in PLACES:
        indices = [i for i, p in enumerate(positions[row]) if span.start <= p < span.stop]
        shifted = {"mask_positions": positions[row : row + 1, indices] - span.start}
        expected = to_numpy(model({**unpack(FEATURES, row, span), **shifted}))
        np.testing.assert_allclose(logits[row, indices], expected[0], atol=1e-5)


@pytest.mark.on_torch
def test_unpacked_outputs_match_plain_model(backbone):
    plain = Backbone(SMALL)
    plain.set_weights(backbone.get_weights())
    inputs = unpack(FEATURES, 2, slice(0, 7))
    expected = to_numpy(plain(inputs)["sequence_output"])
    empty = {"sequence_ids": None, "position_ids": None}
    for unpacked in (inputs, {**inputs, **empty}, {**inputs, "padding_mask": None}):
        np.testing.assert_array_equal(to_numpy(backbone(unpacked)["sequence_output"]), expected)
    explicit = {name: value[2:, :7] for name, value in FEATURES.items()}
    for omitted in ("sequence_ids", "position_ids", None):
        features = {name: value for name, value in explicit.items() if name != omitted}
        np.testing.assert_allclose(
            to_numpy(backbone(features)["sequence_output"]), expected, atol=1e-5
        )


@pytest.mark.on_torch
def test_padding_mask_applies_within_sequences(backbone):
    mask = np.ones((3, LENGTH), bool)
    mask[0, 7] = False
    outputs = to_numpy(backbone({**FEATURES, "padding_mask": mask})["sequence_output"])
    inputs = {**unpack(FEATURES, 0, slice(4, 8)), "padding_mask": mask[:1, 4:8]}
    expected = to_numpy(backbone(inputs)["sequence_output"])
    np.testing.assert_allclose(outputs[0, 4:7], expected[0, :3], atol=1e-5)


def test_packed_rows_can_exceed_max_length(backbone):
    long = {name: np.concatenate([value, value], axis=1) for name, value in FEATURES.items()}
    long["sequence_ids"][:, LENGTH:] += 3
    expected = to_numpy(backbone(FEATURES)["sequence_output"])
    outputs = to_numpy(backbone(long)["sequence_output"])
    np.testing.assert_allclose(outputs[:, LENGTH : LENGTH + 4], expected[:, :4], atol=1e-5)
    del long["position_ids"]
    with pytest.raises(
        ValueError, match=r"at most 12 tokens \(max_sequence_length\)\. Received: 24 tokens"
    ):
        backbone(long)


@pytest.mark.on_torch
def test_preset_loads_as_packed(backbone, tmp_path):
    backbone.save_to_preset(tmp_path)
    expected = to_numpy(backbone(FEATURES)["sequence_output"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)  # The preset has no masked-LM head.
        loaded = [
            Backbone.from_preset(tmp_path, packed=True),
            MaskedLM.from_preset(tmp_path, packed=True).backbone,
        ]
    for same in loaded:
        np.testing.assert_array_equal(to_numpy(same(FEATURES)["sequence_output"]), expected)
    assert not Backbone.from_preset(tmp_path).packed
