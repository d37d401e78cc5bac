# SPDX-License-Identifier: Apache-2.0
"""Selection of faster implementations by backend and device."""

from __future__ import annotations

import functools
from types import ModuleType

import keras


def tensorflow_cpu_kernels(training: bool) -> ModuleType | None:
    """Returns the module of fused training kernels for TensorFlow on a CPU, or `None` elsewhere.

    With a GPU or TPU, XLA compiles the whole training step and fuses operations itself. In
    inference, plain operations are used: TensorFlow Serving rejects graphs that require XLA.
    """
    if not training or not _tensorflow_without_accelerator():
        return None
    from keras_bert.ops import tensorflow_cpu

    return tensorflow_cpu


def tensorflow_plain() -> ModuleType | None:
    """Returns the module of plain TensorFlow operations, or `None` on other backends."""
    if keras.backend.backend() != "tensorflow":
        return None
    from keras_bert.ops import tensorflow_plain

    return tensorflow_plain


def jax_memory() -> ModuleType | None:
    """Returns the module that needs less memory with JAX on a CPU or GPU, or `None` elsewhere."""
    if not is_jax_on_cpu() and (keras.backend.backend() != "jax" or cuda_capability() is None):
        return None
    from keras_bert.ops import jax_memory

    return jax_memory


@functools.cache
def is_jax_on_cpu() -> bool:
    """Returns whether the backend is JAX on a CPU."""
    if keras.backend.backend() != "jax":
        return False
    import jax

    return bool(jax.default_backend() == "cpu")


@functools.cache
def cuda_capability() -> tuple[int, ...] | None:
    """Returns the compute capability of JAX's or PyTorch's GPU, or `None` without one of NVIDIA."""
    backend, capability = keras.backend.backend(), ""
    if backend == "jax":
        import jax

        # GPUs of AMD have names there
        capability = str(getattr(jax.devices()[0], "compute_capability", ""))
    elif backend == "torch":
        import torch

        if torch.version.cuda is not None and torch.cuda.is_available():
            capability = ".".join(map(str, torch.cuda.get_device_capability()))
    numbers = capability.split(".")
    return tuple(map(int, numbers)) if all(map(str.isdecimal, numbers)) else None


@functools.cache
def _tensorflow_without_accelerator() -> bool:
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not (tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("TPU"))
