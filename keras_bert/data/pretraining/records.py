# SPDX-License-Identifier: Apache-2.0
"""Pre-training records, TFRecords with the feature names of BERT's released code."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert.atomic import atomic_path
from keras_bert.data.batching import length_bucketed_batches, pad_to_length, without_tuning
from keras_bert.data.pretraining.instances import Instance
from keras_bert.data.pretraining.static_masking import Flags, StaticMasker
from keras_bert.data.pretraining.token_store import Ids
from keras_bert.text.wordpiece import SUFFIX

Features = dict[str, Any]

_MASK_FEATURES = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
_FEATURES = frozenset(
    ("input_ids", "input_mask", "segment_ids", "word_starts", "next_sentence_labels")
).union(_MASK_FEATURES)
# Records that are shuffled among themselves, on top of the order of the files.
SHUFFLE_BUFFER = 10_000
_FILES_AT_ONCE = 16
# Files up to this size are read once more, to name a corrupt file before training on it
_CHECKED_BYTES = 1 << 30


class InstanceEncoder:
    """Turns instances into records, masked or to be masked in training.

    With a masker, records are those of the released code, which can train on them: `input_ids`,
    `input_mask` and `segment_ids` `(sequence_length,)`, `masked_lm_positions`, `masked_lm_ids` and
    `masked_lm_weights` `(max_predictions,)`, `next_sentence_labels` `(1,)`, padded with 0. The
    weights are float32, the rest int64. The label of rows without a second segment is then 0.

    Without one, records have `input_ids`, `segment_ids` and `word_starts` (1 where a word begins)
    of the row's own length, and `next_sentence_labels` where the row has one.

    Args:
        vocabulary: The tokens.
        special_token_ids: The ids that are no text: `[CLS]` and `[SEP]`.
        sequence_length: The length to pad to; of no effect without a masker.
        masker: Draws the masks; `None` for records without masks.
        continuation_token_ids: The ids that go on with the word before them; `None` takes
            WordPiece's, which begin with `##`.

    Call arguments:
        instance: A row.
        rng: The source of random numbers for masks.

    Returns:
        The serialized `tf.train.Example`.
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
        """A piece that opens a segment, as truncation may leave one, begins a word there."""
        starts: Flags = ~self._is_continuation[ids]
        starts[0] = True
        starts[1:] |= self._is_special[ids[:-1]]
        return starts


def write_records(path: str | os.PathLike[str], records: Iterable[bytes]) -> int:
    """Writes a TFRecord file atomically.

    Args:
        path: The file; an existing one is replaced.
        records: Serialized examples.

    Returns:
        How many there were.
    """
    path = Path(path)
    count = 0
    with atomic_path(path) as temporary, tf.io.TFRecordWriter(os.fspath(temporary)) as writer:
        for record in records:
            writer.write(record)
            count += 1
    return count


def _padded(values: Any, length: int) -> list[Any]:
    # np.pad alone would take half of the time that goes into a record.
    return [*values.tolist(), *[0] * (length - len(values))]


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


class RecordParser:
    """Parses a batch of records; an error names the file and the record.

    Args:
        paths: The files; the first record of the first one determines the features.
        sequence_length: The longest row.
        vocabulary_size: How many ids there are, if that is to be checked.
    """

    def __init__(
        self, paths: Sequence[str], sequence_length: int, vocabulary_size: int | None
    ) -> None:
        path = paths[0]
        first = _first_record(path)
        if first is None:
            raise ValueError(f"{path}: has no records.")
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
        # A mask is looked for in every record: rows without it would be taken with their padding.
        self._names = [*needed, *optional, "input_mask"]
        self._slots = len(first["masked_lm_positions"].int64_list.value) if is_masked else 0

    def __call__(
        self, records: tf.Tensor, files: tf.Tensor, numbers: tf.Tensor
    ) -> tuple[dict[str, tf.RaggedTensor], tuple[Features]]:
        """Ragged features of rows, and in a tuple the dict of those of another length.

        Args:
            records: Serialized examples `(batch,)`.
            files: The file of each, `(batch,)`.
            numbers: Its number in the file from 0, int64 `(batch,)`.
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
        fits = lengths <= self._sequence_length
        _check(fits, record_names, "input_ids", f"expected at most {self._sequence_length} tokens")
        limits = [("segment_ids", 2), ("next_sentence_labels", 2)]
        if self._vocabulary_size is not None:
            limits += [(name, self._vocabulary_size) for name in ("input_ids", "masked_lm_ids")]
        for name, limit in limits:
            if name in parsed:
                is_good = (parsed[name] >= 0) & (parsed[name] < limit)
                good_rows = tf.reduce_all(is_good, axis=1)
                _check(good_rows, record_names, name, f"expected values in [0, {limit})")
        if self._slots:
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
    """The features of a file's first record; `None` for a file without records."""
    for record in tf.data.TFRecordDataset(path).take(1).as_numpy_iterator():
        try:
            return dict(tf.train.Example.FromString(record).features.feature)
        except Exception as error:  # protobuf's own, of a type that depends on its build
            raise ValueError(
                f"{path}: the first record is no tf.train.Example ({error})."
            ) from None
    return None
