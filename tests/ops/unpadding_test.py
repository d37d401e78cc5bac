# SPDX-License-Identifier: Apache-2.0
"""Which batches are unpadded, including on devices that this machine does not have."""

import contextlib

import numpy as np
import pytest

from keras_bert.ops import BatchLayout
from keras_bert.ops.attention.kernels import AttentionCase
from keras_bert.ops.unpadding import allow_unpadding, forbid_unpadding, should_unpad

pytestmark = pytest.mark.on_tensorflow

SMALL, LARGE = (64, 384), (256, 384)
CASES = {
    "tensorflow": AttentionCase(
        "tensorflow", "cpu", None, "float32", 64, (None, None), form="unpadded"
    ),
    "tensorflow gpu": AttentionCase("tensorflow", "gpu", None, "float32", 64, (None, None)),
    "torch": AttentionCase("torch", "cpu", None, "bfloat16", 64, (None, None), form="unpadded"),
    "torch gpu": AttentionCase(
        "torch", "gpu", (9, 0), "bfloat16", 64, (None, None), form="unpadded"
    ),
    "older gpu": AttentionCase(
        "torch", "gpu", (7, 5), "bfloat16", 64, (None, None), form="unpadded"
    ),
    "float32 gpu": AttentionCase(
        "torch", "gpu", (9, 0), "float32", 64, (None, None), form="unpadded"
    ),
    "biased gpu": AttentionCase(
        "torch", "gpu", (9, 0), "bfloat16", 64, (None, None), "unpadded", bias=True
    ),
    "jax": AttentionCase("jax", "cpu", None, "float32", 64, (None, None), form="unpadded"),
}
NO_CONTEXT = contextlib.nullcontext


def is_unpadded(option, case, *, shape=LARGE, context=NO_CONTEXT, training=False, **fields):
    fields = {"padding_mask": np.ones(shape, bool), **fields}
    returns_all_layers = fields.pop("returns_all_layers", False)
    case = AttentionCase(**{**vars(CASES[case]), "training": training})
    with context():
        layout = BatchLayout(**fields)
        return should_unpad(option, np.zeros(shape), layout, case, returns_all_layers)


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_option_true_unpads_unless_padding_is_needed(backend):
    assert is_unpadded(True, backend)
    assert is_unpadded(True, backend, training=True)
    assert not is_unpadded(False, backend)
    assert not is_unpadded(True, backend, padding_mask=None)
    assert not is_unpadded(True, backend, sequence_ids=np.ones(LARGE))
    assert not is_unpadded(True, backend, returns_all_layers=True)
    assert not is_unpadded(True, backend, shape=(0, 384))
    assert not is_unpadded(True, backend, context=forbid_unpadding)
    assert not is_unpadded(True, "jax")


@pytest.mark.parametrize(
    ("expected", "case", "options"),
    [
        (True, "tensorflow", {"context": allow_unpadding}),
        (False, "tensorflow", {"context": allow_unpadding, "training": True}),
        (False, "tensorflow", {}),
        (False, "tensorflow", {"context": forbid_unpadding}),
        (False, "tensorflow gpu", {"context": allow_unpadding}),
        (True, "torch gpu", {}),
        (False, "torch gpu", {"training": True}),
        (False, "torch gpu", {"shape": SMALL}),
        (False, "torch gpu", {"context": forbid_unpadding}),
        (False, "torch", {}),
        (False, "older gpu", {}),
        (False, "float32 gpu", {}),
        (False, "biased gpu", {}),
        (False, "jax", {}),
    ],
)
def test_default_unpads_if_faster(expected, case, options):
    assert is_unpadded(None, case, **options) == expected


def test_allow_within_forbid_has_no_effect():
    with forbid_unpadding():
        assert not is_unpadded(None, "tensorflow", context=allow_unpadding)
