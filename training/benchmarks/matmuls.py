# SPDX-License-Identifier: Apache-2.0
"""Runs only an encoder's matmuls on PyTorch, as a lower bound on the time of any implementation.

The matmuls are only for non-padding tokens. In each layer, the matmuls with kernels cover all
tokens in the batch at once, and the attention matmuls cover one sequence at a time. A training step
also includes the matmuls for the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from .subject import Round
from .workload import Workload


def matmuls_work(workload: Workload) -> Callable[[int], Round]:
    """Returns a function that computes the matmuls for a number of steps."""
    dtype = torch.float32 if workload.precision == "float32" else torch.bfloat16
    is_training = workload.what == "classify"
    masks = (
        [batch["padding_mask"] for batch in workload.text_batches()]
        if workload.texts
        else [workload.padding_mask()]
    )
    batches = [
        [
            (torch.randn(left, dtype=dtype), torch.randn(right, dtype=dtype))
            for left, right in _shapes(workload, mask.sum(axis=1).tolist())
        ]
        for mask in masks
    ]

    def run_step(step: int) -> None:
        for _ in range(workload.architecture.num_layers):
            for left, right in batches[step % len(batches)]:
                product = left @ right
                if is_training:
                    product @ right.mT
                    left.mT @ product

    return workload.timed(run_step)


def _shapes(
    workload: Workload, lengths: list[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yields the shapes of each matmul's factors in a layer, given the sequence lengths."""
    config = workload.architecture
    hidden, intermediate = config.hidden_dim, config.intermediate_dim
    kernels = [(hidden, 3 * hidden), (hidden, hidden), (hidden, intermediate)]
    for kernel in [*kernels, (intermediate, hidden)]:
        yield (sum(lengths), kernel[0]), kernel
    heads, head_dim = config.num_heads, config.head_dim
    for length in lengths:
        yield (heads, length, head_dim), (heads, head_dim, length)
        yield (heads, length, length), (heads, length, head_dim)
