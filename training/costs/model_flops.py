# SPDX-License-Identifier: Apache-2.0
"""A model's parameters, its FLOPs in a training step, and this machine's peak FLOP/s."""

from __future__ import annotations

import collections
import functools
import math
import time
from collections.abc import Callable
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

# The backward pass has two products for each one of the forward pass: three in total.
_TRAINING_FACTOR = 3
# The fastest size depends on the caches and the dtype: on a CPU with instructions for bfloat16, its
# products were twice as fast at 512 as at 2,048, and float32 products a fifth faster.
_SIZES_ON_CPU, _SIZES_ON_ACCELERATOR = (512, 1024, 2048), (2048, 4096, 8192)
# Large enough that the product takes longer than starting it
_SIZE_COMPARED = 768
_ROUNDS = 5
# Beside other programs, the quotient of 5 rounds was up to 1.4 times what it was alone.
_ROUNDS_COMPARED = 15

Made = TypeVar("Made")


def num_parameters(make_model: Callable[[], keras.Model]) -> int:
    """Returns the number of parameters of a model, which gets no values and so needs no memory."""
    return int(without_values(make_model).count_params())


def without_values(make: Callable[[], Made]) -> Made:
    """Returns what a function makes, such as models, whose variables never get values."""

    def made() -> Made:
        with keras.StatelessScope(initialize_variables=False):
            return make()

    # Keras gives all variables that wait for values theirs at the end of a thread's next scope.
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
    """Returns the floating-point operations (FLOPs) of the matrix products of a training step.

    As is usual, element-wise operations are ignored, and a multiply-add counts as two.

    Args:
        config: The encoder's architecture.
        rows: Rows in the batch.
        sequence_length: Tokens in a row, padding included, since products compute it too.
        slots: Masked tokens in a row.
        next_sentence: Whether there is a sentence pair objective.
        reads_all: Whether the outputs of all tokens are used. Otherwise only the masked tokens (and
            the first token, for the sentence pair objective) pass through the last block after its
            attention, except in a causal encoder.
    """
    hidden = config.hidden_dim
    layer_flops = 0
    for index, window in enumerate(config.attention_windows):
        shapes = attention_weight_shapes(config, index) | feed_forward_weight_shapes(config)
        kernel_flops = {
            name: 2 * math.prod(shape) for name, shape in shapes.items() if name.endswith("kernel")
        }
        # The dimension of all heads, which is the hidden size unless heads were pruned
        width = config.effective_heads_by_layer[index] * config.head_dim
        length = sequence_length if window is None else min(sequence_length, 2 * window + 1)
        layer_flops += sum(kernel_flops.values()) + 4 * length * width
        if config.relative_positions == "disentangled":
            # Queries and keys with each distance; its projections are computed once for all rows.
            num_distances = 2 * sequence_length - 1
            layer_flops += 4 * num_distances * width + 12 * hidden * width // rows
    # The embeddings, and the masked LM head's hidden layer, may be narrower than the hidden size.
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
    """Returns the FLOPs of the matrix products of training on sequences once, without padding.

    Args:
        config: The encoder's architecture.
        lengths: The number of tokens of each sequence, `(sequences,)`.
        reads_all: Whether the head reads all tokens, as a tagger's does, or only the first.
    """
    counts = collections.Counter(lengths.tolist())
    return sum(
        training_flops(config, count, length, 0, next_sentence=not reads_all, reads_all=reads_all)
        for length, count in counts.items()
    )


@functools.cache
def peak_flops(dtype: str) -> float:
    """Measures the highest FLOP/s of products of two square matrices.

    Returns:
        That of the fastest of a few sizes and rounds, so that other programs do not count; the
        result is cached for the process.
    """
    highest = 0.0
    for size in _SIZES_ON_ACCELERATOR if has_accelerator() else _SIZES_ON_CPU:
        factor = ops.cast(keras.random.normal((size, size), seed=0), dtype)
        _multiply(factor)
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            _multiply(factor)
            highest = max(highest, 2 * size**3 / (time.perf_counter() - start))
    return highest


@functools.cache
def bfloat16_speedup() -> float:
    """Measures how many times as fast bfloat16 products are as float32 ones.

    Processors with instructions for bfloat16 may still be slower with them: of two that have
    `avx512_bf16`, one trained 1.6 times as fast in mixed_bfloat16, and one 0.6 times.

    Returns:
        The quotient of the shortest times of a few rounds, in which the dtypes take turns, so that
        other programs do not count; the result is cached for the process.
    """
    numbers = keras.random.normal((_SIZE_COMPARED, _SIZE_COMPARED), seed=0)
    seconds: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    for dtype in seconds:
        _multiply(ops.cast(numbers, dtype))
    for _ in range(_ROUNDS_COMPARED):
        for dtype, durations in seconds.items():
            factor = ops.cast(numbers, dtype)
            start = time.perf_counter()
            _multiply(factor)
            durations.append(time.perf_counter() - start)
    return min(seconds["float32"]) / min(seconds["bfloat16"])


def _multiply(factor: object) -> None:
    # Reading an element waits for the result: backends execute asynchronously.
    ops.convert_to_numpy(ops.cast(ops.matmul(factor, factor)[:1, :1], "float32"))
