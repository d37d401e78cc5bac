# SPDX-License-Identifier: Apache-2.0
"""Serializes instances to TFRecords with the feature names of the original BERT code."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from keras_bert.atomic import atomic_path, check_parent_exists
from keras_bert.data.arrays import NUMPY, Ragged, row_starts
from keras_bert.data.pretraining import tfrecords
from keras_bert.data.pretraining.instances import Instance
from keras_bert.data.pretraining.static_masking import Flags, StaticMasker
from keras_bert.text.special_tokens import SUFFIX

# The number of instances to serialize together
_ROWS_AT_ONCE = 1024


class InstanceEncoder:
    """Serializes instances to records, with static masks or without masks.

    With a masker, records are in the format of the original BERT code, so it can train on them:
    `input_ids`, `input_mask` and `segment_ids` `(sequence_length,)`, `masked_lm_positions`,
    `masked_lm_ids` and `masked_lm_weights` `(max_predictions,)`, and `next_sentence_labels` `(1,)`,
    padded with 0. The weights are float32, and other features int64. Sequences without a second
    segment have the label 0.

    Without a masker, records contain `input_ids`, `segment_ids` and `word_starts` (1 at the first
    token of each word) without padding. If the instance has a label, they also contain
    `next_sentence_labels` `(1,)`. All features are int64.

    Args:
        vocabulary: The tokens in the order of their ids.
        special_token_ids: The ids of `[CLS]` and `[SEP]`. They are never masked.
        sequence_length: The length to pad to. Ignored without a masker.
        masker: The masker that selects tokens, or `None` for records without masks.
        continuation_token_ids: The ids that continue the previous word. By default, the WordPiece
            tokens that start with `##`.

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
        """Serializes instances in chunks. This is much faster than single calls.

        Args:
            instances: The `Instance`s.
            rng: The random number generator for masks.

        Yields:
            The serialized `tf.train.Example` of each instance.
        """
        for chunk in tfrecords.chunked(instances, _ROWS_AT_ONCE):
            # Instances without a label do not have the feature.
            for _, group in itertools.groupby(chunk, lambda instance: instance.label is None):
                yield from tfrecords.serialize(self._features(list(group), rng))

    def _features(
        self, instances: Sequence[Instance], rng: np.random.Generator
    ) -> dict[str, Ragged]:
        token_ids = Ragged.from_rows([instance.token_ids for instance in instances])
        segment_ids = Ragged.from_rows([instance.segment_ids for instance in instances])
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
        positions = Ragged.from_rows([row.positions for row in masked_rows])
        weights = positions._replace(values=np.ones(len(positions.values), np.float32))
        length, slots = self.sequence_length, masker.max_predictions
        return {
            "input_ids": _pad(Ragged.from_rows([row.token_ids for row in masked_rows]), length),
            "input_mask": _pad(Ragged(np.ones_like(ids), lengths), length),
            "masked_lm_positions": _pad(positions, slots),
            "masked_lm_ids": _pad(Ragged.from_rows([row.ids for row in masked_rows]), slots),
            "masked_lm_weights": _pad(weights, slots),
        }

    def _word_starts(self, rows: Ragged) -> Flags:
        """Marks the first token of each word, even if truncation removed the word's start."""
        starts: Flags = ~self._is_continuation[rows.values]
        starts[1:] |= self._is_special[rows.values[:-1]]
        starts[row_starts(NUMPY, rows.lengths)] = True
        return starts


def write_records(path: str | os.PathLike[str], records: Iterable[bytes]) -> int:
    """Writes a TFRecord file atomically.

    Args:
        path: Path to the file. An existing file is replaced.
        records: Serialized examples.

    Returns:
        The number of records.

    Raises:
        FileNotFoundError: If the file's directory does not exist.
        NotADirectoryError: If the file's directory is a file.
    """
    path = Path(path)
    check_parent_exists(path)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        return tfrecords.write_records(file, records)


def _rows(values: np.ndarray) -> Ragged:
    """Converts an array `(rows, values)` to ragged rows."""
    return Ragged(values.reshape(-1), np.full(len(values), values.shape[1], "int64"))


def _pad(rows: Ragged, length: int) -> Ragged:
    return _rows(NUMPY.to_dense(rows, length, 0))
