# SPDX-License-Identifier: Apache-2.0
"""Reads and writes TREC rankings and qrels, and reads Cranfield, BEIR and MS MARCO collections."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from keras_bert.atomic import atomic_path
from keras_bert.data.text_files import COMPRESSIONS, UTF_8, read_lines

from .data_files import data_suffix, infer_format, read_cells, read_records
from .row_values import excerpt, row_error

# Usual file names in collections such as BEIR and MS MARCO
_FILES = {
    "documents": ("corpus.jsonl", "corpus.tsv", "collection.tsv", "documents.tsv"),
    "queries": ("queries.jsonl", "queries.tsv"),
    "qrels": ("qrels.tsv", "qrels.txt", "qrels"),
}
# Words in the file or directory name of queries or qrels that identify the split
_SPLITS = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test", "eval"),
}
_ROLE_WORDS = {"queries": ("queries", "topics"), "qrels": ("qrels", "qrel")}
_IDS = ("_id", "id", "pid", "qid", "docid", "doc_id", "query-id", "query_id", "corpus-id")
_TEXTS = ("title", "text")
_QREL = (("query-id", "query_id", "qid"), ("corpus-id", "doc_id", "docid", "pid"), ("score",))


@dataclasses.dataclass(frozen=True)
class Collection:
    """Documents, queries and relevance judgments.

    Args:
        documents: Maps document IDs to texts.
        queries: Maps query IDs to texts.
        qrels: Maps query IDs to the grades of documents. Documents with a grade above 0 are
            relevant.
        splits: Maps query IDs to one of the two splits in use, among `train`, `dev` and `test`.
            Empty if the files have no splits.
    """

    documents: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    splits: dict[str, str] = dataclasses.field(default_factory=dict)

    def parts(self, holdout_every: int) -> dict[str, list[str]]:
        """Returns the queries for training and for scoring, by the names of their splits.

        If the files have no splits, every `holdout_every`-th query is scored.
        """
        queries = list(self.queries)
        if self.splits:
            names = [name for name in _SPLITS if name in self.splits.values()]
            return {
                name: [query for query in queries if self.splits[query] == name] for name in names
            }
        test = queries[holdout_every - 1 :: holdout_every]
        held_out = set(test)
        return {"train": [query for query in queries if query not in held_out], "test": test}

    def counts(self, queries: Sequence[str]) -> dict[str, int]:
        """Counts the queries, those with a relevant document, and all relevant documents."""
        grades = [self.qrels.get(query, {}).values() for query in queries]
        relevant = [sum(grade > 0 for grade in own) for own in grades]
        return {
            "queries": len(queries),
            "queries with a relevant document": sum(map(bool, relevant)),
            "relevant documents": sum(relevant),
        }


def rank_documents(scored: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Sorts documents like `trec_eval`: by descending score, and ties by descending ID.

    Scores are rounded to float32, because `trec_eval` reads them as float32. IDs are compared by
    their bytes.

    Returns:
        The documents with the rounded scores, best first.

    Example:

    >>> rank_documents([("d1", 2.0), ("d2", 2.00000001), ("d10", 3.0)])
    [('d10', 3.0), ('d2', 2.0), ('d1', 2.0)]
    """
    rounded_scores = [(document, float(np.float32(score))) for document, score in scored]
    return sorted(rounded_scores, key=lambda pair: (pair[1], pair[0].encode()), reverse=True)


def write_run(
    path: Path, scored: Mapping[str, Sequence[tuple[str, float]]], tag: str = "keras_bert"
) -> None:
    """Writes a ranking in TREC's run format: `query Q0 document rank score tag` on each line.

    Pass the documents of each query in the order of `rank_documents`, because `trec_eval` sorts
    them in the same order.
    """
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for query, ranking in scored.items():
            for rank, (document, score) in enumerate(ranking, start=1):
                # 9 digits represent a float32 exactly.
                file.write(f"{query} Q0 {document} {rank} {score:.9g} {tag}\n")


def write_qrels(path: Path, qrels: Mapping[str, Mapping[str, int]]) -> None:
    """Writes relevance judgments in TREC's format: `query 0 document grade` on each line."""
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for query, grades in qrels.items():
            for document, grade in grades.items():
                file.write(f"{query} 0 {document} {grade}\n")


def read_qrels(path: Path, encoding: str = UTF_8) -> dict[str, dict[str, int]]:
    """Reads relevance judgments (qrels): `query iteration document grade` on each line.

    Lines with three fields have no iteration, as in Cranfield and BEIR. BEIR's files have a header.
    JSON Lines and Parquet have BEIR's fields `query-id`, `corpus-id` and `score`.

    Raises:
        ValueError: If a line is invalid. The message contains the file, the line and the field.
    """
    qrels: dict[str, dict[str, int]] = {}
    for place, (query, document, grade) in _qrels(path, encoding):
        if not re.fullmatch(r"[+-]?[0-9]+", grade):
            raise row_error(
                path, place, f"the grade must be an integer. Received: {excerpt(grade)}"
            )
        qrels.setdefault(query, {})[document] = int(grade)
    return qrels


def read_run(path: Path, encoding: str = UTF_8) -> dict[str, dict[str, float]]:
    """Reads the scores in a ranking: `query Q0 document rank score tag` on each line.

    Returns:
        The score of each document by query.

    Raises:
        ValueError: If a line is invalid. The message contains the file and the line.
    """
    run: dict[str, dict[str, float]] = {}
    for place, fields in _fields(path, encoding):
        try:
            query, _, document, _, score, _ = fields
            number = float(score)
        except ValueError:
            number = float("nan")
        if not np.isfinite(number):
            raise row_error(
                path,
                place,
                "each line must have a query, Q0, a document, a rank, a finite score and a tag, "
                f"as in a TREC run. Received: {excerpt(' '.join(fields))}",
            )
        run.setdefault(query, {})[document] = number
    return run


def _qrels(path: Path, encoding: str) -> Iterator[tuple[str, tuple[str, str, str]]]:
    if data_suffix(path) in (".jsonl", ".json", ".parquet"):
        for place, record in read_records(path, encoding=encoding):
            query, document, grade = (_field(path, place, record, names) for names in _QREL)
            yield place, (query, document, grade)
        return
    rows = list(_fields(path, encoding))
    for place, fields in rows:
        if len(fields) not in (3, 4):
            raise row_error(
                path,
                place,
                "each line must have a query, a document and a grade, optionally with an "
                f"iteration after the query. Received: {len(fields)} fields",
            )
    if rows and rows[0][1][0].casefold() in _QREL[0]:
        del rows[0]
    for place, fields in rows:
        yield place, (fields[0], fields[-2], fields[-1])


def read_collection(
    directory: Path,
    documents: str = "",
    queries: str = "",
    qrels: str = "",
    encoding: str = UTF_8,
) -> Collection:
    """Reads a collection from tables, JSON Lines or Parquet, or in Cranfield's format.

    Documents and queries are JSON Lines or Parquet with `_id` (or `id`), `text` and optionally
    `title`, as in BEIR. They can also be tables with such a header, or, as in MS MARCO, tables with
    an ID and a text but without a header. Queries without qrels are dropped. Qrels for unknown
    queries or documents are dropped with a warning.

    Each split may have separate qrels and queries, with the word train, dev or test in the name of
    the file or directory: `qrels/train.tsv`, `qrels.dev.tsv`, `test/qrels.txt`. With multiple
    splits, the first is used for training and the last for scoring. Queries in both splits are only
    scored.

    Args:
        directory: The directory with the files.
        documents, queries, qrels: The names of the files. If a name is empty, common names are
            tried. If all are empty, Cranfield's files are tried first.
        encoding: The encoding of text files without a byte order mark.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is invalid. The message contains the file and the line.
    """
    roles = {"documents": documents, "queries": queries, "qrels": qrels}
    if not any(roles.values()) and (directory / "cran.all.1400").is_file():
        return read_cranfield(directory, encoding)
    paths = {role: _find(directory, role, name) for role, name in roles.items()}
    (texts_path,) = paths["documents"].values()
    texts = _texts(texts_path, encoding)
    graded: dict[str, dict[str, int]] = {}
    splits: dict[str, str] = {}
    for split, path in paths["qrels"].items():
        split_judgments = read_qrels(path, encoding)
        graded |= split_judgments
        splits |= dict.fromkeys(split_judgments, split)
    all_queries: dict[str, str] = {}
    for path in paths["queries"].values():
        all_queries |= _texts(path, encoding)
    judged_queries = {id: text for id, text in all_queries.items() if id in graded}
    judgments = {
        query: {document: grade for document, grade in graded[query].items() if document in texts}
        for query in judged_queries
    }
    total, num_known = (sum(map(len, grades.values())) for grades in (graded, judgments))
    judgment_files, query_files = (
        ", ".join(map(str, paths[role].values())) for role in ("qrels", "queries")
    )
    if not num_known:
        raise ValueError(
            f"the qrels in {judgment_files} must be for queries in {query_files} and documents in "
            f"{texts_path}. Received: {total} other qrels"
        )
    if num_known < total:
        logging.warning(
            "%s: %d of %d qrels are for unknown queries or documents",
            judgment_files,
            total - num_known,
            total,
        )
    names = dict.fromkeys(splits[query] for query in judged_queries)
    if len(names) < len(paths["qrels"]):
        raise ValueError(
            f"each split of {judgment_files} must have at least one query in {query_files}"
        )
    if len(names) == 1:
        if not qrels:
            logging.warning(
                "%s is the only file of qrels. Most of its queries are used for training, and the "
                "rest for scoring",
                judgment_files,
            )
        return Collection(texts, judged_queries, judgments)
    logging.info("qrels for training and scoring: %s", judgment_files)
    return Collection(
        texts, judged_queries, judgments, {query: splits[query] for query in judged_queries}
    )


def is_collection(directory: Path) -> bool:
    """Returns whether a directory contains a collection's files under common names."""
    try:
        return (directory / "cran.all.1400").is_file() or all(
            _find(directory, role, "") for role in _FILES
        )
    except FileNotFoundError:
        return False


def _find(directory: Path, role: str, name: str) -> dict[str, Path]:
    """Returns a role's files by split. A single file for all splits has the split `""`."""
    splits = {} if name else _split_files(directory, role)
    if role == "qrels" and len(splits) > 2:
        first, *_, last = splits
        splits = {first: splits[first], last: splits[last]}
    names = (name,) if name else _FILES[role]
    candidates = [directory / f"{name}{suffix}" for suffix in ("", *COMPRESSIONS) for name in names]
    file = next((path for path in candidates if path.is_file()), None)
    # Either one file contains the queries of all splits, or the qrels have no splits.
    if file is not None and not (splits and role == "qrels"):
        return {"": file}
    if splits:
        return splits
    advice = "" if name else f". Pass --{role} if the file has a different name"
    raise FileNotFoundError(
        f"{directory} must have the {role} in {' or '.join(names)}. Received: no such file{advice}"
    )


def _split_files(directory: Path, role: str) -> dict[str, Path]:
    """Returns a role's files by split, if a file or directory name contains a split."""
    paths: dict[str, tuple[int, Path]] = {}
    for path in (
        sorted([*directory.glob("*"), *directory.glob("*/*")]) if role in _ROLE_WORDS else ()
    ):
        words = re.split(r"[^a-z]+", str(path.relative_to(directory)).casefold())
        if not path.is_file() or set(words).isdisjoint(_ROLE_WORDS[role]):
            continue
        for split, names in _SPLITS.items():
            # Prefer the fewest words: in MS MARCO, `qrels.dev.tsv` over `qrels.dev.small.tsv`.
            if not set(words).isdisjoint(names):
                paths[split] = min(paths.get(split, (len(words), path)), (len(words), path))
    return {split: paths[split][1] for split in _SPLITS if split in paths}


def _texts(path: Path, encoding: str) -> dict[str, str]:
    """Reads the texts of documents or queries by ID."""
    texts: dict[str, str] = {}
    for place, id, text in _texts_with_ids(path, encoding):
        if id in texts:
            raise row_error(path, place, f"each id must be unique. Received: {excerpt(id)} again")
        texts[id] = " ".join(text.split())
    if not texts:
        raise ValueError(f"{path} must have at least one row")
    return texts


def _texts_with_ids(path: Path, encoding: str) -> Iterator[tuple[str, str, str]]:
    format = infer_format(path, encoding)
    if format in ("jsonl", "arrow"):
        for place, record in read_records(path, format, encoding=encoding):
            title, text = record.get("title") or "", _field(path, place, record, ("text",))
            yield place, _field(path, place, record, _IDS), f"{title} {text}"
        return
    columns = [0, 1]
    for number, (place, cells) in enumerate(read_cells(path, format, encoding=encoding)):
        names = [cell.strip().casefold() for cell in cells]
        if not number and names[0] in _IDS:
            columns = [0, *(names.index(name) for name in _TEXTS if name in names)]
            if "text" not in names:
                raise row_error(
                    path, place, f"the header must include text. Received: {excerpt(cells, 300)}"
                )
            width = len(cells)
            continue
        width = len(cells) if not number else width
        if len(cells) != width or (columns == [0, 1] and width != 2 and not number):
            rule = (
                f"each row must have {width} columns"
                if number
                else "the first row must be an id and a text, or a header"
            )
            raise row_error(path, place, f"{rule}. Received: {len(cells)} columns")
        id, *parts = (cells[column].strip() for column in columns)
        yield place, id, " ".join(parts)


def _field(path: Path, place: str, record: Mapping[str, Any], names: Sequence[str]) -> str:
    """Returns the first field with a string or an integer, converted to a string."""
    for name in names:
        if isinstance(record.get(name), str | int) and not isinstance(record[name], bool):
            return str(record[name])
    raise row_error(
        path,
        place,
        f"the fields must include {names[0]}, a string or an integer. Received: "
        f"{excerpt(sorted(record), 300)}",
    )


def read_cranfield(directory: Path, encoding: str = UTF_8) -> Collection:
    """Reads the Cranfield collection: `cran.all.1400`, `cran.qry` and `cranqrel`.

    The qrels number the queries from 1 to 225 in the order of `cran.qry`. The IDs in `cran.qry` are
    different. All grades above 0 become 1, because the files and their documentation disagree about
    the best grade.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is invalid. The message contains the file and the line.
    """
    documents = {
        str(number): " ".join(text.split())
        for number, text in _records(directory / "cran.all.1400", ("T", "W"), encoding)
    }
    queries = {
        str(number): " ".join(text.split())
        for number, (_, text) in enumerate(
            _records(directory / "cran.qry", ("W",), encoding), start=1
        )
    }
    qrels = {
        query: {document: int(grade > 0) for document, grade in grades.items()}
        for query, grades in read_qrels(directory / "cranqrel", encoding).items()
    }
    return Collection(documents, queries, qrels)


def _records(path: Path, parts: Sequence[str], encoding: str) -> Iterator[tuple[int, str]]:
    """Yields the number of each `.I` record, and its requested parts as one text."""
    number, part, texts = 0, "", dict.fromkeys(parts, "")
    for line, text in enumerate(read_lines(path, encoding), start=1):
        text = text.rstrip("\r\n")
        if text.startswith(".I"):
            if number:
                yield number, _joined(texts)
            if not text[2:].strip().isdecimal():
                message = f"the line must be .I and a number. Received: {text!r}"
                raise row_error(path, f"line {line}", message)
            number, part, texts = int(text[2:]), "", dict.fromkeys(parts, "")
        elif len(text.strip()) == 2 and text.startswith("."):
            part = text.strip()[1]
        elif not number:
            message = f"the first line must be .I and a number. Received: {text!r}"
            raise row_error(path, f"line {line}", message)
        elif part in texts:
            texts[part] += text + "\n"
    if number:
        yield number, _joined(texts)


def _joined(texts: Mapping[str, str]) -> str:
    title, *rest = texts.values()
    return title + "".join(text.removeprefix(title) for text in rest)


def _fields(path: Path, encoding: str) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(read_lines(path, encoding), start=1):
        if line.strip():
            yield f"line {number}", line.split()
