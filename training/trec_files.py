# SPDX-License-Identifier: Apache-2.0
"""Rankings and judgements in TREC's formats, and the Cranfield collection."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from training.text_rows import row_error


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


def write_run(
    path: Path, scored: Mapping[str, Sequence[tuple[str, float]]], tag: str = "keras_bert"
) -> None:
    """Writes a ranking: `query Q0 document rank score tag` on each line.

    Args:
        path: The file; written to a temporary name first.
        scored: For each query its documents with their scores, the best first.
        tag: The system's name.
    """
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "w", encoding="utf-8") as file:
        for query, ranking in scored.items():
            for rank, (document, score) in enumerate(ranking, start=1):
                file.write(f"{query} Q0 {document} {rank} {score:.6f} {tag}\n")
    os.replace(temporary, path)


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

    Lines of three fields, without the iteration, are Cranfield's.

    Raises:
        ValueError: If a line is neither; the message names file, line and field.
    """
    judgements: dict[str, dict[str, int]] = {}
    for line, fields in _fields(path):
        if len(fields) not in (3, 4):
            raise row_error(
                path, line, f"{len(fields)} fields, expected a query, a document, a grade"
            )
        query, document, grade = fields[0], fields[-2], fields[-1]
        try:
            judgements.setdefault(query, {})[document] = int(grade)
        except ValueError as error:
            raise row_error(path, line, f"the grade is {grade!r}, expected an integer") from error
    return judgements


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
        str(place): " ".join(text.split())
        for place, (_, text) in enumerate(_records(folder / "cran.qry", ("W",)), start=1)
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
    for line, text in enumerate(path.read_text("utf-8").splitlines(), start=1):
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
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if line.strip():
            yield number, line.split()
