# SPDX-License-Identifier: Apache-2.0
"""Averages losses over all examples or tokens in an optimizer step, however it is divided.

A step has `K` micro-batches, and each of `R` replicas has a part of each micro-batch. In
micro-batch `k`, the losses of replica `r` sum to `S[k, r]`, and their divisor is `d[k, r]`, for
example the number of examples or tokens. The mean over the step is `sum(S) / sum(d)`, summed over
all `k` and `r`.

Gradients are summed over the replicas, and the optimizer averages them over the micro-batches. So
the loss of each part must be `S[k, r] / D`, where `D` is the mean divisor per micro-batch:

    D = sum(d) / K
    1 / K * sum(S[k, r] / D) = sum(S) / sum(d)

For example, two micro-batches of 8 and 4 examples have losses that sum to 16 and 2. Their means are
2 and 0.5. The mean of these is 1.25, but the mean over the 12 examples is 18 / 12 = 1.5. With `D =
(8 + 4) / 2 = 6`, the result is `(16 / 6 + 2 / 6) / 2 = 1.5`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from keras import ops

from keras_bert.models.inputs import LOSS_DIVISORS
from keras_bert.ops.optimizer_updates import sum_over_replicas


def add_mean_divisors(batch: Any, divisors: Any) -> Any:
    """Adds the `D` of each loss to a micro-batch, as the feature `LOSS_DIVISORS`.

    Each example has an equal part of it, so the examples of all replicas sum to `D`.
    """
    x, *targets = batch if isinstance(batch, (tuple, list)) else (batch,)
    features = x if isinstance(x, Mapping) else {"token_ids": x}
    if isinstance(divisors, np.ndarray):
        num_rows = len(features["token_ids"])
        parts = np.tile((divisors / num_rows).astype("float32"), (num_rows, 1))
    else:
        (num_rows,) = ops.shape(features["token_ids"])[:1]
        parts = ops.tile(divisors[None] / ops.cast(num_rows, "float32"), (num_rows, 1))
    return {**features, LOSS_DIVISORS: parts}, *targets


def read_mean_divisors(x: Any, names: Iterable[str]) -> dict[str, Any]:
    """Returns this replica's part of each loss's `D`, or `{}` without micro-batches."""
    divisors = x.get(LOSS_DIVISORS) if isinstance(x, Mapping) else None
    if divisors is None:
        return {}
    sums = ops.sum(divisors, axis=0)
    return {name: sums[index] for index, name in enumerate(names)}


def divide_by_update(total: Any, divisor: Any, mean_divisor: Any) -> Any:
    """Returns `S[k, r] / D`, this replica's part in a micro-batch's loss, see the module.

    Args:
        total: `S[k, r]`.
        divisor: `d[k, r]`. Without micro-batches, its sum over the replicas is `D`.
        mean_divisor: This replica's part of `D`, or `None` without micro-batches.
    """
    (whole,) = sum_over_replicas([divisor if mean_divisor is None else mean_divisor])
    return ops.divide_no_nan(total, ops.stop_gradient(whole))
