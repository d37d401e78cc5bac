# SPDX-License-Identifier: Apache-2.0
"""Dropout masks from a hash: rate and independence."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.ops.hashed_dropout import drop, fold_in

pytestmark = pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="PyTorch draws with its own generator"
)


def sample_mask(key, rate=0.5, shape=(256, 256)):
    key = ops.convert_to_tensor(np.array(key, "uint32"))
    return ops.convert_to_numpy(drop(ops.ones(shape), rate, key)) > 0


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_dropout_rate_holds_overall_and_per_line(rate):
    mask = sample_mask((3, 5), rate)
    deviation = np.sqrt(rate * (1 - rate))
    assert abs(mask.mean() - (1 - rate)) < 4 * deviation / 256
    for axis in (0, 1):
        # The largest of 256 means of 256 values is within five deviations.
        assert abs(mask.mean(axis) - (1 - rate)).max() < 5 * deviation / 16


@pytest.mark.parametrize("key", [(3, 6), (4, 5), (5, 3), (3, 5 + 2**31)])
def test_similar_keys_drop_independently(key):
    first, second = sample_mask((3, 5)), sample_mask(key)
    for rows, columns in [(0, 0), (0, 1), (1, 0), (5, 17)]:
        agreement = (first == np.roll(second, (rows, columns), (0, 1))).mean()
        assert abs(agreement - 0.5) < 4 * 0.5 / 256


def test_chunks_and_steps_have_unique_keys():
    """A seed generator counts steps in the second number of the key."""
    keys = {
        tuple(ops.convert_to_numpy(fold_in(np.array([7, step], "uint32"), chunk)).tolist())
        for step in range(8)
        for chunk in range(8)
    }
    assert len(keys) == 64


def test_neighbors_drop_independently():
    mask = sample_mask((0, 0))
    for rows, columns in [(0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (128, 0), (0, 128)]:
        agreement = (mask == np.roll(mask, (rows, columns), (0, 1))).mean()
        assert abs(agreement - 0.5) < 4 * 0.5 / 256
