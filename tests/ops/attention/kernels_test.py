# SPDX-License-Identifier: Apache-2.0
"""The table of attention kernels, including devices that this machine does not have."""

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
H100_KERNELS = {
    ("torch", False): ("sdpa", "sdpa", "sdpa", "flex", "flex", "flex", "varlen"),
    ("torch", True): ("sdpa", "sdpa", "sdpa", "windowed", "windowed", "windowed", "per_group"),
    ("jax", False): ("cudnn", "cudnn", "cudnn", "windowed", "cudnn", "windowed"),
    ("jax", True): ("portable", "portable", "portable", "windowed", "windowed", "windowed"),
    ("tensorflow", False): (*["plain"] * 3, *["windowed"] * 3, "per_group"),
    ("tensorflow", True): (*["portable"] * 3, *["windowed"] * 3, "per_group"),
}


def find_kernel(backend, pattern="whole", capability=(9, 0), dtype="bfloat16", **options):
    options = {"head_dim": 64, "lengths": (512, 512), **PATTERNS[pattern], **options}
    device = options.pop("device", "gpu")
    capability = capability if device == "gpu" else None
    return kernel_of(AttentionCase(backend, device, capability, dtype, **options))


@pytest.mark.parametrize(("backend", "dropout"), H100_KERNELS)
def test_kernel_for_each_pattern(backend, dropout):
    expected = dict(zip(PATTERNS, H100_KERNELS[backend, dropout], strict=False))
    assert {name: find_kernel(backend, name, dropout=dropout) for name in expected} == expected


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
def test_cpu_kernels(backend, training, dropout, expected):
    assert find_kernel(backend, device="cpu", training=training, dropout=dropout) == expected
    long = find_kernel(
        backend, device="cpu", training=training, dropout=dropout, lengths=(2048, 2048)
    )
    assert long == ("chunked" if backend == "jax" else expected)


def test_bias_uses_supporting_kernels():
    assert find_kernel("torch", bias=True) == "sdpa"
    assert find_kernel("torch", "unpadded", bias=True) == "per_group"
    assert find_kernel("jax", bias=True) == "portable"
    assert find_kernel("jax", bias=True, lengths=(4096, 4096)) == "chunked"
    assert find_kernel("tensorflow", device="cpu", bias=True, training=True) == "plain"


def test_tpu_uses_reference():
    assert find_kernel("jax", device="tpu", lengths=(4096, 4096)) == "portable"


@pytest.mark.parametrize(
    ("is_supported", "options"),
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
def test_cudnn_is_used_if_jax_supports_it(is_supported, options):
    assert find_kernel("jax", "keys", **options) == ("cudnn" if is_supported else "portable")


@pytest.mark.parametrize("lengths", [(511, 512), (512, 511), (None, None)])
def test_cudnn_masks_pairs_of_even_lengths(lengths):
    assert find_kernel("jax", "pairs", lengths=lengths) == "portable"
    assert find_kernel("jax", "keys", lengths=lengths) == "cudnn"


@pytest.mark.parametrize(
    ("expected", "options"),
    [
        ("flex", {"dtype": "float32", "capability": (8, 0)}),
        ("windowed", {"dtype": "float64"}),
        ("windowed", {"head_dim": 8}),
        ("windowed", {"capability": (7, 5)}),
    ],
)
def test_flex_is_used_if_pytorch_supports_it(expected, options):
    assert find_kernel("torch", "window", **options) == expected


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
def test_varlen_is_used_if_flash_supports_it(expected, options):
    assert find_kernel("torch", "unpadded", **options) == expected


def test_docs_list_all_kernels():
    rows = [line for line in kernels.__doc__.splitlines() if line.startswith("| `")]
    assert {row.split("`")[1] for row in rows} == {row.kernel for row in kernels.TABLE}
