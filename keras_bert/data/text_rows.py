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
from keras_bert.data.row_batches import BatchOptions, RowPreprocessor, row_batches
from keras_bert.data.tuning import without_tuning

# What a masker adds to features, `(batch, slots)`
_SLOTS = {"mask_positions": tf.int32, "mask_ids": tf.int32, "mask_weights": tf.float32}


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


def with_checked_labels(
    rows: tf.data.Dataset,
    num_labels: int | None,
    class_weight: Mapping[int, float] | None = None,
    allow_unlabelled: bool = False,
) -> tf.data.Dataset:
    """A dataset of text whose labels are ids of classes, or that ends with an error.

    Args:
        rows: `(x, label, ...)`, single rows or batches; `x` alone is left as it is.
        num_labels: How many class ids there are; `None` leaves the rows as they are.
        class_weight: The weight of each class id, which the rows then bring.
        allow_unlabelled: Whether a label may be -1, for none.

    Returns:
        The same rows. An iteration raises `tf.errors.InvalidArgumentError` at a label that is no
        class id, and says in which row or batch.

    Raises:
        ValueError: If the labels are strings, or there are class weights but no ids.
    """
    spec = rows.element_spec
    if not isinstance(spec, tuple) or len(spec) < 2 or num_labels is None:
        if class_weight:
            raise ValueError("class_weight needs labels that are class ids; the rows have none.")
        return rows
    if spec[1].dtype == tf.string:
        raise ValueError(
            f"The labels of a dataset must be class ids, 0 to {num_labels - 1}; received strings."
        )
    lowest = -1 if allow_unlabelled else 0
    element = "batch" if is_batched(rows) else "row"
    expected = f"; expected an id from {lowest} to {num_labels - 1}"
    given = class_weight or {}
    # The last one is that of -1
    table = tf.constant([*(given.get(i, 1.0) for i in range(num_labels)), 1.0], tf.float32)

    def check(index: tf.Tensor, row: Any) -> Any:
        text, label, *rest = row
        ids = tf.cast(label, tf.int64)
        is_id = (ids >= lowest) & (ids < num_labels) & (tf.cast(ids, label.dtype) == label)
        message = [f"The label in {element}", index, "is", label, expected]
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_id), message)]):
            label = tf.identity(label)
        if class_weight:
            weight = tf.gather(table, tf.where(ids < 0, tf.constant(num_labels, tf.int64), ids))
            rest = [tf.cast(rest[0], tf.float32) * weight] if rest else [weight]
        return (text, label, *rest)

    return rows.enumerate().map(check)


def batches_from_batched_rows(
    batches: tf.data.Dataset, preprocessor: TextClassifierPreprocessor
) -> tf.data.Dataset:
    """Features for a dataset that its owner has batched already, each padded to its longest row."""

    def featurize(*batch: Any) -> Any:
        return (preprocessor(*split_pair(batch[0])), *batch[1:])

    batches = _as_tuples(batches).map(featurize, num_parallel_calls=tf.data.AUTOTUNE)
    return without_tuning(batches.prefetch(1))


def token_batches(
    token_ids: Sequence[Sequence[int]],
    preprocessor: RowPreprocessor,
    mask_positions: Sequence[Sequence[int]] | None = None,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Length-bucketed batches of rows that are tokenized already.

    Args:
        token_ids: Rows `(rows, None)`, special tokens included.
        preprocessor: Whose rows they are.
        mask_positions: What is asked of each row `(rows, None)`; a batch's are filled up with 0 to
            a power of two.
        **options: `BatchOptions`.

    Returns:
        A dataset of `(features, (index,))`, where `index` is which rows are in the batch.
    """
    rows = tf.ragged.constant(token_ids, tf.int32, ragged_rank=1)
    positions = None if mask_positions is None else tf.ragged.constant(mask_positions, tf.int32)

    def featurize(index: tf.Tensor) -> Any:
        return {"token_ids": tf.gather(rows, index)}, (index,)

    def add_positions(features: Any, rest: Any) -> Any:
        asked = tf.gather(positions, rest[0])
        longest = tf.reduce_max(asked.row_lengths())
        # Few shapes for a compiler to meet
        widths = tf.constant([1 << power for power in range(31)], tf.int64)
        width = widths[tf.searchsorted(widths, longest[tf.newaxis])[0]]
        shape = tf.stack([tf.constant(-1, tf.int64), width])
        return {**features, "mask_positions": asked.to_tensor(shape=shape)}, rest

    batches = row_batches(len(token_ids), featurize, preprocessor, **options)
    return batches if positions is None else batches.map(add_positions)


def masked_batches(
    batches: tf.data.Dataset, masker: MaskedLMMasker | NextTokenTargets, seed: int | None = None
) -> tf.data.Dataset:
    """Batches of text with masked tokens, and these as targets.

    Args:
        batches: `(features,)`, or `(features, weight)` with weights of the rows `(batch,)`.
        masker: Draws the masks.
        seed: Draws others in each iteration; `None` draws those of a row by its ids, always the
            same, whatever its batch.

    Returns:
        A dataset of `(features, mask_ids, mask_weights)`.
    """

    def with_targets(masked: Any, row_weights: Any = None) -> Any:
        ids, weights = masked.pop("mask_ids"), masked.pop("mask_weights")
        if row_weights is not None:
            weights *= tf.cast(row_weights, weights.dtype)[:, tf.newaxis]
        return masked, ids, weights

    if seed is None:
        return batches.map(
            lambda features, *rest: with_targets(_masked_by_rows(masker, features), *rest),
            tf.data.AUTOTUNE,
        )
    steps = tf.data.Dataset.random(seed, rerandomize_each_iteration=True)
    return tf.data.Dataset.zip(steps, batches).map(
        lambda step, batch: with_targets(masker(batch[0], step), *batch[1:]), tf.data.AUTOTUNE
    )


def _masked_by_rows(
    masker: MaskedLMMasker | NextTokenTargets, features: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Features whose masks depend on each row's own tokens alone, without its padding."""
    if isinstance(masker, NextTokenTargets):
        return masker(features, None)
    slots = masker.num_slots_in_graph(features["token_ids"])
    lengths = tf.math.count_nonzero(features["padding_mask"], axis=1)

    def mask(row: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids, length = row
        masked = masker({"token_ids": ids[:length]}, None)
        masked["token_ids"] = tf.concat([masked["token_ids"], ids[length:]], axis=0)
        for name in _SLOTS:
            masked[name] = tf.pad(masked[name], [[0, slots - tf.shape(masked[name])[0]]])
        return masked

    ids = features["token_ids"]
    specs = {"token_ids": tf.TensorSpec(ids.shape[1:], tf.int32)}
    num_slots = slots if isinstance(slots, int) else None
    for name, dtype in _SLOTS.items():
        specs[name] = tf.TensorSpec([num_slots], dtype)
    masked = tf.map_fn(mask, (ids, lengths), fn_output_signature=specs)
    return {**features, **masked}


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
