# SPDX-License-Identifier: Apache-2.0
"""Features of words from a frozen encoder: computed once, cached on disk, and read in batches."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from keras_bert import Backbone, atomic, checkpoints
from keras_bert.checkpoints import weights
from keras_bert.data.batching import WINDOW_BATCHES, bucket_lengths, without_tuning
from keras_bert.data.word_batches import TokenClassifierPreprocessor, ragged_words, window_batches
from keras_bert.tasks.presets import preprocessor_config

from ..engine.job import finite


class WordFeatures:
    """Computes the features of words, or reads them from a cache.

    The features of a word are the hidden states at its first token, in the layers that a row of the
    paper's table uses.

    Args:
        preset: The checkpoint of the encoder.
        row: The name of the choice of layers.
        layers: The slice of (embeddings, layer 1, …, last layer).
        cache_dir: Folder that features are cached in. Cached features are used if the encoder's
            weights, the words and all these settings are the same.
        sequence_length: Maximum length of a window in tokens.
        dtype: The encoder's precision.
        batch_size: Windows in a batch.

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
        self._identity = _digest_of(backbone, json.dumps([row, dtype, config], sort_keys=True))

    def __call__(self, words: Sequence[Any]) -> np.ndarray:
        """Returns the features of all words, in their order.

        Args:
            words: Sentences, or documents of sentences, as `TokenClassifier.fit` takes them.

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
        windows = self.preprocessor.windows(ragged_words(words))
        # word_window is sorted, so that the words of a window are found by binary search.
        word_window, position = windows.word_window.numpy(), windows.word_position.numpy()
        shape = (len(word_window), *self.shape)
        file = np.lib.format.open_memmap(path, mode="w+", dtype="float32", shape=shape)
        compiles = keras.backend.backend() == "jax"
        batches = window_batches(
            windows,
            self.preprocessor,
            batch_size=self.batch_size,
            coarse_buckets=compiles,
            pad_last_batch=compiles,
        )
        for inputs, index in batches.as_numpy_iterator():
            states = keras.ops.convert_to_numpy(self._encoder.predict_on_batch(inputs))
            first = np.searchsorted(word_window, index, side="left")
            last = np.searchsorted(word_window, index, side="right")
            for row, start, end in zip(states, first, last, strict=True):
                file[start:end] = row[position[start:end]]
        file.flush()


def _digest_of(backbone: Backbone, settings: str) -> Any:
    digest = hashlib.sha256(settings.encode())
    digest.update(json.dumps(backbone.config.to_dict(), sort_keys=True).encode())
    for name, weight in weights.backbone_weights(backbone).items():
        if name not in weights.POOLER_WEIGHTS:  # unused, and random if the checkpoint has none
            digest.update(np.ascontiguousarray(weights.to_numpy(weight)).tobytes())
    return digest


class FeatureBatches:
    """Batches of sentences of similar lengths, padded to the length of a bucket.

    Args:
        features: The features of all words, float32 `(words, layers, hidden)`, possibly
            memory-mapped.
        lengths: Number of words in each sentence.
        batch_size: Sentences in a batch.
        labels: Class ids of all words, int32 `(words,)`; negative ones are ignored. With labels the
            order is random; `None` gives batches for prediction, in the order of the sentences.
        seed: Seed of the order of each epoch.
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
        """Returns the inputs of some sentences, with targets and weights if there are labels."""
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
        """Returns the indices of the sentences in each batch of an epoch, counted from 0."""
        is_random = self.labels is not None
        order = self._random_order(epoch) if is_random else np.arange(len(self.splits) - 1)
        return [
            order[start : start + self.batch_size]
            for start in range(0, len(order), self.batch_size)
        ]

    def dataset(self, epoch: int = 0, first: int = 0) -> tf.data.Dataset:
        """Returns the batches of an epoch for `fit`, in an order that depends on the epoch.

        The length dimension is `None`: Keras' adapter of a `PyDataset` would fix every dimension
        that the first two batches share, and fail at the first batch of another length.

        Args:
            epoch: The epoch, counted from 0.
            first: Number of batches to skip.
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
        """Returns a random order in which the sentences of a batch have similar lengths."""
        generator = np.random.default_rng([self.seed, epoch])
        lengths = np.diff(self.splits)
        order = generator.permutation(len(lengths))
        window = self.batch_size * WINDOW_BATCHES
        parts = [order[start : start + window] for start in range(0, len(order), window)]
        order = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])
        # Full batches are shuffled; the partial batch stays last.
        full = len(order) // self.batch_size * self.batch_size
        batches = generator.permutation(order[:full].reshape(-1, self.batch_size))
        return np.concatenate([batches.reshape(-1), order[full:]])


def predicted_ids(
    model: keras.Model, features: np.ndarray, lengths: Sequence[int], batch_size: int = 64
) -> list[np.ndarray]:
    """Returns the predicted class ids of each sentence's words."""
    batches = FeatureBatches(features, lengths, batch_size)
    answers = []
    for rows in batches.rows():
        logits = model.predict_on_batch(batches.batch(rows))
        best = np.argmax(finite(keras.ops.convert_to_numpy(logits)), axis=-1)
        answers += [row[: lengths[n]] for row, n in zip(best, rows, strict=True)]
    return answers
