# SPDX-License-Identifier: Apache-2.0
"""Computes distance buckets and attention biases for relative positions."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from keras import ops

from keras_bert.ops.annotations import Tensor

Array: TypeAlias = "np.ndarray[Any, Any]"


def bucket_of_distances(distances: Array, num_buckets: int, max_distance: int) -> Array:
    """Returns T5's bucket for each distance. Buckets of larger distances are wider.

    Distances are key positions minus query positions. Half of the buckets are for each sign.
    Distances of `max_distance` or more are in the last bucket of their sign.

    Reference:
        [T5](https://arxiv.org/abs/1910.10683), section 2.1, and the original T5 code.
    """
    half = num_buckets // 2
    exact = half // 2
    sizes = np.abs(distances)
    # Compute in float32 like the original code, since bucket boundaries depend on the rounding.
    ratio = np.log(np.maximum(sizes, 1).astype("float32") / np.float32(exact))
    logarithmic = exact + (
        ratio / np.float32(math.log(max_distance / exact)) * (half - exact)
    ).astype("int32")
    buckets = np.where(sizes < exact, sizes, np.minimum(logarithmic, half - 1))
    return np.asarray(buckets + half * (distances > 0), "int32")


def row_of_distances(distances: Array, num_buckets: int, max_distance: int) -> Array:
    """Returns the DeBERTa table index for each distance. Small distances have separate indices.

    Distances are query positions minus key positions. The table has `2 * num_buckets` entries.

    Reference:
        [DeBERTa](https://arxiv.org/abs/2006.03654), equation 3, and the original DeBERTa-v2 code
        for the logarithmic buckets.
    """
    exact = num_buckets // 2
    sizes = np.maximum(np.abs(distances), exact).astype("float32")
    ratio = np.log(sizes / np.float32(exact))
    largest = np.log(np.float32((max_distance - 1) / exact))
    logarithmic = (np.ceil(ratio / largest * np.float32(exact - 1)) + exact) * np.sign(distances)
    buckets = np.where(np.abs(distances) <= exact, distances, logarithmic)
    return np.asarray(np.clip(buckets + num_buckets, 0, 2 * num_buckets - 1), "int32")


def table_rows_in_range(reach: int, kind: str, num_buckets: int, max_distance: int) -> Array:
    """Returns the table index for each distance from `-reach` to `reach`.

    Distances are key positions minus query positions. `kind` is `"bucketed"` or `"disentangled"`.
    """
    distances = np.arange(-reach, reach + 1)
    if kind == "bucketed":
        return bucket_of_distances(distances, num_buckets, max_distance)
    return row_of_distances(-distances, num_buckets, max_distance)


def scores_of_pairs(scores: Tensor, length: Tensor) -> Tensor:
    """Converts scores by token and distance to scores by token pair.

    Args:
        scores: `(..., length, 2 * length - 1)`, the score of token i and each distance from `1 -
            length` to `length - 1`.
        length: Sequence length.

    Returns:
        `(..., length, length)`. The element at `(i, j)` is the score of token i and distance `j -
        i`.

    Reference:
        [Transformer-XL](https://arxiv.org/abs/1901.02860), appendix B.
    """
    batch = tuple(ops.shape(scores))[:-2]
    # One additional element per row shifts each row by one element in the flat tensor.
    flat = ops.reshape(
        ops.concatenate([scores, ops.zeros_like(scores[..., :1])], axis=-1),
        (*batch, 2 * length * length),
    )
    flat = flat[..., length - 1 : length - 1 + length * (2 * length - 1)]
    return ops.reshape(flat, (*batch, length, 2 * length - 1))[..., :length]


def crop_distances(distances: Tensor, length: Tensor) -> Tensor:
    """Crops the last axis from distances in longer sequences to distances within a length."""
    middle = ops.shape(distances)[-1] // 2
    return distances[..., middle - (length - 1) : middle + length]


def disentangled_bias(
    query: Tensor, key: Tensor, key_positions: Tensor, query_positions: Tensor
) -> Tensor:
    """Returns the content-position scores to add to the content-content scores.

    They have shape `(batch, heads, length, length)`. `query` and `key` are `(batch, heads, length,
    head_dim)`. The other two tensors are the distances from `1 - n` to `n - 1`, projected to keys
    and to queries, `(heads, head_dim, 2 * n - 1)` each. n must be at least `length`.

    Reference:
        [DeBERTa](https://arxiv.org/abs/2006.03654), equation 4.
    """
    length, scale = ops.shape(query)[2], query.shape[-1] ** -0.5
    to_positions = ops.matmul(query * scale, crop_distances(key_positions, length))
    # From the key's perspective, distances have the opposite sign.
    from_positions = ops.flip(crop_distances(query_positions, length), axis=-1)
    position_scores = ops.matmul(key * scale, from_positions)
    return scores_of_pairs(to_positions, length) + ops.swapaxes(
        scores_of_pairs(position_scores, length), -1, -2
    )
