# SPDX-License-Identifier: Apache-2.0
"""Reads questions, passages and answer offsets from SQuAD 1.1 and 2.0 files."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from keras_bert.checks import shorten_repr
from keras_bert.data.text_files import UTF_8, read_lines

# The fields with a question's ID. KLUE-MRC has `guid`.
_IDS = ("id", "guid")


class SquadError(ValueError):
    """Raised for an invalid file. The message contains the article, paragraph and question."""


@dataclasses.dataclass(frozen=True)
class SpanAnswer:
    """An answer and its offset in the passage.

    Args:
        text: The answer, exactly as in the passage.
        start: The offset of the first character in the passage, in code points.
    """

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class QuestionExample:
    """A question on a passage.

    Args:
        id: The question id. Predictions are stored under this id.
        question: The question.
        context: The passage.
        answers: The reference answers. Empty if the question is unanswerable, `None` if the answers
            are unknown.
        title: The title of the passage's article, or an empty string.
    """

    id: str
    question: str
    context: str
    answers: tuple[SpanAnswer, ...] | None = None
    title: str = ""


@dataclasses.dataclass(frozen=True)
class SquadFile:
    """The questions in a SQuAD file.

    Args:
        path: Path to the file.
        has_unanswerable: Whether any question is marked as unanswerable, as in version 2.0.
        examples: The questions in file order.
        skipped: An error message for each skipped article, paragraph, question or answer.
    """

    path: str
    has_unanswerable: bool
    examples: tuple[QuestionExample, ...]
    skipped: tuple[str, ...]


def read_squad(
    path: str | os.PathLike[str],
    *,
    labeled: bool = True,
    skip_invalid: bool = False,
    encoding: str = UTF_8,
) -> SquadFile:
    """Reads a JSON file in the format of SQuAD 1.1 or 2.0.

    Every answer must equal the passage text at its offset, counted in code points. A question
    without an `id` or, as in KLUE, a `guid`, gets its index in the file. The answers to a question
    with `is_impossible` are only plausible, and are ignored with a warning.

    Args:
        path: Path to the file. Gzip files are decompressed.
        labeled: Whether every question must have answers or be marked as unanswerable. Otherwise,
            invalid answers count as unknown. Defaults to `True`.
        skip_invalid: Whether to skip invalid entries and list them in the result, instead of
            raising an error. A question without a valid answer is skipped. Defaults to `False`.
        encoding: The encoding of a file without a byte order mark, such as `"cp949"`. Defaults to
            `"utf-8"`.

    Returns:
        A `SquadFile`.

    Raises:
        SquadError: If the file is invalid. The message contains the article, paragraph and
            question. Invalid JSON or a missing list of articles always raises an error, even with
            `skip_invalid`.
        FileNotFoundError: If the file does not exist.
    """
    content = load_json(path, encoding)
    return parse_squad(content, path, labeled=labeled, skip_invalid=skip_invalid)


def parse_squad(
    content: Any, path: str | os.PathLike[str], *, labeled: bool = True, skip_invalid: bool = False
) -> SquadFile:
    """Parses the value that `load_json` returns for a SQuAD file. See `read_squad`."""
    reader = _Reader(os.fspath(path), labeled, skip_invalid)
    return reader.file(reader.examples(content))


def read_squad_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    path: str | os.PathLike[str],
    *,
    labeled: bool = True,
    skip_invalid: bool = False,
) -> SquadFile:
    """Reads questions from table rows, as in the Hugging Face data sets `squad` and `squad_v2`.

    Args:
        rows: The place of each row in its file, such as `row 3`, and its fields: `question`,
            `context`, and `answers` (a dict of two lists, `text` and `answer_start`, or a list of
            dicts with both). Optional fields are `id` or `guid` (defaults to the row index),
            `title` and `is_impossible`. Questions with empty answers are unanswerable.
        path: Path to the file, for error messages.
        labeled: Whether every row must have answers (possibly empty). Otherwise, invalid answers
            count as unknown. Defaults to `True`.
        skip_invalid: See `read_squad`.

    Raises:
        SquadError: If a row is invalid. The message contains its place and the field.
    """
    reader = _Reader(os.fspath(path), labeled, skip_invalid)
    return reader.file(reader.row_examples(rows))


def load_json(path: str | os.PathLike[str], encoding: str = UTF_8) -> Any:
    """Reads a JSON file, compressed or not. Raises a `SquadError` for invalid JSON."""
    path = os.fspath(path)
    try:
        text = "".join(read_lines(path, encoding))
    except ValueError as error:
        raise SquadError(str(error)) from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise SquadError(f"{path} is not valid JSON: {error}") from error


def question_id(question: Mapping[str, Any]) -> Any:
    """Returns a question's `id` or, as in KLUE, its `guid`. Returns `None` without both."""
    return next((question[name] for name in _IDS if question.get(name) is not None), None)


class _Reader:
    """Iterates over questions, and stores the skipped entries and all ids."""

    def __init__(self, path: str, labeled: bool, skip_invalid: bool) -> None:
        self.path = path
        self.labeled = labeled
        self.skip_invalid = skip_invalid
        self.has_unanswerable = False
        self.skipped: list[str] = []
        self._num_plausible = 0
        self._ids: set[str] = set()
        self._indices = itertools.count()

    def file(self, examples: Iterable[QuestionExample]) -> SquadFile:
        questions = tuple(examples)
        if self._num_plausible:
            warnings.warn(
                f"{self.path}: {self._num_plausible} questions have answers, but is_impossible is "
                "true. They are read as unanswerable, and their answers as plausible answers",
                stacklevel=3,
            )
        return SquadFile(self.path, self.has_unanswerable, questions, tuple(self.skipped))

    def row_examples(
        self, rows: Iterable[tuple[str, Mapping[str, Any]]]
    ) -> Iterator[QuestionExample]:
        contexts: dict[str, str] = {}
        for place, row in rows:
            where, index = f"{self.path}, {place}", next(self._indices)
            try:
                context = _text(row, "context", where)
                # All questions on a passage share one string.
                context = contexts.setdefault(context, context)
                question = {name: value for name, value in row.items() if value is not None}
                example = self._example(question, index, context, where, is_row=True)
                title = "" if row.get("title") is None else _text(row, "title", where)
                yield dataclasses.replace(example, title=title)
            except SquadError as error:
                self._skip(error)

    def examples(self, content: Any) -> Iterator[QuestionExample]:
        if not isinstance(content, dict):
            raise SquadError(
                f'{self.path} must be an object with the field "data", a list of articles. Each '
                "article has paragraphs, with a context and its qas. Received: "
                f"{shorten_repr(content)}"
            )
        articles = json_field(content, "data", list, self.path)
        for number, article in enumerate(articles, start=1):
            where = f"{self.path}: article {number}"
            title = article.get("title") if isinstance(article, dict) else None
            if isinstance(title, str):
                where += f" ({shorten_repr(title)})"
            for index, paragraph in enumerate(self._list(article, "paragraphs", where), start=1):
                yield from self._questions(paragraph, title or "", f"{where}, paragraph {index}")

    def _questions(self, paragraph: Any, title: str, where: str) -> Iterator[QuestionExample]:
        questions = self._list(paragraph, "qas", where)
        try:
            context = _text(paragraph, "context", where) if questions else ""
        except SquadError as error:
            self._skip(error)
            return
        for number, question in enumerate(questions, start=1):
            index, place = next(self._indices), f"{where}, question {number}"
            try:
                example = self._example(question, index, context, place)
                yield dataclasses.replace(example, title=title)
            except SquadError as error:
                self._skip(error)

    def _example(
        self, question: Any, index: int, context: str, where: str, is_row: bool = False
    ) -> QuestionExample:
        value = index if isinstance(question, dict) else None
        if isinstance(question, dict) and question_id(question) is not None:
            value = question_id(question)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        own_id = str(value) if is_number else _text({"id": value}, "id", where)
        where += f" (id {shorten_repr(own_id)})"
        if own_id in self._ids:
            raise SquadError(f"{where}: the id must be unique. Another question has the same id.")
        text = _text(question, "question", where)
        try:
            answers = self._answers(question, context, where, is_row)
        except SquadError:
            if self.labeled:
                raise
            answers = None
        self._ids.add(own_id)
        return QuestionExample(own_id, text, context, answers)

    def _answers(
        self, question: dict[str, Any], context: str, where: str, is_row: bool
    ) -> tuple[SpanAnswer, ...] | None:
        is_impossible = False
        if question.get("is_impossible") is not None:
            is_impossible = json_field(question, "is_impossible", bool, where)
        if question.get("answers") is None and (is_impossible or not self.labeled):
            answers = []
        else:
            answers = _answer_objects(question, where)
            # In rows, a question without answers is unanswerable.
            is_impossible |= is_row and not answers and "is_impossible" not in question
        if is_impossible:
            self._num_plausible += bool(answers)
            self.has_unanswerable = True
            return ()
        if not answers and self.labeled:
            raise SquadError(f"{where}: answers must not be empty, unless is_impossible is true.")
        valid_answers, errors = [], []
        for index, answer in enumerate(answers, start=1):
            try:
                valid_answers.append(_answer(answer, context, f"{where}, answer {index}"))
            except SquadError as error:
                errors.append(error)
        if errors and not (valid_answers and self.skip_invalid):
            raise errors[0]
        self.skipped += map(str, errors)
        return tuple(valid_answers) or None

    def _list(self, value: Any, name: str, where: str) -> list[Any]:
        try:
            items: list[Any] = json_field(value, name, list, where)
        except SquadError as error:
            self._skip(error)
            return []
        return items

    def _skip(self, error: SquadError) -> None:
        if not self.skip_invalid:
            raise error
        self.skipped.append(str(error))


def _answer_objects(question: dict[str, Any], where: str) -> list[Any]:
    """Returns a question's answers as a list of objects. They may be an object with two lists."""
    answers = question.get("answers")
    if not isinstance(answers, Mapping):
        objects: list[Any] = json_field(question, "answers", list, where)
        return objects
    texts, starts = (json_field(answers, name, list, where) for name in ("text", "answer_start"))
    if len(texts) != len(starts):
        raise SquadError(
            f"{where}: answers must have one answer_start for each text. Received: {len(texts)} "
            f"texts and {len(starts)} values of answer_start"
        )
    return [
        {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
    ]


def _answer(answer: Any, context: str, where: str) -> SpanAnswer:
    text, start = _text(answer, "text", where), json_field(answer, "answer_start", int, where)
    check_span(text, start, context, where)
    return SpanAnswer(text, start)


def check_span(text: str, start: int, context: str, where: str) -> None:
    """Checks that an answer is nonempty and equals the passage text at its offset."""
    if not text:
        raise SquadError(f"{where}: the answer text must not be empty.")
    passage_text = context[start : start + len(text)] if start >= 0 else ""
    if passage_text != text:
        raise SquadError(
            f"{where}: the context must contain {shorten_repr(text)} at answer_start {start}. "
            f"Received: {shorten_repr(passage_text)}"
        )


_TYPE_NAMES = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def json_field(value: Any, name: str, kind: type, where: str) -> Any:
    """Returns a field in a JSON object after checking its type."""
    if not isinstance(value, dict):
        raise SquadError(f"{where} must be an object. Received: {shorten_repr(value)}")
    if name not in value:
        raise SquadError(f"{where}: the field {name!r} is missing.")
    field = value[name]
    # In Python, bool is a subclass of int.
    if not isinstance(field, kind) or (kind is int and isinstance(field, bool)):
        raise SquadError(
            f"{where}: {name} must be {_TYPE_NAMES[kind]}. Received: {shorten_repr(field)}"
        )
    return field


def _text(value: Any, name: str, where: str) -> str:
    text: str = json_field(value, name, str, where)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SquadError(
            f"{where}: {name} must not contain a lone surrogate. Received: one at position "
            f"{error.start}"
        ) from error
    return text
