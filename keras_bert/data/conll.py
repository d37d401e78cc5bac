# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the CoNLL format, with one word per line and its labels in columns."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from keras_bert.atomic import atomic_path
from keras_bert.checks import check_choice
from keras_bert.data.text_files import UTF_8, read_lines

DOCUMENT_START = "-DOCSTART-"
_BLANK = " \t\r"
_NO_VALUE = "_"
# CoNLL-U ids of multiword tokens ("1-2") and empty nodes ("8.1")
_NOT_A_WORD = re.compile(r"\d+[-.]\d+")
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")
# CoNLL-U and its predecessor CoNLL-X have this number of columns. A sentence starts with one of
# these ids. The last two numbers are the columns with words and universal parts of speech.
_CONLL_U_COLUMNS = 10
_FIRST_ID = re.compile(r"1(-\d+)?|0\.1")
_FORM, _UPOS = 1, 3
_NUMBER = re.compile(r"\d{1,9}")
# A column contains word numbers if it counts the words in at least this fraction of the sentences.
_COUNTED = 0.9

Separator = Literal["auto", "tab", "space"]


class MissingLabelsError(ValueError):
    """Raised if a file's first word has no label. In this case, no word has a label."""


@dataclasses.dataclass(frozen=True, eq=False)
class TaggedText:
    """Sentences of words, with labels and document boundaries.

    Args:
        words: The words of each sentence.
        labels: The label of each word, or `None` for text without labels.
        document_starts: The index of each document's first sentence. `None` means that the file has
            no document boundaries, so each sentence is a document.
        path: The file path, or a description of the text's source.
        skipped: An error message for each skipped sentence.
    """

    words: list[list[str]]
    labels: list[list[str]] | None
    document_starts: list[int] | None = None
    path: str = ""
    skipped: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    def __len__(self) -> int:
        return len(self.words)

    def group_by_document(self, values: Sequence[Any]) -> list[list[Any]]:
        """Groups the values of sentences by document.

        Args:
            values: One value for each sentence, such as `words`, `labels` or predictions.

        Returns:
            A list of values for each document.
        """
        starts = range(len(self)) if self.document_starts is None else self.document_starts
        ends = [*starts[1:], len(self)]
        return [list(values[start:end]) for start, end in zip(starts, ends, strict=True)]


def read_conll(
    path: str | os.PathLike[str],
    *,
    word_column: int | None = None,
    label_column: int | None = None,
    separator: Separator = "auto",
    comments: bool | None = None,
    labeled: bool = True,
    skip_invalid: bool = False,
    encoding: str = UTF_8,
) -> TaggedText:
    """Reads a CoNLL file, with one word per line and its labels in columns.

    A blank line ends a sentence, and a line `-DOCSTART-` starts a document. Lines may end in CRLF
    or CR, and blank lines may contain whitespace. If columns are separated by tabs, a word may be a
    space. A file with ten tab-separated columns whose first column counts the words from 1 is read
    as CoNLL-U or CoNLL-X.

    Args:
        path: Path to the file. Gzip files are decompressed.
        word_column: Index of the column with the words. Negative indices count from the end.
            Defaults to the first column, or to the second if the first only counts the words of
            each sentence, as in CoNLL-U.
        label_column: Index of the column with the labels. Negative indices count from the end.
            Defaults to the last column, or in CoNLL-U to the universal part of speech.
        separator: The separator of columns: `"tab"` (exactly one tab, so words may contain spaces),
            `"space"` (any number of spaces and tabs), or `"auto"` (tabs in lines that contain one,
            otherwise spaces). Defaults to `"auto"`.
        comments: Whether lines that start with `#` before a sentence are comments, as in CoNLL-U.
            Then `# newdoc` starts a document, and CoNLL-U's multiword tokens (ids such as `1-2`)
            and empty nodes (`8.1`) are skipped. Defaults to `True` for CoNLL-U files, and for files
            in which such a line starts every sentence, as in KLUE. If these lines start with `##`,
            lines with a single `#` are words.
        labeled: Whether to read labels as well as words. Defaults to `True`.
        skip_invalid: Whether to skip sentences with an invalid line and list them in the result,
            instead of raising an error. Defaults to `False`.
        encoding: The encoding of a file without a byte order mark, such as `"cp949"`. Defaults to
            `"utf-8"`.

    Returns:
        A `TaggedText` with the sentences in file order.

    Warns:
        UserWarning: If words are read from the second column because the first only counts them, if
            CoNLL-U labels are read from the default column, or if lines are skipped as comments in
            a file that is not in CoNLL-U.

    Raises:
        FileNotFoundError: If the file does not exist.
        MissingLabelsError: If labels are read and the first word has no label.
        ValueError: If the file is invalid or has no words. The message contains the file, the line,
            and the expected and received values.

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
    check_choice(("auto", "tab", "space"), separator=separator)
    path = Path(path)
    lines = list(read_lines(path, encoding))
    is_conll_u = _is_conll_u(lines)
    comment = "#" if is_conll_u and comments is None else ""
    sentences, starts = _sentences(lines, separator, comment)
    first_words = [rows[0].columns[0] for rows in sentences]
    all_start_with_sign = len(sentences) > 1 and all(word.startswith("#") for word in first_words)
    if comments is None and not is_conll_u and all_start_with_sign:
        warnings.warn(
            f"{path}: every sentence starts with a line that starts with #, so such lines before a "
            "sentence are skipped as comments. To read them as words, pass comments=False "
            "(--nocomments in commands).",
            stacklevel=2,
        )
        comments = True
    if comments:
        has_two_signs = all(word.startswith("##") for word in first_words)
        comment = "##" if has_two_signs else "#"
        sentences, starts = _sentences(lines, separator, comment)
    if not sentences:
        raise ValueError(f"{path} must contain words. Received: {len(lines)} lines without words")
    usual = _usual_row(sentences, skip_invalid)
    if word_column is None:
        word_column = _FORM if is_conll_u else _word_column(path, sentences, usual, labeled)
    if not labeled:
        label_column = None
    elif label_column is None and is_conll_u:
        warnings.warn(
            f"{path} is a CoNLL-U file, so the labels are read from column {_UPOS}, the universal "
            "parts of speech. To read a different column, pass label_column (--label_column in "
            "commands).",
            stacklevel=2,
        )
        label_column = _UPOS
    elif label_column is None:
        label_column = -1
    words: list[list[str]] = []
    labels: list[list[str]] = []
    sentence_indices: list[int] = []
    errors: list[ValueError] = []
    for index, rows in enumerate(sentences):
        try:
            if min(word_column, label_column or 0) < 0:
                _check_widths(path, rows, usual)
            its_words = [_value(path, row, word_column, "word") for row in rows]
            if label_column is not None:
                is_first = not (sentence_indices or errors)
                labels.append(_labels(path, rows, label_column, is_first))
        except ValueError as error:
            if not skip_invalid:
                raise
            errors.append(error)
        else:
            words.append(its_words)
            sentence_indices.append(index)
    if not words:
        raise errors[0]
    return TaggedText(
        words=words,
        labels=None if label_column is None else labels,
        document_starts=_whole(
            [bisect.bisect_left(sentence_indices, start) for start in starts], len(words)
        ),
        path=str(path),
        skipped=tuple(map(str, errors)),
    )


def write_conll(
    path: str | os.PathLike[str], text: TaggedText, *columns: Sequence[Sequence[str]]
) -> None:
    """Writes words, any labels, and additional columns, separated by tabs.

    If the only additional column contains predicted labels, `conlleval -d '\\t'` can read the file.

    Args:
        path: Path to the file. It is written atomically.
        text: The words and labels.
        *columns: Additional columns with one value for each word.

    Raises:
        ValueError: If a column has a different number of sentences or words, or a value contains a
            tab or a line break.
    """
    path = Path(path)
    all_columns = [text.words, *([] if text.labels is None else [text.labels]), *columns]
    for column in all_columns:
        if len(column) != len(text):
            raise ValueError(
                f"Each column must have {len(text)} sentences. Received: {len(column)} sentences"
            )
    starts = set(text.document_starts or ())
    with (
        atomic_path(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        for index, sentence in enumerate(zip(*all_columns, strict=True)):
            if index in starts:
                outside = "\tO" * (len(all_columns) - 1)
                file.write(f"{DOCUMENT_START}{outside}\n\n")
            file.writelines(_line(row, index) for row in _rows(sentence, index))
            file.write("\n")


def _is_conll_u(lines: Sequence[str]) -> bool:
    """Returns whether the first line with a word has CoNLL-U's columns."""
    for line in lines:
        if line.strip() and not line.startswith("#"):
            columns = line.split("\t")
            return len(columns) == _CONLL_U_COLUMNS and bool(_FIRST_ID.fullmatch(columns[0]))
    return False


class _Row(NamedTuple):
    """A word's line number in the file, from 1, and its columns."""

    line: int
    columns: list[str]


def _sentences(
    lines: Sequence[str], separator: Separator, comment: str
) -> tuple[list[list[_Row]], list[int]]:
    """Returns the rows of each sentence, and the index of each document's first sentence.

    Lines before a sentence that start with `comment` are skipped. `""` skips no lines.
    """
    sentences: list[list[_Row]] = []
    starts: list[int] = []
    rows: list[_Row] = []
    for number, line in enumerate(itertools.chain(lines, [""]), start=1):
        line = line.removesuffix("\n").removesuffix("\r")
        columns = _columns(line, separator) if line.strip(_BLANK) else []
        if columns and comment and not rows and line.startswith(comment):
            if _NEW_DOCUMENT.match(line):
                starts.append(len(sentences))
        elif not columns or DOCUMENT_START in columns[:2]:  # It is second after a word number.
            if rows:
                sentences.append(rows)
                rows = []
            if columns:
                starts.append(len(sentences))
        elif not (comment and _NOT_A_WORD.fullmatch(columns[0])):
            rows.append(_Row(number, columns))
    return sentences, starts


def _word_column(path: Path, sentences: list[list[_Row]], usual: _Row, labeled: bool) -> int:
    """Returns the first column, or the second if the first only counts the words."""
    first_columns = [[row.columns[0] for row in rows] for rows in sentences if len(rows) > 1]
    num_counted = sum(
        all(map(_NUMBER.fullmatch, numbers))
        and [int(number) - int(numbers[0]) for number in numbers] == [*range(len(numbers))]
        for numbers in first_columns
    )
    has_others = len(usual.columns) > 1 + labeled
    if not has_others or not first_columns or num_counted < _COUNTED * len(first_columns):
        return 0
    warnings.warn(
        f"{path}: the first column only contains word numbers, so the words are read from the "
        f"second, such as {usual.columns[1]!r} in line {usual.line}. To read a different column, "
        "pass word_column (--word_column in commands).",
        stacklevel=3,
    )
    return 1


def _usual_row(sentences: list[list[_Row]], skip_invalid: bool) -> _Row:
    """Returns the row with the number of columns that all rows must have.

    It is the first row or, with `skip_invalid`, the first row with the most common number of
    columns.
    """
    if not skip_invalid:
        return sentences[0][0]
    rows = [row for rows in sentences for row in rows]
    number, _ = Counter(len(row.columns) for row in rows).most_common(1)[0]
    return next(row for row in rows if len(row.columns) == number)


def _check_widths(path: Path, rows: list[_Row], usual: _Row) -> None:
    """Checks that lines have equal numbers of columns, because the indices count from the end."""
    for line, columns in rows:
        if len(columns) != len(usual.columns):
            raise ValueError(
                f"{path}, line {line}: each line must have {len(usual.columns)} columns, as in "
                f"line {usual.line}. Received: {_describe(columns)}. A label may be missing, or "
                "lines that start with # may need comments=True (--comments in commands)."
            )


def _labels(path: Path, rows: list[_Row], column: int, is_first: bool) -> list[str]:
    """Returns a sentence's labels. Raises an error if the file's first word has no label."""
    if is_first and not _has_column(rows[0], column, "label"):
        raise MissingLabelsError(_missing(path, rows[0], column, "label"))
    return [_value(path, row, column, "label") for row in rows]


def _has_column(row: _Row, column: int, role: str) -> bool:
    number = len(row.columns)
    return -number <= column < number and not (role == "label" and number == 1)


def _missing(path: Path, row: _Row, column: int, role: str) -> str:
    hint = ""
    if len(row.columns) == 1 and "," in row.columns[0]:
        hint = ". Columns must be separated by tabs or spaces, not by commas."
    return (
        f"{path}, line {row.line}: the {role} must be in column {column}. Received: "
        f"{_describe(row.columns)}{hint}"
    )


def _value(path: Path, row: _Row, column: int, role: str) -> str:
    if not _has_column(row, column, role):
        raise ValueError(_missing(path, row, column, role))
    value = row.columns[column]
    if not value or (role == "label" and value.strip() in ("", _NO_VALUE)):
        raise ValueError(
            f"{path}, line {row.line}: the {role} in column {column} must not be empty. Received: "
            f"{value!r}"
        )
    return value


def _describe(columns: list[str]) -> str:
    text = repr(columns)
    return (
        f"{len(columns)} column{'s' if len(columns) > 1 else ''}, "
        f"{text if len(text) <= 200 else f'{text[:199]}…'}"
    )


def _columns(line: str, separator: Separator) -> list[str]:
    if separator == "tab":
        return [value.strip(" ") or value for value in line.split("\t")]
    if separator == "auto" and "\t" in line.rstrip(_BLANK):
        return [value.strip(" ") or value for value in re.split(r"\t+", line.rstrip(_BLANK))]
    return re.split(r"[ \t]+", line.strip(_BLANK))


def _whole(starts: list[int], num_sentences: int) -> list[int] | None:
    """Drops starts after the last sentence. Sentences before the first start form a document."""
    valid_starts = [start for start in starts if start < num_sentences]
    if not valid_starts:
        return None
    return valid_starts if valid_starts[0] == 0 else [0, *valid_starts]


def _rows(sentence: Sequence[Sequence[str]], index: int) -> Iterator[tuple[str, ...]]:
    numbers = {len(column) for column in sentence}
    if len(numbers) > 1:
        raise ValueError(
            f"The columns of sentence {index} must have the same number of words. Received: "
            f"{sorted(numbers)}"
        )
    return zip(*sentence, strict=True)


def _line(row: Sequence[str], sentence: int) -> str:
    for value in row:
        if re.search(r"[\t\n\r]", value):
            raise ValueError(
                f"A value must not contain a tab or line break. Received: {value!r} (sentence "
                f"{sentence})"
            )
    return "\t".join(row) + "\n"
