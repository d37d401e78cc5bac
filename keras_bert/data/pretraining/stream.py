# SPDX-License-Identifier: Apache-2.0
"""Pre-training batches without end, which can be entered at any batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_bert.data.batching import pad_to_length, without_tuning
from keras_bert.data.pretraining.masking import MaskedLMMasker
from keras_bert.data.pretraining.packing import pack_sequences
from keras_bert.data.pretraining.records import (
    Features,
    RecordParser,
    check_record_files,
    interleaved_records,
    record_paths,
)

# Records, or packed rows, that are shuffled among themselves
SHUFFLE_WINDOW = 8192
# More than any run has: it keeps the seeds of windows and epochs apart
_EPOCHS = 2**20
# Sequences that are packed among themselves
PACKING_WINDOW = 1024


class PretrainingStream:
    """Batches of masked records, epoch after epoch, each epoch in an order of its own.

    What batch n holds depends on the files, the seed and n alone, masks included, so that training
    that resumes at batch n gets the same batches as without the interruption. The rows of an epoch
    that do not fill a batch are left out; they differ from epoch to epoch.

    Args:
        files: TFRecord files, all with the same features; or a pattern such as
            `"records/*.tfrecord"`. They are read once at the start, to count and to check them.
        batch_size: Rows in a batch.
        sequence_length: Tokens in a row.
        masker: Masks records that are not masked yet: a `MaskedLMMasker`, or anything that is
            called as it is, with a batch and a step.
        packed: Whether several records are put into a row, instead of padding; for records without
            masks. Labels of pairs are left out then, for a row has only one.
        seed: Decides orders; masks are drawn by the masker.
        vocabulary_size: Ids outside `[0, vocabulary_size)` are an error, if it is given.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If a file is torn, has not the features of pre-training records, or the rows do
            not fill a batch; if masked records are to be packed or masked again.

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
            raise ValueError(f"{self._paths[0]} has no masks, so a masker is needed.")
        self.batch_size = batch_size
        self.sequence_length = sequence_length
        self.packed = packed
        self.seed = seed
        self._masker = masker
        self.num_records = check_record_files(self._paths)
        self.num_rows = self._count_packed_rows() if packed else self.num_records
        self.batches_per_epoch = self.num_rows // batch_size
        if not self.batches_per_epoch:
            raise ValueError(
                f"{self._paths[0]} and the like have {self.num_rows} rows; expected at least a "
                f"batch of {batch_size}."
            )

    def from_batch(self, first: int = 0) -> tf.data.Dataset:
        """The batches from one on, without end.

        Args:
            first: The number of the batch to begin with, counted over all epochs.

        Returns:
            A dataset of dicts as by `pretraining_batches` of masked records; packed ones have
            `sequence_ids` and `position_ids` instead of `padding_mask`.
        """
        epoch, batch = divmod(first, self.batches_per_epoch)
        epochs = tf.data.Dataset.counter(epoch + 1).flat_map(self._epoch)
        batches = self._epoch(tf.constant(epoch, tf.int64), batch).concatenate(epochs)
        return without_tuning(self._masked(batches, first).prefetch(tf.data.AUTOTUNE))

    def first_batches(self, count: int) -> tf.data.Dataset:
        """Up to so many batches in the files' order, under masks that never change."""
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
        """Rows, the same ones in each epoch."""

        def pack(records: Any, files: Any, numbers: Any) -> Features:
            return pack_sequences(self._parser(records, files, numbers)[0], self.sequence_length)

        windows = self._records().batch(PACKING_WINDOW)
        return windows.map(pack, tf.data.AUTOTUNE, deterministic=True).unbatch()

    def _batches(self, rows: tf.data.Dataset) -> tf.data.Dataset:
        batches = rows.batch(self.batch_size, drop_remainder=True)
        if self.packed:
            return batches
        return batches.map(self._parse, tf.data.AUTOTUNE, deterministic=True)

    def _parse(self, records: Any, files: Any, numbers: Any) -> Features:
        ragged, (rest,) = self._parser(records, files, numbers)
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


def pretraining_examples(batches: tf.data.Dataset, next_sentence: bool) -> tf.data.Dataset:
    """Masked batches as `Pretrainer.fit` takes them.

    Args:
        batches: Dicts with `mask_ids` and `mask_weights`, and `next_sentence_labels` for the second
            objective, if it is wanted.
        next_sentence: Whether it is.

    Returns:
        A dataset of `(features, labels, weights)`; the latter two are dicts by the names of
        `Pretrainer`'s outputs.

    Raises:
        ValueError: If the batches lack labels of pairs and these are wanted.
    """
    if next_sentence and "next_sentence_labels" not in batches.element_spec:
        raise ValueError(
            "The records have no next_sentence_labels, which the second objective needs; "
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
    """Rows shuffled within windows, by the seed alone and whatever the global one is."""

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
