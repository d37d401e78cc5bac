# SPDX-License-Identifier: Apache-2.0
"""Serialized pre-training records to features, with every value checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

Features = dict[str, Any]

_MASK_FEATURES = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
_FEATURES = frozenset(
    ("input_ids", "input_mask", "segment_ids", "word_starts", "next_sentence_labels")
).union(_MASK_FEATURES)


class RecordParser:
    """Parses a batch of records, and says of a bad one in which file it is.

    Args:
        paths: The files; the first record of the first one says which features there are.
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
        places = tf.strings.join([files, ", record ", tf.strings.as_string(numbers)])
        spec = {name: _ragged_feature(name) for name in self._names}
        parsed = tf.io.parse_example(records, spec, example_names=places)
        self._check_lengths(parsed, places)
        rows = {"token_ids": parsed["input_ids"], "segment_ids": parsed["segment_ids"]}
        if "word_starts" in parsed:
            rows["word_starts"] = parsed["word_starts"]
        if self._has_mask:
            is_real = tf.cast(parsed["input_mask"], tf.bool)
            rows = {name: tf.ragged.boolean_mask(row, is_real) for name, row in rows.items()}
        self._check_values(rows, parsed, places)
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

    def _check_lengths(self, parsed: dict[str, tf.RaggedTensor], places: tf.Tensor) -> None:
        lengths = parsed["input_ids"].row_lengths()
        _check(lengths > 0, places, "input_ids", "expected at least 1 value")
        for name in self._names:
            if name in _MASK_FEATURES:
                wanted, words = tf.constant(self._slots, tf.int64), f"{self._slots} values"
            elif name == "next_sentence_labels":
                wanted, words = tf.constant(1, tf.int64), "1 value"
            elif name == "input_mask" and not self._has_mask:
                wanted, words = tf.constant(0, tf.int64), "no values, as in the first record"
            else:
                wanted, words = lengths, "as many values as input_ids"
            _check(parsed[name].row_lengths() == wanted, places, name, f"expected {words}")

    def _check_values(
        self,
        rows: dict[str, tf.RaggedTensor],
        parsed: dict[str, tf.RaggedTensor],
        places: tf.Tensor,
    ) -> None:
        lengths = rows["token_ids"].row_lengths()
        if not self._has_mask:
            last = tf.gather(rows["token_ids"].flat_values, rows["token_ids"].row_limits() - 1)
            _check(
                last != 0, places, "input_mask", "expected one where input_ids end in padding, 0"
            )
        fits = lengths <= self._sequence_length
        _check(fits, places, "input_ids", f"expected at most {self._sequence_length} tokens")
        limits = [("segment_ids", 2), ("next_sentence_labels", 2)]
        if self._vocabulary_size is not None:
            limits += [(name, self._vocabulary_size) for name in ("input_ids", "masked_lm_ids")]
        for name, limit in limits:
            if name in parsed:
                is_good = (parsed[name] >= 0) & (parsed[name] < limit)
                good_rows = tf.reduce_all(is_good, axis=1)
                _check(good_rows, places, name, f"expected values in [0, {limit})")
        if self._slots:
            positions = parsed["masked_lm_positions"].to_tensor(shape=(None, self._slots))
            is_good = tf.reduce_all((positions >= 0) & (positions < lengths[:, None]), axis=1)
            _check(is_good, places, "masked_lm_positions", "expected places in the row")


def _check(good: tf.Tensor, places: tf.Tensor, feature: str, expected: str) -> None:
    bad = tf.boolean_mask(places, ~good)[:1]
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
