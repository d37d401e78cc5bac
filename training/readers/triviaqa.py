# SPDX-License-Identifier: Apache-2.0
"""Reads TriviaQA: questions, their evidence documents, and answers with aliases.

The download contains the questions in `qa/*.json` and the documents in `evidence/wikipedia` and
`evidence/web`. The directory `evidence` must be next to the directory of the questions. Answers
have no offsets. With distant supervision, the first alias that a document contains is its answer,
as in TriviaQA's converter to SQuAD's format
([Joshi et al., 2017](https://arxiv.org/abs/1705.03551)).
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert.data.squad import QuestionExample, SpanAnswer, json_field
from keras_bert.data.text_files import UTF_8

from .row_values import BadRows, excerpt

# Maps each list of documents in a question to the directory of these documents
_LISTS = {"EntityPages": "wikipedia", "SearchResults": "web"}


@dataclasses.dataclass(frozen=True)
class DocumentQuestion(QuestionExample):
    """A question with one of its documents.

    The `id` is `<question id>--<file name>`. `answers` contains the first alias that occurs in the
    document. It is empty if no alias occurs, and `None` if the aliases are unknown.

    Args:
        key: The key of its prediction. In the Web domain, each document is scored separately, so it
            is the `id`. In the Wikipedia domain, only the best answer is scored, so it is the
            question's ID.
        aliases: The normalized aliases of the answer, in the order of the file. Empty if unknown.
        human_answers: Answers given by people. Empty if unknown.
    """

    key: str = ""
    aliases: tuple[str, ...] = ()
    human_answers: tuple[str, ...] = ()


def is_triviaqa(content: Any) -> bool:
    """Returns whether the content is from a TriviaQA file."""
    return isinstance(content, dict) and "Data" in content


def read_documents(
    content: Any,
    path: Path,
    *,
    labeled: bool = True,
    bad: BadRows,
    max_words: int = 0,
    encoding: str = UTF_8,
) -> tuple[DocumentQuestion, ...]:
    """Reads questions in the order of the file, once for each of their documents.

    In files for the verified evaluation, only verified questions and documents are read.

    Args:
        content: The content of the file.
        path: The file. The documents are in `evidence`, in the file's directory or next to it.
        labeled: Whether every question must have an answer. Otherwise, invalid answers count as
            unknown.
        bad: Collects invalid questions and missing documents.
        max_words: Number of words to read from the start of documents. 0 reads all.
        encoding: The encoding of the documents.

    Raises:
        ValueError: If the file is invalid, or if a document is missing, in a different encoding, or
            outside the directory of documents. The message contains the file and the question.
    """
    evidence = _evidence_directory(path)
    examples = []
    for question in _questions(content, path, labeled, bad):
        for page in question.pages:
            try:
                text = _document(evidence, page, question.where, encoding)
            except ValueError as error:
                bad.add(error)
                continue
            text = first_words(text, max_words)
            span = answer_in_document(question.aliases, text)
            answers = None if question.aliases == () else () if span is None else (span,)
            example = DocumentQuestion(
                f"{question.id}--{page.name}",
                question.text,
                text,
                answers,
                page.name,
                key=page.key,
                aliases=question.aliases,
                human_answers=question.human_answers,
            )
            examples.append(example)
    return tuple(examples)


def read_answers(content: Any, path: Path) -> dict[str, tuple[str, ...]]:
    """Reads the accepted answers by the key of each prediction, without the documents.

    Returns:
        The normalized aliases and the answers given by people, by question ID for Wikipedia, and by
        `<question id>--<file name>` for the Web.

    Raises:
        ValueError: If the file is invalid. The message contains the file and the question.
    """
    return {
        page.key: (*question.aliases, *question.human_answers)
        for question in _questions(content, path, True, BadRows())
        for page in question.pages
    }


def first_words(text: str, count: int) -> str:
    """Returns the first `count` words of a text, or the whole text for 0.

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
    """Returns the first occurrence of the first alias in a document, or `None`.

    Aliases are compared with the document in lower case, even inside words, as in TriviaQA's code.
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
    """Converts a span's offsets in the lower-case text to offsets in the original text."""
    # "İ" is the only character that becomes two characters in lower case.
    bounds = list(itertools.accumulate((len(char.lower()) for char in text), initial=0))
    first = next(index for index, bound in enumerate(bounds) if bound > start) - 1
    behind = next(index for index, bound in enumerate(bounds) if bound >= end)
    return first, behind


class _Page(NamedTuple):
    directory: str
    name: str
    key: str


class _Question(NamedTuple):
    id: str
    text: str
    pages: list[_Page]
    aliases: tuple[str, ...]
    human_answers: tuple[str, ...]
    where: str


def _questions(content: Any, path: Path, labeled: bool, bad: BadRows) -> Iterator[_Question]:
    data = json_field(content, "Data", list, str(path))
    is_verified = json_field(content, "VerifiedEval", bool, str(path))
    domain = json_field(content, "Domain", str, str(path))
    if domain not in ("Wikipedia", "Web"):
        raise ValueError(f"{path}: Domain must be Wikipedia or Web. Received: {excerpt(domain)}")
    ids: set[str] = set()
    for number, datum in enumerate(data, start=1):
        try:
            where = f"{path}: question {number}"
            id = json_field(datum, "QuestionId", str, where)
            where += f" (id {excerpt(id)})"
            if is_verified and not json_field(datum, "QuestionPartOfVerifiedEval", bool, where):
                continue
            if id in ids:
                raise ValueError(
                    f"{where}: the id must be unique. Another question has the same id"
                )
            aliases, human_answers = _answers(datum, labeled, where)
            pages = list(dict.fromkeys(_pages(datum, id, domain, is_verified, where)))
            if not pages:
                raise ValueError(f"{where} must have at least one document")
            text = json_field(datum, "Question", str, where)
        except ValueError as error:
            bad.add(error)
        else:
            ids.add(id)
            yield _Question(id, text, pages, aliases, human_answers, where)


def _answers(datum: Any, labeled: bool, where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the aliases of the answer, and the answers given by people."""
    try:
        answer = json_field(datum, "Answer", dict, where)
        aliases = _texts(answer, "NormalizedAliases", where)
        if not aliases:
            raise ValueError(f"{where}: NormalizedAliases must not be empty")
        return aliases, _texts(answer, "HumanAnswers", where) if "HumanAnswers" in answer else ()
    except ValueError:
        if labeled:
            raise
        return (), ()


def _pages(datum: Any, id: str, domain: str, is_verified: bool, where: str) -> Iterator[_Page]:
    for list_name, directory in _LISTS.items():
        pages = json_field(datum, list_name, list, where) if list_name in datum else []
        for number, page in enumerate(pages, start=1):
            place = f"{where}, {list_name} {number}"
            # Both evaluations use the same documents for Wikipedia questions.
            is_part = (
                not is_verified
                or domain == "Wikipedia"
                or json_field(page, "DocPartOfVerifiedEval", bool, place)
            )
            if is_part:
                name = json_field(page, "Filename", str, place)
                yield _Page(directory, name, id if domain == "Wikipedia" else f"{id}--{name}")


def _evidence_directory(path: Path) -> Path:
    """Returns the directory of the documents.

    Raises:
        ValueError: If it is not found. The message lists the searched paths.
    """
    directory = path.absolute().parent
    places = [directory.parent / "evidence", directory / "evidence"]
    for place in places:
        if place.is_dir():
            return place
    raise ValueError(
        f"the documents of {path} must be in {' or '.join(map(str, places))}, with the directories "
        "wikipedia and web of TriviaQA's download. Received: no such directory"
    )


def _document(evidence: Path, page: _Page, where: str, encoding: str) -> str:
    """Reads a document.

    Raises:
        ValueError: If it is missing, not in the encoding, or outside the directory of documents.
    """
    directory = (evidence / page.directory).resolve()
    name = f"{where}: its document {excerpt(page.name)}"
    try:
        file = (directory / page.name).resolve()
        is_inside, is_file = file.is_relative_to(directory), file.is_file()
        text = file.read_text(encoding=encoding) if is_inside and is_file else ""
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not {encoding.upper()}: {error}") from error
    except (OSError, ValueError) as error:  # ValueError if no file can have this name
        raise ValueError(f"{name} cannot be read: {error}") from error
    if not is_inside:
        raise ValueError(f"{name} must be in {directory}")
    if not is_file:
        raise ValueError(f"{name} does not exist in {directory}")
    return text


def _texts(value: Any, name: str, where: str) -> tuple[str, ...]:
    texts = json_field(value, name, list, where)
    wrong = [text for text in texts if not isinstance(text, str)]
    if wrong:
        raise ValueError(f"{where}: {name} must be strings. Received: {excerpt(wrong[0])}")
    return tuple(texts)
