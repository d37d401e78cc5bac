# SPDX-License-Identifier: Apache-2.0
"""Relative positions: the bucket of a distance, and scores of pairs from scores of distances."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from keras import ops

from keras_bert.ops.annotations import Tensor

Array: TypeAlias = "np.ndarray[Any, Any]"


def bucket_of_distances(distances: Array, num_buckets: int, max_distance: int) -> Array:
    """Returns T5's bucket of each distance: half of them for each sign, the larger the wider.

    Distances are positions of keys minus positions of queries; from `max_distance` on, all are in
    the last bucket of their sign.

    Reference:
        [T5](https://arxiv.org/abs/1910.10683), section 2.1, and its released code.
    """
    half = num_buckets // 2
    exact = half // 2
    sizes = np.abs(distances)
    # In float32, as the released code, since the borders of buckets depend on its rounding
    ratio = np.log(np.maximum(sizes, 1).astype("float32") / np.float32(exact))
    logarithmic = exact + (
        ratio / np.float32(math.log(max_distance / exact)) * (half - exact)
    ).astype("int32")
    buckets = np.where(sizes < exact, sizes, np.minimum(logarithmic, half - 1))
    return np.asarray(buckets + half * (distances > 0), "int32")


def row_of_distances(distances: Array, num_buckets: int, max_distance: int) -> Array:
    """Returns the row of DeBERTa's table for each distance: small ones have rows of their own.

    Distances are positions of queries minus positions of keys; there are `2 * num_buckets` rows.

    Reference:
        [DeBERTa](https://arxiv.org/abs/2006.03654), equation 3, and the released code of its second
        version, with logarithmic buckets.
    """
    exact = num_buckets // 2
    sizes = np.maximum(np.abs(distances), exact).astype("float32")
    ratio = np.log(sizes / np.float32(exact))
    largest = np.log(np.float32((max_distance - 1) / exact))
    logarithmic = (np.ceil(ratio / largest * np.float32(exact - 1)) + exact) * np.sign(distances)
    buckets = np.where(np.abs(distances) <= exact, distances, logarithmic)
    return np.asarray(np.clip(buckets + num_buckets, 0, 2 * num_buckets - 1), "int32")


def table_rows_in_range(reach: int, kind: str, num_buckets: int, max_distance: int) -> Array:
    """Returns the row of the table for the distances from `-reach` to `reach`, keys minus queries.

    `kind` is `"bucketed"` or `"disentangled"`.
    """
    distances = np.arange(-reach, reach + 1)
    if kind == "bucketed":
        return bucket_of_distances(distances, num_buckets, max_distance)
    return row_of_distances(-distances, num_buckets, max_distance)


def scores_of_pairs(scores: Tensor, length: Tensor) -> Tensor:
    """Returns the scores of pairs of tokens from the scores of each token and each distance.

    Args:
        scores: `(..., length, 2 * length - 1)`, of the token at i and the distances from
            `1 - length` to `length - 1`.
        length: The number of tokens.

    Returns:
        `(..., length, length)`: at `(i, j)` the score of i and of the distance `j - i`.

    Reference:
        [Transformer-XL](https://arxiv.org/abs/1901.02860), appendix B.
    """
    batch = tuple(ops.shape(scores))[:-2]
    # One element more in each row, and rows begin one element earlier each
    flat = ops.reshape(
        ops.concatenate([scores, ops.zeros_like(scores[..., :1])], axis=-1),
        (*batch, 2 * length * length),
    )
    flat = flat[..., length - 1 : length - 1 + length * (2 * length - 1)]
    return ops.reshape(flat, (*batch, length, 2 * length - 1))[..., :length]


def crop_distances(distances: Tensor, length: Tensor) -> Tensor:
    """Cuts the distances of longer rows down to rows of a length, along the last axis."""
    middle = ops.shape(distances)[-1] // 2
    return distances[..., middle - (length - 1) : middle + length]


def disentangled_bias(
    query: Tensor, key: Tensor, key_positions: Tensor, query_positions: Tensor
) -> Tensor:
    """Returns the scores of contents with positions, which are added to the contents' own scores.

    They are `(batch, heads, length, length)`, for queries and keys `(batch, heads, length,
    head_dim)`. The distances from `1 - n` to `n - 1`, for a number n of at least the length, are
    projected to keys and to queries, `(heads, head_dim, 2 * n - 1)` each.

    Reference:
        [DeBERTa](https://arxiv.org/abs/2006.03654), equation 4.
    """
    length, scale = ops.shape(query)[2], query.shape[-1] ** -0.5
    to_positions = ops.matmul(query * scale, crop_distances(key_positions, length))
    # Seen from the keys, distances have the other sign.
    from_positions = ops.flip(crop_distances(query_positions, length), axis=-1)
    position_scores = ops.matmul(key * scale, from_positions)
    return scores_of_pairs(to_positions, length) + ops.swapaxes(
        scores_of_pairs(position_scores, length), -1, -2
    )
