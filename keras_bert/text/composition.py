# SPDX-License-Identifier: Apache-2.0
"""Canonical composition (NFC) in linear time, and the source of each composed character.

Reference:
    [Unicode Standard Annex 15](https://www.unicode.org/reports/tr15/).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Literal

import numpy as np

from keras_bert.text.characters import (
    character_class_of,
    combining_class,
    combining_marks,
    combining_points,
    decompose,
)

# Hangul vowels and final consonants. An algorithm composes them, not the Unicode data.
_HANGUL_PARTS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))


MAX_MARKS = 30
"""The maximum number of consecutive marks in Unicode's Stream-Safe Text Format."""


def compose_text(text: str) -> str:
    """Composes a text (NFC). For example, `e` and a combining acute accent become `é`."""
    return normalize_form("NFC", text)


def normalize_form(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Normalizes a text to NFC or NFKC in linear time, unlike `unicodedata.normalize`.

    `unicodedata` moves each combining mark past earlier marks one by one, and holds the interpreter
    lock while it does. Therefore, the marks of long runs are sorted first.
    """
    if not text.isascii():
        text = _long_runs().sub(lambda run: _canonical_order(run[0]), text)
    return unicodedata.normalize(form, text)


def _canonical_order(marks: str) -> str:
    return "".join(sorted("".join(map(decompose, marks)), key=combining_class))


@functools.cache
def _long_runs() -> re.Pattern[str]:
    return re.compile(f"[{combining_marks()}]{{{MAX_MARKS + 1},}}")


def is_composed(text: str) -> bool:
    """Returns whether composition (NFC) would not change a text."""
    return unicodedata.is_normalized("NFC", text)


def sources_of_composed(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the span in a text that each character of the composed text comes from.

    A composed character's span contains all characters it was composed from, and the surrounding
    marks that composition reorders or composes. Other characters have a span of one character. The
    start offsets, followed by the length of the text, are int64 `(characters + 1,)`. The end
    offsets are `(characters,)`.
    """
    starts: list[int] = []
    ends: list[int] = []
    for cluster in _clusters().finditer(text):
        begin, end = cluster.span()
        new = compose_text(cluster[0])
        if new == cluster[0]:
            starts += range(begin, end)
            ends += range(begin + 1, end + 1)
        else:
            if new[0] == cluster[0][0]:
                # Only the marks after the first character change.
                starts.append(begin)
                ends.append(begin + 1)
                begin, new = begin + 1, new[1:]
            starts += [begin] * len(new)
            ends += [end] * len(new)
    return np.array([*starts, len(text)], np.int64), np.array(ends, np.int64)


@functools.cache
def combining_characters() -> str:
    """Returns the characters that composition may move or join to earlier characters.

    They are the combining marks and the second characters of compositions, for character classes of
    regular expressions (Python and RE2).
    """
    points = {*_HANGUL_PARTS, *combining_points()}
    for point in range(0x110000):
        mapping = unicodedata.decomposition(chr(point))
        if mapping and not mapping.startswith("<"):
            points.update(int(code, 16) for code in mapping.split()[1:])
    return character_class_of(points)


@functools.cache
def _clusters() -> re.Pattern[str]:
    """Returns a pattern that splits text into spans with independent compositions."""
    combining = combining_characters()
    return re.compile(f"(?s:[^{combining}]?[{combining}]+|[^{combining}])")
