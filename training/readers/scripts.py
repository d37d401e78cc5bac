# SPDX-License-Identifier: Apache-2.0
"""Detects the scripts of texts."""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable

_MAX_CHARACTERS_OF_SCRIPTS = 1_000_000


def scripts(texts: Iterable[str]) -> dict[str, float]:
    """Returns the percentage of each script among the letters, in descending order.

    A script is the first word in a letter's Unicode name, capitalized, such as `Latin` or `Cjk`.
    Only about the first million characters are counted.
    """
    counts: Counter[str] = Counter()
    rest = _MAX_CHARACTERS_OF_SCRIPTS
    for text in texts:
        counts.update(filter(None, map(_script, text)))
        rest -= len(text)
        if rest < 0:
            break
    total = max(1, counts.total())
    return {name: 100 * count / total for name, count in counts.most_common()}


@functools.cache
def _script(character: str) -> str:
    if not character.isalpha():
        return ""
    return unicodedata.name(character, "UNNAMED").partition(" ")[0].capitalize()
