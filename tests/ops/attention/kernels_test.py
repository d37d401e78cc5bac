# SPDX-License-Identifier: Apache-2.0
"""Which kernel computes which attention: the table, for devices that this machine lacks too."""

import pytest

from keras_bert.ops.attention import kernels
from keras_bert.ops.attention.kernels import AttentionCase, kernel_of

pytestmark = pytest.mark.backend_independent

PATTERNS = {
    "whole": {},
    "keys": {"mask": "keys"},
    "pairs": {"mask": "pairs"},
    "window": {"window": True},
    "causal window": {"window": True, "causal": True},
    "masked causal window": {"window": True, "causal": True, "mask": "pairs"},
    "unpadded": {"form": "unpadded"},
}
ON_AN_H100 = {
    ("torch", False): ("sdpa", "sdpa", "sdpa", "flex", "flex", "flex", "varlen"),
    ("torch", True): ("sdpa", "sdpa", "sdpa", "windowed", "windowed", "windowed", "per_group"),
    ("jax", False): ("cudnn", "cudnn", "cudnn", "windowed", "cudnn", "windowed"),
    ("jax", True): ("portable", "portable", "portable", "windowed", "windowed", "windowed"),
    ("tensorflow", False): (*["plain"] * 3, *["windowed"] * 3, "per_group"),
    ("tensorflow", True): (*["portable"] * 3, *["windowed"] * 3, "per_group"),
}


def kernel(backend, pattern="whole", capability=(9, 0), dtype="bfloat16", **options):
    options = {"head_dim": 64, "lengths": (512, 512), **PATTERNS[pattern], **options}
    device = options.pop("device", "gpu")
    capability = capability if device == "gpu" else None
    return kernel_of(AttentionCase(backend, device, capability, dtype, **options))


@pytest.mark.parametrize(("backend", "dropout"), ON_AN_H100)
def test_each_pattern_has_the_kernel_that_takes_it(backend, dropout):
    expected = dict(zip(PATTERNS, ON_AN_H100[backend, dropout], strict=False))
    assert {name: kernel(backend, name, dropout=dropout) for name in expected} == expected


@pytest.mark.parametrize(
    ("backend", "training", "dropout", "expected"),
    [
        ("torch", True, False, "sdpa"),
        ("torch", True, True, "portable"),
        ("jax", True, True, "portable"),
        ("tensorflow", False, False, "plain"),
        ("tensorflow", True, True, "fused_step"),
    ],
)
def test_a_cpu_has_others(backend, training, dropout, expected):
    assert kernel(backend, device="cpu", training=training, dropout=dropout) == expected
    long = kernel(backend, device="cpu", training=training, dropout=dropout, lengths=(2048, 2048))
    assert long == ("chunked" if backend == "jax" else expected)


def test_a_bias_is_for_kernels_that_take_one():
    assert kernel("torch", bias=True) == "sdpa"
    assert kernel("torch", "unpadded", bias=True) == "per_group"
    assert kernel("jax", bias=True) == "portable"
    assert kernel("jax", bias=True, lengths=(4096, 4096)) == "chunked"
    assert kernel("tensorflow", device="cpu", bias=True, training=True) == "plain"


def test_a_tpu_computes_the_definition():
    assert kernel("jax", device="tpu", lengths=(4096, 4096)) == "portable"


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
    assert kernel("jax", "keys", **options) == ("cudnn" if taken else "portable")


@pytest.mark.parametrize("lengths", [(511, 512), (512, 511), (None, None)])
def test_cudnn_masks_pairs_of_even_lengths(lengths):
    assert kernel("jax", "pairs", lengths=lengths) == "portable"
    assert kernel("jax", "keys", lengths=lengths) == "cudnn"


@pytest.mark.parametrize(
    ("expected", "options"),
    [
        ("flex", {"dtype": "float32", "capability": (8, 0)}),
        ("windowed", {"dtype": "float64"}),
        ("windowed", {"head_dim": 8}),
        ("windowed", {"capability": (7, 5)}),
    ],
)
def test_flex_is_used_for_what_pytorch_compiles(expected, options):
    assert kernel("torch", "window", **options) == expected


@pytest.mark.parametrize(
    ("expected", "options"),
    [
        ("varlen", {"dtype": "float16", "capability": (8, 0), "head_dim": 256}),
        ("per_group", {"dtype": "float32"}),
        ("per_group", {"head_dim": 20}),
        ("per_group", {"head_dim": 264}),
        ("per_group", {"capability": (7, 5)}),
    ],
)
def test_varlen_is_used_for_what_flash_attention_takes(expected, options):
    assert kernel("torch", "unpadded", **options) == expected


def test_the_page_names_each_kernel():
    rows = [line for line in kernels.__doc__.splitlines() if line.startswith("| `")]
    assert {row.split("`")[1] for row in rows} == {row.kernel for row in kernels.TABLE}
