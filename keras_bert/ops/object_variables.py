# SPDX-License-Identifier: Apache-2.0
"""Sets temporary values for shared objects, such as layers, in one thread only."""

from __future__ import annotations

import contextlib
import contextvars
import types
from collections.abc import Mapping
from typing import Any

from keras_bert.ops.context_variables import set_variable
from keras_bert.ops.dispatch import is_torch_graph


class ObjectVariable:
    """A temporary value for an object, in this thread only.

    Other threads may call the same layer or model at the same time. `torch.compile` cannot trace
    context variables, so in its graphs there is no value.
    """

    def __init__(self, name: str) -> None:
        nothing: Mapping[int, Any] = types.MappingProxyType({})
        self._values = contextvars.ContextVar(name, default=nothing)

    def set(self, owner: object, value: Any) -> contextlib.AbstractContextManager[None]:
        """Sets an object's value within the block, in this thread only."""
        return set_variable(self._values, {**self._values.get(), id(owner): value})

    def get(self, owner: object) -> Any:
        """Returns an object's value, or `None`."""
        return None if is_torch_graph() else self._values.get().get(id(owner))
