# SPDX-License-Identifier: Apache-2.0
"""Batches of pre-training records, by this project or by BERT's released code."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_bert.data.batching import length_bucketed_batches, pad_to_length
from keras_bert.data.record_parsing import Features, RecordParser
from keras_bert.data.tuning import without_tuning

# Records that are shuffled among themselves, on top of the order of the files.
SHUFFLE_BUFFER = 10_000
_FILES_AT_ONCE = 16
# What is read once more than needed, to name a torn file before it is trained on
_CHECKED_BYTES = 1 << 30


def pretraining_batches(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    batch_size: int,
    sequence_length: int,
    buckets: Sequence[int] | None = None,
    shuffle_seed: int | None = None,
    vocabulary_size: int | None = None,
    drop_remainder: bool = False,
) -> tf.data.Dataset:
    """Padded batches of pre-training records.

    Args:
        files: TFRecord files, all with the same features; or a pattern such as
            `"records/*.tfrecord"`.
        batch_size: Rows in a batch.
        sequence_length: The length to pad to; a longer row is an error.
        buckets: Ascending lengths to pad to instead, each batch to the shortest that holds it;
            rows of like length are then grouped. The last one is `sequence_length`.
        shuffle_seed: Shuffles files and records, anew in each iteration; `None` keeps their order.
        vocabulary_size: Ids outside `[0, vocabulary_size)` are an error, if it is given.
        drop_remainder: Whether to leave out a last batch that is not full.

    Returns:
        A dataset of dicts: `token_ids` and `segment_ids` int32, `padding_mask` bool, `(batch,
        length)`. Of masked records also `mask_positions` and `mask_ids` int32 and `mask_weights`
        float32 `(batch, slots)`; of others `word_starts` bool `(batch, length)`. Where the records
        have them, `next_sentence_labels` int32 `(batch,)`.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the first record has not the features of a pre-training record, that of
            another file has other ones, or a file is torn. Files of up to 1 GiB together are read
            once at the beginning to find that out; of more, reading a torn one raises
            `tf.errors.DataLossError`, and `check_record_files` names it.
        tf.errors.InvalidArgumentError: When a malformed record is read; the message names the file,
            the record and the feature.
    """
    paths = record_paths(files)
    _check_small_files(paths)
    parser = RecordParser(paths, sequence_length, vocabulary_size)
    records = _records(paths, shuffle_seed)
    rows = batch_size if drop_remainder else None
    if buckets is None:
        batches = records.batch(batch_size, drop_remainder=drop_remainder)
        batches = batches.map(parser, num_parallel_calls=tf.data.AUTOTUNE)
        batches = batches.map(lambda ragged, rest: (pad_to_length(ragged, sequence_length), rest))
        batches = batches.map(lambda x, rest: _merged(x, rest, (rows, sequence_length)))
        return without_tuning(batches.prefetch(tf.data.AUTOTUNE))
    if list(buckets) != sorted(buckets) or buckets[-1] != sequence_length:
        raise ValueError(
            f"buckets are {list(buckets)}, expected ascending lengths up to {sequence_length}."
        )
    batches = length_bucketed_batches(
        records, parser, batch_size=batch_size, buckets=buckets, shuffle_seed=shuffle_seed
    )
    if drop_remainder:
        batches = batches.filter(lambda x, _: tf.shape(x["token_ids"])[0] == batch_size)
    return batches.map(lambda x, rest: _merged(x, rest, (rows, None)))


def ragged_pretraining_batches(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    batch_size: int,
    sequence_length: int,
    shuffle_seed: int | None = None,
    vocabulary_size: int | None = None,
) -> tf.data.Dataset:
    """Batches of pre-training records without padding, to be packed or masked first.

    Arguments and errors as for `pretraining_batches`.

    Returns:
        A dataset of dicts as by `pretraining_batches`, but with what is `(batch, length)` ragged
        `(batch, None)`, and without `padding_mask`.
    """
    paths = record_paths(files)
    _check_small_files(paths)
    parser = RecordParser(paths, sequence_length, vocabulary_size)
    batches = _records(paths, shuffle_seed).batch(batch_size)
    batches = batches.map(parser, num_parallel_calls=tf.data.AUTOTUNE)
    batches = batches.map(lambda ragged, rest: ragged | rest[0])
    return without_tuning(batches.prefetch(tf.data.AUTOTUNE))


def has_masks(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> bool:
    """Whether the masks are in the records already, by the first one.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the record has not the features of a pre-training record.
    """
    return RecordParser(record_paths(files)[:1], 0, None).is_masked


def check_record_files(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> int:
    """Reads TFRecord files to their ends, since TensorFlow's error for a torn one names no file.

    Args:
        files: Files, or a pattern.

    Returns:
        How many records there are.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If a file is torn or its checksums do not fit; the message names it and the
            record, from 0.
    """
    total = 0
    for path in record_paths(files):
        records = tf.data.TFRecordDataset(path)
        try:
            total += int(records.reduce(np.int64(0), lambda count, _: count + 1))
        except tf.errors.DataLossError:
            _find_broken_record(path)
    return total


def _check_small_files(paths: Sequence[str]) -> None:
    """`check_record_files` where it takes no longer than a few seconds."""
    if sum(tf.io.gfile.stat(path).length for path in paths) <= _CHECKED_BYTES:
        check_record_files(paths)


def _find_broken_record(path: str) -> None:
    number = 0
    try:
        for _ in tf.data.TFRecordDataset(path):
            number += 1
    except tf.errors.DataLossError as error:
        reason = error.message.split("}}")[-1].split("[Op:")[0].strip()
        raise ValueError(f"{path}, record {number}: torn or broken: {reason}.") from None


def _merged(
    features: Features, rest: tuple[Features], shape: tuple[int | None, int | None]
) -> Features:
    merged = {name: tf.ensure_shape(x, shape) for name, x in features.items()}
    for name, x in rest[0].items():
        merged[name] = tf.ensure_shape(x, (shape[0], *x.shape[1:]))
    return merged


def record_paths(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """The files that names and patterns stand for.

    Raises:
        FileNotFoundError: If there is none.
    """
    patterns = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths = [path for pattern in patterns for path in sorted(tf.io.gfile.glob(os.fspath(pattern)))]
    if not paths:
        raise FileNotFoundError(f"No file is called {files}, expected files of TFRecords.")
    return paths


def _records(paths: list[str], shuffle_seed: int | None) -> tf.data.Dataset:
    """`(record, file, number in the file)`, whose order repeats itself with the seed."""
    files = tf.data.Dataset.from_tensor_slices(paths)
    if shuffle_seed is None:
        return files.flat_map(_records_of)
    files = files.shuffle(len(paths), seed=shuffle_seed)
    return interleaved_records(files, len(paths)).shuffle(SHUFFLE_BUFFER, seed=shuffle_seed)


def interleaved_records(files: tf.data.Dataset, num_files: int) -> tf.data.Dataset:
    """`(record, file, number in the file)` of several files in turn, always in the same order."""
    return files.interleave(
        _records_of,
        cycle_length=min(_FILES_AT_ONCE, num_files),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _records_of(path: tf.Tensor) -> tf.data.Dataset:
    records = tf.data.TFRecordDataset(path).enumerate()
    return records.map(lambda number, record: (record, path, number))
