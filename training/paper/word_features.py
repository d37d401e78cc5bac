# SPDX-License-Identifier: Apache-2.0
"""Computes a frozen encoder's word features, caches them on disk, and reads them in batches."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging

from keras_bert import Backbone, atomic, checkpoints
from keras_bert.checkpoints import weights
from keras_bert.data.batch_options import WINDOW_BATCHES, BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.bucketing import bucket_lengths, permutation, rows_of_batches
from keras_bert.data.loader import Loader, RowsInMemory, to_indexed_batch
from keras_bert.data.texts import InMemory
from keras_bert.data.words import TokenClassifierPreprocessor
from keras_bert.ops.dispatch import compiles_each_shape
from keras_bert.tasks.presets import preprocessor_config

from ..engine.finetuning_config import SCORED_ROWS
from ..engine.job import finite


class WordFeatures:
    """Computes word features, or reads them from a cache.

    A word's features are the hidden states at its first token, in the layers for one row of the
    BERT paper's table 7.

    Args:
        preset: The encoder's checkpoint.
        row: A name in `feature_tagging_job.ROWS`, for the cache key.
        layers: The slice of (embeddings, layer 1, …, last layer).
        cache_dir: Directory for cached features. They are reused if the encoder's weights, the
            words and all these settings are the same.
        sequence_length: Maximum window length in tokens.
        dtype: The encoder's precision.
        batch_size: Number of windows per batch.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.3, table 7.
    """

    def __init__(
        self,
        preset: str,
        row: str,
        layers: slice,
        cache_dir: str | os.PathLike[str],
        *,
        sequence_length: int,
        dtype: str = "float32",
        batch_size: int = 32,
    ) -> None:
        checkpoint = checkpoints.open_checkpoint(preset)
        backbone = checkpoint.new_backbone(output_hidden_states=True, dtype=dtype)
        checkpoint.load_into(backbone, pooler_is_used=False)
        config = preprocessor_config(checkpoint, {}, {"sequence_length": sequence_length})
        self.preprocessor = TokenClassifierPreprocessor.from_config(config)
        self.cache_dir = Path(cache_dir)
        self.batch_size = batch_size
        states = backbone.output["hidden_states"][layers]
        self.shape = (len(states), checkpoint.config.hidden_dim)
        # (batch, length, hidden) each -> (batch, length, layers, hidden)
        self._encoder = keras.Model(
            backbone.input, keras.ops.cast(keras.ops.stack(states, axis=2), "float32")
        )
        self._identity = _weights_digest(backbone, json.dumps([row, dtype, config], sort_keys=True))

    def __call__(self, words: Sequence[Any]) -> np.ndarray:
        """Returns the features of all words in order.

        Args:
            words: Sentences, or documents of sentences, as `TokenClassifier.fit` accepts them.

        Returns:
            A memory-mapped array, float32 `(words, layers, hidden)`.
        """
        digest = self._identity.copy()
        digest.update(json.dumps(words).encode())
        path = self.cache_dir / f"features-{digest.hexdigest()[:24]}.npy"
        if not path.exists():
            self.cache_dir.mkdir(parents=True, exist_ok=True)
            with atomic.atomic_path(path) as temporary:
                self._write(words, temporary)
            logging.info("cached features in %s", path)
        features: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        return features

    def _write(self, words: Sequence[Any], path: Path) -> None:
        windows = self.preprocessor.windows(words)
        # word_window is sorted, so a binary search finds a window's words.
        word_window, position = windows.word_window, windows.word_position
        shape = (len(word_window), *self.shape)
        file = np.lib.format.open_memmap(path, mode="w+", dtype="float32", shape=shape)
        compiles = compiles_each_shape()
        source = RowsInMemory(InMemory(windows.sequences))
        options = BatchOptions(self.batch_size, compiles=compiles, training=compiles)
        for inputs, index in Loader(source, self.preprocessor, options, to_indexed_batch):
            states = keras.ops.convert_to_numpy(self._encoder.predict_on_batch(inputs))
            first = np.searchsorted(word_window, index, side="left")
            last = np.searchsorted(word_window, index, side="right")
            for row, start, end in zip(states, first, last, strict=True):
                file[start:end] = row[position[start:end]]
        file.flush()


def _weights_digest(backbone: Backbone, settings: str) -> Any:
    digest = hashlib.sha256(settings.encode())
    digest.update(json.dumps(backbone.config.to_dict(), sort_keys=True).encode())
    for name, weight in weights.backbone_weights(backbone).items():
        if name not in weights.POOLER_WEIGHTS:  # It is not used, and may be random.
            digest.update(np.ascontiguousarray(weights.to_numpy(weight)).tobytes())
    return digest


class FeatureBatches(Batches):
    """Batches of sentences with similar lengths, padded to a bucket's length.

    Args:
        features: The features of all words, float32 `(words, layers, hidden)`. May be
            memory-mapped.
        lengths: Number of words in each sentence.
        batch_size: Number of sentences per batch.
        labels: Class ids of all words, int32 `(words,)`. Negative ids are ignored. With labels, the
            order is random. `None` gives batches for prediction, in the order of the sentences.
        seed: Seed for the order in each epoch.
    """

    targets_have_length = True

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
        self.seed = seed

    @property
    def num_batches(self) -> int:
        """Number of batches per epoch."""
        return -(-(len(self.splits) - 1) // self.batch_size)

    def batch(self, rows: np.ndarray) -> Any:
        """Returns the inputs for sentences and, with labels, the targets and weights."""
        lengths = self.splits[rows + 1] - self.splits[rows]
        length = self.buckets[np.searchsorted(self.buckets, lengths.max())]
        mask = np.arange(length) < lengths[:, None]
        # (batch, 1) + (length,) -> (batch, length), positions among all words
        positions = (self.splits[rows][:, None] + np.arange(length))[mask]
        features = np.zeros((*mask.shape, *self.features.shape[1:]), "float32")
        features[mask] = self.features[positions]
        inputs = {"features": features, "padding_mask": mask}
        if self.labels is None:
            return inputs
        labels = np.full(mask.shape, -1, "int32")
        labels[mask] = self.labels[positions]
        return inputs, np.maximum(labels, 0), (labels >= 0).astype("float32")

    def rows(self, epoch: int = 0) -> list[np.ndarray]:
        """Returns the sentence indices for each batch in an epoch. Epochs count from 0."""
        lengths, size = np.diff(self.splits), self.batch_size
        if self.labels is None:
            return np.split(np.arange(len(lengths)), range(size, len(lengths), size))
        order = permutation(len(lengths), self.seed, epoch)
        windows = np.split(order, range(size * WINDOW_BATCHES, len(order), size * WINDOW_BATCHES))
        return [
            window[indices]
            for number, window in enumerate(windows)
            for indices in rows_of_batches(lengths[window], size, (self.seed, epoch, number))
        ]

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        yield from map(self.batch, self.rows(number)[first:])


def predicted_ids(
    model: keras.Model, features: np.ndarray, lengths: Sequence[int]
) -> list[np.ndarray]:
    """Returns the predicted class ids for the words in each sentence."""
    batches = FeatureBatches(features, lengths, SCORED_ROWS)
    answers = []
    for rows in batches.rows():
        logits = model.predict_on_batch(batches.batch(rows))
        best = np.argmax(finite(keras.ops.convert_to_numpy(logits)), axis=-1)
        answers += [row[: lengths[n]] for row, n in zip(best, rows, strict=True)]
    return answers
