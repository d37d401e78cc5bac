# SPDX-License-Identifier: Apache-2.0
"""Which kernel of a GPU computes attention, if there is one that takes what is asked of it.

| kernel | is | masks | dropout |
|---|---|---|---|
| `sdpa` | PyTorch's `scaled_dot_product_attention` | all | yes |
| `varlen` | PyTorch's `varlen_attn` | rows end to end | no |
| `flex` | PyTorch's `flex_attention` | windows, padding, sequences | no |
| `cudnn` | JAX's `dot_product_attention` by cuDNN | all, and windows to the left | no |

None of them stores scores. cuDNN would drop too, by a function of JAX that is not public. But there
the seed is a constant of the compiled program, and the number of the draw is a state of it: a run
that is resumed would drop other positions, and several devices the same ones of their rows. So JAX
computes attention with dropout by its own operations, long rows in blocks.

On TensorFlow, XLA compiles the operations, and scores are stored.
"""

from __future__ import annotations

import keras

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor

# The kinds of masks: none; `(batch, 1, 1, length)`; all others; a window, to both sides or to the
# left, with padding and sequences or without; and the rows of an unpadded batch.
NONE, KEYS, PAIRS = "none", "keys", "pairs"
WINDOW, CAUSAL_WINDOW, MASKED_CAUSAL_WINDOW = "window", "causal window", "masked causal window"
ROWS = "rows"


def fused_kernel(query: Tensor, key: Tensor, mask: str, dropout: float) -> str | None:
    """Returns the name of the kernel that computes attention, or `None` for other operations.

    Args:
        query: Float tensor of shape `(batch, length, heads, head_dim)`.
        key: Float tensor of shape `(batch, length, key_value_heads, head_dim)`.
        mask: The kind of mask, a constant of this module.
        dropout: Dropout rate on the probabilities.
    """
    # With a GPU, PyTorch may compute on a CPU too.
    capability = dispatch.cuda_capability() if getattr(query, "is_cuda", True) else None
    if capability is None:
        return None
    return kernel_of(
        keras.backend.backend(),
        capability,
        keras.backend.standardize_dtype(query.dtype),
        head_dim=query.shape[-1],
        lengths=(query.shape[1], key.shape[1]),
        mask=mask,
        dropout=dropout,
    )


def kernel_of(
    backend: str,
    cuda_capability: tuple[int, ...],
    dtype: str,
    *,
    head_dim: int,
    lengths: tuple[int | None, int | None],
    mask: str,
    dropout: float,
) -> str | None:
    """Returns what `fused_kernel` does.

    Args:
        backend: Keras' backend.
        cuda_capability: The compute capability of the GPU, such as `(8, 0)`.
        dtype: The dtype of the queries.
        head_dim: Dimension of a head.
        lengths: The number of queries and of keys of a row; `None` if they are unknown.
        mask: The kind of mask.
        dropout: Dropout rate on the probabilities.
    """
    is_half = dtype in ("float16", "bfloat16")
    if backend == "torch":
        if mask in (NONE, KEYS, PAIRS):
            return "sdpa"  # which chooses a kernel by itself
        if dropout or cuda_capability < (8, 0):
            return None
        if mask == ROWS:
            return "varlen" if is_half and head_dim % 8 == 0 and head_dim <= 256 else None
        return "flex" if (is_half or dtype == "float32") and head_dim >= 16 else None
    if backend == "jax":
        largest = 256 if cuda_capability >= (9, 0) else 128
        is_taken = is_half and head_dim % 8 == 0 and head_dim <= largest
        if dropout or not is_taken or cuda_capability < (8, 0):
            return None
        if mask == PAIRS:  # whose gradient, in training, cuDNN computes for even lengths only
            return None if any(length is None or length % 2 for length in lengths) else "cudnn"
        return "cudnn" if mask in (NONE, KEYS, CAUSAL_WINDOW) else None
    return None


def kind_of(mask: Tensor | None) -> str:
    """Returns the kind of an attention mask, as `keras_bert.ops.attention` takes it."""
    if mask is None:
        return NONE
    return KEYS if tuple(mask.shape[1:3]) == (1, 1) else PAIRS
