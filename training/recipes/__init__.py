# SPDX-License-Identifier: Apache-2.0
"""Recipes: one file each, with its command, hardware, time and score, and a frozen config."""

import importlib
import pkgutil
from typing import Any


def names() -> tuple[str, ...]:
    """The recipes, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str) -> Any:
    """The `CONFIG` of a recipe.

    Raises:
        ValueError: if there is no such recipe.
    """
    if name not in names():
        raise ValueError(f"no recipe {name!r}, expected one of {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}").CONFIG
