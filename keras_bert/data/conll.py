# SPDX-License-Identifier: Apache-2.0
"""Reading and writing of the CoNLL format: one word per line, with its labels in columns."""

from __future__ import annotations

import dataclasses
import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from keras_bert.atomic import atomic_path

DOCUMENT_START = "-DOCSTART-"
_BLANK = " \t\r"
_NO_VALUE = "_"
# CoNLL-U's ids of multiword tokens ("1-2") and of empty nodes ("8.1").
_NOT_A_WORD = re.compile(r"\d+[-.]\d+")
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")

Separator = Literal["auto", "tab", "space"]


class MissingLabelsError(ValueError):
    """Raised if the first word of a file has no label, so that the file has no labels at all."""


@dataclasses.dataclass(frozen=True, eq=False)
class TaggedText:
    """Sentences of words, with their labels and document boundaries.

    Args:
        words: The words of each sentence.
        labels: The label of each word; `None` for text without labels.
        document_starts: The indices of the sentences that begin a document; `None` if the file
            has no document boundaries, and each sentence is a document.
        path: Path of the file, or a description of the source of the text.
    """

    words: list[list[str]]
    labels: list[list[str]] | None
    document_starts: list[int] | None = None
    path: str = ""

    def __len__(self) -> int:
        return len(self.words)

    def by_document(self, values: Sequence[Any]) -> list[list[Any]]:
        """Groups the values of sentences by document.

        Args:
            values: One value for each sentence, such as `words`, `labels` or predictions.

        Returns:
            A list of the values for each document.
        """
        starts = range(len(self)) if self.document_starts is None else self.document_starts
        ends = [*starts[1:], len(self)]
        return [list(values[start:end]) for start, end in zip(starts, ends, strict=True)]


def read_conll(
    path: str | os.PathLike[str],
    *,
    word_column: int = 0,
    label_column: int | None = -1,
    separator: Separator = "auto",
    comments: bool = False,
) -> TaggedText:
    """Reads a CoNLL file of words in columns, in UTF-8.

    Each line is a word, a blank line ends a sentence, and a line `-DOCSTART-` begins a document.
    A byte order mark, lines that end in CRLF or CR, and whitespace in blank lines are accepted.
    With tabs between columns, a word may be a space.

    Args:
        path: Path of the file; with the suffix `.gz`, it is decompressed.
        word_column: Index of the column of words; negative indices count from the end.
        label_column: Index of the column of labels; `None` reads words alone.
        separator: The separator of columns: `"tab"`, exactly one tab; `"space"`, any number of
            spaces and tabs; `"auto"`, tabs in a line that has one, otherwise spaces. With tabs,
            words may contain spaces.
        comments: Whether lines that begin with `#` before a sentence's first word are comments,
            as in CoNLL-U. Then `# newdoc` begins a document, and CoNLL-U's multiword tokens (with
            ids such as `1-2`) and empty nodes (`8.1`) are skipped.

    Returns:
        A `TaggedText` with the sentences in the order of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        MissingLabelsError: If labels are read and the first word has none.
        ValueError: If the file is malformed or has no words, or every sentence begins with a line
            that looks like a comment and `comments` is false. The message names the file and line,
            what was received and what was expected.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "train.conll")
    >>> _ = path.write_text("Ann NNP B-PER\\nsmiles VBZ O\\n\\nParis NNP B-LOC\\n")
    >>> text = read_conll(path)
    >>> text.words, text.labels
    ([['Ann', 'smiles'], ['Paris']], [['B-PER', 'O'], ['B-LOC']])

    Reference:
        [CoNLL-2003](https://aclanthology.org/W03-0419/), section 2.2;
        [CoNLL-U](https://universaldependencies.org/format.html).
    """
    path = Path(path)
    reader = _Reader(path, word_column, label_column, separator, comments)
    for number, line in enumerate(_lines(path), start=1):
        reader.read_line(number, line)
    reader.end_sentence()
    if not reader.words:
        raise ValueError(f"{path}: no words")
    reader.check_comments()
    return TaggedText(
        words=reader.words,
        labels=None if label_column is None else reader.labels,
        document_starts=_whole(reader.document_starts, len(reader.words)),
        path=str(path),
    )


def write_conll(
    path: str | os.PathLike[str], text: TaggedText, *columns: Sequence[Sequence[str]]
) -> None:
    """Writes words, their labels if there are any, and further columns, separated by tabs.

    With predicted labels as the only further column, the file can be read by `conlleval`
    (with `-d '\\t'`).

    Args:
        path: Path of the file, which is written atomically.
        text: The words and labels.
        *columns: Further columns, with one value for each word.

    Raises:
        ValueError: If a column has a different number of sentences or words, or a value contains
            a tab or a line break.
    """
    path = Path(path)
    given = [text.words, *([] if text.labels is None else [text.labels]), *columns]
    for column in given:
        if len(column) != len(text):
            raise ValueError(f"There are {len(text)} sentences; a column has {len(column)}.")
    starts = set(text.document_starts or ())
    with (
        atomic_path(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        for index, sentence in enumerate(zip(*given, strict=True)):
            if index in starts:
                outside = "\tO" * (len(given) - 1)
                file.write(f"{DOCUMENT_START}{outside}\n\n")
            file.writelines(_line(row, index) for row in _rows(sentence, index))
            file.write("\n")


class _Reader:
    """Collects sentences, line by line."""

    def __init__(
        self,
        path: Path,
        word_column: int,
        label_column: int | None,
        separator: Separator,
        comments: bool,
    ) -> None:
        if separator not in ("auto", "tab", "space"):
            raise ValueError(f"separator is {separator!r}; expected auto, tab or space.")
        self.path = path
        self.word_column = word_column
        self.label_column = label_column
        self.separator = separator
        self.comments = comments
        self.words: list[list[str]] = []
        self.labels: list[list[str]] = []
        self.document_starts: list[int] = []
        self._words: list[str] = []
        self._labels: list[str] = []
        self._first_row: tuple[int, int] | None = None
        self._hash_openings = 0

    def read_line(self, number: int, line: str) -> None:
        if not line.strip(_BLANK):
            self.end_sentence()
            return
        if self.comments and not self._words and line.startswith("#"):
            if _NEW_DOCUMENT.match(line):
                self._start_document()
            return
        columns = _columns(line, self.separator)
        if DOCUMENT_START in columns[:2]:  # The second column, if the first is the word's number
            self.end_sentence()
            self._start_document()
        elif not (self.comments and _NOT_A_WORD.fullmatch(columns[0])):
            self._hash_openings += not self._words and columns[0].startswith("#")
            self._words.append(self._value(number, columns, self.word_column, "word"))
            if self.label_column is not None:
                self._labels.append(self._value(number, columns, self.label_column, "label"))

    def end_sentence(self) -> None:
        if self._words:
            self.words.append(self._words)
            self.labels.append(self._labels)
        self._words, self._labels = [], []

    def check_comments(self) -> None:
        """Raises if every sentence begins with a line that looks like a comment."""
        if self._hash_openings == len(self.words) > 1:
            raise ValueError(
                f"{self.path}: every sentence begins with a line that begins with #; if these are "
                "comments, pass comments=True (in programs --comments)"
            )

    def _start_document(self) -> None:
        # Consecutive document starts have no sentence between them and count once.
        if self.document_starts[-1:] != [len(self.words)]:
            self.document_starts.append(len(self.words))

    def _value(self, number: int, columns: list[str], column: int, role: str) -> str:
        self._check_number(number, columns)
        index = column + len(columns) if column < 0 else column
        if not 0 <= index < len(columns) or (role == "label" and len(columns) == 1):
            error = self._error(
                number,
                f"no {role}: expected it in column {column}, received {_shown(columns)}",
            )
            is_first = not self.words and len(self._words) == 1
            raise MissingLabelsError(str(error)) if role == "label" and is_first else error
        value = columns[index]
        if not value or (role == "label" and value.strip() in ("", _NO_VALUE)):
            raise self._error(number, f"the {role} in column {column} is {value!r}")
        return value

    def _check_number(self, number: int, columns: list[str]) -> None:
        """Checks that lines have equally many columns, if a column is counted from the end."""
        if min(self.word_column, self.label_column or 0) >= 0:
            return
        first_line, expected = self._first_row = self._first_row or (number, len(columns))
        if len(columns) != expected:
            raise self._error(
                number,
                f"received {_shown(columns)}; expected {expected}, as in line {first_line} (is a "
                "label missing, or do lines with # need comments=True, in programs --comments?)",
            )

    def _error(self, number: int, message: str) -> ValueError:
        return ValueError(f"{self.path}, line {number}: {message}")


def _lines(path: Path) -> list[str]:
    content = path.read_bytes()
    try:
        content = gzip.decompress(content) if path.suffix.lower() == ".gz" else content
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be decompressed: {error}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {number}: not UTF-8, {error.reason}") from error
    # Not `splitlines`: words may contain Unicode's other line separators.
    if "\n" not in text:
        return text.split("\r")
    return [line.removesuffix("\r") for line in text.split("\n")]


def _shown(columns: list[str]) -> str:
    shown = repr(columns)
    return (
        f"{len(columns)} column{'s' if len(columns) > 1 else ''}, "
        f"{shown if len(shown) <= 200 else f'{shown[:199]}…'}"
    )


def _columns(line: str, separator: Separator) -> list[str]:
    if separator == "tab":
        return [value.strip(" ") or value for value in line.split("\t")]
    if separator == "auto" and "\t" in line.rstrip(_BLANK):
        return [value.strip(" ") or value for value in re.split(r"\t+", line.rstrip(_BLANK))]
    return re.split(r"[ \t]+", line.strip(_BLANK))


def _whole(starts: list[int], num_sentences: int) -> list[int] | None:
    """Completes the document starts: sentences before the first one are a document too."""
    kept = [start for start in starts if start < num_sentences]
    if not kept:
        return None
    return kept if kept[0] == 0 else [0, *kept]


def _rows(sentence: Sequence[Sequence[str]], index: int) -> Iterator[tuple[str, ...]]:
    numbers = {len(column) for column in sentence}
    if len(numbers) > 1:
        raise ValueError(f"Sentence {index} has columns of {sorted(numbers)} words.")
    return zip(*sentence, strict=True)


def _line(row: Sequence[str], sentence: int) -> str:
    for value in row:
        if re.search(r"[\t\n\r]", value):
            raise ValueError(
                f"Sentence {sentence} has {value!r}; a value must not contain a tab or line break."
            )
    return "\t".join(row) + "\n"
