# SPDX-License-Identifier: Apache-2.0
"""The private parts of JAX that this library uses; see `keras_private`."""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from jax._src import distributed
from jax._src.lib import _jax


def distributed_client() -> Any:
    """Returns the client of `jax.distributed`, which has a store of keys and values."""
    return distributed.global_state.client


def on_lost_process(end: Callable[[], None]) -> None:
    """Has a function called where JAX's client would abort: another process was lost.

    The client calls it with a value that it cannot convert to Python, a C++ exception that nothing
    handles. So the function also becomes the handler of such exceptions, and must not return.
    """
    # The C++ library keeps the pointer.
    handler = ctypes.CFUNCTYPE(None)(end)
    try:
        set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
    except (OSError, AttributeError):
        return  # another C++ library, as on macOS
    set_terminate(handler)
    _jax.get_distributed_runtime_client = functools.partial(
        _jax.get_distributed_runtime_client, missed_heartbeat_callback=handler
    )
