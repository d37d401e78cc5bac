# SPDX-License-Identifier: Apache-2.0
"""Labelled text from TSV, CSV and JSON Lines files, gzipped or not."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from training.text_rows import Header, Row, Rows, format_of, read_rows, row_error

_USUAL_LABEL_COLUMNS = frozenset(
    ("label", "labels", "class", "category", "target", "score", "rating", "sentiment")
)


@dataclass(frozen=True, eq=False)
class LabelledText:
    """Texts, or pairs of texts, with what is known about them.

    Args:
        texts: The texts, or the first text of each pair.
        text_pairs: The second text of each pair; `None` where there are no pairs.
        labels: Class ids, int32 `(examples,)`; for regression scores, float32 `(examples,)`;
            `None` for unlabelled text.
        class_names: The name of each class id; `None` for regression.
        path: The file, or in words where the texts come from.
        skipped: How many malformed rows were left out.
    """

    texts: list[str]
    text_pairs: list[str] | None
    labels: np.ndarray | None
    class_names: tuple[str, ...] | None
    path: str
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def inputs(self) -> list[str] | list[tuple[str, str]]:
        """The texts, or `(text, text_pair)` tuples: what a task's `fit` and `predict` take."""
        if self.text_pairs is None:
            return self.texts
        return list(zip(self.texts, self.text_pairs, strict=True))

    @property
    def num_classes(self) -> int:
        """How many outputs a `TextClassifier` needs for it: 1 for regression."""
        return 1 if self.class_names is None else len(self.class_names)

    @property
    def strata(self) -> Sequence[Hashable]:
        """What a sample should hold in the same shares: the classes; scores are all of one."""
        if self.labels is None or self.class_names is None:
            return [0] * len(self)
        ids: list[int] = self.labels.tolist()
        return ids

    def rows(self, indices: Sequence[int]) -> LabelledText:
        """Some of the rows."""
        pairs = self.text_pairs
        return replace(
            self,
            texts=[self.texts[index] for index in indices],
            text_pairs=None if pairs is None else [pairs[index] for index in indices],
            labels=None if self.labels is None else self.labels[list(indices)],
        )

    def counts(self) -> dict[str, int | str]:
        """The number of rows, and of each class; or the mean and the range of the scores."""
        rows: dict[str, int | str] = {"rows": len(self)}
        if self.labels is None:
            return rows
        if self.class_names is None:
            statistics = {"mean": np.mean, "lowest": np.min, "highest": np.max}
            return rows | {name: f"{of(self.labels):.4g}" for name, of in statistics.items()}
        by_class = np.bincount(self.labels, minlength=len(self.class_names)).tolist()
        return rows | dict(zip(self.class_names, by_class, strict=True))


def read_labelled_text(
    path: str | os.PathLike[str],
    *,
    text: str | int = "text",
    text_pair: str | int | None = None,
    label: str | int | None = "label",
    header: Header = "auto",
    format: Literal["tsv", "csv", "jsonl"] | None = None,
    class_names: Sequence[str] | None = None,
    regression: bool = False,
    allow_empty: bool = False,
    skip_labels: Sequence[str] = (),
    on_bad_row: Literal["raise", "skip"] = "raise",
) -> LabelledText:
    """Reads one file of labelled text, in UTF-8.

    In TSV a quote is a character like any other, and a row is a line. CSV follows RFC 4180: a
    quoted field may hold commas, doubled quotes and line ends, 131,072 characters at most. JSON
    Lines holds one object a line. Rows without a character in any cell are skipped; a byte order
    mark and CRLF are accepted.

    Args:
        path: The file; a last suffix `.gz` says that it is compressed.
        text: The column of the text: its name, or its number from 0, which may be a string of
            digits.
        text_pair: The column of the second text, for pairs.
        label: The column of the label; `None` reads unlabelled text.
        header: Whether the first row names the columns. `"auto"`: it does if a column is asked
            for by name; where all are numbers, it does if its label occurs in no other row, and
            is a usual column name (`label`, `score`, …) or the one label that is no number.
        format: By default told by the suffix.
        class_names: The classes in the order of their ids; give a development file those of
            its training file. By default the file's own, sorted: as numbers if all of them
            are numbers, else as strings.
        regression: Whether labels are scores.
        allow_empty: Whether a text may be empty.
        skip_labels: Labels whose rows are left out, such as SNLI's `-` for "no agreement".
        on_bad_row: What becomes of a row with too few or too many columns. Those that are
            skipped are counted in a warning and in `LabelledText.skipped`.

    Returns:
        A `LabelledText`, in the order of the file.

    Raises:
        MissingColumnError: If the file lacks one of the columns.
        ValueError: If the file is not as described. Messages name the file and the line, what
            was found and what was expected.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "reviews.tsv")
    >>> _ = path.write_text("text\\tlabel\\na gripping film\\tgood\\nno\\tbad\\n")
    >>> reviews = read_labelled_text(path)
    >>> reviews.texts, reviews.labels.tolist(), reviews.class_names
    (['a gripping film', 'no'], [1, 0], ('bad', 'good'))
    """
    path = Path(path)
    chosen = {"text": text, "text_pair": text_pair, "label": label}
    columns = {role: column for role, column in chosen.items() if column is not None}
    found = read_rows(path, format or format_of(path), columns, header, on_bad_row == "skip")
    if found.bad:
        warnings.warn(
            f"skipped {len(found.bad)} of {len(found.bad) + len(found.rows)} rows: {found.bad[0]}",
            stacklevel=2,
        )
    rows = [row for row in _without_header(path, found) if row.label not in skip_labels]
    _check_rows(path, rows, allow_empty)
    ids, names = _encode(path, rows, class_names, regression)
    return LabelledText(
        texts=[row.text for row in rows],
        text_pairs=None if text_pair is None else [row.text_pair or "" for row in rows],
        labels=ids,
        class_names=names,
        path=str(path),
        skipped=len(found.bad),
    )


def _without_header(path: Path, found: Rows) -> list[Row]:
    if found.header is True or not _starts_with_header(found.rows):
        return found.rows
    if found.header == "auto":
        return found.rows[1:]
    first = found.rows[0]
    raise row_error(
        path, first.line, f"the label {first.label!r} looks like a column name: is it header=True?"
    )


def _starts_with_header(rows: list[Row]) -> bool:
    """Whether the first label is the name of its column rather than a label."""
    if not rows or rows[0].label is None:
        return False
    first, others = rows[0].label, {row.label or "" for row in rows[1:]}
    if first in others:
        return False
    only_word = bool(others) and _all_numbers(others) and not _all_numbers([first])
    return bool(first) and (only_word or first.casefold() in _USUAL_LABEL_COLUMNS)


def _check_rows(path: Path, rows: list[Row], allow_empty: bool) -> None:
    if not rows:
        raise ValueError(f"{path}: no examples")
    for row in rows:
        if row.label == "":
            raise row_error(path, row.line, f"no label; the text is {row.text[:40]!r}")
        for role, value in (("text", row.text), ("text_pair", row.text_pair)):
            if value is not None and not value.strip() and not allow_empty:
                raise row_error(path, row.line, f"{role} is empty (allow_empty=True accepts it)")


def _encode(
    path: Path, rows: list[Row], class_names: Sequence[str] | None, regression: bool
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Turns labels into scores, or into ids and the classes' names."""
    if regression and class_names is not None:
        raise ValueError(f"regression has no classes, but class_names is {list(class_names)}")
    names = None if class_names is None else tuple(str(name) for name in class_names)
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"class_names must differ from one another, received {list(names)}")
    if rows[0].label is None:
        return None, names
    if regression:
        return np.array([_score(path, row) for row in rows], "float32"), None
    if names is None:
        names = _sorted_names(row.label or "" for row in rows)
        if len(names) < 2:
            raise ValueError(f"{path}: all {len(rows)} labels are {names[0]!r}, expected two kinds")
    ids = {name: index for index, name in enumerate(names)}
    return np.array([_class_id(path, row, ids) for row in rows], "int32"), names


def _score(path: Path, row: Row) -> float:
    if not _all_numbers([row.label or ""]):
        raise row_error(path, row.line, f"the label is {row.label!r}, expected a finite number")
    return float(row.label or "")


def _class_id(path: Path, row: Row, ids: dict[str, int]) -> int:
    if row.label not in ids:
        hint = "; or is the first line a header?" if row.line == 1 else ""
        raise row_error(
            path, row.line, f"unknown label {row.label!r}, expected one of {list(ids)}{hint}"
        )
    return ids[row.label]


def _sorted_names(labels: Iterable[str]) -> tuple[str, ...]:
    names = sorted(set(labels))
    # Sorting is stable: numbers of equal value ("1", "1.0") stay in the order of their spelling.
    return tuple(sorted(names, key=float) if _all_numbers(names) else names)


def _all_numbers(labels: Iterable[str]) -> bool:
    try:
        return all(math.isfinite(float(label)) for label in labels)
    except ValueError:
        return False
