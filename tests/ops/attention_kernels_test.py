# SPDX-License-Identifier: Apache-2.0
"""Which kernel of a GPU computes which attention."""

import numpy as np
import pytest

from keras_bert.ops import attention_kernels
from keras_bert.ops.attention_kernels import (
    CAUSAL_WINDOW,
    KEYS,
    MASKED_CAUSAL_WINDOW,
    NONE,
    PAIRS,
    ROWS,
    WINDOW,
    kernel_of,
    kind_of,
)

pytestmark = pytest.mark.backend_independent

ALL = (NONE, KEYS, PAIRS, WINDOW, CAUSAL_WINDOW, MASKED_CAUSAL_WINDOW, ROWS)
TAKEN = {
    ("torch", 0.0): {
        **dict.fromkeys((NONE, KEYS, PAIRS), "sdpa"),
        **dict.fromkeys((WINDOW, CAUSAL_WINDOW, MASKED_CAUSAL_WINDOW), "flex"),
        ROWS: "varlen",
    },
    ("torch", 0.1): dict.fromkeys((NONE, KEYS, PAIRS), "sdpa"),
    ("jax", 0.0): dict.fromkeys((NONE, KEYS, PAIRS, CAUSAL_WINDOW), "cudnn"),
    ("jax", 0.1): {},
    ("tensorflow", 0.0): {},
    ("tensorflow", 0.1): {},
}


def kernel(backend, mask, capability=(9, 0), dtype="bfloat16", **options):
    options = {"head_dim": 64, "lengths": (512, 512), "dropout": 0.0, **options}
    return kernel_of(backend, capability, dtype, mask=mask, **options)


@pytest.mark.parametrize(("backend", "dropout"), TAKEN)
def test_each_mask_has_the_kernel_that_takes_it(backend, dropout):
    found = {mask: kernel(backend, mask, dropout=dropout) for mask in ALL}
    assert found == {mask: TAKEN[backend, dropout].get(mask) for mask in ALL}


@pytest.mark.parametrize(
    ("taken", "options"),
    [
        (True, {"dtype": "float16", "capability": (8, 0), "head_dim": 128}),
        (False, {"dtype": "float32"}),
        (False, {"capability": (7, 5)}),
        (False, {"head_dim": 20}),
        (False, {"head_dim": 136, "capability": (8, 9)}),
        (True, {"head_dim": 256, "capability": (9, 0)}),
        (False, {"head_dim": 264}),
    ],
)
def test_cudnn_is_used_for_what_jax_lowers(taken, options):
    assert kernel("jax", KEYS, **options) == ("cudnn" if taken else None)


@pytest.mark.parametrize("lengths", [(511, 512), (512, 511), (None, None)])
def test_cudnn_masks_pairs_of_even_lengths(lengths):
    assert kernel("jax", PAIRS, lengths=lengths) is None
    assert kernel("jax", KEYS, lengths=lengths) == "cudnn"


@pytest.mark.parametrize(
    ("expected", "options"),
    [
        ("flex", {"dtype": "float32", "capability": (8, 0)}),
        (None, {"dtype": "float64"}),
        (None, {"head_dim": 8}),
        (None, {"capability": (7, 5)}),
    ],
)
def test_flex_is_used_for_what_pytorch_compiles(expected, options):
    assert kernel("torch", WINDOW, **options) == expected


@pytest.mark.parametrize(
    ("expected", "options"),
    [
        ("varlen", {"dtype": "float16", "capability": (8, 0), "head_dim": 256}),
        (None, {"dtype": "float32"}),
        (None, {"head_dim": 20}),
        (None, {"head_dim": 264}),
        (None, {"capability": (7, 5)}),
    ],
)
def test_varlen_is_used_for_what_flash_attention_takes(expected, options):
    assert kernel("torch", ROWS, **options) == expected


def test_pytorch_chooses_a_kernel_by_itself():
    options = {"dtype": "float64", "head_dim": 7, "capability": (6, 0)}
    assert kernel("torch", PAIRS, **options) == "sdpa"
    assert kernel("torch", ROWS, **options) is None


def test_kinds_of_masks():
    assert kind_of(None) == NONE
    assert kind_of(np.ones((2, 1, 1, 5))) == KEYS
    assert kind_of(np.ones((1, 1, 5, 5))) == PAIRS
    assert kind_of(np.ones((2, 3, 1, 5))) == PAIRS


def test_the_table_names_each_kernel():
    named = {kernel for kernels in TAKEN.values() for kernel in kernels.values()}
    rows = [line for line in attention_kernels.__doc__.splitlines() if line.startswith("| `")]
    assert {row.split("`")[1] for row in rows} == named
    dropping = {kernel for (_, rate), row in TAKEN.items() if rate for kernel in row.values()}
    assert {row.split("`")[1] for row in rows if row.endswith("| yes |")} == dropping
