# SPDX-License-Identifier: Apache-2.0
"""Training on several devices of this machine, each of which has a share of every batch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import keras

Scope: TypeAlias = Callable[[], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def distribute_over(num_devices: int) -> Iterator[Scope]:
    """Has several devices share the batches of models that are made and trained within.

    On JAX by `keras.distribution.DataParallel`, on TensorFlow by `tf.distribute.MirroredStrategy`.

    Yields:
        A function that returns the context in which a model is made and compiled. It is trained
        outside of it, but within this one.

    Raises:
        ValueError: If there are fewer devices, or the backend is PyTorch.
    """
    if num_devices == 1:
        yield contextlib.nullcontext
        return
    backend = keras.backend.backend()
    if backend == "torch":
        raise ValueError(
            f"--devices is {num_devices}, but Keras trains on one device with PyTorch; expected 1, "
            "or KERAS_BACKEND=jax or KERAS_BACKEND=tensorflow"
        )
    if keras.distribution.distribution() is not None:
        raise ValueError(
            f"--devices is {num_devices}, expected 1: with several hosts, all of their devices "
            "are used"
        )
    devices = keras.distribution.list_devices()
    if len(devices) < num_devices:
        raise ValueError(
            f"--devices is {num_devices}, but there are {len(devices)}: {', '.join(devices)}"
        )
    devices = devices[:num_devices]
    if backend == "jax":
        with keras.distribution.DataParallel(devices=devices).scope():
            yield contextlib.nullcontext
    else:
        yield _mirrored_strategy(tuple(devices)).scope


@functools.cache
def _mirrored_strategy(devices: tuple[str, ...]) -> Any:
    """Returns the strategy of a process, of which each has one.

    Each strategy numbers its collectives from the same number on, so that TensorFlow would take
    those of a second one for the first one's.
    """
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(list(devices))
