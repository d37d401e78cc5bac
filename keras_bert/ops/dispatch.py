# SPDX-License-Identifier: Apache-2.0
"""Selects faster implementations by backend and device."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar, cast

import keras
import numpy as np

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.backend_steps import BackendSteps

_Operation = TypeVar("_Operation", bound=Callable[..., Any])

# With an accelerator, XLA compiles the whole training step and fuses operations itself. Inference
# does not use XLA, because TensorFlow Serving rejects graphs that require it.
CPU_TRAINING = "training on a CPU"
ANY_DEVICE = "any device"
# (backend, device) -> the module with fused functions, named like the operations they compute
FUSED = {
    ("tensorflow", CPU_TRAINING): "tensorflow_cpu",
    ("tensorflow", ANY_DEVICE): "tensorflow_plain",
}


def fused(reference: _Operation) -> _Operation:
    """Decorates an operation's reference implementation, so that fused functions replace it.

    Fused functions have the same arguments, but without `training`. Callers must pass `training` by
    keyword. On a backend without fused functions, the operation is its reference implementation. On
    every backend, `inspect.unwrap` returns the reference implementation.
    """
    backend = keras.backend.backend()
    if backend not in {backend for backend, _ in FUSED}:
        return reference

    @functools.cache
    def function_for(training: bool) -> Any:
        devices = [ANY_DEVICE]
        if training and is_tensorflow_on_cpu():
            devices.insert(0, CPU_TRAINING)
        for device in devices:
            module = importlib.import_module(f"keras_bert.ops.{FUSED[backend, device]}")
            if hasattr(module, reference.__name__):
                return getattr(module, reference.__name__)
        return None

    @functools.wraps(reference)
    def operation(*args: Any, **kwargs: Any) -> Any:
        function = function_for(bool(kwargs.get("training")))
        if function is None:
            return reference(*args, **kwargs)
        kwargs.pop("training", None)
        return function(*args, **kwargs)

    return cast("_Operation", operation)


def tensorflow_int8() -> ModuleType | None:
    """Returns the module with TensorFlow's 8-bit matmuls by oneDNN, or `None` if not available.

    They are only available in TensorFlow's x86 CPU builds, without an accelerator and without XLA.
    """
    if not is_tensorflow_on_cpu():
        return None
    from keras_bert.ops import tensorflow_int8, tensorflow_plain

    if tensorflow_plain.is_compiled_as_a_whole() or not tensorflow_int8.has_kernel():
        return None
    return tensorflow_int8


def is_tensorflow_on_cpu() -> bool:
    """Returns whether the backend is TensorFlow without an accelerator."""
    return keras.backend.backend() == "tensorflow" and tensorflow_without_accelerator()


def is_tensorflow_graph() -> bool:
    """Returns whether TensorFlow is tracing a graph."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def is_torch_graph() -> bool:
    """Returns whether `torch.compile` is tracing a function."""
    if keras.backend.backend() != "torch":
        return False
    import torch

    is_compiling: bool = torch.compiler.is_compiling()
    return is_compiling


def compiles_each_shape() -> bool:
    """Returns whether the backend compiles each new batch shape, as JAX does, for seconds."""
    return bool(keras.backend.backend() == "jax")


@functools.cache
def backend_steps() -> BackendSteps:
    """Returns the changes that this backend makes to Keras' training loop."""
    backend = keras.backend.backend()
    if backend == "jax":
        from keras_bert.ops.jax_steps import JaxSteps

        return JaxSteps()
    if backend == "torch":
        from keras_bert.ops.torch_steps import TorchSteps

        return TorchSteps()
    from keras_bert.ops.tensorflow_steps import TensorFlowSteps

    return TensorFlowSteps()


def local_shards(variable: keras.Variable) -> list[np.ndarray[Any, Any]]:
    """Returns a variable's shards on this process's devices."""
    if keras.backend.backend() == "jax":
        from keras_bert.ops import jax_steps

        return jax_steps.local_shards(variable.value)
    return [keras.ops.convert_to_numpy(variable.value)]


def is_torch_on_cpu(x: Any) -> bool:
    """Returns whether a tensor is in PyTorch's CPU memory, and no meta tensor."""
    if keras.backend.backend() != "torch" or is_torch_graph():
        return False
    return getattr(getattr(x, "device", None), "type", "") == "cpu"


def is_jax_on_cpu() -> bool:
    """Returns whether the backend is JAX on a CPU."""
    return keras.backend.backend() == "jax" and _default_jax_backend() == "cpu"


def cuda_capability() -> tuple[int, ...] | None:
    """Returns an NVIDIA GPU's compute capability on JAX or PyTorch, otherwise `None`."""
    backend = keras.backend.backend()
    if backend == "torch":
        return _torch_cuda_capability()
    return _jax_cuda_capability() if backend == "jax" else None


def on_cpu() -> contextlib.AbstractContextManager[object]:
    """Computes on this process's CPU, for example values needed before the device has finished."""
    scope: contextlib.AbstractContextManager[object]
    if keras.backend.backend() == "jax":
        import jax

        scope = jax.default_device(jax.local_devices(backend="cpu")[0])
    else:
        scope = keras.device("cpu")
    return scope


def device_of(x: Tensor) -> str:
    """Returns a tensor's device type: `"cpu"`, `"gpu"` or `"tpu"`.

    On JAX and TensorFlow, it is the process's default device type. On TensorFlow, it is `"gpu"` for
    any accelerator.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        return _default_jax_backend()
    # Even with a GPU, PyTorch may also compute on a CPU.
    is_on_cpu = not x.is_cuda if backend == "torch" else tensorflow_without_accelerator()
    return "cpu" if is_on_cpu else "gpu"


def has_accelerator() -> bool:
    """Returns whether the backend has a GPU or a TPU."""
    if keras.backend.backend() == "torch":
        import torch

        return bool(torch.cuda.is_available())
    return any(not device.lower().startswith("cpu") for device in keras.distribution.list_devices())


def _torch_cuda_capability() -> tuple[int, ...] | None:
    import torch

    @torch.compiler.assume_constant_result
    def capability() -> tuple[int, int] | None:
        if torch.version.cuda is None or not torch.cuda.is_available():
            return None
        capability: tuple[int, int] = torch.cuda.get_device_capability()
        return capability

    result: tuple[int, ...] | None = capability()
    return result


@functools.cache
def _jax_cuda_capability() -> tuple[int, ...] | None:
    import jax

    # AMD GPUs have names instead of numbers here.
    numbers = str(getattr(jax.devices()[0], "compute_capability", "")).split(".")
    return tuple(map(int, numbers)) if all(map(str.isdecimal, numbers)) else None


@functools.cache
def _default_jax_backend() -> str:
    import jax

    return str(jax.default_backend())


@functools.cache
def tensorflow_without_accelerator() -> bool:
    import tensorflow as tf

    return not (tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("TPU"))
