# SPDX-License-Identifier: Apache-2.0
"""Values of shared objects, such as layers, for a while and in one thread."""

from __future__ import annotations

import contextlib
import contextvars
import types
from collections.abc import Mapping
from typing import Any

from keras_bert.ops.context_variables import set_variable
from keras_bert.ops.dispatch import is_torch_graph


class ObjectVariable:
    """A value of an object for a while, in this thread only.

    Other threads may call the same layer or model meanwhile. `torch.compile` cannot trace context
    variables, so its graphs have no value.
    """

    def __init__(self, name: str) -> None:
        nothing: Mapping[int, Any] = types.MappingProxyType({})
        self._values = contextvars.ContextVar(name, default=nothing)

    def set(self, owner: object, value: Any) -> contextlib.AbstractContextManager[None]:
        """Gives an object a value within the context, in this thread."""
        return set_variable(self._values, {**self._values.get(), id(owner): value})

    def get(self, owner: object) -> Any:
        """Returns the value of an object, or `None`."""
        return None if is_torch_graph() else self._values.get().get(id(owner))
