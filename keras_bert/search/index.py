# SPDX-License-Identifier: Apache-2.0
"""An index of documents in one directory, for search by words and by vectors.

The directory contains an SQLite database with the documents, and the vectors of their passages.
Every change is a transaction: other processes can search while documents are added, and a killed
process loses only the documents that it was adding. The files for fast searches, by `WordIndex` and
`NearestVectors`, are made from the database.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_bert.data.arrays import unit_rows
from keras_bert.data.prompts import Prompts
from keras_bert.progress import bar
from keras_bert.search.documents import Document
from keras_bert.search.nearest import NO_GRAPH, NearestVectors
from keras_bert.search.passages import split_passages, text_with_title
from keras_bert.search.terms import terms
from keras_bert.search.words import WordIndex
from keras_bert.text.characters import check_characters

Array = np.ndarray[Any, Any]

DATABASE = "index.sqlite"
# SQLite stores these numbers in the file's header.
_APPLICATION_ID, _VERSION = 0x4B426572, 1
_COUNT_TABLES = "SELECT count(*) FROM sqlite_master"
_SCHEMA = """
CREATE TABLE settings(name TEXT PRIMARY KEY, value NOT NULL);
CREATE TABLE documents(id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, title TEXT NOT NULL,
    text TEXT NOT NULL, page_starts TEXT NOT NULL, digest BLOB NOT NULL);
CREATE TABLE passages(id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL,
    start INTEGER NOT NULL, stop INTEGER NOT NULL, vector BLOB NOT NULL);
CREATE INDEX passages_of_documents ON passages(document);
CREATE TABLE removed(id INTEGER PRIMARY KEY);
"""
# A text whose vector identifies the embedder
_PROBE = "The quick brown fox jumps over the lazy dog."
_MIN_SIMILARITY = 0.999
# Passages that are added in one transaction
_PASSAGES_AT_A_TIME = 512
# Passages that are added to the word index at once
_PASSAGES_PER_UPDATE = 20_000


class SearchIndexError(ValueError):
    """An index cannot be read, or belongs to another embedder."""


class Passage(NamedTuple):
    """A passage in a document.

    Args:
        id: The passage's number.
        document: The document's name.
        title: The document's title.
        text: The passage's text.
        start: The offset of its first character in the document.
        page: The page of its first character, from 1. `None` for documents without pages.
    """

    id: int
    document: str
    title: str
    text: str
    start: int
    page: int | None


class SearchIndex:
    """Documents in one directory, with the terms and vectors of their passages.

    Threads and processes can share an index. One process at a time adds or removes documents, and
    all others search meanwhile.

    Args:
        directory: The index's directory. It is created if it does not exist. A directory with other
            files must already contain an index.
        embedder: The `TextEmbedder` or `StaticEmbedder` for passages and queries. An index always
            needs the same one.

    Raises:
        FileExistsError: If the directory contains other files, but no index.
        SearchIndexError: If the directory's index cannot be read, or has vectors from another
            embedder.

    Example:

    ```python
    embedder = keras_bert.TextEmbedder.from_preset("minilm")
    index = SearchIndex("index", embedder)
    index.add(read_documents("docs"))
    ```
    """

    def __init__(self, directory: str | os.PathLike[str], embedder: Any) -> None:
        self.directory = Path(directory)
        self.embedder = embedder
        self._lock = threading.RLock()
        path = self.directory / DATABASE
        if not path.exists() and self.directory.exists() and any(self.directory.iterdir()):
            raise FileExistsError(
                f"{self.directory} must be a new directory or contain an index. Received: a "
                f"directory with {next(self.directory.iterdir()).name}, but without {DATABASE}"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        self._nearest = NearestVectors(self.directory)
        self._connection = self._connect()
        try:
            self._open()
            self._words = WordIndex(self.directory)
            if not self._words.is_current(self._connection):
                self._update_words()
        except sqlite3.OperationalError as error:
            self.close()
            raise SearchIndexError(f"{path} cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            self.close()
            raise SearchIndexError(f"{path} cannot be read as an index: {error}") from error
        except BaseException:
            self.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        path = self.directory / DATABASE
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=60)

    def _open(self) -> None:
        run, own = self._connection.execute, self._probe()
        run("PRAGMA trusted_schema = OFF")
        # Readers continue while another process writes.
        run("PRAGMA journal_mode = WAL")
        if self._identity() == [0, 0, 0]:
            with self._transaction():
                if self._identity() == [0, 0, 0]:
                    self._create(own)
        application, version, _ = self._identity()
        if [application, version] != [_APPLICATION_ID, _VERSION]:
            raise SearchIndexError(
                f"{self.directory / DATABASE} must be an index of version {_VERSION}. "
                f"Received: application_id={application}, user_version={version}"
            )
        stored = np.frombuffer(self._setting("probe"), "float32")
        is_same_size = stored.shape == own.shape
        similarity = float(stored @ own) if is_same_size else 0.0
        if similarity < _MIN_SIMILARITY and stored.tobytes() != own.tobytes():
            difference = (
                f"cosine similarity {similarity:.3f}" if is_same_size else f"{own.size} dimensions"
            )
            raise SearchIndexError(
                f"{self.directory} must be opened with the embedder of its vectors, which have "
                f"{stored.size} dimensions. Received: an embedder with another vector for the same "
                f"text ({difference})"
            )

    def _identity(self) -> list[int]:
        """Returns the database's application, its version and its number of tables."""
        queries = "PRAGMA application_id", "PRAGMA user_version", _COUNT_TABLES
        return [self._connection.execute(query).fetchone()[0] for query in queries]

    def _create(self, probe: Array) -> None:
        for statement in _SCHEMA.strip().split(";\n"):
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version = {_VERSION}")
        values = {"generation": 0, "graph": NO_GRAPH, "graph_last": 0, "probe": probe.tobytes()}
        self._connection.executemany("INSERT INTO settings VALUES(?, ?)", values.items())

    def close(self) -> None:
        """Closes the files."""
        self._nearest.close()
        self._connection.close()

    def __len__(self) -> int:
        """Returns the number of passages."""
        with self._lock:
            return int(self._connection.execute("SELECT count(*) FROM passages").fetchone()[0])

    @property
    def document_names(self) -> list[str]:
        """The names of the documents, sorted."""
        with self._lock:
            rows = self._connection.execute("SELECT name FROM documents ORDER BY name")
            return [name for (name,) in rows]

    # === Changes ===

    def add(self, documents: Iterable[Document], verbose: int = 0) -> int:
        """Adds documents. A document with the name of another document replaces it.

        Documents that the index already contains unchanged are skipped, so a killed call continues
        where it stopped. Every few hundred passages are added in one transaction.

        Args:
            documents: The documents, for example from `read_documents`.
            verbose: 0 or 1. With 1, it shows a progress bar of passages.

        Returns:
            The number of added and replaced documents.

        Raises:
            ValueError: If a name is empty.
        """
        num_added = num_new = 0
        with (
            self._updating_words(),
            bar("passages", None, " passages", disable=not verbose) as progress_bar,
        ):
            for group in self._groups(documents):
                texts = [
                    text_with_title(document.title, document.text[start:stop])
                    for document, _, spans in group
                    for start, stop in spans
                ]
                vectors = (
                    unit_rows(self.embedder.embed_documents(texts)) if texts else np.zeros((0, 0))
                )
                with self._transaction():
                    rows = iter(np.ascontiguousarray(vectors, "float32"))
                    for document, digest, spans in group:
                        self._insert(document, digest, spans, rows)
                    self._count_generation()
                num_added += len(group)
                progress_bar.update(len(texts))
                num_new += len(texts)
                if num_new >= _PASSAGES_PER_UPDATE:
                    self._update_words()
                    num_new = 0
        self._build_graph(verbose)
        return num_added

    def remove(self, names: Iterable[str]) -> int:
        """Removes documents by name.

        Returns:
            The number of removed documents. Names of other documents are ignored.
        """
        with self._updating_words(), self._transaction():
            count = sum(map(self._delete, dict.fromkeys(names)))
            if count:
                self._count_generation()
        self._build_graph(0)
        return count

    def _update_words(self) -> None:
        with self._transaction():
            self._words.update(self._connection)
            self._count_generation()

    @contextlib.contextmanager
    def _updating_words(self) -> Iterator[None]:
        """Context manager that updates the words at the end, also after an error."""
        try:
            yield
        finally:
            self._update_words()

    def _build_graph(self, verbose: int) -> None:
        with contextlib.closing(self._connect()) as connection:
            graph = self._nearest.build(connection, verbose)
        if graph is not None:
            with self._transaction():
                self._nearest.use(self._connection, graph)
                self._count_generation()

    def _groups(
        self, documents: Iterable[Document]
    ) -> Iterator[list[tuple[Document, bytes, list[tuple[int, int]]]]]:
        """Yields groups of new or changed documents with their digests and passages."""
        group: list[tuple[Document, bytes, list[tuple[int, int]]]] = []
        names: set[str] = set()
        count = 0
        for document in documents:
            if not document.name:
                raise ValueError(
                    f"A document's name must not be empty. Received: {document!r:.200}"
                )
            check_characters(document.text, f"The document {document.name!r}")
            if document.name in names:
                yield group
                group, names, count = [], set(), 0
            digest = _digest(document)
            with self._lock:
                row = self._connection.execute(
                    "SELECT digest FROM documents WHERE name = ?", (document.name,)
                ).fetchone()
            if row is not None and row[0] == digest:
                continue
            spans = self._passages(document)
            group.append((document, digest, spans))
            names.add(document.name)
            count += len(spans)
            if count >= _PASSAGES_AT_A_TIME:
                yield group
                group, names, count = [], set(), 0
        if group:
            yield group

    def _passages(self, document: Document) -> list[tuple[int, int]]:
        preprocessor = self.embedder.preprocessor
        tokenizer = preprocessor.tokenizer
        prompts = Prompts(getattr(self.embedder, "prompts", {}))
        prompt = len(tokenizer(prompts.text(prompts.document_name)))
        length = max(1, preprocessor.max_tokens(1) - prompt)
        title = len(tokenizer(document.title)) if document.title else 0
        return split_passages(document.text, tokenizer, max(length - title, length // 2))

    def _insert(
        self, document: Document, digest: bytes, spans: Sequence[tuple[int, int]], vectors: Any
    ) -> None:
        self._delete(document.name)
        run = self._connection.execute
        number = run(
            "INSERT INTO documents(name, title, text, page_starts, digest) VALUES(?, ?, ?, ?, ?)",
            (
                document.name,
                document.title,
                document.text,
                json.dumps(document.page_starts),
                digest,
            ),
        ).lastrowid
        for start, stop in spans:
            run(
                "INSERT INTO passages(document, start, stop, vector) VALUES(?, ?, ?, ?)",
                (number, start, stop, next(vectors).tobytes()),
            )

    def _delete(self, name: str) -> bool:
        run = self._connection.execute
        row = run("SELECT id FROM documents WHERE name = ?", (name,)).fetchone()
        if row is None:
            return False
        run("INSERT INTO removed SELECT id FROM passages WHERE document = ?", row)
        run("DELETE FROM passages WHERE document = ?", row)
        run("DELETE FROM documents WHERE id = ?", row)
        return True

    def _count_generation(self) -> None:
        self._connection.execute("UPDATE settings SET value = value + 1 WHERE name = 'generation'")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    # === Search ===

    def by_words(self, query: str, count: int) -> list[tuple[int, float]]:
        """Returns the passages that contain words of a query, by BM25.

        Args:
            query: The query.
            count: Maximum number of passages.

        Returns:
            The numbers and scores of passages, in descending order of score.

        Reference:
            [The probabilistic relevance framework](https://doi.org/10.1561/1500000019), with
            k1=1.2 and b=0.75 as in Lucene.
        """
        words = dict.fromkeys(terms(query))
        if not words:
            return []
        count = min(count, self._newest())
        with self._lock:
            return self._words.search(self._connection, words, count) if count else []

    def rarities(self, query: str) -> dict[str, float]:
        """Returns the inverse document frequency of each term in a query, over all passages."""
        words = dict.fromkeys(terms(query))
        total = len(self)
        with self._lock:
            frequencies = self._words.frequencies(self._connection, words)
        return {
            word: math.log(1 + total / (1 + frequency)) for word, frequency in frequencies.items()
        }

    def by_vector(self, query: str, count: int) -> list[tuple[int, float]]:
        """Returns the passages whose vectors are most similar to a query's.

        Args:
            query: The query.
            count: Maximum number of passages.

        Returns:
            The numbers and cosine similarities of passages, in descending order of similarity.
        """
        vector = unit_rows(self.embedder.embed_queries([query]))[0]
        count = min(count, self._newest())
        if not count or not vector.any():  # A static embedder may know none of the words.
            return []
        with self._lock:
            return self._nearest.search(self._connection, vector, count)

    def passages(self, numbers: Sequence[int]) -> list[Passage]:
        """Returns passages by their numbers. Removed passages are left out."""
        found = {}
        with self._lock:
            for number in numbers:
                row = self._connection.execute(
                    "SELECT name, title, text, start, stop, page_starts "
                    "FROM passages JOIN documents ON documents.id = document "
                    "WHERE passages.id = ?",
                    (number,),
                ).fetchone()
                if row is not None:
                    name, title, text, start, stop, page_starts = row
                    starts = json.loads(page_starts)
                    page = int(np.searchsorted(starts, start, "right")) if starts else None
                    found[number] = Passage(number, name, title, text[start:stop], start, page)
        return [found[number] for number in numbers if number in found]

    def _newest(self) -> int:
        """Returns the largest number of a passage. Counting passages would read a whole index."""
        with self._lock:
            (newest,) = self._connection.execute("SELECT max(id) FROM passages").fetchone()
        return newest or 0

    def _setting(self, name: str) -> Any:
        return self._connection.execute(
            "SELECT value FROM settings WHERE name = ?", (name,)
        ).fetchone()[0]

    def _probe(self) -> Array:
        return np.asarray(unit_rows(self.embedder.embed_queries([_PROBE]))[0])


def _digest(document: Document) -> bytes:
    content = json.dumps([document.title, document.text, document.page_starts])
    return hashlib.sha256(content.encode()).digest()
