# SPDX-License-Identifier: Apache-2.0
"""Converts nested lists of texts to a flat list, and nests their results in the same way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_bert.text.characters import check_characters


def flatten(text: Any) -> tuple[Any, list[str]]:
    """Decodes and validates texts. Returns them as nested lists and as a flat list."""
    strings: list[str] = []

    def collect(text: Any, path: tuple[int, ...]) -> Any:
        if isinstance(text, np.ndarray) and not text.ndim:
            text = text.item()
        if isinstance(text, bytes):
            text = text.decode("utf-8", "ignore")
        if isinstance(text, str):
            if not text.isascii():
                check_characters(text, f"Text {', '.join(map(str, path))}" if path else "The text")
            strings.append(text)
            return text
        if hasattr(text, "__iter__") and not isinstance(text, dict):
            return [collect(item, (*path, index)) for index, item in enumerate(text)]
        raise TypeError(f"Texts must be strings. Received: {text!r} of type {type(text).__name__}")

    return collect(text, ()), strings


def nest(nested: Any, results: Iterator[Any]) -> Any:
    """Replaces the strings in nested lists with results, in order."""
    if isinstance(nested, list):
        return [nest(item, results) for item in nested]
    return next(results)


def is_first_in_list(nested: Any) -> Iterator[bool]:
    """Yields whether each string in nested lists is the first in its list."""
    if not isinstance(nested, list):
        yield True
        return
    for index, item in enumerate(nested):
        if isinstance(item, list):
            yield from is_first_in_list(item)
        else:
            yield index == 0


def split_rows(values: np.ndarray, lengths: np.ndarray) -> Iterator[list[int]]:
    """Splits a flat array into lists of the given lengths."""
    flat = iter(values.tolist())
    return (list(itertools.islice(flat, length)) for length in lengths.tolist())
