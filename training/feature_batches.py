# SPDX-License-Identifier: Apache-2.0
"""Batches of sentences whose words have features already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bert.data.batching import WINDOW_BATCHES, bucket_lengths


class FeatureBatches(keras.utils.PyDataset):
    """Sentences of like lengths, padded to the end of a bucket; in another order in each epoch.

    Args:
        features: of all words, float32 `(words, layers, hidden)`, which may lie on disk.
        lengths: words in each sentence.
        batch_size: sentences in a batch.
        labels: class ids of all words, int32 `(words,)`; negative ones count for nothing. None
            gives batches to predict with, in the order of the sentences.
        seed: decides the order.
    """

    def __init__(
        self,
        features: np.ndarray,
        lengths: Sequence[int],
        batch_size: int,
        labels: np.ndarray | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.features = features
        self.labels = labels
        self.batch_size = batch_size
        self.splits = np.concatenate([[0], np.cumsum(lengths)]).astype("int64")
        self.buckets = np.array(bucket_lengths(max(1, *lengths), coarse=True))
        self._generator = np.random.default_rng(seed)
        self._order = np.arange(len(lengths))
        self.on_epoch_end()

    def __len__(self) -> int:
        return -(-len(self._order) // self.batch_size)

    def __getitem__(self, index: int) -> Any:
        rows = self.rows(index)
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

    def rows(self, index: int) -> np.ndarray:
        """Which sentences are in a batch."""
        return self._order[index * self.batch_size : (index + 1) * self.batch_size]

    def on_epoch_end(self) -> None:
        if self.labels is None:
            return
        lengths = np.diff(self.splits)
        order = self._generator.permutation(len(lengths))
        window = self.batch_size * WINDOW_BATCHES
        parts = [order[start : start + window] for start in range(0, len(order), window)]
        order = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])
        # Whole batches change places, the one that is not full stays the last.
        full = len(order) // self.batch_size * self.batch_size
        batches = self._generator.permutation(order[:full].reshape(-1, self.batch_size))
        self._order = np.concatenate([batches.reshape(-1), order[full:]])


def predicted_ids(
    model: keras.Model, features: np.ndarray, lengths: Sequence[int], batch_size: int = 64
) -> list[np.ndarray]:
    """The class ids of each sentence's words."""
    batches = FeatureBatches(features, lengths, batch_size)
    answers = []
    for index in range(len(batches)):
        inputs = batches[index]
        best = np.argmax(keras.ops.convert_to_numpy(model.predict_on_batch(inputs)), axis=-1)
        answers += [row[: lengths[n]] for row, n in zip(best, batches.rows(index), strict=True)]
    return answers
