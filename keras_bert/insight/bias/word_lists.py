# SPDX-License-Identifier: Apache-2.0
"""The lists of words and templates in the folder `word_lists`."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def word_list(name: str) -> tuple[str, ...]:
    """The lines of a list, without comments, which begin with `#`."""
    text = (resources.files(__package__) / "word_lists" / f"{name}.txt").read_text("utf-8")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line)


def counterparts(name: str) -> list[tuple[str, ...]]:
    """The words of each line of a list, which commas divide."""
    return [tuple(word.strip() for word in line.split(",")) for line in word_list(name)]
