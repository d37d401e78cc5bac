# SPDX-License-Identifier: Apache-2.0
"""Converts pre-training records to arrays, and validates every value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bert import checks
from keras_bert.data.arrays import NUMPY, Ragged, row_numbers, truncate_rows
from keras_bert.data.pretraining import tfrecords
from keras_bert.data.pretraining.tfrecords import Record

Features = dict[str, Any]

_MASK_FEATURES = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
_FEATURES = frozenset(
    ("input_ids", "input_mask", "segment_ids", "word_starts", "next_sentence_labels")
).union(_MASK_FEATURES)


class RecordParser:
    """Parses records. Error messages contain the file, the record and the feature.

    The first file's first record determines the features. If `vocabulary_size` is `None`, ids may
    be any nonnegative int32 except the largest.
    """

    def __init__(
        self, paths: Sequence[str], sequence_length: int, vocabulary_size: int | None
    ) -> None:
        path = paths[0]
        first_record = tfrecords.first_record(path)
        if first_record is None:
            raise ValueError(f"{path} must contain at least one record. Received: 0 records")
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
                f"{path}: the first record must have {', '.join(absent_names)}. Received: "
                f"{sorted(first)}"
            )
        for other in paths[1:]:
            record = tfrecords.first_record(other)
            features = first if record is None else tfrecords.spans(record)
            if _FEATURES & features.keys() != _FEATURES & first.keys():
                raise ValueError(
                    f"{other}: the first record must have {sorted(first)}, as in {path}. Received: "
                    f"{sorted(features)}"
                )
        self._has_mask = "input_mask" in first
        optional = ["next_sentence_labels"] if "next_sentence_labels" in first else []
        # `input_mask` is parsed in every record. Otherwise, padding would count as tokens.
        self._kinds = dict.fromkeys([*required, *optional, "input_mask"], "int64")
        self._slots = 0
        if is_masked:
            self._kinds["masked_lm_weights"] = "float"
            example = tfrecords.parse([first_record], self._kinds)
            self._slots = int(example["masked_lm_positions"].lengths[0])

    def __call__(self, records: Sequence[Record]) -> tuple[dict[str, Ragged], Features]:
        """Converts records to ragged token features, and dense masks and labels."""
        features = tfrecords.parse(records, self._kinds)
        self._check_numbers(features, records)
        rows = {"token_ids": features["input_ids"], "segment_ids": features["segment_ids"]}
        if "word_starts" in features:
            rows["word_starts"] = features["word_starts"]
        if self._has_mask:
            lengths = _ones(features["input_mask"])
            rows = {name: truncate_rows(NUMPY, row, lengths) for name, row in rows.items()}
        self._check_values(rows, features, records)
        dtypes = {"word_starts": "bool"}
        rows = {
            name: row._replace(values=row.values.astype(dtypes.get(name, "int32")))
            for name, row in rows.items()
        }
        return rows, self._rest(features)

    def lengths(self, records: Sequence[Record]) -> np.ndarray:
        """Returns the number of tokens in each record, int64, without parsing other features."""
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
                expected_lengths, words = lengths, "the same number of values as input_ids"
            received = features[name].lengths
            _check(records, name, words, received == expected_lengths, received)

    def _check_values(
        self, rows: dict[str, Ragged], features: dict[str, Ragged], records: Sequence[Record]
    ) -> None:
        ids = rows["token_ids"]
        lengths = ids.lengths
        if not self._has_mask:
            last = ids.values[np.cumsum(lengths) - 1]
            rule = "values, because input_ids end in padding"
            _check(records, "input_mask", rule, last != 0, last)
        else:
            # A mask must start with one 1 for each token. Otherwise, positions would be wrong.
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
    """Counts the nonzero values in each row, int64 `(rows,)`."""
    rows = row_numbers(NUMPY, mask.lengths)
    return np.bincount(rows, mask.values != 0, len(mask.lengths)).astype("int64")


def _check(
    records: Sequence[Record], feature: str, rule: str, is_good: np.ndarray, received: Any
) -> None:
    """Raises an error if `is_good`, a flag for each record, is false for any record."""
    bad = np.flatnonzero(~is_good)
    if len(bad):
        raise ValueError(
            f"{records[bad[0]]}, feature {feature}: there must be {rule}. Received: "
            f"{received[bad[0]]}"
        )


def _check_each(
    records: Sequence[Record], feature: str, rule: str, values: Ragged, is_good: np.ndarray
) -> None:
    """Raises an error if `is_good`, a flag for each value, is false for any value."""
    if not is_good.all():
        records_of_values = [records[row] for row in row_numbers(NUMPY, values.lengths)]
        _check(records_of_values, feature, rule, is_good, values.values)
