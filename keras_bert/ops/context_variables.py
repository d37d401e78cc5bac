# SPDX-License-Identifier: Apache-2.0
"""Context variables with a value for a while."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TypeVar

_T = TypeVar("_T")


@contextlib.contextmanager
def set_variable(variable: contextvars.ContextVar[_T], value: _T) -> Iterator[None]:
    """Gives a variable a value within the context, in this thread."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
