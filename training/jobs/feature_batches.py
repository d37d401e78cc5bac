# SPDX-License-Identifier: Apache-2.0
"""Batches of sentences whose words have features already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bert.data.batching import WINDOW_BATCHES, bucket_lengths
from keras_bert.data.tuning import without_tuning


class FeatureBatches:
    """Sentences of similar lengths, padded to the end of a bucket.

    Args:
        features: of all words, float32 `(words, layers, hidden)`, which may lie on disk.
        lengths: words in each sentence.
        batch_size: sentences in a batch.
        labels: class ids of all words, int32 `(words,)`; negative ones count for nothing. None
            gives batches to predict with, in the order of the sentences; with labels it is random.
        seed: decides the order of each epoch.
    """

    def __init__(
        self,
        features: np.ndarray,
        lengths: Sequence[int],
        batch_size: int,
        labels: np.ndarray | None = None,
        seed: int = 0,
    ) -> None:
        self.features = features
        self.labels = labels
        self.batch_size = batch_size
        self.splits = np.concatenate([[0], np.cumsum(lengths)]).astype("int64")
        self.buckets = np.array(bucket_lengths(max(1, *lengths), coarse=True))
        self.seed = seed

    def __len__(self) -> int:
        return -(-(len(self.splits) - 1) // self.batch_size)

    def batch(self, rows: np.ndarray) -> Any:
        """The inputs of some sentences, with targets and weights where there are labels."""
        lengths = self.splits[rows + 1] - self.splits[rows]
        length = self.buckets[np.searchsorted(self.buckets, lengths.max())]
        mask = np.arange(length) < lengths[:, None]
        # (batch, 1) + (length,) -> (batch, length), places among all words
        places = (self.splits[rows][:, None] + np.arange(length))[mask]
        features = np.zeros((*mask.shape, *self.features.shape[1:]), "float32")
        features[mask] = self.features[places]
        inputs = {"features": features, "padding_mask": mask}
        if self.labels is None:
            return inputs
        labels = np.full(mask.shape, -1, "int32")
        labels[mask] = self.labels[places]
        return inputs, np.maximum(labels, 0), (labels >= 0).astype("float32")

    def rows(self, epoch: int = 0) -> list[np.ndarray]:
        """Which sentences are in each batch of an epoch, counted from 0."""
        is_random = self.labels is not None
        order = self._random_order(epoch) if is_random else np.arange(len(self.splits) - 1)
        return [
            order[start : start + self.batch_size]
            for start in range(0, len(order), self.batch_size)
        ]

    def dataset(self, epoch: int = 0, first: int = 0) -> tf.data.Dataset:
        """The batches of an epoch for `fit`, in an order of its own.

        Their lengths are left open: Keras' own adapter of a `PyDataset` fixes what the first two
        batches have in common, and fails at the first batch of another length.

        Args:
            epoch: counted from 0.
            first: the batches that are passed over.
        """

        def batches_from_first() -> Iterator[Any]:
            yield from map(self.batch, self.rows(epoch)[first:])

        words = (None, None)
        features = {
            "features": tf.TensorSpec((*words, *self.features.shape[1:]), tf.float32),
            "padding_mask": tf.TensorSpec(words, tf.bool),
        }
        signature = (features, tf.TensorSpec(words, tf.int32), tf.TensorSpec(words, tf.float32))
        batches = tf.data.Dataset.from_generator(batches_from_first, output_signature=signature)
        counted = batches.apply(tf.data.experimental.assert_cardinality(len(self) - first))
        return without_tuning(counted.prefetch(1))

    def _random_order(self, epoch: int) -> np.ndarray:
        """The sentences, those of one batch of similar lengths."""
        generator = np.random.default_rng([self.seed, epoch])
        lengths = np.diff(self.splits)
        order = generator.permutation(len(lengths))
        window = self.batch_size * WINDOW_BATCHES
        parts = [order[start : start + window] for start in range(0, len(order), window)]
        order = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])
        # Whole batches change places, the one that is not full stays the last.
        full = len(order) // self.batch_size * self.batch_size
        batches = generator.permutation(order[:full].reshape(-1, self.batch_size))
        return np.concatenate([batches.reshape(-1), order[full:]])


def predicted_ids(
    model: keras.Model, features: np.ndarray, lengths: Sequence[int], batch_size: int = 64
) -> list[np.ndarray]:
    """The class ids of each sentence's words."""
    batches = FeatureBatches(features, lengths, batch_size)
    answers = []
    for rows in batches.rows():
        logits = model.predict_on_batch(batches.batch(rows))
        best = np.argmax(keras.ops.convert_to_numpy(logits), axis=-1)
        answers += [row[: lengths[n]] for row, n in zip(best, rows, strict=True)]
    return answers
