# SPDX-License-Identifier: Apache-2.0
"""Reads corpora. Converts raw text files to sentences and documents, line by line."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from keras_bert.checks import check_choice, importing
from keras_bert.data.file_systems import is_url, open_file
from keras_bert.data.text_files import UTF_8, decoded_lines, plain_name

FORMATS = ("auto", "sentences", "paragraphs", "jsonl", "parquet")
DOCUMENT_ENDS = ("blank_lines", "files", "wikitext")

_JSON_SUFFIXES = (".jsonl", ".ndjson")
# The number of rows to decode at a time in a Parquet file
_ROWS_AT_ONCE = 1024
_WIKITEXT_HEADING = re.compile(r"\s*(=(?: =)*) .+ \1\s*")
_WIKITEXT_TITLE = re.compile(r"\s*= [^=].* =\s*")


def read_corpus(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    document_ends: str = "blank_lines",
    field: str = "text",
    language: str = "en",
    encoding: str = UTF_8,
    file: BinaryIO | None = None,
) -> Iterator[str | None]:
    """Reads the sentences in a file, with `None` at the end of each document.

    Files that start like gzip, bzip2, xz or Zstandard files are decompressed.
    Files are read line by line. Unlike in the original BERT code, each file ends a document. Blank
    sentences are dropped.

    Args:
        path: Path to the file, or a URL that fsspec can open.
        format: `"sentences"` (one sentence per line), `"paragraphs"` (one paragraph per line, to
            split into sentences), `"jsonl"` (one document of paragraphs per JSON line), `"parquet"`
            (one document of paragraphs per row), or `"auto"`: `"jsonl"` for the suffixes `.jsonl`
            and `.ndjson`, `"parquet"` for `.parquet`, and `"sentences"` otherwise. Defaults to
            `"auto"`.
        document_ends: What ends a document: `"blank_lines"`, `"wikitext"` (titles in the WikiText
            data sets, such as ` = Title = `), or `"files"` (only the end of the file). WikiText
            headings are dropped, as the BERT paper does for Wikipedia. Ignored for JSON Lines and
            Parquet. Defaults to `"blank_lines"`.
        field: The key of the text in JSON Lines, or its column in Parquet. Defaults to `"text"`.
        language: ISO language code, for splitting paragraphs into sentences. Defaults to `"en"`.
        encoding: The encoding of a file without a byte order mark, such as `"cp949"`. Defaults to
            `"utf-8"`.
        file: A file in binary mode, to read instead of opening `path`. The caller closes it.

    Yields:
        Sentences without surrounding whitespace, and `None`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ImportError: If `sentencex` is not installed and paragraphs are split, or if pyarrow is not
            installed and the file is a Parquet or Zstandard file.
        ValueError: If an argument has an unsupported value, or if a line is invalid. The message
            contains the file and line.

    Example:

    >>> from pathlib import Path
    >>> from keras_bert.data import read_corpus
    >>> path = getfixture("tmp_path") / "corpus.txt"
    >>> _ = path.write_text("A cat.\\nIt sat.\\n\\nRain.\\n")
    >>> list(read_corpus(path))
    ['A cat.', 'It sat.', None, 'Rain.', None]
    """
    path = os.fspath(path)
    check_choice(FORMATS, format=format)
    check_choice(DOCUMENT_ENDS, document_ends=document_ends)
    if file is None and not is_url(path) and not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is not a file. Pass the path to a text file.")
    format = resolve_format(path, format)
    # A sentence on its own line is not split.
    split = (lambda line: [line]) if format == "sentences" else sentence_splitter(language)

    def documents(file: BinaryIO) -> Iterator[str | None]:
        if format == "parquet":
            return _texts_documents(_parquet_texts(file, path, field), split)
        lines = decoded_lines(file, path, encoding)
        if format == "jsonl":
            return _texts_documents(_json_texts(lines, path, field), split)
        return _text_documents(lines, document_ends, split)

    def opened() -> Iterator[str | None]:
        if file is not None:
            yield from documents(file)
            return
        with open_file(path) as own:
            yield from documents(own)

    return _document_ends_once(opened())


def read_documents(
    path: str | os.PathLike[str], format: str = "auto", **options: Any
) -> list[list[str]]:
    """Reads the documents in a file into memory, for `Pretrainer.fit`.

    Args:
        path: Path to the file, or a URL that fsspec can open.
        format: See `read_corpus`.
        **options: `document_ends`, `field`, `language` and `encoding`, see `read_corpus`.

    Returns:
        The documents, each a list of sentences.

    Raises:
        FileNotFoundError, ImportError, ValueError: See `read_corpus`.

    Example:

    >>> from keras_bert.data import read_documents
    >>> path = getfixture("tmp_path") / "corpus.txt"
    >>> _ = path.write_text("A cat.\\nIt sat.\\n\\nRain.\\n")
    >>> read_documents(path)
    [['A cat.', 'It sat.'], ['Rain.']]
    """
    documents: list[list[str]] = [[]]
    for sentence in read_corpus(path, format, **options):
        if sentence is None:
            documents.append([])
        else:
            documents[-1].append(sentence)
    return documents[:-1]


def resolve_format(path: str | os.PathLike[str], format: str) -> str:
    """Returns `format`, or for `"auto"` the format that the file's suffix implies."""
    if format != "auto":
        return format
    name = plain_name(os.path.basename(path)).lower()
    if name.endswith(".parquet"):
        return "parquet"
    return "jsonl" if name.endswith(_JSON_SUFFIXES) else "sentences"


def sentence_splitter(language: str = "en") -> Callable[[str], list[str]]:
    """Returns a function that splits a paragraph into sentences with the package `sentencex`.

    A language (ISO code) without its own rules uses a fallback language.
    """
    with importing("pretraining", "Splitting paragraphs into sentences"):
        from sentencex import segment
    return lambda paragraph: list(segment(language, paragraph))


def _document_ends_once(sentences: Iterator[str | None]) -> Iterator[str | None]:
    """Strips sentences, drops blank sentences, and yields one `None` after each document."""
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
    lines: Iterator[str], document_ends: str, split: Callable[[str], list[str]]
) -> Iterator[str | None]:
    for before, line, after in _pair_neighbors(lines):
        if not line.strip():
            if document_ends == "blank_lines":
                yield None
        elif document_ends == "wikitext" and _is_wikitext_heading(before, line, after):
            if _WIKITEXT_TITLE.fullmatch(line):
                yield None
        else:
            yield from split(line)


def _pair_neighbors(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """Yields each line with the previous and next line, or `""` at the start and end."""
    before, line = "", next(lines, "")
    for after in itertools.chain(lines, [""]):
        yield before, line, after
        before, line = line, after


def _is_wikitext_heading(before: str, line: str, after: str) -> bool:
    """Returns whether a line is a heading. Similar lines in tables are next to text."""
    stands_alone = not before.strip() and not after.strip()
    return stands_alone and bool(_WIKITEXT_HEADING.fullmatch(line))


def _texts_documents(
    texts: Iterator[str], split: Callable[[str], list[str]]
) -> Iterator[str | None]:
    """Yields the sentences of documents with one paragraph per line."""
    for text in texts:
        for paragraph in text.splitlines():
            yield from split(paragraph)
        yield None


def _json_texts(lines: Iterator[str], path: str, field: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{where}: each line must be JSON ({error}). Received: {line[:40]!r}"
            ) from None
        if not isinstance(record, dict):
            raise ValueError(
                f"{where}: each line must be a JSON object. Received: {type(record).__name__}"
            )
        yield _validate_text(record, field, where)


def _parquet_texts(file: BinaryIO, path: str, field: str) -> Iterator[str]:
    with importing("tables", f"{path}, a Parquet file,"):
        import pyarrow
        from pyarrow import parquet
    number = 0
    try:
        table = parquet.ParquetFile(file, page_checksum_verification=True)
        names = table.schema_arrow.names
        if names.count(field) != 1:
            has = "duplicated" if field in names else "missing"
            raise ValueError(f"{path}: the column {field!r} is {has}. The columns are {names}.")
        for batch in table.iter_batches(_ROWS_AT_ONCE, columns=[field]):
            for text in batch.column(0).to_pylist():
                number += 1
                yield _validate_text({field: text}, field, f"{path}, row {number}")
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read past row {number}: {error}") from error


def _validate_text(record: dict[str, Any], field: str, where: str) -> str:
    if not isinstance(record.get(field), str):
        has = f"of type {type(record[field]).__name__}" if field in record else "missing"
        raise ValueError(
            f"{where}: {field!r} must be a string, but it is {has}. The keys are {sorted(record)}."
        )
    text = cast(str, record[field])
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where}: {field!r} must not contain a lone surrogate. Received: one at position "
            f"{error.start}"
        ) from None
    return text
