# SPDX-License-Identifier: Apache-2.0
"""Rankings and judgements in TREC's formats, and collections: Cranfield, BEIR's and MS MARCO's."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert.atomic import atomic_path

from .text_rows import (
    excerpt,
    format_of,
    read_cells,
    read_lines,
    read_objects,
    row_error,
)

# What BEIR, MS MARCO and others call the files of a collection.
_FILES = {
    "documents": ("corpus.jsonl", "corpus.tsv", "collection.tsv", "documents.tsv"),
    "queries": ("queries.jsonl", "queries.tsv"),
    "judgements": ("qrels/test.tsv", "qrels/dev.tsv", "qrels.tsv", "qrels.txt", "qrels"),
}
_IDS = ("_id", "id", "pid", "qid", "docid", "doc_id", "query-id", "query_id", "corpus-id")
_TEXTS = ("title", "text")
_JUDGEMENT = (("query-id", "query_id", "qid"), ("corpus-id", "doc_id", "docid", "pid"), ("score",))


@dataclasses.dataclass(frozen=True)
class Collection:
    """What rankings are made of.

    Args:
        documents: the text of each document, by its id.
        queries: the text of each query, by its id.
        judgements: for each query, the grades of documents; above 0 is relevant.
    """

    documents: dict[str, str]
    queries: dict[str, str]
    judgements: dict[str, dict[str, int]]

    def counts(self, queries: Sequence[str]) -> dict[str, int]:
        """How many queries these are, and how many documents are judged relevant to them."""
        grades = [self.judgements.get(query, {}).values() for query in queries]
        relevant = [sum(grade > 0 for grade in own) for own in grades]
        return {
            "queries": len(queries),
            "queries with a relevant document": sum(map(bool, relevant)),
            "relevant documents": sum(relevant),
        }


def write_run(
    path: Path, scored: Mapping[str, Sequence[tuple[str, float]]], tag: str = "keras_bert"
) -> None:
    """Writes a ranking: `query Q0 document rank score tag` on each line.

    Args:
        path: The file, which is written atomically.
        scored: For each query its documents with their scores, the best first.
        tag: The system's name.
    """
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for query, ranking in scored.items():
            for rank, (document, score) in enumerate(ranking, start=1):
                file.write(f"{query} Q0 {document} {rank} {score:.6f} {tag}\n")


def read_run(path: Path) -> dict[str, list[str]]:
    """The documents of each query in a TREC ranking, by descending score, ties by rank.

    Raises:
        ValueError: If a line is not as `write_run` says; the message names file, line and field.
    """
    rows: dict[str, list[tuple[float, int, str]]] = {}
    for line, fields in _fields(path):
        if len(fields) != 6:
            raise row_error(
                path, line, f"{len(fields)} fields, expected 6: qid Q0 doc rank score tag"
            )
        query, _, document, rank, score, _ = fields
        try:
            rows.setdefault(query, []).append((-float(score), int(rank), document))
        except ValueError as error:
            raise row_error(path, line, f"rank {rank!r}, score {score!r}: {error}") from error
    return {query: [document for *_, document in sorted(own)] for query, own in rows.items()}


def read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """The grades of each query's documents: `query iteration document grade` on each line.

    Lines of three fields, without the iteration, are Cranfield's, and BEIR's, which have a header;
    JSON Lines have BEIR's fields `query-id`, `corpus-id` and `score`.

    Raises:
        ValueError: If a line is neither; the message names file, line and field.
    """
    judgements: dict[str, dict[str, int]] = {}
    for line, (query, document, grade) in _judgements(path):
        if not re.fullmatch(r"[+-]?[0-9]+", grade):
            raise row_error(path, line, f"the grade is {excerpt(grade)}, expected an integer")
        judgements.setdefault(query, {})[document] = int(grade)
    return judgements


def _judgements(path: Path) -> Iterator[tuple[int, tuple[str, str, str]]]:
    if path.name.removesuffix(".gz").endswith((".jsonl", ".json")):
        for line, record in read_objects(path):
            query, document, grade = (_field(path, line, record, names) for names in _JUDGEMENT)
            yield line, (query, document, grade)
        return
    for number, (line, fields) in enumerate(_fields(path)):
        if len(fields) not in (3, 4):
            raise row_error(
                path, line, f"{len(fields)} fields, expected a query, a document, a grade"
            )
        if number or fields[0].casefold() not in _JUDGEMENT[0]:
            yield line, (fields[0], fields[-2], fields[-1])


def read_collection(
    folder: Path, documents: str = "", queries: str = "", judgements: str = ""
) -> Collection:
    """A collection of files in TSV or JSON Lines, or Cranfield's.

    Documents and queries are JSON with `_id` (or `id`), `text` and perhaps `title`, as BEIR has
    them; or tables with such a header, or of an id and a text without one, as MS MARCO has them.
    Queries without judgements are left out; of judgements, those of what is not in the files are
    left out with a warning.

    Args:
        folder: Where the files lie.
        documents, queries, judgements: Their names there; empty looks for the usual ones, first of
            all Cranfield's.

    Raises:
        FileNotFoundError: If a file is not there.
        ValueError: If one is malformed; the message names file and line.
    """
    given = {"documents": documents, "queries": queries, "judgements": judgements}
    if not any(given.values()) and (folder / "cran.all.1400").is_file():
        return read_cranfield(folder)
    paths = {role: _find(folder, role, name) for role, name in given.items()}
    texts = _texts(paths["documents"])
    graded = read_judgements(paths["judgements"])
    judged = {id: text for id, text in _texts(paths["queries"]).items() if id in graded}
    known = {
        query: {document: grade for document, grade in graded[query].items() if document in texts}
        for query in judged
    }
    total, kept = (sum(map(len, grades.values())) for grades in (graded, known))
    if not kept:
        raise ValueError(
            f"{paths['judgements']}: none of the {total} judgements is of a query in "
            f"{paths['queries']} and a document in {paths['documents']}"
        )
    if kept < total:
        logging.warning(
            "%s: %d of %d judgements are of queries or documents that the files have not",
            paths["judgements"],
            total - kept,
            total,
        )
    return Collection(texts, judged, known)


def _find(folder: Path, role: str, name: str) -> Path:
    names = (name,) if name else _FILES[role]
    for candidate in (*names, *(f"{name}.gz" for name in names)):
        if (folder / candidate).is_file():
            return folder / candidate
    advice = "" if name else f"; --{role} names another file"
    raise FileNotFoundError(f"{folder} has no {role}, expected {' or '.join(names)} there{advice}")


def _texts(path: Path) -> dict[str, str]:
    """The texts of documents or queries, by their ids."""
    texts: dict[str, str] = {}
    for line, id, text in _numbered_texts(path):
        if id in texts:
            raise row_error(path, line, f"another row has the id {excerpt(id)}")
        texts[id] = " ".join(text.split())
    if not texts:
        raise ValueError(f"{path}: no rows")
    return texts


def _numbered_texts(path: Path) -> Iterator[tuple[int, str, str]]:
    format = format_of(path)
    if format == "jsonl":
        for line, record in read_objects(path):
            title, text = record.get("title") or "", _field(path, line, record, ("text",))
            yield line, _field(path, line, record, _IDS), f"{title} {text}"
        return
    columns = [0, 1]
    for number, (line, cells) in enumerate(read_cells(path, format)):
        names = [cell.strip().casefold() for cell in cells]
        if not number and names[0] in _IDS:
            columns = [0, *(names.index(name) for name in _TEXTS if name in names)]
            if "text" not in names:
                raise row_error(
                    path, line, f"no column text; the first row is {excerpt(cells, 300)}"
                )
            width = len(cells)
            continue
        width = len(cells) if not number else width
        if len(cells) != width or (columns == [0, 1] and width != 2 and not number):
            expected = width if number else "an id and a text, or a header"
            raise row_error(path, line, f"{len(cells)} columns, expected {expected}")
        id, *parts = (cells[column].strip() for column in columns)
        yield line, id, " ".join(parts)


def _field(path: Path, line: int, record: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of the fields that there is, as a string."""
    for name in names:
        if isinstance(record.get(name), str | int) and not isinstance(record[name], bool):
            return str(record[name])
    raise row_error(
        path,
        line,
        f"no {names[0]} that is a string or a number; the object has "
        f"{excerpt(sorted(record), 300)}",
    )


def read_cranfield(folder: Path) -> Collection:
    """The Cranfield collection: `cran.all.1400`, `cran.qry` and `cranqrel`.

    Judgements number the queries 1 to 225 in the order of their file, whatever ids it gives them.
    All grades above 0 count alike: its files and their description disagree on which end of the
    scale is the best.

    Args:
        folder: Where the three files lie.

    Raises:
        FileNotFoundError: If one is not there.
        ValueError: If one is malformed; the message names file and line.
    """
    documents = {
        str(number): " ".join(text.split())
        for number, text in _records(folder / "cran.all.1400", ("T", "W"))
    }
    queries = {
        str(number): " ".join(text.split())
        for number, (_, text) in enumerate(_records(folder / "cran.qry", ("W",)), start=1)
    }
    graded = read_judgements(folder / "cranqrel")
    judgements = {
        query: {document: int(grade > 0) for document, grade in grades.items()}
        for query, grades in graded.items()
    }
    for query, grades in judgements.items():
        unknown = [document for document in grades if document not in documents]
        if query not in queries or unknown:
            raise ValueError(
                f"{folder / 'cranqrel'}: query {query} or its documents {unknown[:3]} are not in "
                "the collection"
            )
    return Collection(documents, queries, judgements)


def _records(path: Path, parts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The number and the wanted parts of each `.I` record; a title that opens its text is one."""
    number, part, texts = 0, "", dict.fromkeys(parts, "")
    for line, text in enumerate(read_lines(path), start=1):
        text = text.rstrip("\r\n")
        if text.startswith(".I"):
            if number:
                yield number, _joined(texts)
            if not text[2:].strip().isdecimal():
                raise row_error(path, line, f"expected .I and a number, received {text!r}")
            number, part, texts = int(text[2:]), "", dict.fromkeys(parts, "")
        elif len(text.strip()) == 2 and text.startswith("."):
            part = text.strip()[1]
        elif not number:
            raise row_error(path, line, f"expected .I and a number first, received {text!r}")
        elif part in texts:
            texts[part] += text + "\n"
    if number:
        yield number, _joined(texts)


def _joined(texts: Mapping[str, str]) -> str:
    title, *rest = texts.values()
    return title + "".join(text.removeprefix(title) for text in rest)


def _fields(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            yield number, line.split()
