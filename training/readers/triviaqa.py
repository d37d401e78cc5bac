# SPDX-License-Identifier: Apache-2.0
"""TriviaQA's files: questions, the documents that are evidence, and answers with their aliases.

The download has the questions in `qa/*.json` and the documents in `evidence/wikipedia` and
`evidence/web`, which are looked for beside the folder of the questions. Answers have no offsets: by
distant supervision, the first alias that a document contains is its answer, as in TriviaQA's own
converter to SQuAD's format ([Joshi et al., 2017](https://arxiv.org/abs/1705.03551)).
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_bert.data.squad import QuestionExample, SpanAnswer

from .values import excerpt

# The folder of the documents in each of a question's lists
_LISTS = {"EntityPages": "wikipedia", "SearchResults": "web"}
_DOMAINS = ("Wikipedia", "Web")
_KINDS = {str: "a string", list: "a list", bool: "true or false", dict: "an object"}


@dataclasses.dataclass(frozen=True)
class DocumentQuestion(QuestionExample):
    """A question with one of its documents.

    The `id` is `<question id>--<file name>`; the first of `answers` is what the document contains
    of the aliases, and there is none if it contains no alias.

    Args:
        key: The key of its prediction: the `id` for documents of the Web, of which each is scored,
            and the id of the question for Wikipedia's, of which the best answer is.
        aliases: The normalized aliases of the answer, in the order of the file; empty if it is
            unknown.
        human_answers: Answers that people have given, if there are any.
    """

    key: str = ""
    aliases: tuple[str, ...] = ()
    human_answers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class TriviaFile:
    """The questions of a file, each once for each of its documents.

    Args:
        examples: The questions, in the order of the file.
        skipped: An error message for each question and document that was skipped.
        without_answer: The number of documents that contain no alias of the answer.
    """

    examples: tuple[DocumentQuestion, ...]
    skipped: tuple[str, ...]
    without_answer: int


def is_triviaqa(content: Any) -> bool:
    """Returns whether the content of a JSON file is that of a file of TriviaQA."""
    return isinstance(content, dict) and "Data" in content


def read_documents(
    content: Any,
    path: Path,
    *,
    labeled: bool = True,
    skip_bad: bool = False,
    max_words: int = 0,
) -> TriviaFile:
    """Reads questions with their documents.

    Of files for the verified evaluation, only the questions and documents that are part of it are
    read.

    Args:
        content: The content of the file.
        path: The file, beside whose folder, or in whose folder, the documents are in `evidence`.
        labeled: Whether every question must have an answer. Otherwise malformed answers count as
            unknown.
        skip_bad: Whether to skip malformed questions and missing documents, and list them in the
            result, instead of raising an error.
        max_words: Number of words to read of a document, the first ones; 0 for all.

    Raises:
        ValueError: If the file is malformed, or a document is missing, not UTF-8, or outside of the
            folder of the documents; the message names the file and the question.
    """
    reader = _Reader(content, path, skip_bad)
    evidence = _evidence_folder(path)
    examples = []
    for question in reader.questions(labeled):
        for page in question.pages:
            try:
                text = _document(evidence, page, question.where)
            except ValueError as error:
                reader.skip(error)
                continue
            text = first_words(text, max_words)
            span = answer_in_document(question.aliases, text)
            answers = None if question.aliases == () else () if span is None else (span,)
            document = f"{question.id}--{page.name}"
            examples.append(
                DocumentQuestion(
                    document,
                    question.text,
                    text,
                    answers,
                    page.name,
                    key=question.id if reader.domain == "Wikipedia" else document,
                    aliases=question.aliases,
                    human_answers=question.human_answers,
                )
            )
    without = sum(example.answers == () for example in examples)
    return TriviaFile(tuple(examples), tuple(reader.skipped), without)


def read_answers(content: Any, path: Path) -> dict[str, tuple[str, ...]]:
    """Reads the answers that count as right, by the key of each prediction, without documents.

    Returns:
        The normalized aliases, and the answers of people, by question id for Wikipedia, and by
        `<question id>--<file name>` for the Web.

    Raises:
        ValueError: If the file is malformed; the message names the file and the question.
    """
    reader = _Reader(content, path, skip_bad=False)
    answers = {}
    for question in reader.questions(labeled=True):
        texts = (*question.aliases, *question.human_answers)
        if reader.domain == "Wikipedia":
            answers[question.id] = texts
        else:
            answers |= {f"{question.id}--{page.name}": texts for page in question.pages}
    return answers


def first_words(text: str, count: int) -> str:
    """Returns a text up to the end of its `count`-th word, words being separated by white space.

    Example:

    >>> first_words("a  b c", 2)
    'a  b'
    """
    if not count:
        return text
    words = re.finditer(r"\S+", text)
    last = next(itertools.islice(words, count - 1, None), None)
    return text if last is None else text[: last.end()]


def answer_in_document(aliases: Sequence[str], document: str) -> SpanAnswer | None:
    """Returns the first place of the first alias that occurs in a document; `None` if none does.

    Aliases are compared with the document in lower case, also inside of words, as TriviaQA's own
    code does.
    """
    lower_case = document.lower()
    for alias in filter(None, aliases):
        start = lower_case.find(alias)
        if start >= 0:
            end = start + len(alias)
            if len(lower_case) != len(document):
                start, end = _offsets_before_lowering(document, start, end)
            return SpanAnswer(document[start:end], start)
    return None


def _offsets_before_lowering(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the offsets in a text of a span of its lower case, which has more characters."""
    # "İ" becomes two characters, and no other.
    bounds = list(itertools.accumulate((len(char.lower()) for char in text), initial=0))
    first = next(index for index, bound in enumerate(bounds) if bound > start) - 1
    behind = next(index for index, bound in enumerate(bounds) if bound >= end)
    return first, behind


@dataclasses.dataclass(frozen=True)
class _Page:
    folder: str
    name: str


@dataclasses.dataclass(frozen=True)
class _Question:
    id: str
    text: str
    pages: list[_Page]
    aliases: tuple[str, ...]
    human_answers: tuple[str, ...]
    where: str


class _Reader:
    """Iterates over the questions of a file, and keeps messages about those that were skipped."""

    def __init__(self, content: Any, path: Path, skip_bad: bool) -> None:
        self.path = path
        self.skip_bad = skip_bad
        self.skipped: list[str] = []
        self._data = _field(content, "Data", list, str(path))
        self._is_verified = _field(content, "VerifiedEval", bool, str(path))
        self.domain = _field(content, "Domain", str, str(path))
        if self.domain not in _DOMAINS:
            raise ValueError(
                f"{path}: Domain is {excerpt(self.domain)}, expected {' or '.join(_DOMAINS)}"
            )

    def skip(self, error: ValueError) -> None:
        """Raises an error, or keeps its message."""
        if not self.skip_bad:
            raise error
        self.skipped.append(str(error))

    def questions(self, labeled: bool) -> Iterator[_Question]:
        ids: set[str] = set()
        for number, datum in enumerate(self._data, start=1):
            try:
                where = f"{self.path}: question {number}"
                question_id = _field(datum, "QuestionId", str, where)
                where += f" (id {excerpt(question_id)})"
                if self._is_verified and not _field(
                    datum, "QuestionPartOfVerifiedEval", bool, where
                ):
                    continue
                if question_id in ids:
                    raise ValueError(f"{where}: another question has this id")
                question = self._question(datum, question_id, labeled, where)
            except ValueError as error:
                self.skip(error)
                continue
            ids.add(question_id)
            yield question

    def _question(self, datum: Any, question_id: str, labeled: bool, where: str) -> _Question:
        aliases: tuple[str, ...] = ()
        human_answers: tuple[str, ...] = ()
        try:
            answer = _field(datum, "Answer", dict, where)
            aliases = _texts(answer, "NormalizedAliases", where)
            if not aliases:
                raise ValueError(f"{where}: NormalizedAliases is empty")
            if "HumanAnswers" in answer:
                human_answers = _texts(answer, "HumanAnswers", where)
        except ValueError:
            if labeled:
                raise
        pages = list(dict.fromkeys(self._pages(datum, where)))
        if not pages:
            raise ValueError(f"{where} has no documents")
        text = _field(datum, "Question", str, where)
        return _Question(question_id, text, pages, aliases, human_answers, where)

    def _pages(self, datum: Any, where: str) -> Iterator[_Page]:
        for name, folder in _LISTS.items():
            pages = _field(datum, name, list, where) if name in datum else []
            for number, page in enumerate(pages, start=1):
                place = f"{where}, {name} {number}"
                # Of Wikipedia's questions, the documents of one evaluation are those of the other.
                if (
                    self._is_verified
                    and self.domain == "Web"
                    and not _field(page, "DocPartOfVerifiedEval", bool, place)
                ):
                    continue
                yield _Page(folder, _field(page, "Filename", str, place))


def _evidence_folder(path: Path) -> Path:
    """Returns the folder of the documents.

    Raises:
        ValueError: If there is none; the message has the places that were looked at.
    """
    folder = path.absolute().parent
    places = [folder.parent / "evidence", folder / "evidence"]
    for place in places:
        if place.is_dir():
            return place
    raise ValueError(
        f"{path}: its documents were not found in {' nor in '.join(map(str, places))}, expected "
        "the folders wikipedia and web of TriviaQA's download there"
    )


def _document(evidence: Path, page: _Page, where: str) -> str:
    """Returns the text of a document.

    Raises:
        ValueError: If it is missing, not UTF-8, or not in the folder of the documents.
    """
    folder = (evidence / page.folder).resolve()
    name = f"{where}: its document {excerpt(page.name)}"
    try:
        file = (folder / page.name).resolve()
        is_inside, is_file = file.is_relative_to(folder), file.is_file()
        text = file.read_text(encoding="utf-8") if is_inside and is_file else ""
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8: {error}") from error
    except (OSError, ValueError) as error:  # a ValueError of a name that no file can have
        raise ValueError(f"{name} cannot be read: {error}") from error
    if not is_inside:
        raise ValueError(f"{name} is not in {folder}")
    if not is_file:
        raise ValueError(f"{name} does not exist in {folder}")
    return text


def _texts(value: Any, name: str, where: str) -> tuple[str, ...]:
    texts = _field(value, name, list, where)
    wrong = [text for text in texts if not isinstance(text, str)]
    if wrong:
        raise ValueError(f"{where}: {name} has {excerpt(wrong[0])}, expected strings")
    return tuple(texts)


def _field(value: Any, name: str, kind: type, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {excerpt(value)}, expected an object")
    if name not in value:
        raise ValueError(f"{where}: the field {name!r} is missing")
    if not isinstance(value[name], kind):
        raise ValueError(f"{where}: {name} is {excerpt(value[name])}, expected {_KINDS[kind]}")
    return value[name]
