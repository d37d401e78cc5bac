# SPDX-License-Identifier: Apache-2.0
"""Context variables with a value for a while."""

from __future__ import annotations

import contextlib
import contextvars
import types
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from keras_bert.ops import dispatch

_T = TypeVar("_T")


@contextlib.contextmanager
def assigned(variable: contextvars.ContextVar[_T], value: _T) -> Iterator[None]:
    """Gives a variable a value within the context, in this thread."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


class ObjectVariable:
    """A value of an object for a while, in this thread only.

    Other threads may call the same layer or model meanwhile. `torch.compile` cannot trace context
    variables, so its graphs have no value.
    """

    def __init__(self, name: str) -> None:
        nothing: Mapping[int, Any] = types.MappingProxyType({})
        self._values = contextvars.ContextVar(name, default=nothing)

    def assigned(self, owner: object, value: Any) -> contextlib.AbstractContextManager[None]:
        """Gives an object a value within the context, in this thread."""
        return assigned(self._values, {**self._values.get(), id(owner): value})

    def get(self, owner: object) -> Any:
        """Returns the value of an object, or `None`."""
        return None if dispatch.is_torch_graph() else self._values.get().get(id(owner))
