# SPDX-License-Identifier: Apache-2.0
"""Defines command-line flags from the fields and the docstrings of a program's config."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import typing
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from absl import flags

from ..paper import recipes
from .options import CommandConfig

# Flags whose values, or parts of them, are the user's texts, such as names of columns, not paths
_TEXTS = {
    *("text", "text_pair", "label", "separator", "field", "fields", "class_names", "label_map"),
    *("skip_labels", "subjects", "api_key"),
}

# absl attributes the flags to the program that calls `define_flags`, so that `--help` shows them.
flags.disclaim_key_flags()

Config = TypeVar("Config", bound=CommandConfig)

_DEFINERS: dict[Any, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    bool | None: flags.DEFINE_bool,
    float: flags.DEFINE_float,
    float | None: flags.DEFINE_float,
    int | None: flags.DEFINE_integer,
    int: flags.DEFINE_integer,
    str: flags.DEFINE_string,
    tuple[str, ...]: flags.DEFINE_list,
}


def define_recipe_flag(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines `--recipe`, when a program runs: all programs share its name."""
    description = "Name of a recipe: a file of training/paper/recipes, without .py."
    flags.DEFINE_string("recipe", "", description, flag_values=flag_values)


def define_flags(
    config: Any, flag_values: flags.FlagValues = flags.FLAGS, skip: Collection[str] = ()
) -> None:
    """Defines a flag for every field of a config and of its groups, with the field's default.

    `--help` lists them in the order of the docstrings: that of the class, and then of its bases;
    the flags of a group at its place.

    Args:
        config: A `CommandConfig`, or an instance whose values become the defaults. Its docstring,
            or that of a base class, describes each field under `Args:`. Fields are of type bool,
            float, int (each may also be `None`), str or `tuple[str, ...]`, or groups of such
            fields, and have defaults.
        flag_values: The registry that the flags are defined in.
        skip: The fields whose flag another config of the program has defined.
    """
    for name, (kind, default, text) in _flags_of(config).items():
        if name not in skip:
            _DEFINERS[kind](name, default, text, flag_values=flag_values)


def _flags_of(config: Any) -> dict[str, tuple[Any, Any, str]]:
    """Returns the type, the default and the description of each flag, those of groups included."""
    config = config() if isinstance(config, type) else config
    types = typing.get_type_hints(type(config))
    texts: dict[str, str] = {}
    for base in type(config).__mro__:
        for name, text in _field_texts(base.__doc__ or "").items():
            texts.setdefault(name, text)
    fields_of_class: dict[str, tuple[Any, Any, str]] = {}
    order = list(texts)
    for field in sorted(dataclasses.fields(config), key=lambda field: order.index(field.name)):
        value = getattr(config, field.name)
        if isinstance(value, CommandConfig):
            fields_of_class |= _flags_of(value)
        else:
            default = list(value) if isinstance(value, tuple) else value
            fields_of_class[field.name] = types[field.name], default, texts[field.name]
    return fields_of_class


def given_flags(config_class: type, flag_values: flags.FlagValues = flags.FLAGS) -> dict[str, Any]:
    """Returns the values of the flags that are on the command line, without defaults.

    `~` in paths is replaced by the home folder, which shells do not do in `--flag=~/file`. The
    values are not validated here, since they may be valid only together with a recipe.
    """
    values = {name: flag_values[name] for name in _flags_of(config_class)}
    return {
        name: _expand_user_directory(name, flag.value)
        for name, flag in values.items()
        if not flag.using_default_value
    }


def _expand_user_directory(name: str, value: Any) -> Any:
    """Expands `~` at the beginning of each path: in a list by commas, and after `name=`."""
    if isinstance(value, list):
        return tuple(_expand_user_directory(name, item) for item in value)
    if name in _TEXTS or not isinstance(value, str):
        return value
    return re.sub(r"(?<![^,=])~[^/\\,=]*", lambda match: os.path.expanduser(match[0]), value)


def configuration(
    config_class: type[Config], flag_values: flags.FlagValues = flags.FLAGS
) -> Config:
    """Returns the config of `--recipe`, or the default one, changed by the flags that are given.

    Raises:
        ValueError: If the recipe does not exist or is for another program, or a value is invalid.
    """
    changes = given_flags(config_class, flag_values)
    name = flag_values["recipe"].value if "recipe" in flag_values else ""
    base = recipes.load(name, config_class) if name else config_class()
    return base.replace(**changes)


def _field_texts(docstring: str) -> dict[str, str]:
    """Returns the description of each field under `Args:` in a docstring, on one line."""
    # Python 3.13 removes the indentation of docstrings, earlier versions keep it
    text = inspect.cleandoc(docstring)
    section = re.search(r"^Args:\n(.*?)(?=\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    entries = re.findall(
        r"^ {4}(\w+): (.*?)(?=^ {4}\w+: |\Z)", section[1] if section else "", re.M | re.S
    )
    return {name: " ".join(text.split()) for name, text in entries}
