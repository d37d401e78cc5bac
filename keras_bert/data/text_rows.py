# SPDX-License-Identifier: Apache-2.0
"""From columns or datasets of text to batches for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import tensorflow as tf

from keras_bert.data.masking import MaskedLMMasker
from keras_bert.data.next_tokens import NextTokenTargets
from keras_bert.data.preprocessors import TextClassifierPreprocessor
from keras_bert.data.row_batches import BatchOptions, row_batches
from keras_bert.data.tuning import without_tuning


def rows_from_columns(
    columns: Mapping[str, np.ndarray], rest: Sequence[np.ndarray] = ()
) -> tf.data.Dataset:
    """A dataset of the rows of text that is in memory.

    Args:
        columns: `text` and, for pairs, `text_pair`: strings `(rows,)`.
        rest: What else each row has: labels, weights.

    Returns:
        Unbatched `(x, *rest)`, where `x` is a dict of the columns.
    """
    # Given the dtype, an empty column is one of strings too.
    text = {name: tf.constant(list(column), tf.string) for name, column in columns.items()}
    return tf.data.Dataset.from_tensor_slices((text, *rest))


def batches_from_rows(
    rows: tf.data.Dataset,
    preprocessor: TextClassifierPreprocessor,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Length-bucketed batches of a dataset's rows.

    Args:
        rows: Unbatched `x` or `(x, *rest)`, where `x` is a string, a pair of strings, or a dict
            of `text` and `text_pair`.
        preprocessor: Text to features.
        **options: `BatchOptions`.

    Returns:
        A dataset of `(features, *rest)`; a padded last batch adds a weight if there is none.
    """

    def featurize(*row: Any) -> Any:
        text, text_pair = split_pair(row[0])
        return preprocessor.ragged(text, text_pair), tuple(row[1:])

    batches = row_batches(_as_tuples(rows), featurize, preprocessor, **options)
    if options.get("pad_last_batch"):
        return batches.map(_weigh_filler_rows)
    return batches.map(lambda features, rest: (features, *rest))


def batches_from_batched_rows(
    batches: tf.data.Dataset, preprocessor: TextClassifierPreprocessor
) -> tf.data.Dataset:
    """Features for a dataset that its owner has batched already, each padded to its longest row."""

    def featurize(*batch: Any) -> Any:
        return (preprocessor(*split_pair(batch[0])), *batch[1:])

    batches = _as_tuples(batches).map(featurize, num_parallel_calls=tf.data.AUTOTUNE)
    return without_tuning(batches.prefetch(1))


def masked_batches(
    batches: tf.data.Dataset, masker: MaskedLMMasker | NextTokenTargets, seed: int | None = None
) -> tf.data.Dataset:
    """Batches of text with masked tokens, and these as targets.

    Args:
        batches: `(features,)`, or `(features, weight)` with weights of the rows `(batch,)`.
        masker: Draws the masks.
        seed: Draws others in each iteration; `None` draws them by the ids, always the same.

    Returns:
        A dataset of `(features, mask_ids, mask_weights)`.
    """

    def mask(step: Any, features: Any, row_weights: Any = None) -> Any:
        masked = masker(features, step)
        ids, weights = masked.pop("mask_ids"), masked.pop("mask_weights")
        if row_weights is not None:
            weights *= tf.cast(row_weights, weights.dtype)[:, tf.newaxis]
        return masked, ids, weights

    if seed is None:
        return batches.map(lambda *batch: mask(None, *batch), tf.data.AUTOTUNE)
    steps = tf.data.Dataset.random(seed, rerandomize_each_iteration=True)
    return tf.data.Dataset.zip(steps, batches).map(
        lambda step, batch: mask(step, *batch), tf.data.AUTOTUNE
    )


def split_pair(x: Any) -> tuple[Any, Any]:
    """`(text, text_pair)` of a string, a pair or a dict; the second is `None` for single texts."""
    if isinstance(x, Mapping):
        return x["text"], x.get("text_pair")
    if isinstance(x, tuple):
        return x[0], (x[1] if len(x) > 1 else None)
    return x, None


def is_batched(rows: tf.data.Dataset) -> bool:
    """Whether the elements of a dataset of text are batches rather than rows."""
    spec = rows.element_spec
    text, _ = split_pair(spec[0] if isinstance(spec, tuple) else spec)
    return bool(text.shape.rank)


def _as_tuples(rows: tf.data.Dataset) -> tf.data.Dataset:
    return rows if isinstance(rows.element_spec, tuple) else rows.map(lambda x: (x,))


def _weigh_filler_rows(features: Any, rest: Any) -> Any:
    *targets, is_real = rest
    if len(targets) < 2:
        return (features, *targets, is_real)
    weight = targets[-1]
    return (features, *targets[:-1], tf.cast(weight, tf.float32) * is_real)
