# SPDX-License-Identifier: Apache-2.0
"""Selects the first attention kernel in `TABLE` that supports a case.

| kernel | description |
|---|---|
| `portable` | reference implementation with Keras operations |
| `per_group` | applies another kernel to each group of sequences in an unpadded batch |
| `windowed` | applies another kernel to a window's blocks as separate sequences |
| `varlen` | PyTorch's `varlen_attn` |
| `flex` | PyTorch's `flex_attention`, for windows |
| `sdpa` | PyTorch's `scaled_dot_product_attention`, with a kernel selected by PyTorch |
| `cudnn` | JAX's `dot_product_attention` with cuDNN |
| `chunked` | JAX operations on one chunk of queries at a time, for long sequences |
| `fused_step` | training on a CPU with TensorFlow, with a custom backward pass |
| `plain` | TensorFlow operations that its graph optimizer can fuse |

`varlen`, `flex`, `sdpa` and `cudnn` do not store scores. cuDNN also supports dropout, through a
private JAX function. However, its seed is a constant in the compiled program, and cuDNN counts the
calls itself. A resumed run would drop different elements, and all devices would drop the same
elements. So on JAX, attention with dropout uses JAX operations instead.

On TensorFlow with a GPU or TPU, XLA compiles the operations, and scores are stored. JAX has static
shapes, so it does not support unpadded batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention.portable import QueryKeyValue

# Queries per chunk. Their scores for 8,192 keys take 16 MiB per head.
CHUNK_SIZE = 512
# Shorter sequences are not split, since their scores take less memory than the step's other data.
MIN_CHUNKED_LENGTH = 2048


@dataclasses.dataclass(frozen=True)
class AttentionCase:
    """The properties of inputs, options and device that determine the kernel.

    Attributes:
        backend: Keras' backend.
        device: `"cpu"`, `"gpu"` or `"tpu"`.
        cuda_capability: The NVIDIA GPU's compute capability, for example `(8, 0)`, or `None`.
        dtype: The dtype of the queries.
        head_dim: The head dimension.
        lengths: The number of queries and keys per sequence. `None` if unknown while tracing a
            graph.
        form: `"padded"`, `"packed"` or `"unpadded"`, see `keras_bert.ops.BatchLayout`.
        window: Whether tokens attend only to tokens within a window.
        causal: Whether tokens attend only to themselves and to the tokens before them.
        mask: `"none"`, `"keys"` for a mask of shape `(batch, 1, 1, length)`, or `"pairs"` for other
            masks. With a window, it is `"pairs"` if anything besides the window masks tokens, and
            otherwise `"none"`.
        bias: Whether a bias is added to the scores.
        dropout: Whether dropout applies to the probabilities.
        training: Whether gradients will be computed.
    """

    backend: str
    device: str
    cuda_capability: tuple[int, ...] | None
    dtype: str
    head_dim: int
    lengths: tuple[int | None, int | None]
    form: str = "padded"
    window: bool = False
    causal: bool = False
    mask: str = "none"
    bias: bool = False
    dropout: bool = False
    training: bool = False

    @property
    def is_half(self) -> bool:
        """Whether the dtype has 16 bits."""
        return self.dtype in ("float16", "bfloat16")

    @property
    def is_fusible(self) -> bool:
        """Whether an NVIDIA GPU of capability 8.0 or more computes it without bias and dropout."""
        return not self.bias and not self.dropout and self.has_capability(8, 0)

    def has_capability(self, *capability: int) -> bool:
        """Whether there is an NVIDIA GPU with at least this compute capability."""
        return self.cuda_capability is not None and self.cuda_capability >= capability


def _takes_varlen(case: AttentionCase) -> bool:
    fits = case.is_half and case.head_dim % 8 == 0 and case.head_dim <= 256
    return fits and case.form == "unpadded" and not (case.window or case.causal) and case.is_fusible


def _takes_flex(case: AttentionCase) -> bool:
    fits = (case.is_half or case.dtype == "float32") and case.head_dim >= 16
    return fits and case.window and case.is_fusible


def _takes_cudnn(case: AttentionCase) -> bool:
    largest = 256 if case.has_capability(9, 0) else 128
    if not case.is_half or case.head_dim % 8 or case.head_dim > largest or not case.is_fusible:
        return False
    if case.window:
        return case.causal and case.mask == "none"
    # With a mask over pairs, cuDNN only supports gradients for even lengths.
    return case.mask != "pairs" or not any(n is None or n % 2 for n in case.lengths)


def _takes_chunked(case: AttentionCase) -> bool:
    length = case.lengths[0]
    is_measured = case.device == "cpu" or case.cuda_capability is not None
    return is_measured and length is not None and length >= MIN_CHUNKED_LENGTH


def _takes_fused_step(case: AttentionCase) -> bool:
    return case.training and case.device == "cpu" and not case.bias


class KernelRule(NamedTuple):
    """A kernel with its backend (`None` for all backends) and the cases it supports."""

    kernel: str
    backend: str | None
    takes: Callable[[AttentionCase], bool]


TABLE = (
    KernelRule("varlen", "torch", _takes_varlen),
    KernelRule("flex", "torch", _takes_flex),
    KernelRule("per_group", None, lambda case: case.form == "unpadded"),
    KernelRule("cudnn", "jax", _takes_cudnn),
    KernelRule("windowed", None, lambda case: case.window),
    # On a CPU with dropout, the portable operations are as fast as PyTorch's function.
    KernelRule("sdpa", "torch", lambda case: not case.dropout or case.device == "gpu"),
    KernelRule("chunked", "jax", _takes_chunked),
    KernelRule("fused_step", "tensorflow", _takes_fused_step),
    KernelRule("plain", "tensorflow", lambda case: not case.dropout),
    KernelRule("portable", None, lambda case: True),
)


def kernel_of(case: AttentionCase) -> str:
    """Returns the name of the kernel that computes attention."""
    return next(
        row.kernel for row in TABLE if row.backend in (None, case.backend) and row.takes(case)
    )


def mask_kind(mask: Tensor | None) -> str:
    """Returns the mask type. The mask broadcasts to `(batch, heads, queries, keys)`."""
    if mask is None:
        return "none"
    return "keys" if tuple(mask.shape[1:3]) == (1, 1) else "pairs"


def case_on_device_of(x: Tensor, **attributes: Any) -> AttentionCase:
    """Returns an `AttentionCase` for this backend and a tensor's device."""
    device = dispatch.device_of(x)
    return AttentionCase(
        backend=keras.backend.backend(),
        device=device,
        cuda_capability=dispatch.cuda_capability() if device == "gpu" else None,
        **attributes,
    )


def case_of(
    query_key_value: QueryKeyValue,
    *,
    form: str = "padded",
    window: bool = False,
    causal: bool = False,
    mask: str = "none",
    bias: bool = False,
    dropout: float = 0.0,
    training: bool = False,
) -> AttentionCase:
    """Returns the `AttentionCase` of tensors on their device. `dropout` is the rate."""
    query: Tensor
    key: Tensor
    if isinstance(query_key_value, tuple):
        query, key, _ = query_key_value
    else:
        query = key = query_key_value
    return case_on_device_of(
        query,
        dtype=keras.backend.standardize_dtype(query.dtype),
        head_dim=query.shape[-1],
        # A symbolic JAX dimension is not an integer and cannot be compared.
        lengths=(_known(query.shape[1]), _known(key.shape[1])),
        form=form,
        window=window,
        causal=causal,
        mask=mask,
        bias=bias,
        dropout=bool(dropout),
        training=training,
    )


def _known(length: Any) -> int | None:
    return length if isinstance(length, int) else None
