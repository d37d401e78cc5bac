# SPDX-License-Identifier: Apache-2.0
"""Files of texts with choices: SWAG, CODAH, CommonsenseQA, ARC, OpenBookQA, COPA, and your own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .data_files import infer_format, read_cells, read_records
from .separated_values import Quoting
from .values import BadRows, as_id, excerpt, row_error, row_ids

# Value of the flag --format -> the format of the file
FORMATS = {"swag": "csv", "codah": "tsv", "jsonl": "jsonl", "arrow": "arrow", "xlsx": "xlsx"}
# Columns that must not occur twice
_COLUMNS = ("text", "sent1", "sent2", "label", *(f"ending{index}" for index in range(10)))
_TEXTS = ("text", "stem", "question_stem", "premise", "question")
# What COPA's field `question` asks about the premise (Roemmele et al., 2011)
_COPA = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


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


def read_choices(
    path: Path, format: str = "auto", quoting: Quoting = "auto", bad: BadRows | None = None
) -> ChoiceRows:
    """Reads one file.

    Args:
        path: The file. Its rows have the fields, or below a header the columns, that
            `choice_fields` reads, and optionally an `id`. CODAH's TSV has no header: a row is a
            category, the text, the choices and the index of the correct one.
        format: `"swag"` (CSV with a header), `"codah"` (TSV), `"jsonl"` (JSON Lines or an array),
            `"arrow"` (Parquet and Arrow files, and folders of them), or `"xlsx"`; `"auto"` infers
            it from the suffix.
        quoting: How quotes in TSV are read, as by `read_labeled_text`.
        bad: Collects malformed rows; by default, the first one raises an error.

    Raises:
        ValueError: If the file is malformed; the message names the file, the line and the field.
    """
    if format not in ("auto", *FORMATS):
        raise ValueError(f"--format is {format!r}, expected one of auto, {', '.join(FORMATS)}")
    format = infer_format(path) if format == "auto" else FORMATS[format]
    bad = bad or BadRows()
    if format == "tsv":
        records = _codah_records(path, quoting, bad)
    else:
        records = read_records(path, format, bad, _COLUMNS)
    rows = []
    for place, record in records:
        try:
            text, choices, label = choice_fields(record)
        except ValueError as error:
            bad.add(row_error(path, place, str(error)))
        else:
            own_id = None if record.get("id") is None else as_id(record["id"])
            rows.append((place, text, choices, label, own_id))
    is_labeled = any(label is not None for _, _, _, label, _ in rows)

    def check(row: tuple[str, str, list[str], int | None, str | None]) -> None:
        if is_labeled and row[3] is None:
            raise row_error(path, row[0], "the label is missing, but other rows have one")

    rows = list(bad.without(rows, check))
    if not rows:
        raise ValueError(f"{path}: no rows")
    _, texts, all_choices, labels, ids = map(list, zip(*rows, strict=True))
    return ChoiceRows(
        texts,
        all_choices,
        np.array(labels, "int32") if is_labeled else None,
        str(path),
        row_ids(ids),
    )


def _codah_records(
    path: Path, quoting: Quoting, bad: BadRows
) -> Iterator[tuple[str, dict[str, Any]]]:
    def check(row: tuple[str, list[str]]) -> None:
        place, cells = row
        if len(cells) < 5:
            expected = "a category, a text, two or more choices and a label"
            raise row_error(path, place, f"{len(cells)} columns, expected {expected}")

    cells = read_cells(path, "tsv", quoting, bad=bad)
    for place, (_, text, *choices, label) in bad.without(cells, check):
        yield place, {"text": text, "choices": choices, "label": label.strip()}


def choice_fields(record: Mapping[str, Any]) -> tuple[str, list[str], int | None]:
    """Returns the text of a row, its choices, and the index of the correct one, if it is known.

    The text is in `text`, `question`, `question.stem`, `question_stem`, or `premise` with COPA's
    `question`. The choices are in `choices`, also of `question`, as a list of strings, as a list of
    objects with `label` and `text`, or as an object with the lists `label` and `text`; or in
    `choice1`, `choice2` …. The correct one is in `label`, as its index from 0, or in `label` or
    `answerKey`, as its own label. In SWAG's columns `sent1`, `sent2`, `ending0`, `ending1` …, a
    choice is `sent2` followed by an ending.

    Raises:
        ValueError: If a field is missing or malformed; the message names it.
    """
    question = record.get("question")
    fields = {**record, **question} if isinstance(question, dict) else record
    if "sent1" in fields:
        text, choices, names = _string(fields, "sent1"), _swag_choices(fields), []
    else:
        name = next((name for name in _TEXTS if name in fields), "text")
        text = _string(fields, name)
        if name == "premise" and "question" in fields:
            text = f"{text} {_COPA.get(question, question)}"
        choices, names = _choices(fields)
    if not text:
        raise ValueError("the text is empty")
    if len(choices) < 2:
        raise ValueError(f"{len(choices)} choices, expected two or more")
    if not all(choices):
        raise ValueError(f"choice {choices.index('')} is empty")
    key = "label" if fields.get("label") is not None else "answerKey"
    label = fields.get(key)
    if label in (None, "", -1):  # -1 in the test sets of `datasets`
        return text, choices, None
    names = names or [str(index) for index in range(len(choices))]
    if str(label) not in names and key == "label":
        names = [str(index) for index in range(len(choices))]
    if str(label) not in names:
        raise ValueError(f"{key} is {excerpt(label)}, expected one of {', '.join(names)}")
    return text, choices, names.index(str(label))


def _string(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        if name not in fields:
            raise ValueError(f"no field {name}; the row has {excerpt(sorted(fields), 300)}")
        raise ValueError(f"{name} is {excerpt(value)}, expected a string")
    return value.strip()


def _choices(fields: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Returns the choices of a row, and their own labels, if they have any."""
    numbered = [fields[name] for name in _numbered("choice", fields)]
    if not numbered and "choices" not in fields:
        raise ValueError(f"no field choices; the row has {excerpt(sorted(fields), 300)}")
    choices = fields.get("choices", numbered)
    if isinstance(choices, dict):  # of lists, as in Parquet
        columns = [choices.get("label"), choices.get("text")]
        if not all(isinstance(column, list) for column in columns):
            raise ValueError(f"choices is {excerpt(choices)}, expected lists of label and text")
        pairs = zip(*columns, strict=True)
        choices = [{"label": label, "text": text} for label, text in pairs]
    if not isinstance(choices, list):
        raise ValueError(f"choices is {excerpt(choices)}, expected a list")
    texts, labels = [], []
    for choice in choices:
        text = choice.get("text") if isinstance(choice, dict) else choice
        if not isinstance(text, str):
            expected = "strings, or objects of label and text"
            raise ValueError(f"choices holds {excerpt(choice)}, expected {expected}")
        texts.append(text.strip())
        if isinstance(choice, dict) and "label" in choice:
            labels.append(str(choice["label"]))
    return texts, labels if len(labels) == len(texts) else []


def _swag_choices(fields: Mapping[str, Any]) -> list[str]:
    start = _string(fields, "sent2")
    names = _numbered("ending", fields)
    if not names:
        raise ValueError(f"no field ending0; the row has {excerpt(sorted(fields), 300)}")
    endings = [_string(fields, name) for name in names]
    # The last columns are empty in rows with fewer endings than others.
    endings = endings[: max((n for n, ending in enumerate(endings, 1) if ending), default=0)]
    if "" in endings:
        raise ValueError(f"{names[endings.index('')]} is empty, but another ending follows it")
    return [f"{start} {ending}".strip() for ending in endings]


def _numbered(start: str, fields: Iterable[str]) -> list[str]:
    """Returns the names that consist of a word and a number, in the order of the numbers."""
    names = (name for name in fields if re.fullmatch(rf"{start}\d+", name))
    return sorted(names, key=lambda name: int(name.removeprefix(start)))
