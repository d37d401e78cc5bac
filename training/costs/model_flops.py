# SPDX-License-Identifier: Apache-2.0
"""Counts a model's parameters and training FLOPs, and measures this machine's peak FLOP/s."""

from __future__ import annotations

import collections
import functools
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import keras
import numpy as np
from keras import ops

from keras_bert.checkpoints.weights import (
    attention_weight_shapes,
    feed_forward_weight_shapes,
)
from keras_bert.config import BertConfig
from keras_bert.ops.dispatch import has_accelerator

# The backward pass has two matmuls for each matmul in the forward pass.
_TRAINING_FACTOR = 3
# The fastest size depends on the caches and the dtype. For example, on a CPU with bfloat16
# instructions, matmuls of size 512 were twice as fast as matmuls of size 2,048 in bfloat16, and 1.2
# times as fast in float32.
_SIZES_ON_CPU, _SIZES_ON_ACCELERATOR = (512, 1024, 2048), (2048, 4096, 8192)
# The matmul must take longer than launching it.
_SIZE_COMPARED = 768
_ROUNDS = 5
# With 5 rounds, other running processes changed the speedup by a factor of up to 1.4.
_ROUNDS_COMPARED = 15
# Without bfloat16 instructions, PyTorch multiplies matrices of size 2,048 for a minute.
_MAX_SECONDS = 1.0

Made = TypeVar("Made")


def num_parameters(make_model: Callable[[], keras.Model]) -> int:
    """Counts a model's parameters, without allocating memory for them."""
    return int(without_values(make_model).count_params())


def without_values(make: Callable[[], Made]) -> Made:
    """Calls a function that creates models, without allocating memory for their variables."""

    def made() -> Made:
        with keras.StatelessScope(initialize_variables=False):
            return make()

    # Keras initializes waiting variables when the thread leaves its next scope. This thread ends
    # first.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(made).result()


def training_flops(
    config: BertConfig,
    rows: int,
    sequence_length: int,
    slots: int,
    next_sentence: bool,
    *,
    reads_all: bool = False,
) -> int:
    """Counts the floating-point operations (FLOPs) in the matmuls for one training step.

    As usual, element-wise operations are ignored, and a multiply-add counts as two operations.

    Args:
        config: The encoder's architecture.
        rows: The batch size.
        sequence_length: The number of tokens per sequence, including padding.
        slots: The number of masked tokens per sequence.
        next_sentence: Whether the model has a sentence pair objective.
        reads_all: Whether the outputs of all tokens are used. Otherwise, unless the encoder is
            causal, only the masked tokens pass through the part of the last layer that follows
            attention. With a sentence pair objective, so does the first token.
    """
    hidden = config.hidden_dim
    layer_flops = 0
    for index, window in enumerate(config.attention_windows):
        shapes = attention_weight_shapes(config, index) | feed_forward_weight_shapes(config)
        kernel_flops = {
            name: 2 * math.prod(shape) for name, shape in shapes.items() if name.endswith("kernel")
        }
        # The dimension of all heads together. It differs from the hidden size after pruning heads.
        width = config.effective_heads_by_layer[index] * config.head_dim
        length = sequence_length if window is None else min(sequence_length, 2 * window + 1)
        layer_flops += sum(kernel_flops.values()) + 4 * length * width
        if config.relative_positions == "disentangled":
            # Queries and keys attend to each distance. Distances are projected once per batch.
            num_distances = 2 * sequence_length - 1
            layer_flops += 4 * num_distances * width + 12 * hidden * width // rows
    # The embeddings and the masked LM head's hidden layer may be smaller than the hidden size.
    width = config.embedding_width
    prediction_flops = 2 * width * (hidden + config.vocabulary_size)
    if config.masked_lm_head == "linear":
        prediction_flops = 2 * hidden * config.vocabulary_size
    projection_flops = 0 if config.embedding_dim is None else 2 * width * hidden
    pair_flops = 2 * hidden * (hidden + 2) if next_sentence else 0
    token_flops = sequence_length * (layer_flops + projection_flops)
    if not (reads_all or config.causal):
        num_unread = sequence_length - slots - int(next_sentence)
        after_attention = (
            sum(kernel_flops.values()) - kernel_flops["attention.query_key_value.kernel"]
        )
        token_flops -= num_unread * after_attention
    row_flops = token_flops + slots * prediction_flops + pair_flops
    return _TRAINING_FACTOR * rows * row_flops


def fine_tuning_flops(config: BertConfig, lengths: np.ndarray, reads_all: bool) -> int:
    """Counts the FLOPs in the matmuls for one epoch of fine-tuning, without padding.

    Args:
        config: The encoder's architecture.
        lengths: The sequence lengths in tokens, of shape `(sequences,)`.
        reads_all: Whether the head reads all tokens, like a tagger's head, or only the first.
    """
    counts = collections.Counter(lengths.tolist())
    return sum(
        training_flops(config, count, length, 0, next_sentence=not reads_all, reads_all=reads_all)
        for length, count in counts.items()
    )


@functools.cache
def peak_flops(dtype: str) -> float:
    """Measures the peak FLOP/s of square matmuls.

    Returns:
        The FLOP/s of the fastest matmul among a few sizes and rounds, so that other running
        processes have little influence. The result is cached for the process.
    """
    highest = 0.0
    for size in _SIZES_ON_ACCELERATOR if has_accelerator() else _SIZES_ON_CPU:
        factor = ops.cast(keras.random.normal((size, size), seed=0), dtype)
        _multiply(factor)
        seconds = [_seconds(factor) for _ in _rounds(_ROUNDS)]
        highest = max(highest, 2 * size**3 / min(seconds))
        if sum(seconds) > _MAX_SECONDS:  # Larger matmuls would take much longer.
            break
    return highest


@functools.cache
def bfloat16_speedup() -> float:
    """Measures the speedup of bfloat16 matmuls over float32 matmuls.

    Processors with bfloat16 instructions may still be slower in bfloat16. For example, of two
    processors with `avx512_bf16`, one trained 1.6 times as fast in mixed_bfloat16, but the other
    only 0.6 times as fast.

    Returns:
        The shortest time in float32 divided by the shortest time in bfloat16. The dtypes alternate
        for a few rounds, so that other running processes have little influence. The result is
        cached for the process.
    """
    numbers = keras.random.normal((_SIZE_COMPARED, _SIZE_COMPARED), seed=0)
    seconds: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    for dtype in seconds:
        _multiply(ops.cast(numbers, dtype))
    for _ in _rounds(_ROUNDS_COMPARED):
        for dtype, durations in seconds.items():
            durations.append(_seconds(ops.cast(numbers, dtype)))
    return min(seconds["float32"]) / min(seconds["bfloat16"])


def _rounds(most: int) -> Iterator[int]:
    """Yields the numbers of the rounds, but starts none after `_MAX_SECONDS`."""
    start = time.perf_counter()
    for index in range(most):
        yield index
        if time.perf_counter() - start > _MAX_SECONDS:
            return


def _seconds(factor: object) -> float:
    """Measures the time of a matmul."""
    start = time.perf_counter()
    _multiply(factor)
    return time.perf_counter() - start


def _multiply(factor: object) -> None:
    # Backends execute asynchronously, so read an element to wait for the result.
    ops.convert_to_numpy(ops.cast(ops.matmul(factor, factor)[:1, :1], "float32"))
