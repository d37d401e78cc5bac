# SPDX-License-Identifier: Apache-2.0
"""Reads the lists of words and templates in the directory `word_lists`."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def word_list(name: str) -> tuple[str, ...]:
    """Returns the lines in a list. Comments start with `#`."""
    text = (resources.files(__package__) / "word_lists" / f"{name}.txt").read_text("utf-8")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line)


def counterparts(name: str) -> list[tuple[str, ...]]:
    """Returns the comma-separated words in each line."""
    return [tuple(word.strip() for word in line.split(",")) for line in word_list(name)]
