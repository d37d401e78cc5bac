# SPDX-License-Identifier: Apache-2.0
"""Batches of pairs of texts, each text a row of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import tensorflow as tf

from keras_bert.data.preprocessors import TextClassifierPreprocessor
from keras_bert.data.row_batches import BatchOptions, row_batches


def paired_batches(
    texts: Sequence[str],
    partners: Sequence[str],
    preprocessor: TextClassifierPreprocessor,
    weights: np.ndarray[Any, Any] | None = None,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Batches in which the two texts of a pair are rows behind one another.

    Args:
        texts: The first of each pair, `(pairs,)`.
        partners: The second of each, `(pairs,)`.
        preprocessor: Text to features.
        weights: Of the pairs, float32 `(pairs,)`.
        **options: `BatchOptions`, of which the size counts pairs.

    Returns:
        A dataset of `(features, numbers, weights)`: features `(2 * pairs, length)`; which pair of
        the batch a row belongs to, int32 `(2 * pairs,)`, -1 in pairs that only fill a batch up;
        and float32 `(2 * pairs,)`, 0 in those.
    """
    # (pairs, 2)
    columns = tf.stack([tf.constant(list(column), tf.string) for column in (texts, partners)], 1)
    given = tf.constant(np.ones(len(texts)) if weights is None else weights, tf.float32)

    def featurize(index: tf.Tensor) -> Any:
        pairs = tf.gather(columns, index)
        rows = preprocessor.ragged(tf.reshape(pairs, [-1]))
        # (2 * pairs, None) -> (pairs, 2, None)
        starts = 2 * tf.range(tf.shape(pairs, tf.int64)[0] + 1)
        ragged = {
            name: tf.RaggedTensor.from_row_splits(value, starts, validate=False)
            for name, value in rows.items()
        }
        return ragged, (tf.gather(given, index),)

    batches = row_batches(len(texts), featurize, preprocessor, **options)
    return batches.map(_as_rows)


def _as_rows(features: dict[str, tf.Tensor], rest: tuple[tf.Tensor, ...]) -> Any:
    weights, *filler = rest
    is_real = filler[0] if filler else tf.ones_like(weights)
    numbers = tf.where(is_real > 0, tf.range(tf.size(is_real)), -1)
    # (pairs, 2, length) -> (2 * pairs, length)
    rows = {name: _stacked(value) for name, value in features.items()}
    return rows, tf.repeat(numbers, 2), tf.repeat(weights * is_real, 2)


def _stacked(value: tf.Tensor) -> tf.Tensor:
    pairs = value.shape[0]
    rows = tf.reshape(value, [-1, tf.shape(value)[2]])
    return tf.ensure_shape(rows, [None if pairs is None else 2 * pairs, value.shape[2]])
