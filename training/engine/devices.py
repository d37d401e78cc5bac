# SPDX-License-Identifier: Apache-2.0
"""Splits each batch over multiple devices of one machine."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import keras

Scope: TypeAlias = Callable[[], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def distribute_over(num_devices: int) -> Iterator[Scope]:
    """Splits each batch over devices, for models built and trained within the block.

    On JAX it uses `keras.distribution.DataParallel`, on TensorFlow
    `tf.distribute.MirroredStrategy`.

    Args:
        num_devices: Number of devices on this machine. 1 does not change anything.

    Yields:
        A function that returns a context. Build and compile the model inside it. Train the model
        outside the context, but inside the block.

    Raises:
        ValueError: If this machine has fewer devices, if the backend is PyTorch, or in multi-host
            training.
    """
    if num_devices == 1:
        yield contextlib.nullcontext
        return
    backend = keras.backend.backend()
    if backend == "torch":
        raise ValueError(
            f"--devices must be 1 with PyTorch, because Keras uses one device. Received: "
            f"{num_devices}. Set KERAS_BACKEND=jax or KERAS_BACKEND=tensorflow for more devices"
        )
    if keras.distribution.distribution() is not None:
        raise ValueError(
            f"--devices must be 1 in multi-host training, because all devices of each host are "
            f"used. Received: {num_devices}"
        )
    devices = keras.distribution.list_devices()
    if len(devices) < num_devices:
        raise ValueError(
            f"--devices must be at most {len(devices)}, the number of devices "
            f"({', '.join(devices)}). Received: {num_devices}"
        )
    devices = devices[:num_devices]
    if backend == "jax":
        with keras.distribution.DataParallel(devices=devices).scope():
            yield contextlib.nullcontext
    else:
        yield _mirrored_strategy(tuple(devices)).scope


@functools.cache
def _mirrored_strategy(devices: tuple[str, ...]) -> Any:
    """Returns the strategy for these devices. A process creates it only once.

    Each strategy numbers its collective operations from the same start, so TensorFlow would
    confuse the operations of two strategies.
    """
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(list(devices))
