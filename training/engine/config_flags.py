# SPDX-License-Identifier: Apache-2.0
"""Defines command-line flags from a config's fields and docstring."""

from __future__ import annotations

import csv
import dataclasses
import inspect
import io
import os
import re
import typing
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from absl import flags

from ..paper import recipes
from .options import CommandConfig

# Flags that contain text rather than paths, such as column names, so `~` in them is not expanded
_TEXTS = {
    *("text", "text_pair", "label", "separator", "field", "fields", "class_names", "label_map"),
    *("skip_labels", "subjects", "api_key", "encoding", "added_tokens"),
}

# absl attributes the flags to the module that calls `define_flags`, so that `--help` shows them.
flags.disclaim_key_flags()

Config = TypeVar("Config", bound=CommandConfig)


class _NumbersParser(flags.ArgumentParser):  # type: ignore[type-arg]
    """Parses a number, or multiple numbers separated by commas.

    Args:
        parser: The parser of a number.
        is_tuple: Whether a single number is also returned as a tuple.
        lists: The names of the flags that accept multiple numbers, if this flag does not.
    """

    def __init__(self, parser: Any, is_tuple: bool = False, lists: tuple[str, ...] = ()) -> None:
        self.parser, self.is_tuple, self.lists = parser, is_tuple, lists
        self.syntactic_help = parser.syntactic_help

    def parse(self, argument: Any) -> Any:
        if not isinstance(argument, str):  # a default
            return argument
        values = tuple(map(self.parser.parse, argument.split(",")))
        if len(values) > 1 and self.lists:
            names = ", ".join(f"--{name}" for name in self.lists)
            raise ValueError(f"the flag must be a single number. Only {names} accept a list")
        return values if len(values) > 1 or self.is_tuple else values[0]


class _NumbersSerializer(flags.ArgumentSerializer):  # type: ignore[type-arg]
    def serialize(self, value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _define_numbers(parser: Any, **options: Any) -> Callable[..., Any]:
    """Returns a function that defines a flag for one or more numbers, see `_NumbersParser`."""

    def define(name: str, default: Any, text: str, flag_values: flags.FlagValues) -> None:
        numbers, serializer = _NumbersParser(parser, **options), _NumbersSerializer()
        flags.DEFINE(numbers, name, default, text, flag_values, serializer)

    return define


_DEFINERS: dict[Any, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    bool | None: flags.DEFINE_bool,
    float: flags.DEFINE_float,
    float | None: flags.DEFINE_float,
    int | None: flags.DEFINE_integer,
    int: flags.DEFINE_integer,
    str: flags.DEFINE_string,
    tuple[str, ...]: flags.DEFINE_list,
    tuple[float, ...]: _define_numbers(flags.FloatParser(), is_tuple=True),
    tuple[int, ...]: _define_numbers(flags.IntegerParser(), is_tuple=True),
}
_PARSERS = {
    **dict.fromkeys((float, float | None), flags.FloatParser()),
    **dict.fromkeys((int, int | None), flags.IntegerParser()),
}


def define_recipe_flag(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines `--recipe`. Call it when a command runs, because all commands share this name."""
    description = "Name of a recipe, without .py. Recipes are in training/paper/recipes."
    flags.DEFINE_string("recipe", "", description, flag_values=flag_values)


def define_flags(
    config: Any,
    flag_values: flags.FlagValues = flags.FLAGS,
    skip: Collection[str] = (),
    lists: tuple[str, ...] = (),
) -> None:
    """Defines one flag for each field in a config and its groups, with the field's default.

    `--help` lists the flags in the order of the docstrings, first the class and then its base
    classes. The flags in a group appear in its place.

    Args:
        config: A `CommandConfig` class, or an instance whose values become the defaults. Its
            docstring or a base class's docstring describes each field under `Args:`. Each field has
            a default. Its type is bool, float or int (each optionally `| None`), str, a tuple of
            str, float or int, or a `CommandConfig` that groups such fields.
        flag_values: The registry for the new flags.
        skip: Fields whose flags the command's other configs have already defined.
        lists: Names of numeric fields whose flags also accept multiple numbers, which become a
            tuple.
    """
    for name, (kind, default, text) in _flags_of(config).items():
        if name in skip:
            continue
        define = _DEFINERS[kind]
        if lists and kind in _PARSERS:
            define = _define_numbers(_PARSERS[kind], lists=() if name in lists else lists)
        define(name, default, text, flag_values=flag_values)


def command_flags(config: CommandConfig, skip: Collection[str] = ()) -> list[str]:
    """Returns the command-line flags that set a config's values, except defaults.

    Args:
        config: The config.
        skip: Names of flags to leave out.

    Example:

    >>> from training.jobs.classification import FinetuneConfig
    >>> command_flags(FinetuneConfig(label_map=("a:b", "b:c"), batch_size=16, export=False))
    ['--batch_size=16', '--noexport', '--label_map=a:b,b:c']
    """
    defaults = type(config)().to_dict()
    words = []
    for name, value in config.to_dict().items():
        if name in skip or value == defaults[name]:
            continue
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no{name}")
            continue
        if isinstance(value, tuple):
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow(value)
            value = line.getvalue()
        words.append(f"--{name}={value}")
    return words


def _flags_of(config: Any) -> dict[str, tuple[Any, Any, str]]:
    """Returns the type, default and description of each flag, including the flags of groups."""
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
            is_words = types[field.name] == tuple[str, ...]
            default = list(value) if is_words else value
            fields_of_class[field.name] = types[field.name], default, texts[field.name]
    return fields_of_class


def given_flags(config_class: type, flag_values: flags.FlagValues = flags.FLAGS) -> dict[str, Any]:
    """Returns the flags set on the command line.

    A leading `~` in a path is replaced by the home directory, because shells do not expand it in
    `--flag=~/file`. The values are not validated here, because some are only valid together with a
    recipe.
    """
    values = {name: flag_values[name] for name in _flags_of(config_class)}
    return {
        name: _expand_user_directory(name, flag.value)
        for name, flag in values.items()
        if not flag.using_default_value
    }


def _expand_user_directory(name: str, value: Any) -> Any:
    """Expands a leading `~` in each path, including in comma-separated lists and after `name=`."""
    if isinstance(value, list):
        return tuple(_expand_user_directory(name, item) for item in value)
    if name in _TEXTS or not isinstance(value, str):
        return value
    return re.sub(r"(?<![^,=])~[^/\\,=]*", lambda match: os.path.expanduser(match[0]), value)


def configuration(
    config_class: type[Config], flag_values: flags.FlagValues = flags.FLAGS
) -> Config:
    """Returns the config of `--recipe`, or the default config, updated with the given flags.

    Raises:
        ValueError: If the recipe does not exist or belongs to a different command, or if a value is
            invalid.
    """
    changes = given_flags(config_class, flag_values)
    name = flag_values["recipe"].value if "recipe" in flag_values else ""
    base = recipes.load(name, config_class) if name else config_class()
    return base.replace(**changes)


def _field_texts(docstring: str) -> dict[str, str]:
    """Returns the description of each field under `Args:` in a docstring, each on one line."""
    # Python 3.13 removes the indentation of docstrings. Earlier versions keep it.
    text = inspect.cleandoc(docstring)
    section = re.search(r"^Args:\n(.*?)(?=\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    entries = re.findall(
        r"^ {4}(\w+): (.*?)(?=^ {4}\w+: |\Z)", section[1] if section else "", re.M | re.S
    )
    return {name: " ".join(text.split()) for name, text in entries}
