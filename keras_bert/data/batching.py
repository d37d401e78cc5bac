# SPDX-License-Identifier: Apache-2.0
"""Batches of rows of similar lengths, padded to the end of their bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Required, TypedDict, Unpack

import tensorflow as tf

from keras_bert.text.tokenizer import Tokenizer

# Batches that are sorted among themselves: enough that a batch's rows differ by a token or two,
# few enough that the order of an epoch stays random. Gradients of batches of similar rows have a
# larger variance, which matters for small data sets: there the window is smaller.
WINDOW_BATCHES = 64


class BatchOptions(TypedDict, total=False):
    """How rows become batches.

    Attributes:
        batch_size: Rows in a batch.
        shuffle_seed: Shuffles the order of batches, and rows if their number is known; `None`
            keeps the order within a window of similar lengths.
        reshuffle: Whether each iteration has another order (by default), or all have one.
        coarse_buckets: Few lengths to pad to, for compilers that need seconds for each.
        pad_last_batch: Fills the last batch up with rows of weight 0, so that every batch of a
            bucket has one static shape.
        window_batches: Batches whose rows are sorted by length among themselves. By default 64;
            where rows are shuffled and their number is known, no more than a sixteenth of an epoch.
    """

    batch_size: Required[int]
    shuffle_seed: int | None
    reshuffle: bool
    coarse_buckets: bool
    pad_last_batch: bool
    window_batches: int


class RowPreprocessor(Protocol):
    """The attributes of a preprocessor that batches need."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def sequence_length(self) -> int: ...


def row_batches(
    rows: tf.data.Dataset | int,
    featurize: Callable[..., tuple[dict[str, tf.RaggedTensor], tuple[Any, ...]]],
    preprocessor: RowPreprocessor,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Length-bucketed batches of rows.

    Args:
        rows: A dataset of them; or how many there are, where `featurize` takes their numbers.
        featurize: As in `length_bucketed_batches`.
        preprocessor: Makes the rows: has their maximum length and their padding token.
        **options: `BatchOptions`.

    Returns:
        A dataset of `(features, rest)`, as `length_bucketed_batches` gives it.
    """
    if isinstance(rows, int):
        rows = tf.data.Dataset.range(rows)
    seed, reshuffle = options.get("shuffle_seed"), options.get("reshuffle", True)
    window = WINDOW_BATCHES
    if seed is not None and (num_rows := int(rows.cardinality())) > 0:
        rows = rows.shuffle(num_rows, seed=seed, reshuffle_each_iteration=reshuffle)
        # Were an epoch one window, its batches would be of the same rows in every epoch.
        window = max(1, min(window, num_rows // (16 * options["batch_size"])))
    coarse = options.get("coarse_buckets", False)
    return length_bucketed_batches(
        rows,
        featurize,
        batch_size=options["batch_size"],
        buckets=bucket_lengths(preprocessor.sequence_length, coarse=coarse),
        shuffle_seed=seed,
        reshuffle=reshuffle,
        pad_last_batch=options.get("pad_last_batch", False),
        pad_token_id=preprocessor.tokenizer.pad_token_id,
        window_batches=options.get("window_batches", window),
    )


def bucket_lengths(sequence_length: int, coarse: bool = False) -> tuple[int, ...]:
    """The lengths that batches are padded to.

    Args:
        sequence_length: The longest row, in tokens; always the last bucket.
        coarse: Powers of two from 16, for compilers that need seconds for each new shape,
            instead of steps of about an eighth.

    Returns:
        Ascending lengths in tokens.

    Example:

    >>> bucket_lengths(128, coarse=True)
    (16, 32, 64, 128)
    """
    if sequence_length < 1:
        raise ValueError(f"sequence_length is {sequence_length}; it must be at least 1.")
    lengths: list[int] = []
    length = 16 if coarse else 8
    while length < sequence_length:
        lengths.append(length)
        length += length if coarse else max(8, 1 << (length.bit_length() - 3))
    return (*lengths, sequence_length)


def length_bucketed_batches(
    rows: tf.data.Dataset,
    featurize: Callable[..., tuple[dict[str, tf.RaggedTensor], tuple[Any, ...]]],
    *,
    batch_size: int,
    buckets: Sequence[int],
    shuffle_seed: int | None = None,
    reshuffle: bool = True,
    pad_last_batch: bool = False,
    pad_token_id: int = 0,
    window_batches: int = WINDOW_BATCHES,
) -> tf.data.Dataset:
    """Groups rows of similar length into batches.

    A window of rows is tokenized in one call, sorted by length, cut into batches, and each batch
    padded to the shortest bucket that holds it. Every batch but the last is full, so an epoch
    has `ceil(rows / batch_size)` steps, which the dataset's cardinality says.

    Args:
        rows: Unbatched examples of any structure.
        featurize: Maps a batch of rows to a dict of ragged features `(rows, None)`, with
            `token_ids` among them, and a tuple of the other columns (labels, weights). Features
            may also be `(rows, None, None)`, several sequences to a row.
        batch_size: Rows in a batch.
        buckets: Ascending lengths to pad to; the last one is the longest row allowed.
        shuffle_seed: Shuffles the order of the batches; `None` leaves them sorted within each
            window.
        reshuffle: Whether each iteration has another order, or all have one.
        pad_last_batch: Fills the last batch up with repeated rows, so that every batch of a
            bucket has one static shape; a last element `is_real` (float32, 0 at such rows) is
            then added to the other columns.
        pad_token_id: The padding of `token_ids`; other features are padded with 0.
        window_batches: Batches whose rows are sorted by length among themselves; 1 makes batches of
            rows as they come.

    Returns:
        A dataset of `(features, rest)`: features are dense `(batch, bucket)`, or `(batch,
        sequences, bucket)`, and have a `padding_mask` (bool).
    """
    if window_batches < 1:
        raise ValueError(f"window_batches is {window_batches}; it must be at least 1.")
    boundaries = tf.constant(buckets, tf.int64)

    def batches_of_window(features: dict[str, tf.RaggedTensor], rest: Any) -> tf.data.Dataset:
        lengths = longest_sequences(features["token_ids"])
        order = tf.argsort(lengths, stable=True)
        num_batches = -(-tf.size(order) // batch_size)

        def batch(index: tf.Tensor) -> Any:
            rows_of_batch = order[index * batch_size : (index + 1) * batch_size]
            extra = rest
            if pad_last_batch:
                rows_of_batch, is_real = _repeat_to(rows_of_batch, batch_size)
            picked = {name: tf.gather(value, rows_of_batch) for name, value in features.items()}
            extra = tf.nest.map_structure(lambda value: tf.gather(value, rows_of_batch), extra)
            dense = pad_to_bucket(picked, boundaries, pad_token_id)
            if pad_last_batch:
                dense = tf.nest.map_structure(lambda x: _set_rows(x, batch_size), dense)
                extra = tf.nest.map_structure(lambda x: _set_rows(x, batch_size), extra)
                extra = (*extra, is_real)
            return dense, extra

        return tf.data.Dataset.range(tf.cast(num_batches, tf.int64), output_type=tf.int32).map(
            batch
        )

    windows = rows.batch(batch_size * window_batches)
    batches = windows.map(featurize, num_parallel_calls=tf.data.AUTOTUNE)
    batches = batches.prefetch(1).flat_map(batches_of_window)
    num_rows = int(rows.cardinality())
    if num_rows >= 0:
        batches = batches.apply(tf.data.experimental.assert_cardinality(-(-num_rows // batch_size)))
    if shuffle_seed is not None:
        batches = batches.shuffle(
            window_batches, seed=shuffle_seed, reshuffle_each_iteration=reshuffle
        )
    return without_tuning(batches.prefetch(tf.data.AUTOTUNE))


def pad_to_bucket(
    features: dict[str, tf.RaggedTensor], boundaries: tf.Tensor, pad_token_id: int = 0
) -> dict[str, tf.Tensor]:
    """Pads ragged features to the shortest bucket that holds the longest row.

    Args:
        features: Ragged `(batch, None)` or `(batch, None, None)`, with `token_ids` among them.
        boundaries: Ascending int64 lengths; no row is longer than the last.
        pad_token_id: The padding of `token_ids`; other features are padded with 0.

    Returns:
        Dense features `(batch, bucket)` or `(batch, sequences, bucket)`, and their
        `padding_mask`, bool.
    """
    lengths = longest_sequences(features["token_ids"])
    longest = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
    length = boundaries[tf.searchsorted(boundaries, longest[None])[0]]
    return pad_to_length(features, length, pad_token_id)


def pad_to_length(
    features: dict[str, tf.RaggedTensor], length: tf.Tensor | int, pad_token_id: int = 0
) -> dict[str, tf.Tensor]:
    """Pads ragged features to one length, and adds the `padding_mask`.

    `token_ids` are padded with `pad_token_id`, other features with 0.
    """
    token_ids = features["token_ids"]
    outer = [tf.constant(-1, tf.int64)] * token_ids.ragged_rank
    shape = tf.stack([*outer, tf.cast(length, tf.int64)])
    fillers = {"token_ids": pad_token_id}
    dense = {
        name: value.to_tensor(default_value=fillers.get(name), shape=shape)
        for name, value in features.items()
    }
    if token_ids.ragged_rank == 1:
        dense["padding_mask"] = tf.sequence_mask(token_ids.row_lengths(), maxlen=length)
    else:
        dense["padding_mask"] = tf.ones_like(token_ids, tf.bool).to_tensor(shape=shape)
    return dense


def longest_sequences(token_ids: tf.RaggedTensor) -> tf.Tensor:
    """The tokens of each row, or of its longest sequence where a row has several; `(rows,)`."""
    if token_ids.ragged_rank == 1:
        return token_ids.row_lengths()
    return tf.reduce_max(token_ids.row_lengths(axis=2), axis=1)


def _repeat_to(indices: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Repeats indices up to `size` of them, with a weight of 0 for the repetitions."""
    count = tf.size(indices)
    positions = tf.range(size)
    return tf.gather(indices, positions % count), tf.cast(positions < count, tf.float32)


def _set_rows(tensor: tf.Tensor, batch_size: int) -> tf.Tensor:
    return tf.ensure_shape(tensor, [batch_size, *tensor.shape[1:]])


def without_tuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A dataset that keeps the parallelism it starts with: one call for each core.

    TensorFlow's tuner of pipelines is a thread that looks at one after 10 ms, 20 ms and so on up to
    a minute, and sleeps in between. The end of an iterator mostly fails to wake it, and waits for
    it (TensorFlow 2.21): `fit` and `evaluate` would return that much late, in every epoch.

    Args:
        dataset: Any dataset; further transformations keep the option.

    Returns:
        The same elements in the same order.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
