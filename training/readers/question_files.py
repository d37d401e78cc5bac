# SPDX-License-Identifier: Apache-2.0
"""Reads questions on passages: SQuAD's JSON, rows with its columns, and TriviaQA."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from keras_bert.data.squad import QuestionExample, load_json, parse_squad, read_squad_rows
from keras_bert.data.text_files import UTF_8, read_lines

from ..engine.options import check_unset
from . import triviaqa
from .data_files import data_suffix, exists, has_records, is_array, read_records
from .row_values import BadRows

# The columns of labeled questions, as in the data sets on the Hugging Face Hub
COLUMNS = ("question", "context", "answers")
# Number of words to read from a TriviaQA document, as in TriviaQA's converter to SQuAD's format
DOCUMENT_WORDS = 800


@dataclasses.dataclass(frozen=True)
class QuestionFile:
    """The questions in a file.

    Args:
        examples: The questions, in the order of the file. `DocumentQuestion` for TriviaQA.
        has_unanswerable: Whether a question is marked as unanswerable, as in SQuAD 2.0.
        skipped: An error message for each skipped part of the file.
    """

    examples: tuple[QuestionExample, ...]
    has_unanswerable: bool
    skipped: tuple[str, ...]


def has_rows(path: Path, encoding: str = UTF_8) -> bool:
    """Returns whether a file of questions has rows with fields, unlike JSON from SQuAD or TriviaQA.

    A JSON file has rows if it is an array, or JSON Lines.
    """
    return has_records(path) and not (data_suffix(path) == ".json" and is_nested(path, encoding))


def is_nested(path: Path, encoding: str = UTF_8) -> bool:
    """Returns whether a JSON file is a single object of articles or questions, as in SQuAD."""
    first = next((line for line in read_lines(path, encoding) if line.strip()), "")
    if is_array(path, encoding) or not first:
        return False
    try:
        return '"paragraphs"' in first or not {"data", "Data"}.isdisjoint(json.loads(first))
    except (RecursionError, TypeError, ValueError):  # One of multiple lines, or nested too deeply.
        return True


def check_document_words(config: Any, parts: Iterable[Sequence[QuestionExample]]) -> None:
    """Raises an UnusedFlagError if `max_document_words` is set, but no file is from TriviaQA."""
    if not any(isinstance(one, triviaqa.DocumentQuestion) for part in parts for one in part[:1]):
        check_unset(config, ["max_document_words"], "no file is TriviaQA's")


def read_questions(
    path: str | Path,
    *,
    labeled: bool = True,
    skip_invalid: bool = False,
    max_document_words: int | None = None,
    encoding: str = UTF_8,
) -> QuestionFile:
    """Reads questions on passages. The format is inferred from the file.

    Args:
        path: SQuAD's JSON, or TriviaQA's JSON with its documents. Also JSON Lines, a JSON array,
            Parquet, Arrow, or a directory written by `datasets`, with the columns of SQuAD's data
            sets on the Hub.
        labeled: Whether every question must have answers, or be marked as unanswerable. Otherwise,
            invalid answers count as unknown.
        skip_invalid: Whether to skip invalid parts and list them in the result, instead of raising
            an error. A question is skipped if all its answers are invalid.
        max_document_words: For TriviaQA, the number of words to read from the start of documents.
            0 reads all. Defaults to `DOCUMENT_WORDS`.
        encoding: The encoding of text files without a byte order mark.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is invalid. The message contains the question or the row, and the
            field.
    """
    path = Path(path)
    if not exists(path):
        raise FileNotFoundError(f"{path} does not exist. It must be a file of questions")
    bad = BadRows(collect=skip_invalid)
    if has_rows(path, encoding):
        rows = read_records(path, bad=bad, encoding=encoding)
        file = read_squad_rows(rows, path, labeled=labeled, skip_invalid=skip_invalid)
        return QuestionFile(file.examples, file.has_unanswerable, (*bad.messages, *file.skipped))
    content = load_json(path, encoding)
    if triviaqa.is_triviaqa(content):
        words = DOCUMENT_WORDS if max_document_words is None else max_document_words
        examples = triviaqa.read_documents(
            content, path, labeled=labeled, bad=bad, max_words=words, encoding=encoding
        )
        return QuestionFile(examples, False, tuple(bad.messages))
    file = parse_squad(content, path, labeled=labeled, skip_invalid=skip_invalid)
    return QuestionFile(file.examples, file.has_unanswerable, file.skipped)
