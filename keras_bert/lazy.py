# SPDX-License-Identifier: Apache-2.0
"""Imports a package's names on first use."""

from __future__ import annotations

import builtins
import contextlib
import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from keras_bert.checks import importing_keras


@contextlib.contextmanager
def lazy_imports(package: dict[str, Any]) -> Iterator[None]:
    """Context manager that postpones a package's `from` imports until a name is first used.

    It defines the package's `__all__`, `__getattr__` and `__dir__`. Type checkers and editors see
    ordinary imports, so each name is written only once.

    Args:
        package: `globals()` of the package.
    """
    modules: dict[str, str] = {}
    import_now = builtins.__import__

    def postpone(name: str, *arguments: Any, **options: Any) -> Any:
        # Other threads may import modules at the same time.
        if not (arguments and arguments[0] is package):
            return import_now(name, *arguments, **options)
        _, _, names, _ = arguments
        modules.update(dict.fromkeys(names, name))
        return SimpleNamespace(**modules)

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        with importing_keras():
            if modules[name] == package["__name__"]:  # The name is a module.
                return importlib.import_module(f"{modules[name]}.{name}")
            return getattr(importlib.import_module(modules[name]), name)

    builtins.__import__ = postpone
    try:
        yield
    finally:
        builtins.__import__ = import_now
    for name in modules:
        del package[name]
    names = sorted(modules)
    package |= {
        "__all__": names,
        "__getattr__": get,
        "__dir__": lambda: [*names, *(name for name in package if name.startswith("__"))],
    }
