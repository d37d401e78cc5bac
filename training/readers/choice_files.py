# SPDX-License-Identifier: Apache-2.0
"""Reads texts with choices from benchmarks and your own files.

The benchmarks are SWAG, CODAH, CommonsenseQA, ARC, OpenBookQA, COPA, RACE, DREAM, Cosmos QA and
QuAIL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.data.text_files import UTF_8

from ..engine.options import check_formats
from .data_files import FORMATS_OF, infer_format, read_cells, read_records
from .row_values import BadRows, as_id, excerpt, row_error, row_ids
from .separated_values import Quoting

# Maps values of --format to the format of the file
FORMATS = {"swag": "csv", "codah": "tsv", "jsonl": "jsonl", "arrow": "arrow", "xlsx": "xlsx"}
# Columns that must not occur twice
_COLUMNS = ("text", "sent1", "sent2", "label", *(f"ending{index}" for index in range(10)))
_TEXTS = ("text", "stem", "question_stem", "premise", "question", "ctx")
# The fields of the passage that `question` is about in RACE, DREAM, Cosmos QA, QuAIL and ReClor
_PASSAGES = ("context", "article", "dialogue", "passage")
# Fields with all choices, and prefixes of numbered fields with one choice each
_LISTS = ("choices", "options", "endings", "choice", "answers")
_NUMBERED = ("choice", "answer")
_LABELS = ("label", "answerKey", "answer", "correct_answer_id")
# Sets of fields that only occur in rows with choices
_TELLING = (
    ("choices",),
    ("choice1", "choice2"),
    ("answer0", "answer1"),
    ("answerKey",),
    ("sent1", "ending0"),
)
# COPA's field `question` asks one of these about the premise (Roemmele et al., 2011).
_COPA = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


@dataclass(frozen=True, eq=False)
class ChoiceRows:
    """Texts with their choices and the correct choices.

    Args:
        texts: The texts.
        choices: The choices of each text. Their number may differ between texts.
        labels: The index of the correct choice from 0, int32 of shape `(rows,)`. `None` for
            unlabeled files.
        path: The file.
        ids: The ID of each row as a string, or `None` if it has no ID. `None` if no row has an ID.
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
        label_counts = [] if self.labels is None else np.bincount(self.labels).tolist()
        return {"rows": len(self)} | {
            f"choice {index} is correct": count for index, count in enumerate(label_counts)
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


def choice_field_names(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the fields that show that a row has choices, or `()` for other rows.

    Args:
        record: A row's fields. For a table, its columns with any values.
    """
    for fields in _TELLING:
        if record.keys() >= set(fields):
            return fields
    # Without a label, a list of answers may contain the correct answers instead of choices.
    label = next((name for name in _LABELS if name in record), None)
    lists = [name for name in _LISTS if _are_strings(record.get(name))]
    return (lists[0], label) if lists and label else ()


def check_choice_files(config: Any, *paths: str) -> None:
    """Raises an UnusedFlagError if a flag does not apply to any of the files' formats."""
    formats = (
        FORMATS.get(config.format) or infer_format(Path(path), config.encoding) for path in paths
    )
    check_formats(config, FORMATS_OF, list(formats))


def read_choices(
    path: Path,
    format: str = "auto",
    quoting: Quoting = "auto",
    bad: BadRows | None = None,
    labeled: bool = True,
    encoding: str = UTF_8,
) -> ChoiceRows:
    """Reads one file.

    Args:
        path: The file. Its rows have the fields (or the columns below a header) that
            `choice_fields` reads, and optionally an `id`. CODAH's TSV has no header. Its columns
            are a category, the text, the choices and the index of the correct choice.
        format: `"swag"` (CSV with a header), `"codah"` (TSV), `"jsonl"` (JSON Lines or an array),
            `"arrow"` (Parquet and Arrow files or directories of them), or `"xlsx"`. `"auto"` infers
            it from the suffix.
        quoting: How to read quotes in TSV, see `read_labeled_text`.
        bad: Collects invalid rows. By default, the first invalid row raises an error.
        labeled: Whether to read the correct choices, if the rows have them.
        encoding: The encoding of text files without a byte order mark.

    Raises:
        ValueError: If the file is invalid. The message contains the file, the line and the field.
    """
    if format not in ("auto", *FORMATS):
        raise ValueError(
            f"--format must be one of auto, {', '.join(FORMATS)}. Received: {format!r}"
        )
    format = infer_format(path, encoding) if format == "auto" else FORMATS[format]
    bad = bad or BadRows()
    if format == "tsv":
        records = _codah_records(path, quoting, bad, encoding)
    else:
        records = read_records(path, format, bad, _COLUMNS, encoding)
    rows = []
    for place, record in records:
        try:
            text, choices, label = choice_fields(record, labeled)
        except ValueError as error:
            bad.add(row_error(path, place, str(error)))
        else:
            own_id = None if record.get("id") is None else as_id(record["id"])
            rows.append((place, text, choices, label, own_id))
    is_labeled = any(label is not None for _, _, _, label, _ in rows)

    def check(row: tuple[str, str, list[str], int | None, str | None]) -> None:
        if is_labeled and row[3] is None:
            raise row_error(path, row[0], "label is missing, but other rows have a label")

    rows = list(bad.filter(rows, check))
    if not rows:
        raise ValueError(f"{path} must have at least one row")
    _, texts, all_choices, labels, ids = map(list, zip(*rows, strict=True))
    return ChoiceRows(
        texts,
        all_choices,
        np.array(labels, "int32") if is_labeled else None,
        str(path),
        row_ids(ids),
    )


def _codah_records(
    path: Path, quoting: Quoting, bad: BadRows, encoding: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    def check(row: tuple[str, list[str]]) -> None:
        place, cells = row
        if len(cells) < 5:
            columns = "a category, a text, two or more choices and a label"
            message = f"the columns must be {columns}. Received: {len(cells)} columns"
            raise row_error(path, place, message)

    cells = read_cells(path, "tsv", quoting, bad=bad, encoding=encoding)
    for place, (_, text, *choices, label) in bad.filter(cells, check):
        yield place, {"text": text, "choices": choices, "label": label.strip()}


def choice_fields(
    record: Mapping[str, Any], labeled: bool = True
) -> tuple[str, list[str], int | None]:
    """Returns a row's text, its choices, and the index of the correct choice if it is known.

    The text is in `text`, `question`, `question.stem`, `question_stem`, `ctx`, or `premise` with
    COPA's `question`. If a row has `question` and a passage in `context`, `article`, `dialogue` or
    `passage`, the text is the passage, and the question is put before each choice, so that overlong
    rows lose the end of the passage.

    The choices are in `choices`, `question.choices`, `options`, `endings`, `choice` or `answers`.
    They are a list of strings, a list of objects with `label` and `text`, or an object with the
    lists `label` and `text`. They can also be in `choice1`, `choice2` … or `answer0`, `answer1` ….
    In SWAG's columns `sent1`, `sent2`, `ending0`, `ending1` …, a choice is `sent2` followed by an
    ending.

    The correct choice is given by its index from 0 in `label` or `correct_answer_id`, by its own
    label in `label` or `answerKey`, or in `answer` by an index, a letter from A or a copy of the
    choice.

    Raises:
        ValueError: If a field is missing or invalid. The message contains the field.
    """
    question = record.get("question")
    fields = {**record, **question} if isinstance(question, dict) else record
    start = ""
    if "sent1" in fields:
        text, start = _string(fields, "sent1"), _string(fields, "sent2")
        choices, names = _swag_endings(fields), []
    else:
        name = next((name for name in _TEXTS if name in fields), "text")
        text = _string(fields, name)
        passage = next((name for name in _PASSAGES if name in fields), None)
        if name == "premise" and "question" in fields:
            text = f"{text} {_COPA.get(question, question)}"
        elif name == "question" and passage is not None:
            text, start = _string(fields, passage), text
        choices, names = _choices(fields)
    if not text:
        raise ValueError("the text must not be empty")
    if len(choices) < 2:
        raise ValueError(f"there must be two or more choices. Received: {len(choices)}")
    if not all(choices):
        raise ValueError(f"choice {choices.index('')} must not be empty")
    label = _label(fields, choices, names) if labeled else None
    return text, [f"{start} {choice}".strip() for choice in choices], label


def _label(fields: Mapping[str, Any], choices: list[str], names: list[str]) -> int | None:
    key = next((name for name in _LABELS if fields.get(name) is not None), "label")
    label = fields.get(key)
    if label in (None, "", -1):  # `datasets` writes -1 in test sets.
        return None
    indices = [str(index) for index in range(len(choices))]
    if key == "answer" and isinstance(label, str):
        letters = [chr(ord("A") + index) for index in range(len(choices))]
        vocabularies = [names, choices, indices, letters]
    else:
        vocabularies = [names] if names and key == "answerKey" else [names, indices]
    for words in vocabularies:
        if str(label).strip() in words:
            return words.index(str(label).strip())
    raise ValueError(
        f"{key} must be one of {', '.join(vocabularies[-1])}. Received: {excerpt(label)}"
    )


def _string(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if name in _PASSAGES and _are_strings(value):  # A dialogue is a list of turns.
        value = "\n".join(value)
    if not isinstance(value, str):
        if name not in fields:
            raise ValueError(
                f"the fields must include {name}. Received: {excerpt(sorted(fields), 300)}"
            )
        raise ValueError(f"{name} must be a string. Received: {excerpt(value)}")
    return value.strip()


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _choices(fields: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Returns a row's choices, and their labels, or `[]` if the choices have no labels."""
    numbered = next(filter(None, (_numbered(start, fields) for start in _NUMBERED)), [])
    field = next((name for name in _LISTS if name in fields), "choices")
    if not numbered and field not in fields:
        raise ValueError(
            f"the fields must include choices. Received: {excerpt(sorted(fields), 300)}"
        )
    choices = fields.get(field, [fields[name] for name in numbered])
    if isinstance(choices, dict):  # It contains lists, as in Parquet.
        columns = [choices.get("label"), choices.get("text")]
        if not all(isinstance(column, list) for column in columns):
            raise ValueError(
                f"{field} must have the lists label and text. Received: {excerpt(choices)}"
            )
        pairs = zip(*columns, strict=True)
        choices = [{"label": label, "text": text} for label, text in pairs]
    if not isinstance(choices, list):
        raise ValueError(f"{field} must be a list. Received: {excerpt(choices)}")
    texts, labels = [], []
    for choice in choices:
        text = choice.get("text") if isinstance(choice, dict) else choice
        if not isinstance(text, str):
            types = "strings, or objects with label and text"
            raise ValueError(f"{field} must be {types}. Received: {excerpt(choice)}")
        texts.append(text.strip())
        if isinstance(choice, dict) and "label" in choice:
            labels.append(str(choice["label"]))
    return texts, labels if len(labels) == len(texts) else []


def _swag_endings(fields: Mapping[str, Any]) -> list[str]:
    names = _numbered("ending", fields)
    if not names:
        raise ValueError(
            f"the fields must include ending0. Received: {excerpt(sorted(fields), 300)}"
        )
    endings = [_string(fields, name) for name in names]
    # The last columns are empty in rows with fewer endings than other rows.
    endings = endings[: max((n for n, ending in enumerate(endings, 1) if ending), default=0)]
    if "" in endings:
        raise ValueError(
            f"{names[endings.index('')]} must not be empty, because another ending follows it"
        )
    return endings


def _numbered(start: str, fields: Iterable[str]) -> list[str]:
    """Returns the names that consist of `start` and a number, sorted by the number."""
    names = (name for name in fields if re.fullmatch(rf"{start}\d+", name))
    return sorted(names, key=lambda name: int(name.removeprefix(start)))
