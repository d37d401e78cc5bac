# SPDX-License-Identifier: Apache-2.0
"""Validates arguments, config fields and command-line flags with the same rules."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import inspect
import math
import numbers
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

BACKENDS = ("tensorflow", "jax", "torch")
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# The longest value in an error message, in characters
_SHOWN = 80


@dataclasses.dataclass(frozen=True)
class NumberRange:
    """A range of finite numbers. It never contains NaN, infinities or bools.

    Args:
        at_least: Inclusive lower bound, or `None`.
        above: Exclusive lower bound, or `None`.
        at_most: Inclusive upper bound, or `None`.
        below: Exclusive upper bound, or `None`.
        integer: Whether only integers are accepted.

    Example:

    >>> PROPER_FRACTION.allows(0.1), PROPER_FRACTION.allows(1), PROPER_FRACTION.allows(float("nan"))
    (True, False, False)
    >>> POSITIVE_INT.check(epochs=0)
    Traceback (most recent call last):
    ValueError: epochs must be an integer above 0. Received: 0
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    integer: bool = False

    def allows(self, value: object) -> bool:
        """Returns whether a value is a number in the range."""
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return False
        is_integer = isinstance(value, numbers.Integral)
        if not is_integer and (self.integer or not math.isfinite(value)):
            return False
        number: Any = value  # For mypy, a Real and a float cannot be compared.
        return not (
            (is_integer and not self.integer and abs(int(number)) > sys.float_info.max)
            or (self.at_least is not None and number < self.at_least)
            or (self.above is not None and number <= self.above)
            or (self.at_most is not None and number > self.at_most)
            or (self.below is not None and number >= self.below)
        )

    def __str__(self) -> str:
        low = self.above if self.at_least is None else self.at_least
        high = self.below if self.at_most is None else self.at_most
        kind = "an integer" if self.integer else "a number"
        if low is not None and high is not None:
            start, end = "(" if self.at_least is None else "[", ")" if self.at_most is None else "]"
            return f"{kind} in {start}{low}, {high}{end}"
        kind = kind if self.integer else "a finite number"
        limits = {
            " of at least": self.at_least,
            " above": self.above,
            " of at most": self.at_most,
            " below": self.below,
        }
        return kind + "".join(f"{words} {n}" for words, n in limits.items() if n is not None)

    def check(self, **options: Any) -> None:
        """Raises a `ValueError` with the option's name if a value is out of range."""
        for name, value in options.items():
            if not self.allows(value):
                raise ValueError(f"{name} must be {self}. Received: {value!r}")

    def check_optional(self, **options: Any) -> None:
        """Like `check`, but also accepts `None`."""
        self.check(**{name: value for name, value in options.items() if value is not None})


FINITE = NumberRange()
POSITIVE = NumberRange(above=0)
NON_NEGATIVE = NumberRange(at_least=0)
# For example a dropout rate. A rate of 1 would drop everything.
PROPER_FRACTION = NumberRange(at_least=0, below=1)
FRACTION = NumberRange(at_least=0, at_most=1)
# For example the fraction of tokens to mask. A fraction of 0 would mask no token.
POSITIVE_FRACTION = NumberRange(above=0, at_most=1)
INTEGER = NumberRange(integer=True)
POSITIVE_INT = NumberRange(above=0, integer=True)
NON_NEGATIVE_INT = NumberRange(at_least=0, integer=True)
# Keras, NumPy and all backends accept these seeds.
SEED = NumberRange(at_least=0, below=2**32, integer=True)


def check_names(option: str, names: Iterable[Any]) -> None:
    """Checks that an option is a sequence of names. A string, although iterable, is rejected."""
    if isinstance(names, (str, bytes)):
        raise ValueError(f"{option} must be a list or tuple of names. Received: {names!r}")
    for index, name in enumerate(names):
        if not isinstance(name, str):
            raise ValueError(f"{option} must contain strings. Received: {name!r} (index {index})")


def check_choice(choices: Iterable[str], **values: str) -> None:
    """Checks that each option is one of the choices."""
    choices = tuple(choices)
    for name, value in values.items():
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}. Received: {value!r}")


def plain(value: Any) -> Any:
    """Converts NumPy scalars to Python numbers, which JSON supports.

    The values in lists, tuples and dicts are also converted.
    """
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value)) if isinstance(value, tuple) else list(map(plain, value))
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_scalar else value


def option_names(cls: type, *parts: str) -> tuple[str, ...]:
    """Lists a class's constructor arguments, except `parts`.

    If a constructor has `**kwargs`, the arguments of the next class in the method resolution order
    are included, or its attribute `options` if it has one.

    Example:

    >>> class Parent:
    ...     options = ("size",)
    >>> class Child(Parent):
    ...     def __init__(self, tokenizer, *args, extra=1, **kwargs): ...
    >>> option_names(Child, "tokenizer")
    ('extra', 'size')
    """
    names: dict[str, None] = {}
    for parent in cls.__mro__:
        if parent is not cls and "options" in vars(parent):
            names |= dict.fromkeys(vars(parent)["options"])
            break
        if "__init__" in vars(parent):
            parameters = inspect.signature(vars(parent)["__init__"]).parameters
            kinds = {name: parameter.kind for name, parameter in parameters.items()}
            names |= dict.fromkeys(name for name in kinds if kinds[name] not in _VARIABLE)
            if inspect.Parameter.VAR_KEYWORD not in kinds.values():
                break
    return tuple(name for name in names if name not in ("self", *parts))


def shorten_repr(value: object) -> str:
    """Formats a value for an error message as its `repr`, truncated to 80 characters.

    Example:

    >>> shorten_repr("film"), len(shorten_repr("film " * 100))
    ("'film'", 80)
    """
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Suggests the known name most similar to `name`.

    Returns a sentence that starts with a space, or an empty string if no name is similar.

    Example:

    >>> did_you_mean("pytorch", BACKENDS)
    ' Did you mean torch?'
    """
    near = difflib.get_close_matches(name.lower(), tuple(names), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issues a warning attributed to the calling code outside this package."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def install(extra: str) -> str:
    """Returns the command that installs an extra of this project. It is not on PyPI."""
    return f"pip install -e '.[{extra}]' in a checkout of keras_bert"


@contextlib.contextmanager
def importing(extra: str, purpose: str) -> Iterator[None]:
    """Adds the extra to install to the error if the block cannot import a library.

    For example, `purpose` is `"Plotting"`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"{purpose} requires {error.name}: {install(extra)}") from error


@contextlib.contextmanager
def importing_keras() -> Iterator[None]:
    """Explains how to fix the error if Keras cannot import its backend.

    Raises:
        ModuleNotFoundError: If the backend is not installed.
        ValueError: If Keras does not support the backend.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in BACKENDS:
            raise
        other = f", or set KERAS_BACKEND to {' or '.join(BACKENDS[1:])} if it is installed"
        is_default = error.name == BACKENDS[0]
        raise ModuleNotFoundError(
            f"No module named {error.name!r}, the backend that Keras is set to use "
            f"(KERAS_BACKEND={error.name}): "
            + (f"pip install {error.name}{other}" if is_default else install(error.name)),
            name=error.name,
        ) from error
    except ValueError as error:
        problem, _, backend = str(error).partition("Unable to import backend : ")
        if problem or not backend:
            raise
        raise ValueError(
            f"KERAS_BACKEND must be one of {', '.join(BACKENDS)}. Received: {backend!r}."
            f"{did_you_mean(backend, BACKENDS)}"
        ) from error
