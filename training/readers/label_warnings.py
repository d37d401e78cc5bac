# SPDX-License-Identifier: Apache-2.0
"""Warns about labels that are probably missing values, scores or lists of labels."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from .row_values import excerpt, is_number, normalize_text

# Strings that stand for missing values: the strings that pandas reads as missing, NaN, infinities,
# and SNLI's label for pairs without agreement between the annotators
NO_VALUES = frozenset((
    "-", "NA", "N/A", "n/a", "NULL", "null", "None", "NaN", "nan", "-NaN", "-nan", "<NA>", "#N/A",
    "#NA", "#NULL!", "inf", "-inf", "Infinity", "-Infinity",
))  # fmt: skip
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
# How to switch to these tasks in `finetune` and in `inspect`
_REGRESSION = "--task=regression (in inspect: --regression)"
_SEVERAL = "--task=multi_label (in inspect: --multi_label)"
LABEL_SEPARATORS = re.compile(r"[\s'\"]*[,;|][\s'\"]*")


def leaves_out(label: str) -> str:
    """Returns the advice on how to skip rows with a label."""
    return f"--skip_labels={label} skips such rows"


def warn_of_labels(path: Path, counts: Counter[str]) -> None:
    """Warns about classes that are probably missing values, scores or lists of labels."""
    warn_of_spellings(path, counts, "rows", stacklevel=5)
    for name in counts.keys() & NO_VALUES - ({"-"} if "+" in counts else set()):
        warnings.warn(
            f"{path}: {counts[name]} rows have the label {name!r}. It is read as a class, although "
            f"it usually stands for a missing value. {leaves_out(name)}",
            stacklevel=4,
        )
    several = _several_labels(counts)
    if _are_decimal_commas(counts):
        warnings.warn(
            f"{path}: labels such as {excerpt(max(counts, key=len))} look like numbers with a "
            f"decimal comma, or like lists of labels, but are read as {len(counts)} classes. For "
            f"scores, use a decimal point and pass {_REGRESSION}",
            stacklevel=4,
        )
    elif several:
        rows = sum(counts[name] for name in several)
        warnings.warn(
            f"{path}: {rows} rows have a label that consists of other labels, such as "
            f"{excerpt(several[0])}. It is read as a separate class. To read it as a list of "
            f"labels, pass {_SEVERAL}",
            stacklevel=4,
        )
    elif len(counts) > max(10, counts.total() // 2) or _are_fractions(counts):
        warnings.warn(
            f"{path}: {counts.total()} rows have {len(counts)} classes. Check that --label is the "
            f"right column. If the labels are scores, pass {_REGRESSION}",
            stacklevel=4,
        )


def warn_of_spellings(
    path: Path | str, counts: Mapping[str, int], unit: str = "words", stacklevel: int = 2
) -> None:
    """Warns about labels that are probably spellings of the same class."""
    alike: dict[object, list[str]] = {}
    for name in counts:
        alike.setdefault(_spelling(name), []).append(name)
    for names in alike.values():
        if len(names) > 1:
            spellings = " and ".join(f"{excerpt(name)} ({counts[name]} {unit})" for name in names)
            warnings.warn(
                f"{path}: {spellings} are read as different classes. Use one spelling for each "
                "class",
                stacklevel=stacklevel,
            )


def is_invisible(text: str) -> bool:
    """Returns whether a text has no visible characters."""
    return all(one.isspace() or unicodedata.category(one) == "Cf" for one in text)


def _spelling(name: str) -> object:
    """Normalizes a label, so that `1` and `1.0`, or `pos` and `Pos`, become equal.

    Characters of Unicode's category Cf, such as a zero width space or a soft hyphen, are invisible.
    """
    if is_number(name):
        return float(name)
    visible = "".join(character for character in name if unicodedata.category(character) != "Cf")
    return normalize_text(visible)


def _are_decimal_commas(names: Collection[str]) -> bool:
    """Returns whether all names are numbers, some of them with a decimal comma, as in `4,27`."""
    have_commas = [bool(DECIMAL_COMMA.fullmatch(name)) for name in names]
    return any(have_commas) and all(
        has_comma or is_number(name) for name, has_comma in zip(names, have_commas, strict=True)
    )


def _are_fractions(names: Collection[str]) -> bool:
    """Returns whether there are more than ten names, all numbers and most of them fractions."""
    numbers = [float(name) for name in names if is_number(name)]
    fractions = sum(not number.is_integer() for number in numbers)
    return len(names) == len(numbers) > 10 and 2 * fractions > len(numbers)


def _several_labels(counts: Mapping[str, int]) -> list[str]:
    """Returns labels such as `a,b` if each part also occurs in a different label."""
    parts = {name: set(LABEL_SEPARATORS.split(name.strip("[](){}'\" "))) for name in counts}
    num_labels = Counter(part for name_counts in parts.values() for part in name_counts)
    return [
        name
        for name, own in parts.items()
        if len(own) > 1 and all(part and num_labels[part] > 1 for part in own)
    ]
