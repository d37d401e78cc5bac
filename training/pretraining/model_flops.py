# SPDX-License-Identifier: Apache-2.0
"""How much arithmetic a training step takes, and how fast this machine multiplies matrices."""

from __future__ import annotations

import functools
import statistics
import time

import keras
from keras import ops

from keras_bert.config import BertConfig

# A backward pass multiplies by the weights and by the activations: two products for each one.
_TRAINING_FACTOR = 3
_SIZE_ON_CPU, _SIZE_ON_ACCELERATOR = 2048, 8192
_ROUNDS = 5


def training_flops(
    config: BertConfig,
    rows: int,
    sequence_length: int,
    slots: int,
    next_sentence: bool,
    *,
    reads_all: bool = False,
) -> int:
    """Floating-point operations of the matrix products of a training step.

    Element-wise work is left out, as is usual; a multiplication and an addition are two.

    Args:
        config: the encoder's architecture.
        rows: rows in the batch.
        sequence_length: tokens in a row, padding counted: products do not know it.
        slots: masked tokens in a row.
        next_sentence: whether there is the second objective.
        reads_all: whether the outputs of all tokens are looked at, and not the masked ones' alone
            (and the first one's for the second objective): of others, what lies behind the last
            attention is not computed, except by a causal encoder.
    """
    hidden, inside = config.hidden_dim, config.intermediate_dim
    of_token = 2 * hidden * (4 * hidden + 2 * inside) + 4 * sequence_length * hidden
    # A masked token's vector and its logits are as wide as the embeddings, as is what is projected.
    width = config.embedding_width
    of_slot = 2 * width * (hidden + config.vocabulary_size)
    of_projection = 0 if config.embedding_dim is None else 2 * width * hidden
    of_pair = 2 * hidden * (hidden + 2) if next_sentence else 0
    of_tokens = sequence_length * (config.num_layers * of_token + of_projection)
    if not (reads_all or config.causal):
        num_unread = sequence_length - slots - int(next_sentence)
        of_tokens -= num_unread * 2 * hidden * (hidden + 2 * inside)
    of_row = of_tokens + slots * of_slot + of_pair
    return _TRAINING_FACTOR * rows * of_row


@functools.cache
def peak_flops(dtype: str) -> float:
    """Floating-point operations a second in the product of two large square matrices.

    Args:
        dtype: of the factors, as `bfloat16`.

    Returns:
        The median of a few rounds, of the first call in a process.
    """
    size = _SIZE_ON_ACCELERATOR if has_accelerator() else _SIZE_ON_CPU
    factor = ops.cast(keras.random.normal((size, size), seed=0), dtype)
    _multiply(factor)
    seconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        _multiply(factor)
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / statistics.median(seconds)


def has_accelerator() -> bool:
    """Whether the backend sees a GPU or a TPU."""
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.is_available()
    return any(not device.lower().startswith("cpu") for device in keras.distribution.list_devices())


def _multiply(factor: object) -> None:
    # A number of the result: without it a backend has only begun.
    ops.convert_to_numpy(ops.cast(ops.matmul(factor, factor)[:1, :1], "float32"))
