# SPDX-License-Identifier: Apache-2.0
"""Recipes are frozen configs. Each file's docstring has the command, hardware, time and score."""

import importlib
import pkgutil
from typing import TypeVar

from keras_bert.checks import did_you_mean

Config = TypeVar("Config")


def names() -> tuple[str, ...]:
    """Returns the sorted names of the recipes."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str, kind: type[Config]) -> Config:
    """Loads a recipe's `CONFIG`.

    Raises:
        ValueError: If the recipe does not exist or belongs to a different command.
    """
    if name not in names():
        raise ValueError(
            f"--recipe must be one of {', '.join(names())}. Received: {name}."
            f"{did_you_mean(name, names())}"
        )
    config = importlib.import_module(f"{__name__}.{name}").CONFIG
    if not isinstance(config, kind):
        raise ValueError(
            f"--recipe={name} must have a {kind.__name__} for this command. Received: a "
            f"{type(config).__name__}"
        )
    return config
