# SPDX-License-Identifier: Apache-2.0
"""Readers of multiple choice files: SWAG's CSV, CODAH's TSV, and JSON Lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .text_rows import (
    Quoting,
    as_id,
    check_single,
    excerpt,
    format_of,
    read_cells,
    read_header,
    read_objects,
    row_error,
    row_ids,
)

FORMATS = ("auto", "swag", "codah", "jsonl")


@dataclass(frozen=True, eq=False)
class ChoiceRows:
    """Texts, the choices of each, and the correct choices.

    Args:
        texts: The texts.
        choices: The choices of each text; their number may differ between texts.
        labels: The index of the correct choice, from 0, int32 `(rows,)`; `None` for unlabeled
            files.
        path: The file.
        ids: The id of each row, as a string, or `None` if it has none; `None` if no row has one.
    """

    texts: list[str]
    choices: list[list[str]]
    labels: np.ndarray | None
    path: str
    ids: list[str | None] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def inputs(self) -> tuple[list[str], list[list[str]]]:
        """The inputs of `MultipleChoice`."""
        return self.texts, self.choices

    @property
    def strata(self) -> list[int]:
        """The stratum of each row for stratified samples: the index of the correct choice."""
        return [0] * len(self) if self.labels is None else self.labels.tolist()

    def counts(self) -> dict[str, int | str]:
        """Returns the number of rows, and how often each choice is correct."""
        by_label = [] if self.labels is None else np.bincount(self.labels).tolist()
        return {"rows": len(self)} | {
            f"choice {index} is correct": count for index, count in enumerate(by_label)
        }

    def rows(self, indices: Sequence[int]) -> ChoiceRows:
        """Returns a subset of the rows."""
        return ChoiceRows(
            [self.texts[index] for index in indices],
            [self.choices[index] for index in indices],
            None if self.labels is None else self.labels[list(indices)],
            self.path,
            None if self.ids is None else [self.ids[index] for index in indices],
        )


class _Row(NamedTuple):
    line: int
    text: str
    choices: list[str]
    label: str | None
    id: str | None = None


def read_choices(path: Path, format: str = "auto", quoting: Quoting = "auto") -> ChoiceRows:
    """Reads one file.

    Args:
        path: The file, in UTF-8, or in UTF-16 with a byte order mark; gzip is decompressed.
        format: `swag`: CSV whose header names `sent1`, `sent2`, `ending0`, `ending1` … and, unless
            it is a test file, `label`; a choice is `sent2` followed by an ending. `codah`: TSV
            without a header; a row is a category, the text, the choices and the label. `jsonl`:
            objects with `text`, `choices` and `label`, one per line or in an array. `auto` infers
            the format from the suffix. The id of a row is in the column or field `id`, if there
            is one.
        quoting: How quotes in TSV are read, as by `read_labeled_text`.

    Raises:
        ValueError: If the file is malformed; the message names the file, the line and the field.
    """
    kinds = {"csv": "swag", "tsv": "codah", "jsonl": "jsonl"}
    kind = kinds[format_of(path)] if format == "auto" else format
    if kind not in _READERS:
        raise ValueError(f"--format is {kind!r}, expected one of {', '.join(FORMATS)}")
    rows = list(_READERS[kind](path, quoting))
    if not rows:
        raise ValueError(f"{path}: no rows")
    for row in rows:
        _check(path, row)
    labeled = [row for row in rows if row.label is not None]
    if labeled and len(labeled) < len(rows):
        missing = next(row for row in rows if row.label is None)
        raise row_error(path, missing.line, "the label is missing, but other rows have one")
    labels = [_label(path, row) for row in labeled]
    return ChoiceRows(
        texts=[row.text for row in rows],
        choices=[row.choices for row in rows],
        labels=np.array(labels, "int32") if labels else None,
        path=str(path),
        ids=row_ids(row.id for row in rows),
    )


def _swag(path: Path, _: Quoting) -> Iterator[_Row]:
    table = read_cells(path, "csv")
    line, names = read_header(table)
    columns = {name: index for index, name in enumerate(names)}
    endings = sorted(
        (name for name in columns if re.fullmatch(r"ending\d+", name)), key=lambda n: int(n[6:])
    )
    missing = [name for name in ("sent1", "sent2") if name not in columns]
    missing += [] if endings else ["ending0"]
    if missing:
        raise row_error(
            path, line, f"no column {', '.join(missing)}; the first row is {excerpt(names, 300)}"
        )
    for name in ("sent1", "sent2", *endings, "label"):
        check_single(path, line, name, names)
    for line, cells in table:
        if len(cells) != len(names):
            raise row_error(path, line, f"{len(cells)} columns, expected {len(names)}")
        start = cells[columns["sent2"]].strip()
        # The last columns are empty in rows with fewer endings than others.
        own = [cells[columns[name]].strip() for name in endings]
        own = own[: max((n for n, ending in enumerate(own, 1) if ending), default=0)]
        empty = [name for name, ending in zip(endings, own, strict=False) if not ending]
        if empty:
            raise row_error(path, line, f"{empty[0]} is empty, but another ending follows it")
        label = cells[columns["label"]].strip() if "label" in columns else None
        yield _Row(
            line,
            cells[columns["sent1"]].strip(),
            [f"{start} {ending}".strip() for ending in own],
            label,
            cells[columns["id"]] if names.count("id") == 1 else None,
        )


def _codah(path: Path, quoting: Quoting) -> Iterator[_Row]:
    for line, cells in read_cells(path, "tsv", quoting):
        if len(cells) < 5:
            raise row_error(
                path,
                line,
                f"{len(cells)} columns, expected a category, a text, two or more choices and a "
                "label",
            )
        _, text, *choices, label = (cell.strip() for cell in cells)
        yield _Row(line, text, choices, label)


def _json_lines(path: Path, _: Quoting) -> Iterator[_Row]:
    for line, record in read_objects(path):
        for name, kind in {"text": str, "choices": list}.items():
            if not isinstance(record.get(name), kind):
                raise row_error(
                    path, line, f"{name} is {excerpt(record.get(name))}, expected a {kind.__name__}"
                )
        wrong = [choice for choice in record["choices"] if not isinstance(choice, str)]
        if wrong:
            raise row_error(path, line, f"choices holds {excerpt(wrong[0])}, expected strings")
        label = record.get("label")
        yield _Row(
            line,
            record["text"].strip(),
            [choice.strip() for choice in record["choices"]],
            None if label is None else str(label),
            None if record.get("id") is None else as_id(record["id"]),
        )


_READERS: dict[str, Callable[[Path, Quoting], Iterator[_Row]]] = {
    "swag": _swag,
    "codah": _codah,
    "jsonl": _json_lines,
}


def _check(path: Path, row: _Row) -> None:
    if not row.text:
        raise row_error(path, row.line, "the text is empty")
    if len(row.choices) < 2:
        raise row_error(path, row.line, f"{len(row.choices)} choices, expected two or more")
    if not all(row.choices):
        index = row.choices.index("")
        raise row_error(path, row.line, f"choice {index} is empty")


def _label(path: Path, row: _Row) -> int:
    indices = [str(index) for index in range(len(row.choices))]
    if row.label not in indices:
        raise row_error(
            path, row.line, f"label is {excerpt(row.label)}, expected one of {', '.join(indices)}"
        )
    return int(row.label)
