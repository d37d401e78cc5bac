# SPDX-License-Identifier: Apache-2.0
"""Keras' seeding and serialization on JAX and PyTorch, without importing TensorFlow."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import keras

from keras_bert.ops.keras_private import module_utils


@contextlib.contextmanager
def without_tensorflow_import() -> Iterator[None]:
    """Keeps Keras from importing TensorFlow on another backend.

    If TensorFlow is installed, Keras imports it to seed it, and to check whether an object has a
    TensorFlow type. If TensorFlow is not imported yet, neither is necessary.
    """
    module = module_utils.tensorflow
    # `None` until Keras has checked whether TensorFlow is installed, and `False` in a nested
    # context.
    is_available = vars(module).get("_available", False)
    if "tensorflow" in sys.modules or is_available is False:
        yield
        return
    module._available = False
    try:
        yield
    finally:
        module._available = None  # Keras checks again later.


def set_random_seed(seed: int) -> None:
    """Seeds Python, NumPy and the backend as `keras.utils.set_random_seed` does.

    On JAX and PyTorch, TensorFlow is seeded only if it is already imported.
    """
    with without_tensorflow_import():
        keras.utils.set_random_seed(seed)


def serialize_keras_object(value: Any) -> Any:
    """Serializes an object, as `keras.saving.serialize_keras_object` does."""
    with without_tensorflow_import():
        return keras.saving.serialize_keras_object(value)
