# SPDX-License-Identifier: Apache-2.0
"""Keras' seeding and serialization on JAX and PyTorch, without an import of TensorFlow."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import keras

from keras_bert.ops.keras_private import module_utils


@contextlib.contextmanager
def without_tensorflow_import() -> Iterator[None]:
    """Keeps Keras from importing TensorFlow on another backend, as it does wherever it finds it.

    Keras imports it to seed it, and to ask whether an object is of one of its types. A library
    that nothing has imported needs no seed, and no object has its types.
    """
    module = module_utils.tensorflow
    # Whether it is installed, `None` until Keras looks; `False` within another such context too
    is_available = vars(module).get("_available", False)
    if "tensorflow" in sys.modules or is_available is False:
        yield
        return
    module._available = False
    try:
        yield
    finally:
        module._available = None  # Keras will look for it again.


def set_random_seed(seed: int) -> None:
    """Seeds Python, NumPy and the backend as `keras.utils.set_random_seed` does.

    On JAX and PyTorch, TensorFlow is seeded only where it is already imported.
    """
    with without_tensorflow_import():
        keras.utils.set_random_seed(seed)


def serialize_keras_object(value: Any) -> Any:
    """Returns the config of an object, as `keras.saving.serialize_keras_object` does."""
    with without_tensorflow_import():
        return keras.saving.serialize_keras_object(value)
