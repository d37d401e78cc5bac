# SPDX-License-Identifier: Apache-2.0
"""Sets context variables temporarily."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TypeVar

_T = TypeVar("_T")


@contextlib.contextmanager
def set_variable(variable: contextvars.ContextVar[_T], value: _T) -> Iterator[None]:
    """Sets a context variable within the block, in this thread only."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
