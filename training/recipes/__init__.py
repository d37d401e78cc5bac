# SPDX-License-Identifier: Apache-2.0
"""Recipes: one file each, with its command, hardware, time and score, and a frozen config."""

import importlib
import pkgutil
from typing import TypeVar

Config = TypeVar("Config")


def names() -> tuple[str, ...]:
    """The recipes, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str, kind: type[Config]) -> Config:
    """The `CONFIG` of a recipe.

    Args:
        name: the recipe.
        kind: the class that the program's configs are of.

    Raises:
        ValueError: if there is no such recipe, or it is for another program.
    """
    if name not in names():
        raise ValueError(f"no recipe {name!r}, expected one of {', '.join(names())}")
    config = importlib.import_module(f"{__name__}.{name}").CONFIG
    if not isinstance(config, kind):
        raise ValueError(
            f"recipe {name!r} has a {type(config).__name__}, expected a {kind.__name__}"
        )
    return config
