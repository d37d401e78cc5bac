# SPDX-License-Identifier: Apache-2.0
"""Features of words from a frozen encoder: computed once, and kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging

from keras_bert import Backbone, checkpoints
from keras_bert.checkpoints import weights
from keras_bert.data.tagging import TokenClassifierPreprocessor, ragged_words
from keras_bert.data.tagging_rows import window_batches
from keras_bert.tasks.presets import preprocessor_config
from training.jobs.feature_tagging import ROWS


class WordFeatures:
    """Reads and computes the features of words.

    A word's features are the hidden states at its first piece, of the layers that a row of the
    paper's table uses.

    Args:
        preset: the checkpoint of the encoder.
        row: a key of `ROWS`.
        cache_dir: the folder that features are kept in. What is there is used if the encoder's
            weights, the words and all that is set here are the same.
        sequence_length: the longest window in tokens.
        dtype: the encoder's precision.
        batch_size: windows in a batch.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.3, table 7.
    """

    def __init__(
        self,
        preset: str,
        row: str,
        cache_dir: str | os.PathLike[str],
        *,
        sequence_length: int,
        dtype: str = "float32",
        batch_size: int = 32,
    ) -> None:
        if row not in ROWS:
            raise ValueError(f"features is {row!r}, expected one of {', '.join(ROWS)}")
        checkpoint = checkpoints.open_checkpoint(preset)
        backbone = checkpoint.new_backbone(output_hidden_states=True, dtype=dtype)
        checkpoint.load_into(backbone, pooler_is_used=False)
        config = preprocessor_config(checkpoint, sequence_length)
        self.preprocessor = TokenClassifierPreprocessor.from_config(config)
        self.cache_dir = Path(cache_dir)
        self.batch_size = batch_size
        layers, self.mix = ROWS[row]
        states = backbone.output["hidden_states"][layers]
        self.shape = (len(states), checkpoint.config.hidden_dim)
        # (batch, length, hidden) each -> (batch, length, layers, hidden)
        self._encoder = keras.Model(
            backbone.input, keras.ops.cast(keras.ops.stack(states, axis=2), "float32")
        )
        self._identity = _digest_of(backbone, json.dumps([row, dtype, config], sort_keys=True))

    def __call__(self, words: Sequence[Any]) -> np.ndarray:
        """The features of all words, one after the other.

        Args:
            words: sentences, or documents of sentences, as `TokenClassifier.fit` takes them.

        Returns:
            float32 `(words, layers, hidden)`, on disk.
        """
        digest = self._identity.copy()
        digest.update(json.dumps(words).encode())
        path = self.cache_dir / f"features-{digest.hexdigest()[:24]}.npy"
        if not path.exists():
            self.cache_dir.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{path.stem}.", dir=self.cache_dir) as folder:
                temporary = Path(folder) / path.name
                self._write(words, temporary)
                os.replace(temporary, path)
            logging.info("features are in %s", path)
        features: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        return features

    def _write(self, words: Sequence[Any], path: Path) -> None:
        windows = self.preprocessor.windows(ragged_words(words))
        # Windows follow each other as their words do, so that the words of one can be searched for.
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
        if name not in weights.POOLER_WEIGHTS:  # No feature, and fresh where there is none
            digest.update(np.ascontiguousarray(weights.to_numpy(weight)).tobytes())
    return digest
