# SPDX-License-Identifier: Apache-2.0
"""Reads labeled text from data files of any format."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, get_args

import numpy as np
from absl import logging

from ..engine.options import TextFileOptions, UnusedFlags, check_formats, check_one_of
from .column_names import LABEL, TEXT, Labels, find_label, find_texts
from .data_files import (
    FORMATS_OF,
    LABELS,
    Header,
    Row,
    column_names,
    infer_format,
    is_position,
    read_columns,
    without_header,
)
from .label_warnings import (
    DECIMAL_COMMA,
    LABEL_SEPARATORS,
    NO_VALUES,
    is_invisible,
    leaves_out,
    warn_of_labels,
)
from .row_values import BadRows, excerpt, is_number, row_error, row_ids
from .separated_values import Quoting

# The name of the empty label in --skip_labels
_EMPTY = "null"
# Values of cells in columns of 0 and 1
_TRUE, _FALSE = ("1", "1.0", "true", "True"), ("0", "0.0", "false", "False")
_FLAGS = re.compile(r"[01]\.?(\s+[01]\.?)+")


@dataclass(frozen=True, eq=False)
class LabeledText:
    """Texts or text pairs with their labels.

    Args:
        texts: The texts, or the first text of each pair.
        text_pairs: The second text of each pair. `None` for single texts.
        labels: Class IDs, int32 of shape `(examples,)`. For multi-label data, 0 and 1, int32 of
            shape `(examples, classes)`. For regression, scores, float32 of shape `(examples,)`.
            `None` for unlabeled text.
        class_names: The name of each class ID. `None` for regression, and for unlabeled text
            without known classes.
        path: The file, or a description of the source.
        skipped: Number of skipped invalid rows.
        left_out: Rows skipped because of their label. Maps the index in the file to the row's ID,
            or to `None`.
        ids: The ID of each row, a string or `None`. `None` if no row has an ID.
    """

    texts: list[str]
    text_pairs: list[str] | None
    labels: np.ndarray | None
    class_names: tuple[str, ...] | None
    path: str
    skipped: int = 0
    left_out: Mapping[int, str | None] = field(default_factory=dict, compare=False)
    ids: list[str | None] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def inputs(self) -> list[str] | list[tuple[str, str]]:
        """The inputs of a task's `fit` and `predict`: texts, or `(text, text_pair)` tuples."""
        if self.text_pairs is None:
            return self.texts
        return list(zip(self.texts, self.text_pairs, strict=True))

    @property
    def num_classes(self) -> int:
        """The number of outputs of a `TextClassifier` for the labels: 1 for regression."""
        return 1 if self.class_names is None else len(self.class_names)

    @property
    def multi_label(self) -> bool:
        """Whether an example may have any number of labels."""
        return self.labels is not None and self.labels.ndim == 2

    @property
    def strata(self) -> Sequence[Hashable]:
        """The stratum of each row for stratified samples: its class, or 0 for a score.

        For multi-label data, it is the rarest label of the row, or -1 without labels.
        """
        if self.labels is None or self.class_names is None:
            return [0] * len(self)
        ids = self.labels
        if self.multi_label:
            rarest = np.where(ids > 0, ids.sum(axis=0), len(ids) + 1).argmin(axis=1)
            ids = np.where(ids.any(axis=1), rarest, -1)
        return ids.tolist()

    @property
    def shown_labels(self) -> list[str]:
        """The label of each row, formatted for display. Empty for unlabeled text."""
        names, labels = self.class_names, [] if self.labels is None else self.labels
        if names is None:
            return [f"{label:g}" for label in labels]
        if self.multi_label:
            return [", ".join(names[index] for index in np.flatnonzero(row)) for row in labels]
        return [names[label] for label in labels]

    @property
    def class_counts(self) -> dict[str, int]:
        """The number of rows per class. Empty without classes."""
        if self.labels is None or self.class_names is None:
            return {}
        counts = self.labels.sum(axis=0) if self.multi_label else np.bincount(self.labels)
        counts = np.append(counts, [0] * (len(self.class_names) - len(counts)))
        return dict(zip(self.class_names, map(int, counts), strict=True))

    def rows(self, indices: Sequence[int]) -> LabeledText:
        """Returns a subset of the rows."""
        pairs = self.text_pairs
        return replace(
            self,
            texts=[self.texts[index] for index in indices],
            text_pairs=None if pairs is None else [pairs[index] for index in indices],
            labels=None if self.labels is None else self.labels[list(indices)],
            ids=None if self.ids is None else [self.ids[index] for index in indices],
        )

    def counts(self) -> dict[str, int | str]:
        """Returns the number of rows, and the number per class or the mean and range of scores."""
        rows: dict[str, int | str] = {"rows": len(self)}
        if self.labels is None:
            return rows
        if self.class_names is None:
            statistics = {"mean": np.mean, "lowest": np.min, "highest": np.max}
            return rows | {name: f"{of(self.labels):.4g}" for name, of in statistics.items()}
        return rows | self.class_counts


@dataclass(frozen=True)
class TextColumns(TextFileOptions):
    """How to read a file of labeled text.

    Args:
        text: The column of the text, by name or by index from 0. In JSON, it can also be a nested
            field, such as document.text. If the file has no column text, a usual name, such as
            review, premise or document, is looked for.
        text_pair: The column of the second text, by name or by index. Empty for single texts.
        label: The column of the label, by name or by index. With multi_label, it can also be
            multiple columns of 0 and 1, separated by commas. If the file has no column label, a
            usual name, such as gold_label or category, is looked for.
        multi_label: Whether a row may have any number of labels: as a JSON list, as names separated
            by , ; or |, as a list of 0 and 1 (label 0, label 1 …), or as one column per label.
        header: Whether the first row is a header: auto, yes or no.
        format: One of auto, tsv, csv, jsonl (JSON Lines or an array), arrow (Parquet and Arrow
            files or directories of them) and xlsx. auto infers the format from the suffix.
        quoting: How to read quotes in TSV. With csv, they enclose cells and are doubled inside, as
            written by Excel and pandas. With none, they are text. auto infers it from the file.
        allow_empty: Whether to accept empty texts.
        regression: Whether labels are scores rather than classes.
        label_map: Labels to rename. For example, neutral:no,contradiction:no reads both labels as
            no.
        skip_labels: Labels whose rows are skipped, such as - for SNLI's pairs without agreement.
            null also stands for an empty label, NaN, and the -1 of datasets.
    """

    text: str = TEXT
    text_pair: str = ""
    label: str = LABEL
    multi_label: bool = False
    header: str = "auto"
    format: str = "auto"
    quoting: str = "auto"
    allow_empty: bool = False
    regression: bool = False
    label_map: tuple[str, ...] = ()
    skip_labels: tuple[str, ...] = ()

    def unused_flags(self) -> UnusedFlags:
        yield from super().unused_flags()
        if self.multi_label:
            yield ["regression", "skip_labels"], "a row has any number of labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, header=get_args(Header), quoting=get_args(Quoting))
        parse_label_map(self.label_map)

    def for_file(
        self,
        path: str,
        *,
        labeled: bool = True,
        regression: bool = False,
        multi_label: bool = False,
    ) -> Self:
        """Returns a copy with a file's own column names in place of missing default names.

        The replaced columns are logged.

        Args:
            path: The file.
            labeled: Whether labels are read.
            regression, multi_label: Whether the model requires such labels.

        Raises:
            ValueError: If multiple columns are equally common names for the text or the label.
        """
        names = self._names_in(path)
        if names is None:
            return self
        found: dict[str, str] = {}
        try:
            if self.text == TEXT and TEXT not in names:
                found |= find_texts(names, self.text_pair)
            if labeled and self.label == LABEL:
                kinds: dict[Labels, bool] = {
                    "lists": multi_label or self.multi_label,
                    "scores": regression or self.regression,
                    "classes": True,
                }
                found |= find_label(names, next(kind for kind, applies in kinds.items() if applies))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if found:
            columns = ", ".join(f"{role} from {name}" for role, name in found.items())
            flags = " and ".join(f"--{role}" for role in found)
            logging.info("columns of %s: %s (change them with %s)", path, columns, flags)
        return replace(self, **found)

    def for_other_file(self, path: str) -> Self:
        """Returns a copy for a validation or test file, whose columns may have other names.

        For example, XNLI has `sentence1` and `sentence2`, and KLUE-NLI `premise` and `hypothesis`.
        If a column is missing, a file's own columns are found as in `for_file`.
        """
        names = self._names_in(path)
        used = {self.text, self.text_pair or self.text, *self.label.split(",")}
        if names is None or used <= {*names}:
            return self
        found = replace(self, text=TEXT, text_pair="", label=LABEL).for_file(path)
        if bool(found.text_pair) != bool(self.text_pair) or found.text not in names:
            return self
        return found if found.label in names else replace(found, label=self.label)

    def _names_in(self, path: str) -> list[str] | None:
        """Returns the column names in a file, or `None` if columns are not found by name."""
        columns = self.text, self.text_pair, self.label
        if self.header == "no" or any(map(is_position, columns)):
            return None
        format = infer_format(Path(path), self.encoding) if self.format == "auto" else self.format
        return column_names(Path(path), format, self.encoding)

    def check_text_files(self, *paths: str) -> None:
        """Raises an UnusedFlagError if a flag does not apply to any of the files' formats."""
        is_given = self.format != "auto"
        formats = (
            self.format if is_given else infer_format(Path(path), self.encoding) for path in paths
        )
        check_formats(self, FORMATS_OF, list(formats))


def parse_label_map(pairs: Sequence[str]) -> dict[str, str]:
    """Parses a label map into a dict from old to new labels.

    Raises:
        ValueError: If a pair does not have exactly one colon, if a label is empty, or if two pairs
            rename the same label.

    Example:

    >>> parse_label_map(["neutral:no", "contradiction:no"])
    {'neutral': 'no', 'contradiction': 'no'}
    """
    label_map: dict[str, str] = {}
    for pair in pairs:
        label, *others = map(str.strip, pair.split(":"))
        if len(others) != 1 or not label or not others[0] or label in label_map:
            raise ValueError(
                "--label_map must have an old label, a colon and a new label, once for each old "
                f"label. Received: {pair!r}"
            )
        label_map[label] = others[0]
    return label_map


def read_labeled_text(
    path: str | os.PathLike[str],
    columns: TextColumns,
    class_names: Sequence[str] | None = None,
    *,
    labeled: bool = True,
    regression: bool = False,
    multi_label: bool = False,
    bad: BadRows | None = None,
) -> LabeledText:
    """Reads one file of labeled text.

    CSV follows RFC 4180: a quoted field may contain commas, doubled quotes and line breaks. This
    also applies to TSV if the file has such quotes. Otherwise, quotes in TSV are plain characters,
    and each line is a row. CSV files saved by Excel may have semicolons between columns, a first
    line `sep=;` and the encoding Windows-1252. .xlsx files may have multiple sheets, but only the
    first sheet is read. JSON files contain one object per line, or an array of objects. Empty lines
    are skipped, as are the blank rows that spreadsheets write at the end of labeled text. Lines may
    end with CRLF or CR.

    Args:
        path: The file. Text files may be compressed. It can also be a directory of Parquet or
            Arrow files, see `arrow_files.read_rows`.
        columns: How to read the file. With `header="auto"`, the first row is a header if a column
            is given by name. If all columns are given by index, the first row is a header if its
            label occurs in no other row, and is either a common column name (`label`, `score`, …)
            or the only label that is not a number.
        class_names: The classes in the order of their IDs. For a validation file, pass the classes
            of the training file. By default, the labels in the file, sorted as numbers if all of
            them are numbers, and as strings otherwise. For multi-label data, they are sorted as
            strings, or have the order of their columns.
        labeled: Whether to read the labels.
        regression, multi_label: Whether the model requires such labels, even if `columns` does not.
        bad: Collects invalid rows, which `LabeledText.skipped` counts. By default, the first
            invalid row raises an error.

    Returns:
        A `LabeledText`, in the order of the file.

    Warns:
        UserWarning: If labels only differ in case or in the notation of a number, if a label
            usually stands for a missing value, if labels look like scores or like lists of labels,
            if the file has many classes for its number of rows, or if the first row may be a
            header.

    Raises:
        MissingColumnError: If one of the columns is missing.
        ValueError: If the file is invalid. The message contains the file, the line, the rule and
            the received value.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "reviews.tsv")
    >>> _ = path.write_text("text\\tlabel\\na gripping film\\tgood\\nno\\tbad\\n")
    >>> reviews = read_labeled_text(path, TextColumns())
    >>> reviews.texts, reviews.labels.tolist(), reviews.class_names
    (['a gripping film', 'no'], [1, 0], ('bad', 'good'))
    """
    names = None if class_names is None else tuple(class_names)
    path, bad = Path(path), bad or BadRows()
    regression, multi_label = regression or columns.regression, multi_label or columns.multi_label
    label_map = parse_label_map(columns.label_map)
    label_roles = {"label": columns.label}
    if multi_label:
        label_roles = {LABELS: columns.label}
        if "," in columns.label:
            each = [name.strip() for name in columns.label.split(",")]
            names = names or tuple(each)
            label_roles = {f"{LABELS}.{name}": name for name in each}
    roles = {"text": columns.text}
    if columns.text_pair:
        roles["text_pair"] = columns.text_pair
    has_label = labeled and not multi_label
    rows, has_header = read_columns(
        path,
        infer_format(path, columns.encoding) if columns.format == "auto" else columns.format,
        roles | label_roles if labeled else roles,
        columns.header,
        quoting=columns.quoting,
        optional={"id": "id"},
        blank_end=not labeled,
        bad=bad,
        encoding=columns.encoding,
    )
    rows = without_header(path, rows, has_header)
    if has_label and not regression and names is None and has_header == "auto":
        _warn_of_header(path, rows)
    left_out = _left_out(path, rows, columns.skip_labels) if has_label else {}
    rows = [row for index, row in enumerate(rows) if index not in left_out]
    if label_map and has_label:
        _map_labels(path, rows, label_map, is_training=names is None)
    classes = names if has_label else None
    num_flags = _num_flags(path, rows) if labeled and multi_label else 0
    if num_flags and names is None:
        names = tuple(map(str, range(num_flags)))
    elif num_flags and num_flags != len(names or ()):
        raise ValueError(
            f"{path}: each row must have one value of 0 or 1 for each of the labels "
            f"{excerpt(list(names or ()), 300)}. Received: {num_flags} values"
        )

    def find_labels(row: Row) -> list[str]:
        found = _parse_labels(path, row)
        if num_flags:
            flags = zip(names or (), found, strict=True)
            found = [name for name, flag in flags if flag in _TRUE] if found else []
        return [label_map.get(name, name) for name in found]

    def check(row: Row) -> None:
        _check(path, row, classes, regression, columns.allow_empty, has_header)
        for name in find_labels(row) if multi_label else ():
            if names is not None and name not in names:
                rule = f"labels must be among {excerpt(list(names), 300)}"
                raise row_error(path, row.place, f"{rule}. Received: {excerpt(name)}")

    rows = list(bad.filter(rows, check))
    if not rows:
        reason = "".join(f". The first error: {row}" for row in bad.messages[:1])
        raise ValueError(f"{path} must have at least one valid row{reason}")
    labels = None
    if labeled and regression:
        labels = np.array([float(_label(row)) for row in rows], "float32")
    elif labeled and multi_label:
        labels_by_row = list(map(find_labels, rows))
        names = names or tuple(sorted({name for row in labels_by_row for name in row}))
        if not names:
            raise ValueError(f"{path} must have at least one row with a label")
        labels = np.array([[name in row for name in names] for row in labels_by_row], "int32")
    elif labeled:
        names = names or _class_names(path, rows)
        ids = {name: index for index, name in enumerate(names)}
        labels = np.array([ids[_label(row)] for row in rows], "int32")
    return LabeledText(
        texts=[row.cells["text"] for row in rows],
        text_pairs=[row.cells["text_pair"] for row in rows] if columns.text_pair else None,
        labels=labels,
        class_names=names,
        path=str(path),
        skipped=len(bad.messages),
        left_out=left_out,
        ids=row_ids(row.cells.get("id") for row in rows),
    )


def _label(row: Row) -> str:
    return row.cells.get("label", "").strip()


def _parse_labels(path: Path, row: Row) -> list[str]:
    """Returns a row's labels, from one cell of names or from cells of 0 and 1.

    Raises:
        ValueError: If the labels are columns, and a cell is neither 0 nor 1.
    """
    cells = {
        role.partition(".")[2]: cell.strip()
        for role, cell in row.cells.items()
        if role.startswith(LABELS)
    }
    if "" not in cells:
        wrong = [name for name, cell in cells.items() if cell not in _TRUE + _FALSE]
        if wrong:
            value = excerpt(cells[wrong[0]])
            raise row_error(path, row.place, f"{wrong[0]} must be 0 or 1. Received: {value}")
        return [name for name, cell in cells.items() if cell in _TRUE]
    try:
        names = json.loads(cells[""])
    except ValueError:
        names = None
    if not isinstance(names, list):
        text = cells[""].strip("[](){}'\" ")
        # NumPy writes [0 0 1] or [0. 0. 1.].
        are_flags = _FLAGS.fullmatch(text)
        names = text.split() if are_flags else LABEL_SEPARATORS.split(text)
    names = [str(name).strip() for name in names]
    names = [name.rstrip(".") if name in ("0.", "1.") else name for name in names]
    return [name for name in names if not is_invisible(name)]


def _num_flags(path: Path, rows: list[Row]) -> int:
    """Returns the length of lists of 0 and 1, or 0 if the rows have label names.

    To count as such a list, it must have at least two values. The lists must have the same length,
    or one of them must contain a value twice.

    Raises:
        ValueError: If the lists of 0 and 1 have different lengths.
    """
    if any(role.partition(".")[2] for row in rows for role in row.cells if role.startswith(LABELS)):
        return 0  # There is one column per label.
    lists = [(row, found) for row in rows if (found := _parse_labels(path, row))]
    if not lists or not all(flag in _TRUE + _FALSE for _, found in lists for flag in found):
        return 0
    lengths = Counter(len(found) for _, found in lists)
    if len(lengths) > 1 and any(len(set(found)) < len(found) for _, found in lists):
        (usual, _), *_ = lengths.most_common(1)
        row, found = next(one for one in lists if len(one[1]) != usual)
        message = (
            f"each row must have {usual} values of 0 or 1, as most rows do. Received: {len(found)}"
        )
        raise row_error(path, row.place, message)
    return len(lists[0][1]) if len(lengths) == 1 and min(lengths) > 1 else 0


def _left_out(path: Path, rows: list[Row], skip_labels: Collection[str]) -> dict[int, str | None]:
    """Returns the index and the ID of each row whose label is skipped."""
    skipped_rows = {
        index: (row.cells.get("id") or "").strip() or None
        for index, row in enumerate(rows)
        if (_EMPTY if is_invisible(_label(row)) else _label(row)) in skip_labels
    }
    if skipped_rows:
        logging.info(
            "%s: skipped %d of %d rows because of their label", path, len(skipped_rows), len(rows)
        )
    return skipped_rows


def _warn_of_header(path: Path, rows: list[Row]) -> None:
    """Warns if the first row may be a header: its label occurs in no other row."""
    counts = Counter(map(_label, rows))
    if rows and counts[_label(rows[0])] == 1 < max(counts.values()):
        warnings.warn(
            f"{path}: the label of the first row, {excerpt(_label(rows[0]))}, occurs in no other "
            "row. The row is read as an example. If it is a header, pass --header=yes; otherwise, "
            "pass --header=no",
            stacklevel=3,
        )


def _map_labels(
    path: Path, rows: list[Row], label_map: Mapping[str, str], is_training: bool
) -> None:
    labels = Counter(map(_label, rows))
    unknown_pairs = [pair for pair in label_map.items() if not labels.keys() & {*pair}]
    if is_training and unknown_pairs:
        raise ValueError(
            f"each pair in --label_map must have a label in {path}: {excerpt(list(labels), 300)}. "
            f"Received: {excerpt(':'.join(unknown_pairs[0]))}"
        )
    for row in rows:
        row.cells["label"] = label_map.get(_label(row), _label(row))


def _check(
    path: Path,
    row: Row,
    names: Sequence[str] | None,
    regression: bool,
    allow_empty: bool,
    has_header: Header,
) -> None:
    """Raises an error if a text is empty, or the label is empty, unknown, or not a number."""
    label = _label(row)
    problems = []
    if "label" in row.cells and is_invisible(label):
        problems.append(
            "the label must not be empty. Received: an empty label for the text "
            f"{excerpt(row.cells['text'], 40)}. {leaves_out(_EMPTY)}"
        )
    elif regression and "label" in row.cells and not is_number(label):
        hint = " with a decimal point" if DECIMAL_COMMA.fullmatch(label) else ""
        problems.append(
            f"the label must be a finite float32 number{hint}. Received: {excerpt(label)}"
        )
    elif names is not None and label not in names:
        may_be_header = has_header != "yes" and row.place == "line 1"
        hint = ". If the first line is a header, pass --header=yes" if may_be_header else ""
        hint = f". {leaves_out(label)}" if label in NO_VALUES else hint
        names = excerpt(list(names), 300)
        problems.append(f"the label must be one of {names}. Received: {excerpt(label)}{hint}")
    empty = [role for role in ("text", "text_pair") if is_invisible(row.cells.get(role, "-"))]
    if not allow_empty:
        problems += [f"{role} must not be empty. --allow_empty accepts it" for role in empty]
    if problems:
        raise row_error(path, row.place, "; ".join(problems))


def _class_names(path: Path, rows: list[Row]) -> tuple[str, ...]:
    """Returns the labels, sorted as numbers if all are numbers, and as strings otherwise."""
    counts = Counter(map(_label, rows))
    # Sorting is stable, so numbers of equal value ("1", "1.0") stay in alphabetical order.
    names = sorted(sorted(counts), key=float if all(map(is_number, counts)) else str)
    if len(names) < 2:
        raise ValueError(
            f"{path} must have two or more classes. Received: only {excerpt(names[0])}, in "
            f"{len(rows)} rows"
        )
    warn_of_labels(path, counts)
    return tuple(names)
