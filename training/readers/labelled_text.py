# SPDX-License-Identifier: Apache-2.0
"""Labelled text from TSV, CSV, JSON Lines and JSON files, gzipped or not."""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from ..engine.options import check_one_of
from .text_rows import (
    Header,
    Row,
    excerpt,
    format_of,
    is_number,
    read_columns,
    row_error,
    without_header,
)

# By the value of the flag --header, whether the first row names the columns.
HEADERS: dict[str, Header] = {"auto": "auto", "yes": True, "no": False}
# How programs write that there is no value.
_NO_VALUES = frozenset(("nan", "null", "<na>", "#n/a"))


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


@dataclass(frozen=True)
class TextColumns:
    """How a file of labelled text is read.

    Args:
        text: the column of the text, by name or by number from 0; in JSON also a nested field,
            as in document.text.
        text_pair: the column of the second text; empty for single texts.
        label: the column of the label, likewise.
        header: whether the first row names the columns: auto, yes or no.
        format: tsv, csv or jsonl (JSON Lines, or an array); auto tells by the suffix.
        allow_empty: whether a text may be empty.
        regression: whether labels are scores rather than classes.
    """

    text: str = "text"
    text_pair: str = ""
    label: str = "label"
    header: str = "auto"
    format: str = "auto"
    allow_empty: bool = False
    regression: bool = False

    def __post_init__(self) -> None:
        check_one_of(self, header=tuple(HEADERS))

    def read_text(
        self,
        path: str | os.PathLike[str],
        class_names: Sequence[str] | None = None,
        regression: bool = False,
        labelled: bool = True,
    ) -> LabelledText:
        """Reads a file as `read_labelled_text` does."""
        return read_labelled_text(
            path,
            text=self.text,
            text_pair=self.text_pair or None,
            label=self.label if labelled else None,
            header=HEADERS[self.header],
            format=None if self.format == "auto" else self.format,
            class_names=class_names,
            regression=regression or self.regression,
            allow_empty=self.allow_empty,
        )


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
    Lines holds one object a line; an array of objects is read too. Rows without a character in any
    cell are skipped; a byte order mark is accepted, and so are lines that end in CRLF or CR.

    Args:
        path: The file; a last suffix `.gz` says that it is compressed.
        text: The column of the text: its name, or its number from 0, which may be a string of
            digits. In JSON, `labels.0.name` is a field of nested objects and lists.
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

    Warns:
        UserWarning: If labels differ only in case or in how a number is written, one is what
            programs write for no value, there are almost as many classes as rows, or the first
            row may be a header.

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
    found = read_columns(path, format or format_of(path), columns, header, on_bad_row == "skip")
    if found.bad:
        warnings.warn(
            f"skipped {len(found.bad)} of {len(found.bad) + len(found.rows)} rows: {found.bad[0]}",
            stacklevel=2,
        )
    rows = without_header(path, found)
    if label is not None and not regression and class_names is None and found.header == "auto":
        _warn_of_header(path, rows)
    rows = [row for row in rows if _label(row) not in skip_labels]
    _check_rows(path, rows, allow_empty)
    ids, names = _encode(path, rows, class_names, regression)
    return LabelledText(
        texts=[row.cells["text"] for row in rows],
        text_pairs=None if text_pair is None else [row.cells["text_pair"] for row in rows],
        labels=ids,
        class_names=names,
        path=str(path),
        skipped=len(found.bad),
    )


def _label(row: Row) -> str:
    return row.cells.get("label", "").strip()


def _warn_of_header(path: Path, rows: list[Row]) -> None:
    """Warns if the first row may be a header: its label is the only one of its kind."""
    counts = Counter(map(_label, rows))
    if rows and counts[_label(rows[0])] == 1 < max(counts.values()):
        warnings.warn(
            f"{path}: the label of the first row, {excerpt(_label(rows[0]))}, occurs in no other "
            "row, and the row is read as an example; if it is a header, say --header=yes, "
            "otherwise --header=no",
            stacklevel=3,
        )


def _check_rows(path: Path, rows: list[Row], allow_empty: bool) -> None:
    if not rows:
        raise ValueError(f"{path}: no examples")
    for row in rows:
        if "label" in row.cells and not _label(row):
            text = excerpt(row.cells["text"], 40)
            raise row_error(path, row.line, f"no label; the text is {text}")
        for role in ("text", "text_pair"):
            if not row.cells.get(role, "-").strip() and not allow_empty:
                raise row_error(path, row.line, f"{role} is empty (--allow_empty accepts it)")


def _encode(
    path: Path, rows: list[Row], class_names: Sequence[str] | None, regression: bool
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Turns labels into scores, or into ids and the classes' names."""
    if regression and class_names is not None:
        raise ValueError(f"regression has no classes, but class_names is {list(class_names)}")
    names = None if class_names is None else tuple(str(name) for name in class_names)
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"class_names must differ from one another, received {list(names)}")
    if "label" not in rows[0].cells:
        return None, names
    if regression:
        return np.array([_score(path, row) for row in rows], "float32"), None
    if names is None:
        counts = Counter(map(_label, rows))
        names = _sorted_names(counts)
        if len(names) < 2:
            raise ValueError(
                f"{path}: all {len(rows)} labels are {excerpt(names[0])}, expected two kinds"
            )
        _warn_of_labels(path, counts)
    ids = {name: index for index, name in enumerate(names)}
    _check_known(path, rows, ids)
    return np.array([ids[_label(row)] for row in rows], "int32"), names


def _score(path: Path, row: Row) -> float:
    label = _label(row)
    if not is_number(label):
        raise row_error(
            path, row.line, f"the label is {excerpt(label)}, expected a finite number of float32"
        )
    return float(label)


def _check_known(path: Path, rows: list[Row], ids: dict[str, int]) -> None:
    unknown = Counter(label for label in map(_label, rows) if label not in ids)
    if unknown:
        row = next(row for row in rows if _label(row) in unknown)
        hint = "; or is the first line a header?" if row.line == 1 else ""
        also = f" ({unknown.total()} rows have such labels)" if unknown.total() > 1 else ""
        raise row_error(
            path,
            row.line,
            f"unknown label {excerpt(_label(row))}{also}, expected one of "
            f"{excerpt(list(ids), 300)}{hint}",
        )


def _warn_of_labels(path: Path, counts: Counter[str]) -> None:
    """Warns of classes that are probably none, or one class spelled in two ways."""
    alike: dict[object, list[str]] = {}
    for name in counts:
        alike.setdefault(_spelling(name), []).append(name)
    for names in alike.values():
        if len(names) > 1:
            found = " and ".join(f"{excerpt(name)} ({counts[name]} rows)" for name in names)
            warnings.warn(f"{path}: are {found} one label?", stacklevel=4)
    for name in counts:
        if name.casefold() in _NO_VALUES:
            warnings.warn(
                f"{path}: {counts[name]} rows have the label {name!r}, which is read as a class; "
                "programs write it for no value",
                stacklevel=4,
            )
    if len(counts) > max(10, counts.total() // 2):
        warnings.warn(
            f"{path}: {counts.total()} rows have {len(counts)} classes; is --label the right "
            "column, or are the labels scores (--regression)?",
            stacklevel=4,
        )


def _spelling(name: str) -> object:
    """What spellings of one label share: `1` and `1.0`, `pos` and `Pos`."""
    if is_number(name):
        return float(name)
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def _sorted_names(labels: Iterable[str]) -> tuple[str, ...]:
    names = sorted(set(labels))
    # Sorting is stable: numbers of equal value ("1", "1.0") stay in the order of their spelling.
    return tuple(sorted(names, key=float) if all(map(is_number, names)) else names)
