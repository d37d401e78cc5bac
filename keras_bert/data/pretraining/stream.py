# SPDX-License-Identifier: Apache-2.0
"""An infinite stream of pre-training batches that can resume at any batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_bert.data.batching import pad_to_length, without_autograph, without_tuning
from keras_bert.data.pretraining.masking import MaskedLMMasker
from keras_bert.data.pretraining.packing import pack_sequences
from keras_bert.data.pretraining.records import (
    Features,
    RecordParser,
    check_record_files,
    interleaved_records,
    record_paths,
)
from keras_bert.text.graph.functions import traced_once

# Number of consecutive records, or packed rows, that are shuffled together
SHUFFLE_WINDOW = 8192
# More than the epochs of any run, so that seeds of windows and epochs do not collide
_EPOCHS = 2**20
# Number of consecutive sequences that are packed together
PACKING_WINDOW = 1024


class PretrainingStream:
    """An infinite stream of masked batches, in a different order in each epoch.

    Batch n, including its masks, depends only on the files, the seed and n: training that resumes
    at batch n gets the same batches as without the interruption. The rows of an epoch that do not
    fill a batch are dropped; they differ from epoch to epoch.

    Args:
        files: TFRecord files, all with the same features; or a pattern such as
            `"records/*.tfrecord"`. They are read once in advance, to count and check the records.
        batch_size: Number of rows in a batch.
        sequence_length: Number of tokens in a row.
        masker: The masker of records without masks: a `MaskedLMMasker` or another callable of a
            batch and a step.
        packed: Whether to pack several records into a row instead of padding; for records without
            masks only. Labels of pairs are dropped, since a row can have only one.
        seed: Seed of the order; the masks have the seed of the masker.
        vocabulary_size: If given, ids outside `[0, vocabulary_size)` are an error.

    Raises:
        FileNotFoundError: If no file matches, or some that the names of others count are missing.
        ValueError: If a file is truncated, records lack the features of pre-training records, the
            rows do not fill a batch, or records that have masks are to be packed or masked again.

    Example:

    >>> import os, tempfile
    >>> import numpy as np
    >>> from keras_bert.data import Instance, InstanceEncoder, write_records
    >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    >>> encode = InstanceEncoder(vocabulary, [2, 3], sequence_length=8)
    >>> ids = np.array([2, 5, 6, 7, 3])
    >>> row = Instance(ids, 0 * ids, None)
    >>> records = [encode(row, np.random.default_rng(0)) for _ in range(6)]
    >>> path = os.path.join(tempfile.mkdtemp(), "rows.tfrecord")
    >>> write_records(path, records)
    6
    >>> masker = MaskedLMMasker.from_vocabulary(vocabulary)
    >>> stream = PretrainingStream(path, batch_size=2, sequence_length=8, masker=masker)
    >>> stream.batches_per_epoch
    3
    >>> batch = next(iter(stream.from_batch(1000)))
    >>> batch["token_ids"].shape, batch["mask_ids"].shape
    (TensorShape([2, 8]), TensorShape([2, 2]))
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        batch_size: int,
        sequence_length: int,
        masker: MaskedLMMasker | Any = None,
        packed: bool = False,
        seed: int = 0,
        vocabulary_size: int | None = None,
    ) -> None:
        self._paths = record_paths(files)
        self._parser = RecordParser(self._paths, sequence_length, vocabulary_size)
        if self._parser.is_masked and (masker is not None or packed):
            raise ValueError(
                f"{self._paths[0]} has masks already; expected records without masks "
                f"to {'pack' if packed else 'mask'}."
            )
        if masker is None and not self._parser.is_masked:
            raise ValueError(f"{self._paths[0]} has no masks; expected a masker.")
        self.batch_size = batch_size
        self.sequence_length = sequence_length
        self.packed = packed
        self.seed = seed
        self._masker = masker
        # Every pipeline parses, in its first epoch and in the others: tracing that each time would
        # take seconds.
        self._parse_batch = traced_once(self._parser)
        self.num_records = check_record_files(self._paths)
        self.num_rows = self._count_packed_rows() if packed else self.num_records
        self.batches_per_epoch = self.num_rows // batch_size
        if not self.batches_per_epoch:
            raise ValueError(
                f"The {len(self._paths)} files from {self._paths[0]} on have {self.num_rows} rows; "
                f"expected at least a batch of {batch_size}."
            )

    @without_autograph
    def from_batch(self, first: int = 0) -> tf.data.Dataset:
        """Returns the infinite dataset of batches from a given one on.

        Args:
            first: The index of the first batch, counted over all epochs.

        Returns:
            A dataset of dicts as returned by `pretraining_batches` for records with masks; packed
            batches have `sequence_ids` and `position_ids` instead of `padding_mask`.
        """
        epoch, batch = divmod(first, self.batches_per_epoch)
        epochs = tf.data.Dataset.counter(epoch + 1).flat_map(self._epoch)
        batches = self._epoch(tf.constant(epoch, tf.int64), batch).concatenate(epochs)
        return without_tuning(self._masked(batches, first).prefetch(tf.data.AUTOTUNE))

    @without_autograph
    def first_batches(self, count: int) -> tf.data.Dataset:
        """Returns a dataset of up to `count` batches in the order of the files, with fixed masks.

        It is meant for evaluation: each iteration has the same batches.
        """
        rows = self._packed_rows() if self.packed else self._records()
        batches = self._masked(self._batches(rows).take(count), 0)
        size = min(count, self.batches_per_epoch)
        return without_tuning(batches.apply(tf.data.experimental.assert_cardinality(size)))

    def _epoch(self, epoch: tf.Tensor, first_batch: int = 0) -> tf.data.Dataset:
        seed = tf.stack([tf.constant(self.seed, tf.int64), epoch])
        rows = self._packed_rows() if self.packed else self._records(seed)
        rows = _shuffled(rows, seed)
        return self._batches(rows.skip(first_batch * self.batch_size))

    def _records(self, seed: tf.Tensor | None = None) -> tf.data.Dataset:
        paths = tf.constant(self._paths)
        if seed is not None:
            paths = tf.random.experimental.stateless_shuffle(paths, seed)
        return interleaved_records(tf.data.Dataset.from_tensor_slices(paths), len(self._paths))

    def _packed_rows(self) -> tf.data.Dataset:
        """Packs records to rows, which are the same in each epoch."""

        def pack(records: Any, files: Any, numbers: Any) -> Features:
            return pack_sequences(
                self._parse_batch(records, files, numbers)[0], self.sequence_length
            )

        windows = self._records().batch(PACKING_WINDOW)
        return windows.map(pack, tf.data.AUTOTUNE, deterministic=True).unbatch()

    def _batches(self, rows: tf.data.Dataset) -> tf.data.Dataset:
        batches = rows.batch(self.batch_size, drop_remainder=True)
        if self.packed:
            return batches
        return batches.map(self._parse, tf.data.AUTOTUNE, deterministic=True)

    def _parse(self, records: Any, files: Any, numbers: Any) -> Features:
        ragged, (rest,) = self._parse_batch(records, files, numbers)
        rows = pad_to_length(ragged, self.sequence_length)
        shape = (self.batch_size, self.sequence_length)
        rows = {name: tf.ensure_shape(x, shape) for name, x in rows.items()}
        return rows | {
            name: tf.ensure_shape(x, (self.batch_size, *x.shape[1:])) for name, x in rest.items()
        }

    def _masked(self, batches: tf.data.Dataset, first: int) -> tf.data.Dataset:
        if self._masker is None:
            return batches
        steps = tf.data.Dataset.counter(first)
        return tf.data.Dataset.zip(steps, batches).map(
            lambda step, batch: self._masker(batch, step), tf.data.AUTOTUNE, deterministic=True
        )

    def _count_packed_rows(self) -> int:
        rows = self._packed_rows().batch(PACKING_WINDOW)
        count = rows.reduce(
            tf.constant(0, tf.int64),
            lambda total, batch: total + tf.shape(batch["token_ids"], tf.int64)[0],
        )
        return int(count)


@without_autograph
def pretraining_examples(batches: tf.data.Dataset, next_sentence: bool) -> tf.data.Dataset:
    """Converts masked batches to the examples that `Pretrainer.fit` takes.

    Args:
        batches: A dataset of dicts with `mask_ids`, `mask_weights` and, for the sentence objective,
            `next_sentence_labels`.
        next_sentence: Whether to train on the sentence objective (NSP or SOP) too.

    Returns:
        A dataset of `(features, labels, weights)`; labels and weights are dicts with the names of
        `Pretrainer`'s outputs.

    Raises:
        ValueError: If `next_sentence` is true and the batches lack `next_sentence_labels`.
    """
    if next_sentence and "next_sentence_labels" not in batches.element_spec:
        raise ValueError(
            "The records have no next_sentence_labels, which the sentence objective needs; "
            f"they have {sorted(batches.element_spec)}."
        )

    def example(batch: Features) -> tuple[Features, Features, Features]:
        x = dict(batch)
        labels = {"masked_lm_logits": x.pop("mask_ids")}
        weights = {"masked_lm_logits": x.pop("mask_weights")}
        pairs = x.pop("next_sentence_labels", None)
        if next_sentence:
            labels["next_sentence_logits"] = pairs
            weights["next_sentence_logits"] = tf.ones_like(pairs, tf.float32)
        return x, labels, weights

    return batches.map(example)


def _shuffled(rows: tf.data.Dataset, seed: tf.Tensor) -> tf.data.Dataset:
    """Shuffles rows within windows, independent of TensorFlow's global seed."""

    def permute(window: tf.Tensor, rows: Any) -> Any:
        size = tf.shape(tf.nest.flatten(rows)[0])[0]
        own_seed = seed + tf.stack([tf.constant(0, tf.int64), window * _EPOCHS])
        order = tf.random.experimental.stateless_shuffle(tf.range(size), own_seed)
        return tf.nest.map_structure(lambda column: tf.gather(column, order), rows)

    windows = tf.data.Dataset.zip(tf.data.Dataset.counter(), rows.batch(SHUFFLE_WINDOW))
    shuffled = windows.map(
        lambda window, rows: permute(window, rows), tf.data.AUTOTUNE, deterministic=True
    )
    return shuffled.unbatch()
