# SPDX-License-Identifier: Apache-2.0
"""Batches of the windows that taggers read, with words' labels and weights at their places."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import tensorflow as tf

from keras_bert.data.row_batches import BatchOptions, row_batches
from keras_bert.data.tagging import TokenClassifierPreprocessor, Windows

_FEATURES = ("token_ids", "segment_ids", "padding_mask")


def window_batches(
    windows: Windows,
    preprocessor: TokenClassifierPreprocessor,
    *,
    labels: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Length-bucketed batches of windows.

    Args:
        windows: What `preprocessor.windows` gave.
        preprocessor: What made them.
        labels: Class ids, int32 `(words,)`, for batches to train or evaluate on.
        weights: Of the words, float32 `(words,)`, with labels.
        **options: `BatchOptions`.

    Returns:
        With labels, a dataset of `(features, labels, weights)`, int32 and float32
        `(batch, length)`, the weights 0 everywhere but at the first pieces of words. Without, of
        `(features, index)`: which windows are in the batch, int64 `(batch,)`.
    """
    columns = dict(preprocessor.ragged_features(windows))
    if labels is not None:
        columns["labels"] = windows.scatter(tf.constant(labels, tf.int32))
        columns["weights"] = windows.scatter(tf.constant(weights, tf.float32))

    def featurize(index: tf.Tensor) -> Any:
        return {name: tf.gather(column, index) for name, column in columns.items()}, (index,)

    count = int(windows.token_ids.nrows())
    batches = row_batches(count, featurize, preprocessor, **options)
    return batches.map(_indexed if labels is None else _labelled)


def _indexed(columns: dict[str, tf.Tensor], rest: tuple[tf.Tensor, ...]) -> Any:
    return {name: columns[name] for name in _FEATURES}, rest[0]


def _labelled(columns: dict[str, tf.Tensor], rest: tuple[tf.Tensor, ...]) -> Any:
    weights = columns["weights"]
    if len(rest) > 1:  # (batch,): 0 at the rows that only fill the batch up
        weights *= rest[1][:, tf.newaxis]
    return {name: columns[name] for name in _FEATURES}, columns["labels"], weights
