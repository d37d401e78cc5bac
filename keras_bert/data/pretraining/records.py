# SPDX-License-Identifier: Apache-2.0
"""Pre-training records: TFRecords with the feature names of BERT's released code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert import checks
from keras_bert.atomic import atomic_path, check_folder_of
from keras_bert.data.batching import (
    length_bucketed_batches,
    pad_to_length,
    without_autograph,
    without_tuning,
)
from keras_bert.data.pretraining.instances import Instance
from keras_bert.data.pretraining.static_masking import Flags, StaticMasker
from keras_bert.data.pretraining.token_store import Ids
from keras_bert.text.special_tokens import SUFFIX

Features = dict[str, Any]

_MASK_FEATURES = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
_FEATURES = frozenset(
    ("input_ids", "input_mask", "segment_ids", "word_starts", "next_sentence_labels")
).union(_MASK_FEATURES)
# The name of one of several files: what is before its number, its number, their count, the rest
_SHARD = re.compile(r"(.*)-(\d+)-of-(\d+)(.*)", re.DOTALL)
# Size of the shuffle buffer in records, in addition to shuffling the files.
SHUFFLE_BUFFER = 10_000
_FILES_AT_ONCE = 16
# Files up to this total size are read in advance, to name a corrupt file before training on it
_CHECKED_BYTES = 1 << 30


class InstanceEncoder:
    """Serializes instances to records, with static masks or without masks.

    With a masker, records are in the format of BERT's released code, which can train on them:
    `input_ids`, `input_mask` and `segment_ids` `(sequence_length,)`, `masked_lm_positions`,
    `masked_lm_ids` and `masked_lm_weights` `(max_predictions,)`, and `next_sentence_labels`
    `(1,)`, padded with 0. The weights are float32, the rest int64. The label of rows without a
    second segment is 0.

    Without a masker, records have `input_ids`, `segment_ids` and `word_starts` (1 at the first
    token of a word) of the row's own length, and `next_sentence_labels` `(1,)` if the row has a
    label. All are int64.

    Args:
        vocabulary: The tokens in the order of their ids.
        special_token_ids: The ids of `[CLS]` and `[SEP]`, which are never masked.
        sequence_length: The length to pad to; ignored without a masker.
        masker: The masker that selects tokens; `None` for records without masks.
        continuation_token_ids: The ids that continue the word before them. Defaults to WordPiece's
            tokens that begin with `##`.

    Call arguments:
        instance: An `Instance`.
        rng: The random number generator for masks.

    Returns:
        The serialized `tf.train.Example`, as bytes.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        special_token_ids: Sequence[int],
        sequence_length: int,
        masker: StaticMasker | None = None,
        continuation_token_ids: Sequence[int] | None = None,
    ) -> None:
        if continuation_token_ids is None:
            tokens = enumerate(vocabulary)
            continuation_token_ids = [index for index, token in tokens if token.startswith(SUFFIX)]
        self.sequence_length = sequence_length
        self.masker = masker
        self._is_special = np.zeros(len(vocabulary), bool)
        self._is_special[list(special_token_ids)] = True
        self._is_continuation = np.zeros(len(vocabulary), bool)
        self._is_continuation[list(continuation_token_ids)] = True

    def __call__(self, instance: Instance, rng: np.random.Generator) -> bytes:
        if self.masker is None:
            features = self._unmasked(instance)
        else:
            features = self._masked(instance, self.masker, rng)
        example = tf.train.Example()
        for name, values in features.items():
            feature = example.features.feature[name]
            values_of_type = (
                feature.float_list if name == "masked_lm_weights" else feature.int64_list
            )
            values_of_type.value.extend(values)
        return bytes(example.SerializeToString(deterministic=True))

    def _unmasked(self, instance: Instance) -> dict[str, list[Any]]:
        features = {
            "input_ids": instance.token_ids.tolist(),
            "segment_ids": instance.segment_ids.tolist(),
            "word_starts": self._word_starts(instance.token_ids).astype(int).tolist(),
        }
        if instance.label is not None:
            features["next_sentence_labels"] = [instance.label]
        return features

    def _masked(
        self, instance: Instance, masker: StaticMasker, rng: np.random.Generator
    ) -> dict[str, list[Any]]:
        ids = instance.token_ids
        masked = masker(ids, self._word_starts(ids), ~self._is_special[ids], rng)
        length, slots = self.sequence_length, masker.max_predictions
        return {
            "input_ids": _padded(masked.token_ids, length),
            "input_mask": _padded(np.ones_like(ids), length),
            "segment_ids": _padded(instance.segment_ids, length),
            "masked_lm_positions": _padded(masked.positions, slots),
            "masked_lm_ids": _padded(masked.ids, slots),
            "masked_lm_weights": _padded(np.ones(len(masked.ids), np.float32), slots),
            "next_sentence_labels": [instance.label or 0],
        }

    def _word_starts(self, ids: Ids) -> Flags:
        """Finds first tokens of words: a subword at the start of a (truncated) segment is one."""
        starts: Flags = ~self._is_continuation[ids]
        starts[0] = True
        starts[1:] |= self._is_special[ids[:-1]]
        return starts


def write_records(path: str | os.PathLike[str], records: Iterable[bytes]) -> int:
    """Writes a TFRecord file atomically.

    Args:
        path: Path of the file; an existing one is replaced.
        records: Serialized examples.

    Returns:
        The number of records.

    Raises:
        FileNotFoundError: If the folder of the file does not exist.
        NotADirectoryError: If it is a file.
    """
    path = Path(path)
    count = 0
    check_folder_of(path)  # TensorFlow's error would have the temporary name.
    with atomic_path(path) as temporary, tf.io.TFRecordWriter(os.fspath(temporary)) as writer:
        for record in records:
            writer.write(record)
            count += 1
    return count


def _padded(values: Any, length: int) -> list[Any]:
    # np.pad would take half of the time of serializing a record.
    return [*values.tolist(), *[0] * (length - len(values))]


@without_autograph
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
    """Creates padded batches of pre-training records.

    Args:
        files: TFRecord files, all with the same features; or a pattern such as
            `"records/*.tfrecord"`.
        batch_size: Number of rows in a batch.
        sequence_length: The length to pad to; a longer row is an error.
        buckets: Ascending lengths to pad to instead; the last one must be `sequence_length`. Rows
            of similar lengths are then grouped into batches, and each batch is padded to the
            shortest bucket that holds it.
        shuffle_seed: Seed for shuffling files and records, in a different order in each iteration;
            `None` keeps their order.
        vocabulary_size: If given, ids outside `[0, vocabulary_size)` are an error.
        drop_remainder: Whether to drop a last batch that is not full.

    Returns:
        A dataset of dicts of `token_ids` (int32), `segment_ids` (int32) and `padding_mask` (bool),
        of shape `(batch, length)`. Records with masks also have `mask_positions` (int32),
        `mask_ids` (int32) and `mask_weights` (float32), `(batch, slots)`; records without masks
        have `word_starts`, bool `(batch, length)`. Records with labels also have
        `next_sentence_labels`, int32 `(batch,)`.

    Raises:
        FileNotFoundError: If no file matches, or some that the names of others count are missing.
        ValueError: If the first record of a file lacks the features of a pre-training record or
            has different features than that of the first file, if `buckets` are invalid, or if a
            file is truncated or corrupt. Files of up to 1 GiB in total are read in advance to check
            the latter; in larger ones, a truncated file raises `tf.errors.DataLossError` when it is
            read, and `check_record_files` names it.
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


@without_autograph
def ragged_pretraining_batches(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    batch_size: int,
    sequence_length: int,
    shuffle_seed: int | None = None,
    vocabulary_size: int | None = None,
) -> tf.data.Dataset:
    """Creates batches of pre-training records without padding, for packing them.

    Args:
        files: See `pretraining_batches`.
        batch_size: Number of rows in a batch.
        sequence_length: Maximum length of a row; a longer row is an error.
        shuffle_seed: See `pretraining_batches`.
        vocabulary_size: See `pretraining_batches`.

    Returns:
        A dataset of dicts as returned by `pretraining_batches`, but with ragged features
        `(batch, None)` instead of `(batch, length)`, and without `padding_mask`.

    Raises:
        FileNotFoundError, ValueError, tf.errors.InvalidArgumentError: As `pretraining_batches`.
    """
    paths = record_paths(files)
    _check_small_files(paths)
    parser = RecordParser(paths, sequence_length, vocabulary_size)
    batches = _records(paths, shuffle_seed).batch(batch_size)
    batches = batches.map(parser, num_parallel_calls=tf.data.AUTOTUNE)
    batches = batches.map(lambda ragged, rest: ragged | rest[0])
    return without_tuning(batches.prefetch(tf.data.AUTOTUNE))


def has_masks(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> bool:
    """Returns whether records have static masks, judging by the first record.

    Args:
        files: TFRecord files, or a pattern.

    Raises:
        FileNotFoundError: If no file matches, or some that the names of others count are missing.
        ValueError: If the record lacks the features of a pre-training record.
    """
    return RecordParser(record_paths(files)[:1], 0, None).is_masked


@without_autograph
def check_record_files(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> int:
    """Reads TFRecord files completely, and checks that none is truncated or corrupt.

    (TensorFlow's own error for a truncated file does not name the file.)

    Args:
        files: TFRecord files, or a pattern.

    Returns:
        The number of records.

    Raises:
        FileNotFoundError: If no file matches, or some that the names of others count are missing.
        ValueError: If a file is truncated or a checksum does not match; the message names the file
            and the index of the record.
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
    """Calls `check_record_files` if it takes no longer than a few seconds."""
    if sum(tf.io.gfile.stat(path).length for path in paths) <= _CHECKED_BYTES:
        check_record_files(paths)


def _find_broken_record(path: str) -> None:
    number = 0
    try:
        for _ in tf.data.TFRecordDataset(path):
            number += 1
    except tf.errors.DataLossError as error:
        reason = error.message.split("}}")[-1].split("[Op:")[0].strip()
        raise ValueError(f"{path}, record {number}: truncated or corrupt: {reason}.") from None


def _merged(
    features: Features, rest: tuple[Features], shape: tuple[int | None, int | None]
) -> Features:
    merged = {name: tf.ensure_shape(x, shape) for name, x in features.items()}
    for name, x in rest[0].items():
        merged[name] = tf.ensure_shape(x, (shape[0], *x.shape[1:]))
    return merged


def record_paths(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Returns the paths that match names and patterns.

    Raises:
        FileNotFoundError: If no file matches, or if a pattern does not match all of the files whose
            names count them, as `*-00000-of-00008.tfrecord` does.
    """
    patterns = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths: list[str] = []
    for pattern in [os.fspath(pattern) for pattern in patterns]:
        found = sorted(tf.io.gfile.glob(pattern))
        if found != [pattern]:
            _check_all_shards(found, pattern)
        paths += found
    if not paths:
        raise FileNotFoundError(f"No file matches {files}; expected TFRecord files.")
    return paths


def _check_all_shards(paths: Sequence[str], pattern: str) -> None:
    shards: dict[tuple[str, int, str], set[int]] = {}
    for path in paths:
        if named := _SHARD.fullmatch(path):
            start, number, count, end = named.groups()
            shards.setdefault((start, int(count), end), set()).add(int(number))
    for (start, count, end), numbers in shards.items():
        first = 1 if count in numbers else 0
        missing = sorted(set(range(first, first + count)) - numbers)
        if missing:
            raise FileNotFoundError(
                f"{pattern} matches {len(numbers)} of {count} files of records; the first one "
                f"missing is {start}-{missing[0]:05}-of-{count:05}{end}. To read only some of the "
                "files, list them."
            )


def _records(paths: list[str], shuffle_seed: int | None) -> tf.data.Dataset:
    """Returns a dataset of `(record, file, index in the file)`, in an order set by the seed."""
    files = tf.data.Dataset.from_tensor_slices(paths)
    if shuffle_seed is None:
        return files.flat_map(_records_of)
    files = files.shuffle(len(paths), seed=shuffle_seed)
    return interleaved_records(files, len(paths)).shuffle(SHUFFLE_BUFFER, seed=shuffle_seed)


def interleaved_records(files: tf.data.Dataset, num_files: int) -> tf.data.Dataset:
    """Interleaves files deterministically, as a dataset of `(record, file, index in the file)`."""
    return files.interleave(
        _records_of,
        cycle_length=min(_FILES_AT_ONCE, num_files),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _records_of(path: tf.Tensor) -> tf.data.Dataset:
    records = tf.data.TFRecordDataset(path).enumerate()
    return records.map(lambda number, record: (record, path, number))


class RecordParser:
    """Parses batches of records; error messages name the file and the record.

    Args:
        paths: Paths of the files; the first record of the first file determines the features.
        sequence_length: Maximum length of a row.
        vocabulary_size: Number of ids; `None` accepts all that an int32 can be.
    """

    def __init__(
        self, paths: Sequence[str], sequence_length: int, vocabulary_size: int | None
    ) -> None:
        path = paths[0]
        first = _first_record(path)
        if first is None:
            raise ValueError(f"{path} has no records.")
        self._sequence_length = sequence_length
        self._vocabulary_size = vocabulary_size
        self.is_masked = is_masked = "masked_lm_positions" in first
        needed = ["input_ids", "segment_ids", *(_MASK_FEATURES if is_masked else ["word_starts"])]
        missing = [name for name in needed if name not in first]
        if missing:
            raise ValueError(
                f"{path}: the first record lacks {', '.join(missing)}; it has {sorted(first)}."
            )
        for other in paths[1:]:
            features = _first_record(other)
            if features is not None and _FEATURES & features.keys() != _FEATURES & first.keys():
                raise ValueError(
                    f"{other}: the first record has {sorted(features)}, expected {sorted(first)} "
                    f"as in {path}."
                )
        self._has_mask = "input_mask" in first
        optional = ["next_sentence_labels"] if "next_sentence_labels" in first else []
        # `input_mask` is parsed in every record: without it, padding would count as tokens.
        self._names = [*needed, *optional, "input_mask"]
        self._slots = len(first["masked_lm_positions"].int64_list.value) if is_masked else 0

    def __call__(
        self, records: tf.Tensor, files: tf.Tensor, numbers: tf.Tensor
    ) -> tuple[dict[str, tf.RaggedTensor], tuple[Features]]:
        """Parses records.

        Args:
            records: Serialized examples, `(batch,)`.
            files: The path of each record's file, `(batch,)`.
            numbers: The index of each record in its file, int64 `(batch,)`.

        Returns:
            A tuple of the ragged features `(batch, None)`, and of a tuple with the dict of the
            other features (masks and labels).
        """
        record_names = tf.strings.join([files, ", record ", tf.strings.as_string(numbers)])
        spec = {name: _ragged_feature(name) for name in self._names}
        parsed = tf.io.parse_example(records, spec, example_names=record_names)
        self._check_lengths(parsed, record_names)
        rows = {"token_ids": parsed["input_ids"], "segment_ids": parsed["segment_ids"]}
        if "word_starts" in parsed:
            rows["word_starts"] = parsed["word_starts"]
        if self._has_mask:
            is_real = tf.cast(parsed["input_mask"], tf.bool)
            rows = {name: tf.ragged.boolean_mask(row, is_real) for name, row in rows.items()}
        self._check_values(rows, parsed, record_names)
        dtypes = {"word_starts": tf.bool}
        rows = {name: tf.cast(row, dtypes.get(name, tf.int32)) for name, row in rows.items()}
        return rows, (self._rest(parsed),)

    def _rest(self, parsed: dict[str, tf.RaggedTensor]) -> Features:
        rest = {}
        for name in _MASK_FEATURES:
            if name in parsed:
                dense = parsed[name].to_tensor(shape=(None, self._slots))
                dtype = tf.float32 if name == "masked_lm_weights" else tf.int32
                rest[name.replace("masked_lm", "mask")] = tf.cast(dense, dtype)
        if "next_sentence_labels" in parsed:
            labels = parsed["next_sentence_labels"].to_tensor(shape=(None, 1))
            rest["next_sentence_labels"] = tf.cast(labels[:, 0], tf.int32)
        return rest

    def _check_lengths(self, parsed: dict[str, tf.RaggedTensor], record_names: tf.Tensor) -> None:
        lengths = parsed["input_ids"].row_lengths()
        _check(lengths > 0, record_names, "input_ids", "expected at least 1 value")
        for name in self._names:
            if name in _MASK_FEATURES:
                wanted, words = tf.constant(self._slots, tf.int64), f"{self._slots} values"
            elif name == "next_sentence_labels":
                wanted, words = tf.constant(1, tf.int64), "1 value"
            elif name == "input_mask" and not self._has_mask:
                wanted, words = tf.constant(0, tf.int64), "no values, as in the first record"
            else:
                wanted, words = lengths, "as many values as input_ids"
            _check(parsed[name].row_lengths() == wanted, record_names, name, f"expected {words}")

    def _check_values(
        self,
        rows: dict[str, tf.RaggedTensor],
        parsed: dict[str, tf.RaggedTensor],
        record_names: tf.Tensor,
    ) -> None:
        lengths = rows["token_ids"].row_lengths()
        if not self._has_mask:
            last = tf.gather(rows["token_ids"].flat_values, rows["token_ids"].row_limits() - 1)
            _check(
                last != 0,
                record_names,
                "input_mask",
                "expected one where input_ids end in padding, 0",
            )
        else:
            # A row is what its mask has ones for. Behind a hole, positions would be those of others
            mask = parsed["input_mask"]
            numbers = tf.ragged.range(mask.row_lengths())
            is_one = tf.cast(numbers < lengths[:, tf.newaxis], tf.int64)
            good_rows = (lengths > 0) & tf.reduce_all(mask == is_one, axis=1)
            _check(good_rows, record_names, "input_mask", "expected ones, then zeros at padding")
        fits = lengths <= self._sequence_length
        _check(fits, record_names, "input_ids", f"expected at most {self._sequence_length} tokens")
        limits = [("segment_ids", 2), ("next_sentence_labels", 2)]
        num_ids = self._vocabulary_size or tf.int32.max
        limits += [(name, num_ids) for name in ("input_ids", "masked_lm_ids")]
        for name, limit in limits:
            if name in parsed:
                is_good = (parsed[name] >= 0) & (parsed[name] < limit)
                good_rows = tf.reduce_all(is_good, axis=1)
                _check(good_rows, record_names, name, f"expected values in [0, {limit})")
        if self._slots:
            weights = parsed["masked_lm_weights"]
            good_rows = tf.reduce_all(tf.math.is_finite(weights) & (weights >= 0), axis=1)
            expected = f"each must be {checks.NON_NEGATIVE}"
            _check(good_rows, record_names, "masked_lm_weights", expected)
            positions = parsed["masked_lm_positions"].to_tensor(shape=(None, self._slots))
            is_good = tf.reduce_all((positions >= 0) & (positions < lengths[:, None]), axis=1)
            _check(is_good, record_names, "masked_lm_positions", "expected positions in the row")


def _check(good: tf.Tensor, record_names: tf.Tensor, feature: str, expected: str) -> None:
    bad = tf.boolean_mask(record_names, ~good)[:1]
    tf.debugging.Assert(tf.reduce_all(good), [f"Feature {feature}: {expected}, in", bad])


def _ragged_feature(name: str) -> tf.io.RaggedFeature:
    dtype = tf.float32 if name == "masked_lm_weights" else tf.int64
    return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)


def _first_record(path: str) -> Any:
    """Returns the features of a file's first record; `None` for a file without records."""
    for record in tf.data.TFRecordDataset(path).take(1).as_numpy_iterator():
        try:
            return dict(tf.train.Example.FromString(record).features.feature)
        except Exception as error:  # protobuf's DecodeError, whose module depends on its build
            raise ValueError(
                f"{path}: the first record is not a tf.train.Example ({error})."
            ) from None
    return None
