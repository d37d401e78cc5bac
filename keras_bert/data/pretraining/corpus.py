# SPDX-License-Identifier: Apache-2.0
"""Files of raw text to sentences and documents, a line at a time."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

FORMATS = ("auto", "sentences", "paragraphs", "jsonl")
DOCUMENT_ENDS = ("blank_lines", "files", "wikitext")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_JSON_SUFFIXES = (".jsonl", ".ndjson")
_WIKITEXT_HEADING = re.compile(r"\s*(=(?: =)*) .+ \1\s*")
_WIKITEXT_TITLE = re.compile(r"\s*= [^=].* =\s*")


def read_corpus(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    document_ends: str = "blank_lines",
    field: str = "text",
    language: str = "en",
) -> Iterator[str | None]:
    """The sentences of a file, and `None` at the end of each document.

    The file is UTF-8, gzipped where its name ends in `.gz`, and never held whole. The end of a file
    ends a document, which it does not in BERT's released code. Blank sentences are dropped.

    Args:
        path: The file.
        format: `"sentences"`, one a line; `"paragraphs"`, one a line, to be split into sentences;
            `"jsonl"`, a JSON object a line, each a document of paragraphs; or `"auto"`, which is
            `"jsonl"` for names in `.jsonl` or `.ndjson` and else `"sentences"`.
        document_ends: What ends a document but the end of a file: `"blank_lines"`; `"files"` for
            nothing else; `"wikitext"` for the lines ` = Title = ` of the WikiText sets, whose
            headings are left out, as the paper leaves out Wikipedia's. JSON Lines need none.
        field: The key of the text in JSON Lines.
        language: ISO code of the language, by which paragraphs are split.

    Yields:
        Sentences without white space around them, and `None`.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If paragraphs are to be split and `sentencex` is not installed.
        ValueError: If an argument is unknown, or a line malformed; the message names file and line.

    Example:

    >>> from pathlib import Path
    >>> from keras_bert.data import read_corpus
    >>> path = getfixture("tmp_path") / "corpus.txt"
    >>> _ = path.write_text("A cat.\\nIt sat.\\n\\nRain.\\n")
    >>> list(read_corpus(path))
    ['A cat.', 'It sat.', None, 'Rain.', None]
    """
    path = Path(path)
    _check_choice("format", format, FORMATS)
    _check_choice("document_ends", document_ends, DOCUMENT_ENDS)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there, expected a file of text.")
    if format == "auto":
        plain_name = path.name.lower().removesuffix(".gz")
        format = "jsonl" if plain_name.endswith(_JSON_SUFFIXES) else "sentences"
    split = _whole_line if format == "sentences" else sentence_splitter(language)
    if format == "jsonl":
        return _document_ends_once(_json_documents(path, field, split))
    return _document_ends_once(_text_documents(path, document_ends, split))


def sentence_splitter(language: str = "en") -> Callable[[str], list[str]]:
    """A function that splits a paragraph into sentences, by the library `sentencex`.

    Args:
        language: ISO code; a language that has no rules of its own is split by those of the
            nearest that has.

    Raises:
        ImportError: If `sentencex` is not installed.
    """
    try:
        from sentencex import segment
    except ImportError as error:
        raise ImportError(
            "Splitting paragraphs into sentences needs the package sentencex: "
            'pip install "keras3-bert[pretraining]".'
        ) from error
    return lambda paragraph: list(segment(language, paragraph))


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(choices)}.")


def _whole_line(line: str) -> list[str]:
    return [line]


def _document_ends_once(sentences: Iterator[str | None]) -> Iterator[str | None]:
    """Strips sentences, drops blank ones, and ends documents that have any, once."""
    is_open = False
    for sentence in sentences:
        if sentence is None:
            if is_open:
                yield None
            is_open = False
            continue
        sentence = sentence.strip()
        if sentence:
            is_open = True
            yield sentence
    if is_open:
        yield None


def _text_documents(
    path: Path, document_ends: str, split: Callable[[str], list[str]]
) -> Iterator[str | None]:
    lines = (line for _, line in _lines(path))
    for before, line, after in _with_neighbours(lines):
        if not line.strip():
            if document_ends == "blank_lines":
                yield None
        elif document_ends == "wikitext" and _is_wikitext_heading(before, line, after):
            if _WIKITEXT_TITLE.fullmatch(line):
                yield None
        else:
            yield from split(line)


def _with_neighbours(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """Each line with the one before and the one after it, blank at the ends."""
    before, line = "", next(lines, "")
    for after in itertools.chain(lines, [""]):
        yield before, line, after
        before, line = line, after


def _is_wikitext_heading(before: str, line: str, after: str) -> bool:
    """Whether a line is a heading: keys of tables look like one, but stand next to text."""
    stands_alone = not before.strip() and not after.strip()
    return stands_alone and bool(_WIKITEXT_HEADING.fullmatch(line))


def _json_documents(
    path: Path, field: str, split: Callable[[str], list[str]]
) -> Iterator[str | None]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        for paragraph in _json_text(line, field, f"{path}, line {number}").splitlines():
            yield from split(paragraph)
        yield None


def _json_text(line: str, field: str, where: str) -> str:
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where}: no JSON ({error}); it starts {line[:40]!r}.") from None
    if not isinstance(record, dict):
        raise ValueError(f"{where}: received {type(record).__name__}, expected a JSON object.")
    if not isinstance(record.get(field), str):
        has = f"of type {type(record[field]).__name__}" if field in record else "missing"
        raise ValueError(
            f"{where}: {field!r} is {has}, expected a string; the keys are {sorted(record)}."
        )
    return cast(str, record[field])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines with their numbers from 1. Only a line feed ends one, as an editor counts them."""
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                yield number, _decoded(line, path, number)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}, after line {number}: broken gzip file ({error}).") from None


def _open(path: Path) -> BinaryIO:
    if path.suffix.lower() == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return open(path, "rb")


def _decoded(line: bytes, path: Path, number: int) -> str:
    if number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 ({error}).") from None
