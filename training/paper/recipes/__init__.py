# SPDX-License-Identifier: Apache-2.0
"""Recipes: each file has a frozen config, and states its command, hardware, time and score."""

import importlib
import pkgutil
from typing import TypeVar

from keras_bert.checks import did_you_mean

Config = TypeVar("Config")


def names() -> tuple[str, ...]:
    """Returns the names of the recipes, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str, kind: type[Config]) -> Config:
    """Loads the `CONFIG` of a recipe.

    Raises:
        ValueError: If the recipe does not exist or is for another program.
    """
    if name not in names():
        raise ValueError(
            f"--recipe={name} does not exist.{did_you_mean(name, names())} Expected one of "
            f"{', '.join(names())}"
        )
    config = importlib.import_module(f"{__name__}.{name}").CONFIG
    if not isinstance(config, kind):
        raise ValueError(
            f"--recipe={name} is for another program: it has a {type(config).__name__}, expected a "
            f"{kind.__name__}"
        )
    return config
