# SPDX-License-Identifier: Apache-2.0
"""A model with each type of variable that optimizers treat differently, and training data."""

from typing import Any

import keras
import numpy as np
from keras import layers

TOKENS = np.random.default_rng(0).integers(0, 12, (16, 6)).astype("int32")
LABELS = TOKENS.sum(axis=1) % 3


def small_model(optimizer: keras.optimizers.Optimizer, **compile_arguments: Any) -> keras.Model:
    """Returns a compiled classifier of 6 tokens with the same weights in every call."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            # With Keras's smaller initial values, LayerNorm's gradients would overflow float16,
            # and its loss scaling overlooks an infinity in a sparse gradient with repeated rows.
            layers.Embedding(12, 4, "glorot_normal", name="token_embedding"),
            layers.LayerNormalization(name="embedding_norm"),
            layers.Dense(4, activation="tanh", name="layer_0"),
            layers.Flatten(),
            layers.Dense(3, name="head", dtype="float32"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, **compile_arguments)
    return model


def fit(model: keras.Model, batch_size: int = 4, epochs: int = 1) -> list[float]:
    """Trains in the order of the data, and returns the loss of each epoch."""
    history = model.fit(
        TOKENS, LABELS, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0
    )
    return list(history.history["loss"])


def get_weights(model: keras.Model) -> list[np.ndarray]:
    return [np.asarray(weight, "float32") for weight in model.get_weights()]
