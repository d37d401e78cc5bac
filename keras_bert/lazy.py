# SPDX-License-Identifier: Apache-2.0
"""Imports the names of a package on first use."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from keras_bert.checks import importing_keras


def lazy_names(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__all__`, `__getattr__` and `__dir__` of a package with lazily imported names.

    The names are those that its source imports under `if TYPE_CHECKING:`, where type checkers and
    editors find them. So they are written once.
    """
    modules = {
        alias.name: node.module or ""
        for block in ast.parse(inspect.getsource(sys.modules[package])).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with importing_keras():
            if modules[name] == package:  # The name is a module.
                return importlib.import_module(f"{package}.{name}")
            return getattr(importlib.import_module(modules[name]), name)

    def list_names() -> list[str]:
        return [*names, *(name for name in vars(sys.modules[package]) if name.startswith("__"))]

    names = sorted(modules)
    return names, get, list_names
