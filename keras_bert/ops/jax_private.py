# SPDX-License-Identifier: Apache-2.0
"""The private parts of JAX that this library uses. See `keras_private`."""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from jax._src import distributed
from jax._src.lib import _jax


def distributed_client() -> Any:
    """Returns the client of `jax.distributed` for its key-value store."""
    return distributed.global_state.client


def on_lost_process(end: Callable[[], None]) -> None:
    """Calls a function when another process is lost, instead of aborting like JAX's client.

    The client calls its callback with a value that it cannot convert to Python. This raises an
    uncaught C++ exception. So the function is also installed as the handler for uncaught
    exceptions, and it must not return.
    """
    # The C++ library keeps the pointer, so the handler must stay alive.
    handler = ctypes.CFUNCTYPE(None)(end)
    try:
        set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
    except (OSError, AttributeError):
        return  # For example, macOS has a different C++ library.
    set_terminate(handler)
    _jax.get_distributed_runtime_client = functools.partial(
        _jax.get_distributed_runtime_client, missed_heartbeat_callback=handler
    )
