# SPDX-License-Identifier: Apache-2.0
"""Pre-training records: TFRecords with the feature names of BERT's released code."""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert import checks
from keras_bert.atomic import atomic_path, check_parent_exists
from keras_bert.data.arrays import NUMPY, Ragged, cut_rows, row_numbers, row_starts, take_rows
from keras_bert.data.file_systems import find_files
from keras_bert.data.loader import WINDOW_BATCHES, Batches, bucket_for, permutation, rows_of_batches
from keras_bert.data.packing import Sequences
from keras_bert.data.pretraining import tfrecords
from keras_bert.data.pretraining.instances import Instance
from keras_bert.data.pretraining.static_masking import Flags, StaticMasker
from keras_bert.data.pretraining.tfrecords import Item, Record, chunked, read_records
from keras_bert.text.special_tokens import SUFFIX

Features = dict[str, Any]
Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_MASK_FEATURES = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
_FEATURES = frozenset(
    ("input_ids", "input_mask", "segment_ids", "word_starts", "next_sentence_labels")
).union(_MASK_FEATURES)
# The name of a shard: the text before its number, its number, the number of shards, the rest
_SHARD = re.compile(r"(.*)-(\d+)-of-(\d+)(.*)", re.DOTALL)
# Number of consecutive rows that are shuffled together
SHUFFLE_WINDOW = 8192
_FILES_AT_ONCE = 16
# Rows that are serialized together
_ROWS_AT_ONCE = 1024


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
        return next(self.records([instance], rng))

    def records(self, instances: Iterable[Instance], rng: np.random.Generator) -> Iterator[bytes]:
        """Serializes instances, many at a time: several times as fast as one after another.

        Args:
            instances: The `Instance`s.
            rng: The random number generator for masks.

        Yields:
            The serialized `tf.train.Example` of each instance.
        """
        for chunk in chunked(instances, _ROWS_AT_ONCE):
            # Rows without a label lack the feature.
            for _, group in itertools.groupby(chunk, lambda instance: instance.label is None):
                yield from tfrecords.serialize(self._features(list(group), rng))

    def _features(
        self, instances: Sequence[Instance], rng: np.random.Generator
    ) -> dict[str, Ragged]:
        token_ids = Ragged.of_rows([instance.token_ids for instance in instances])
        segment_ids = Ragged.of_rows([instance.segment_ids for instance in instances])
        word_starts = token_ids._replace(values=self._word_starts(token_ids))
        labels = np.array([[instance.label or 0] for instance in instances])
        if self.masker is not None:
            features = self._mask(token_ids, word_starts.values, self.masker, rng)
            features["segment_ids"] = _pad(segment_ids, self.sequence_length)
            features["next_sentence_labels"] = _rows(labels)
            return features
        features = {"input_ids": token_ids, "segment_ids": segment_ids, "word_starts": word_starts}
        if instances[0].label is not None:
            features["next_sentence_labels"] = _rows(labels)
        return features

    def _mask(
        self, token_ids: Ragged, word_starts: Flags, masker: StaticMasker, rng: np.random.Generator
    ) -> dict[str, Ragged]:
        ids, lengths = token_ids
        columns = (ids, word_starts, ~self._is_special[ids])
        rows = zip(*(Ragged(column, lengths).to_arrays() for column in columns), strict=True)
        masked_rows = [masker(row, starts, candidates, rng) for row, starts, candidates in rows]
        positions = Ragged.of_rows([row.positions for row in masked_rows])
        weights = positions._replace(values=np.ones(len(positions.values), np.float32))
        length, slots = self.sequence_length, masker.max_predictions
        return {
            "input_ids": _pad(Ragged.of_rows([row.token_ids for row in masked_rows]), length),
            "input_mask": _pad(Ragged(np.ones_like(ids), lengths), length),
            "masked_lm_positions": _pad(positions, slots),
            "masked_lm_ids": _pad(Ragged.of_rows([row.ids for row in masked_rows]), slots),
            "masked_lm_weights": _pad(weights, slots),
        }

    def _word_starts(self, rows: Ragged) -> Flags:
        """Marks the first token of each word, even if it is a subword of a truncated segment."""
        starts: Flags = ~self._is_continuation[rows.values]
        starts[1:] |= self._is_special[rows.values[:-1]]
        starts[row_starts(NUMPY, rows.lengths)] = True
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
        NotADirectoryError: If the folder of the file is a file itself.
    """
    path = Path(path)
    check_parent_exists(path)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        return tfrecords.write_records(file, records)


def _rows(values: np.ndarray) -> Ragged:
    """Returns the rows of an array `(rows, values)`."""
    return Ragged(values.reshape(-1), np.full(len(values), values.shape[1], "int64"))


def _pad(rows: Ragged, length: int) -> Ragged:
    return _rows(NUMPY.to_dense(rows, length, 0))


def pretraining_batches(
    files: Files,
    *,
    batch_size: int,
    sequence_length: int,
    buckets: Sequence[int] | None = None,
    shuffle_seed: int | None = None,
    vocabulary_size: int | None = None,
    drop_remainder: bool = False,
) -> Batches:
    """Reads padded batches of pre-training records.

    Args:
        files: TFRecord files, all with the same features; or a pattern such as
            `"records/*.tfrecord"`.
        batch_size: Number of rows in a batch.
        sequence_length: The length to pad to; a longer row is an error.
        buckets: Ascending lengths to pad to instead; the last one must be `sequence_length`. Rows
            of similar lengths are then grouped into batches, and each batch is padded to the
            shortest bucket that holds it.
        shuffle_seed: Seed for shuffling files and records, in a different order in each epoch;
            `None` keeps their order.
        vocabulary_size: If given, ids outside `[0, vocabulary_size)` are an error.
        drop_remainder: Whether to drop a last batch that is not full.

    Returns:
        An iterable of dicts of NumPy arrays: `token_ids` (int32), `segment_ids` (int32) and
        `padding_mask` (bool), of shape `(batch, length)`. Records with masks also have
        `mask_positions` (int32), `mask_ids` (int32) and `mask_weights` (float32), `(batch, slots)`;
        records without masks have `word_starts`, bool `(batch, length)`. Records with labels also
        have `next_sentence_labels`, int32 `(batch,)`. The iterable's length is the number of
        batches, and its method `epoch(number, first)` skips the first batches of an epoch.

    Raises:
        FileNotFoundError: If no file matches, or a pattern misses some of the shards that file
            names such as `*-00000-of-00008.tfrecord` count.
        ValueError: If the first record of a file lacks the features of a pre-training record or
            has other features than in the first file, if `buckets` are invalid, or if a file is
            truncated; during iteration, if a record is corrupt or malformed. The message names the
            file, the record and the feature.
    """
    lengths = list(buckets or ())
    if buckets is not None and (lengths != sorted(lengths) or lengths[-1:] != [sequence_length]):
        raise ValueError(
            f"buckets are {list(buckets)}, expected ascending lengths up to {sequence_length}."
        )
    return _RecordBatches(
        RecordParser(record_paths(files), sequence_length, vocabulary_size),
        batch_size,
        buckets=buckets,
        shuffle_seed=shuffle_seed,
        drop_remainder=drop_remainder,
    )


def ragged_pretraining_batches(
    files: Files,
    *,
    batch_size: int,
    sequence_length: int,
    shuffle_seed: int | None = None,
    vocabulary_size: int | None = None,
) -> Batches:
    """Reads batches of pre-training records without padding, for packing them.

    Args:
        files: See `pretraining_batches`.
        batch_size: Number of rows in a batch.
        sequence_length: Maximum length of a row; a longer row is an error.
        shuffle_seed: See `pretraining_batches`.
        vocabulary_size: See `pretraining_batches`.

    Returns:
        An iterable of dicts as returned by `pretraining_batches`, but with `Ragged` features
        instead of shape `(batch, length)`, and without `padding_mask`.

    Raises:
        FileNotFoundError, ValueError: As `pretraining_batches`.
    """
    parser = RecordParser(record_paths(files), sequence_length, vocabulary_size)
    return _RecordBatches(parser, batch_size, is_ragged=True, shuffle_seed=shuffle_seed)


def has_masks(files: Files) -> bool:
    """Returns whether records have static masks, judging by the first record.

    Args:
        files: TFRecord files, or a pattern.

    Raises:
        FileNotFoundError: If no file matches, or a pattern misses some of the shards that file
            names such as `*-00000-of-00008.tfrecord` count.
        ValueError: If the record lacks the features of a pre-training record.
    """
    return RecordParser(record_paths(files)[:1], 0, None).is_masked


def check_record_files(files: Files) -> int:
    """Reads TFRecord files completely, and checks that none is truncated or corrupt.

    Args:
        files: TFRecord files, or a pattern.

    Returns:
        The number of records.

    Raises:
        FileNotFoundError: If no file matches, or a pattern misses some of the shards that file
            names such as `*-00000-of-00008.tfrecord` count.
        ValueError: If a file is truncated or a checksum does not match; the message names the file
            and the index of the record.
    """
    return sum(1 for path in record_paths(files) for _ in read_records(path))


def record_paths(files: Files) -> list[str]:
    """Returns the paths that match names and patterns.

    Raises:
        FileNotFoundError: If no file matches, or a pattern misses some of the shards that file
            names such as `*-00000-of-00008.tfrecord` count.
    """
    patterns = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths: list[str] = []
    for pattern in [os.fspath(pattern) for pattern in patterns]:
        matches = [file.path for file in find_files(pattern)]
        if matches != [pattern]:
            _check_all_shards(matches, pattern)
        paths += matches
    if not paths:
        raise FileNotFoundError(f"No file matches {files}; expected TFRecord files.")
    return paths


def _check_all_shards(paths: Sequence[str], pattern: str) -> None:
    shards: dict[tuple[str, int, str], set[int]] = {}
    for path in paths:
        if match := _SHARD.fullmatch(path):
            start, number, count, end = match.groups()
            shards.setdefault((start, int(count), end), set()).add(int(number))
    for (start, count, end), numbers in shards.items():
        first = 1 if count in numbers else 0
        gaps = sorted(set(range(first, first + count)) - numbers)
        if gaps:
            raise FileNotFoundError(
                f"{pattern} matches {len(numbers)} of {count} files of records; the first one "
                f"missing is {start}-{gaps[0]:05}-of-{count:05}{end}. To read only some of the "
                "files, list them."
            )


# === Order ===


def interleaved(paths: Sequence[str]) -> Iterator[Record]:
    """Yields the records of files, one in turn from each of up to 16 open files."""
    waiting = deque(paths)
    reading: list[Iterator[Record] | None] = [None] * min(_FILES_AT_ONCE, len(paths))
    while waiting or any(reading):
        for slot, records in enumerate(reading):
            if records is None and waiting:
                records = reading[slot] = read_records(waiting.popleft())
            record = None if records is None else next(records, None)
            if record is None:
                reading[slot] = None
            else:
                yield record


def shuffled_records(
    paths: Sequence[str], *seed: int, window: int = SHUFFLE_WINDOW
) -> Iterator[Record]:
    """Yields the records of files in random order, shuffled within windows."""
    order = permutation(len(paths), *seed)
    return shuffled(interleaved([paths[index] for index in order]), *seed, window=window)


def shuffled(rows: Iterable[Item], *seed: int, window: int = SHUFFLE_WINDOW) -> Iterator[Item]:
    """Yields rows in random order, shuffled within windows, with one window in memory."""
    for number, chunk in enumerate(chunked(rows, window)):
        for index in permutation(len(chunk), *seed, number).tolist():
            yield chunk[index]


class _RecordBatches(Batches):
    """Batches of records; see `pretraining_batches` for the arguments."""

    def __init__(
        self,
        parser: RecordParser,
        batch_size: int,
        *,
        buckets: Sequence[int] | None = None,
        shuffle_seed: int | None = None,
        drop_remainder: bool = False,
        is_ragged: bool = False,
    ) -> None:
        super().__init__()
        self._parser = parser
        self._batch_size = batch_size
        self._buckets = buckets
        self._seed = shuffle_seed
        self._drops_remainder = drop_remainder
        self._is_ragged = is_ragged
        self._num_records = sum(map(tfrecords.count_records, parser.paths))
        self.has_one_shape = drop_remainder and buckets is None
        self.rows_in_batch = batch_size if drop_remainder else None

    @property
    def num_batches(self) -> int:
        """The number of batches of an epoch."""
        full, rest = divmod(self._num_records, self._batch_size)
        return full + (rest > 0 and not self._drops_remainder)

    def example(self) -> Features:
        """Returns a batch of the first record."""
        rows, rest = self._parser([self._parser.first])
        return self._batch(rows, rest, np.zeros(1, "int64"))

    def _epoch(self, number: int, first: int) -> Generator[Features, None, None]:
        paths, seed, size = self._parser.paths, self._seed, self._batch_size
        in_order = itertools.chain.from_iterable(map(read_records, paths))
        records = in_order if seed is None else shuffled_records(paths, seed, number)
        in_window = 1 if self._buckets is None else WINDOW_BATCHES
        num_done = 0
        for count, window in enumerate(chunked(records, size * in_window)):
            if num_done + in_window <= first:
                num_done += in_window
                continue
            rows, rest = self._parser(window)
            # Without buckets, the order of the records stays.
            lengths = np.zeros(len(window)) if self._buckets is None else rows["token_ids"].lengths
            order = None if seed is None else (seed, number, count)
            for index in rows_of_batches(lengths, size, order):
                if self._drops_remainder and len(index) < size:
                    continue
                if num_done >= first:
                    yield self._batch(rows, rest, index)
                num_done += 1

    def _batch(self, rows: dict[str, Ragged], rest: Features, index: np.ndarray) -> Features:
        rows = {name: take_rows(NUMPY, values, index) for name, values in rows.items()}
        rest = {name: values[index] for name, values in rest.items()}
        if self._is_ragged:
            return {**rows, **rest}
        buckets = self._buckets or (self._parser.sequence_length,)
        length = bucket_for(rows["token_ids"].lengths.max(), buckets)
        return {**Sequences(rows).padded(NUMPY, length, 0), **rest}


# === Content ===


class RecordParser:
    """Parses records; error messages name the file, the record and the feature.

    The first record of the first file determines the features. If `vocabulary_size` is `None`,
    ids may be any nonnegative int32 below the largest.
    """

    def __init__(
        self, paths: Sequence[str], sequence_length: int, vocabulary_size: int | None
    ) -> None:
        path = paths[0]
        first_record = tfrecords.first_record(path)
        if first_record is None:
            raise ValueError(f"{path} has no records.")
        self.paths = paths
        self.sequence_length = sequence_length
        self.first = first_record
        self._vocabulary_size = vocabulary_size
        first = tfrecords.spans(first_record)
        self.is_masked = is_masked = "masked_lm_positions" in first
        required = ["input_ids", "segment_ids", *(_MASK_FEATURES if is_masked else ["word_starts"])]
        absent_names = [name for name in required if name not in first]
        if absent_names:
            raise ValueError(
                f"{path}: the first record lacks {', '.join(absent_names)}; it has {sorted(first)}."
            )
        for other in paths[1:]:
            record = tfrecords.first_record(other)
            features = first if record is None else tfrecords.spans(record)
            if _FEATURES & features.keys() != _FEATURES & first.keys():
                raise ValueError(
                    f"{other}: the first record has {sorted(features)}, expected {sorted(first)} "
                    f"as in {path}."
                )
        self._has_mask = "input_mask" in first
        optional = ["next_sentence_labels"] if "next_sentence_labels" in first else []
        # `input_mask` is parsed in every record: without it, padding would count as tokens.
        self._kinds = dict.fromkeys([*required, *optional, "input_mask"], "int64")
        self._slots = 0
        if is_masked:
            self._kinds["masked_lm_weights"] = "float"
            example = tfrecords.parse([first_record], self._kinds)
            self._slots = int(example["masked_lm_positions"].lengths[0])

    def __call__(self, records: Sequence[Record]) -> tuple[dict[str, Ragged], Features]:
        """Parses records to ragged features of tokens, and to dense masks and labels."""
        features = tfrecords.parse(records, self._kinds)
        self._check_numbers(features, records)
        rows = {"token_ids": features["input_ids"], "segment_ids": features["segment_ids"]}
        if "word_starts" in features:
            rows["word_starts"] = features["word_starts"]
        if self._has_mask:
            lengths = _ones(features["input_mask"])
            rows = {name: cut_rows(NUMPY, row, lengths) for name, row in rows.items()}
        self._check_values(rows, features, records)
        dtypes = {"word_starts": "bool"}
        rows = {
            name: row._replace(values=row.values.astype(dtypes.get(name, "int32")))
            for name, row in rows.items()
        }
        return rows, self._rest(features)

    def lengths(self, records: Sequence[Record]) -> np.ndarray:
        """Returns the number of tokens of each record, int64; it parses nothing else."""
        name = "input_mask" if self._has_mask else "input_ids"
        values = tfrecords.parse(records, {name: "int64"})[name]
        lengths: np.ndarray = _ones(values) if self._has_mask else values.lengths
        _check(records, name, "at least 1 value", lengths > 0, lengths)
        self._check_length(records, lengths)
        return lengths

    def _rest(self, features: dict[str, Ragged]) -> Features:
        rest = {}
        for name in _MASK_FEATURES:
            if name in features:
                dtype = "float32" if name == "masked_lm_weights" else "int32"
                values = features[name].values.reshape(-1, self._slots)
                rest[name.replace("masked_lm", "mask")] = values.astype(dtype)
        if "next_sentence_labels" in features:
            rest["next_sentence_labels"] = features["next_sentence_labels"].values.astype("int32")
        return rest

    def _check_length(self, records: Sequence[Record], lengths: np.ndarray) -> None:
        rule = f"at most {self.sequence_length} tokens"
        _check(records, "input_ids", rule, lengths <= self.sequence_length, lengths)

    def _check_numbers(self, features: dict[str, Ragged], records: Sequence[Record]) -> None:
        lengths = features["input_ids"].lengths
        _check(records, "input_ids", "at least 1 value", lengths > 0, lengths)
        for name in self._kinds:
            if name in _MASK_FEATURES:
                expected_lengths, words = self._slots, f"{self._slots} values"
            elif name == "next_sentence_labels":
                expected_lengths, words = 1, "1 value"
            elif name == "input_mask" and not self._has_mask:
                expected_lengths, words = 0, "no values, as in the first record"
            else:
                expected_lengths, words = lengths, "as many values as input_ids"
            received = features[name].lengths
            _check(records, name, words, received == expected_lengths, received)

    def _check_values(
        self, rows: dict[str, Ragged], features: dict[str, Ragged], records: Sequence[Record]
    ) -> None:
        ids = rows["token_ids"]
        lengths = ids.lengths
        if not self._has_mask:
            last = ids.values[np.cumsum(lengths) - 1]
            rule = "one where input_ids end in padding"
            _check(records, "input_mask", rule, last != 0, last)
        else:
            # A row has as many tokens as ones in its mask; after a zero, positions would be wrong
            mask = features["input_mask"]
            ones = np.arange(mask.lengths.max()) < lengths[:, np.newaxis]
            is_one = ones[NUMPY.mask(mask.lengths, ones.shape[1])]
            rule = "ones, then zeros at padding"
            _check(records, "input_mask", rule, lengths > 0, lengths)
            _check_each(records, "input_mask", rule, mask, mask.values == is_one)
        self._check_length(records, lengths)
        num_ids = self._vocabulary_size or 2**31 - 1
        limits = {"segment_ids": 2, "next_sentence_labels": 2}
        for name, limit in {**limits, "input_ids": num_ids, "masked_lm_ids": num_ids}.items():
            if name in features:
                values = features[name].values
                is_good = (values >= 0) & (values < limit)
                _check_each(records, name, f"values in [0, {limit})", features[name], is_good)
        if self._slots:
            weights, positions = features["masked_lm_weights"], features["masked_lm_positions"]
            is_good = np.isfinite(weights.values) & (weights.values >= 0)
            rule = f"values that are {checks.NON_NEGATIVE}"
            _check_each(records, "masked_lm_weights", rule, weights, is_good)
            ends = np.repeat(lengths, positions.lengths)
            is_good = (positions.values >= 0) & (positions.values < ends)
            rule = "positions in the row"
            _check_each(records, "masked_lm_positions", rule, positions, is_good)


def _ones(mask: Ragged) -> np.ndarray:
    """Counts the values of each row that are not 0, int64 `(rows,)`."""
    rows = row_numbers(NUMPY, mask.lengths)
    return np.bincount(rows, mask.values != 0, len(mask.lengths)).astype("int64")


def _check(
    records: Sequence[Record], feature: str, rule: str, is_good: np.ndarray, received: Any
) -> None:
    """Raises a ValueError if `is_good`, a flag for each record, is false for one."""
    bad = np.flatnonzero(~is_good)
    if len(bad):
        raise ValueError(
            f"{records[bad[0]]}, feature {feature}: expected {rule}, received {received[bad[0]]}."
        )


def _check_each(
    records: Sequence[Record], feature: str, rule: str, values: Ragged, is_good: np.ndarray
) -> None:
    """Raises a ValueError if `is_good`, a flag for each value, is false for one."""
    bad = np.flatnonzero(~is_good)
    if len(bad):
        record = records[row_numbers(NUMPY, values.lengths)[bad[0]]]
        raise ValueError(
            f"{record}, feature {feature}: expected {rule}, received {values.values[bad[0]]}."
        )
