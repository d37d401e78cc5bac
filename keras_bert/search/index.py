# SPDX-License-Identifier: Apache-2.0
"""An index of documents in one directory, for search by words and by embeddings.

The directory contains an SQLite database with the documents, and the embeddings of their passages.
Every change is a transaction: other processes can search while documents are added, and a killed
process loses only the documents that it was adding. The files for fast searches, by `WordIndex` and
`NearestVectors`, are made from the database.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_bert import checks
from keras_bert.data.arrays import unit_rows
from keras_bert.progress import bar
from keras_bert.search.documents import Document
from keras_bert.search.late_interaction import TokenVectors
from keras_bert.search.nearest import NO_GRAPH, NearestVectors
from keras_bert.search.passages import (
    WITHOUT_ENCODER,
    Window,
    shorten_title,
    split_passages,
    text_with_title,
)
from keras_bert.search.retriever import (
    EmbeddingRetriever,
    Ranking,
    Retriever,
    begin,
    check_embedder,
    execute_when_free,
    kind_of,
    make_retrievers,
    snapshot,
)
from keras_bert.search.sparse import SparseVectors
from keras_bert.search.terms import terms
from keras_bert.search.words import WordIndex
from keras_bert.text.characters import check_characters

# The methods with an embedder. Those that order candidates are last.
RETRIEVERS: tuple[type[EmbeddingRetriever], ...] = (SparseVectors, NearestVectors, TokenVectors)

FUSED = "fused"
"""The mode that fuses all methods."""
DATABASE = "index.sqlite"
# SQLite stores these numbers in the file's header.
_APPLICATION_ID, _VERSION = 0x4B426572, 3
_COUNT_TABLES = "SELECT count(*) FROM sqlite_master"
_SCHEMA = """
CREATE TABLE settings(name TEXT PRIMARY KEY, value NOT NULL);
CREATE TABLE documents(id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, title TEXT NOT NULL,
    text TEXT NOT NULL, page_starts TEXT NOT NULL, digest BLOB NOT NULL);
CREATE TABLE passages(id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL,
    start INTEGER NOT NULL, stop INTEGER NOT NULL);
CREATE INDEX passages_of_documents ON passages(document);
CREATE TABLE removed(id INTEGER PRIMARY KEY);
CREATE TABLE embedders(method TEXT PRIMARY KEY, probe BLOB NOT NULL, max_tokens INTEGER NOT NULL);
"""
_EMBEDDINGS = "CREATE TABLE {}(id INTEGER PRIMARY KEY, data BLOB NOT NULL)"
# Passages that are added in one transaction, if their documents have no more
_PASSAGES_AT_A_TIME = 512
_PASSAGES_PER_ENCODING = 128
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


class _SplitDocument(NamedTuple):
    """A document to add: its digest, the title in front of its passages, and their places."""

    document: Document
    digest: bytes
    title: str
    spans: list[tuple[int, int]]

    @property
    def texts(self) -> list[str]:
        text = self.document.text
        return [text_with_title(self.title, text[start:stop]) for start, stop in self.spans]


class SearchIndex:
    """Documents in one directory, with the terms and embeddings of their passages.

    Threads and processes can share an index. One process at a time adds or removes documents, and
    all others search meanwhile.

    Args:
        directory: The index's directory. It is created if it does not exist. A directory with other
            files must already contain an index.
        embedders: The embedder for passages and queries, or a sequence of at most one embedder of
            each kind: a `TextEmbedder` or `StaticEmbedder`, a `SparseEmbedder`, and a
            `LateInteractionEmbedder`. An index always needs the same ones. Without any, it only
            finds words.

    Attributes:
        methods: The names of the methods that find passages: `"words"`, and for each embedder
            `"vectors"`, `"sparse"` or `"late"`.

    Raises:
        FileExistsError: If the directory contains other files, but no index, or if it is a file.
        SearchIndexError: If the directory's index cannot be read, or has embeddings from other
            embedders.
        ValueError: If two embedders are of the same kind.

    Example:

    ```python
    embedder = keras_bert.TextEmbedder.from_preset("minilm")
    index = SearchIndex("index", embedder)
    index.add(read_documents("docs"))
    ```
    """

    def __init__(
        self, directory: str | os.PathLike[str], embedders: Any | Sequence[Any] = ()
    ) -> None:
        self.directory = Path(directory)
        if self.directory.is_file():
            raise FileExistsError(f"{directory} must be a directory. Received: a file")
        self._embedders = make_retrievers(RETRIEVERS, self.directory, embedders)
        self._lock, self._writing = threading.RLock(), threading.RLock()
        path = self.directory / DATABASE
        # Listing first, because another process may be creating the database.
        others = os.listdir(self.directory) if self.directory.exists() else []
        if others and not path.exists():
            raise FileExistsError(
                f"{self.directory} must be a new directory or contain an index. Received: a "
                f"directory with {others[0]}, but without {DATABASE}"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        # Searches do not wait for changes, which have a connection and a lock of their own.
        self._connection, self._writer = self._connect(), self._connect()
        try:
            self._open()
            self._words = WordIndex(self.directory)
            retrievers: list[Retriever] = [self._words, *self._embedders]
            self._retrievers = {retriever.name: retriever for retriever in retrievers}
            self.methods = tuple(self._retrievers)
            if not self._words.is_current(self._writer):
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
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def _open(self) -> None:
        run = self._writer.execute
        # Readers continue while another process writes.
        execute_when_free(self._writer, "PRAGMA journal_mode = WAL")
        if self._identity() == [0, 0, 0]:
            with self._transaction():
                if self._identity() == [0, 0, 0]:
                    self._create()
        application, version, _ = self._identity()
        if [application, version] != [_APPLICATION_ID, _VERSION]:
            raise SearchIndexError(
                f"{self.directory / DATABASE} must be an index of version {_VERSION}. "
                f"Received: application_id={application}, user_version={version}. Build it again "
                "in a new directory."
            )
        stored = {name: own for name, *own in run("SELECT * FROM embedders")}
        given = [retriever.name for retriever in self._embedders]
        rule = f"{self.directory} must be opened with the embedders that it was built with"
        if {*stored} != {*given}:
            raise SearchIndexError(
                f"{rule}, for the methods: {', '.join(stored) or 'none'}. Received: "
                f"{', '.join(given) or 'none'}. Pass the same embedders (--embedder in commands)"
            )
        for retriever in self._embedders:
            if difference := retriever.difference(*stored[retriever.name]):
                raise SearchIndexError(
                    f"{rule}. Received: a {type(retriever.embedder).__name__} with {difference}. "
                    "Pass the same embedders (--embedder and --sequence_length in commands)"
                )

    def _identity(self) -> list[int]:
        """Returns the database's application, its version and its number of tables."""
        queries = "PRAGMA application_id", "PRAGMA user_version", _COUNT_TABLES
        return [self._writer.execute(query).fetchone()[0] for query in queries]

    def _create(self) -> None:
        run = self._writer.execute
        for statement in _SCHEMA.strip().split(";\n"):
            run(statement)
        run(f"PRAGMA application_id = {_APPLICATION_ID}")
        run(f"PRAGMA user_version = {_VERSION}")
        for retriever in self._embedders:
            run(_EMBEDDINGS.format(retriever.name))
            row = retriever.name, retriever.probe.tobytes(), retriever.window.max_tokens
            run("INSERT INTO embedders VALUES(?, ?, ?)", row)
        values = {"generation": 0, "graph": NO_GRAPH, "graph_last": 0}
        self._writer.executemany("INSERT INTO settings VALUES(?, ?)", values.items())

    def close(self) -> None:
        """Closes the files."""
        for retriever in self._embedders:
            retriever.close()
        self._connection.close()
        self._writer.close()

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

    def add(self, documents: Document | Iterable[Document], verbose: int = 0) -> int:
        """Adds documents. A document with the name of another document replaces it.

        Documents that the index already contains unchanged are skipped, so a killed call continues
        where it stopped. Every few hundred passages are added in one transaction, and longer
        documents in one each.

        Args:
            documents: A document, or an iterable of documents, for example from `read_documents`.
            verbose: 0 or 1. With 1, it shows a progress bar of passages.

        Returns:
            The number of added and replaced documents.

        Raises:
            ValueError: If a name is empty, or if an element is not a `Document`.
        """
        num_added = num_new = 0
        with (
            self._updating_words(),
            bar("passages", None, " passages", disable=not verbose) as progress_bar,
        ):
            for group in self._groups(documents):
                texts = [text for split in group for text in split.texts]
                rows = self._encode(texts, progress_bar.update)
                with self._transaction():
                    for split in group:
                        self._insert(split, rows)
                    self._count_generation()
                num_added += len(group)
                num_new += len(texts)
                if num_new >= _PASSAGES_PER_UPDATE:
                    self._update_words()
                    num_new = 0
        self._build(verbose)
        return num_added

    def _encode(
        self, texts: list[str], progress: Callable[[int], Any]
    ) -> Iterator[tuple[bytes, ...]]:
        """Returns the embeddings of each passage, in the order of the embedders."""
        rows: list[tuple[bytes, ...]] = []
        for start in range(0, len(texts), _PASSAGES_PER_ENCODING):
            part = texts[start : start + _PASSAGES_PER_ENCODING]
            encoded = [retriever.encode(part) for retriever in self._embedders]
            rows += zip(*encoded, strict=True) if encoded else [()] * len(part)
            progress(len(part))
        return iter(rows)

    def remove(self, names: str | Iterable[str]) -> int:
        """Removes documents by name.

        Args:
            names: A name, or an iterable of names.

        Returns:
            The number of removed documents. Names of other documents are ignored.
        """
        with self._updating_words(), self._transaction():
            given = [names] if isinstance(names, str) else names
            count = sum(map(self._delete, dict.fromkeys(given)))
            if count:
                self._count_generation()
        self._build(0)
        return count

    def _update_words(self) -> None:
        with self._transaction():
            self._words.update(self._writer)
            self._count_generation()

    @contextlib.contextmanager
    def _updating_words(self) -> Iterator[None]:
        """Context manager that updates the words at the end, also after an error."""
        try:
            yield
        finally:
            self._update_words()

    def _build(self, verbose: int) -> None:
        with contextlib.closing(self._connect()) as connection:
            for retriever in self._embedders:
                retriever.build(connection, verbose)

    def _groups(self, documents: Document | Iterable[Document]) -> Iterator[list[_SplitDocument]]:
        """Yields groups of new or changed documents."""
        group: list[_SplitDocument] = []
        names: set[str] = set()
        count = 0
        for document in [documents] if isinstance(documents, Document) else documents:
            if not isinstance(document, Document):
                raise ValueError(
                    f"documents must be Document objects. Received: {checks.shorten_repr(document)}"
                )
            if not document.name:
                raise ValueError(
                    f"A document's name must not be empty. Received: {document!r:.200}"
                )
            for part in (document.name, document.title, document.text):
                check_characters(part, f"The document {document.name!r}")
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
            windows = [retriever.window for retriever in self._embedders]
            split = _split(document, digest, windows or [WITHOUT_ENCODER])
            group.append(split)
            names.add(document.name)
            count += len(split.spans)
            if count >= _PASSAGES_AT_A_TIME:
                yield group
                group, names, count = [], set(), 0
        if group:
            yield group

    def _insert(self, split: _SplitDocument, rows: Iterator[tuple[bytes, ...]]) -> None:
        document, digest, _, spans = split
        self._delete(document.name)
        run = self._writer.execute
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
            passage = run(
                "INSERT INTO passages(document, start, stop) VALUES(?, ?, ?)", (number, start, stop)
            ).lastrowid
            for retriever, data in zip(self._embedders, next(rows), strict=True):
                run(f"INSERT INTO {retriever.name} VALUES(?, ?)", (passage, data))

    def _delete(self, name: str) -> bool:
        run = self._writer.execute
        row = run("SELECT id FROM documents WHERE name = ?", (name,)).fetchone()
        if row is None:
            return False
        run("INSERT INTO removed SELECT id FROM passages WHERE document = ?", row)
        for retriever in self._embedders:
            run(
                f"DELETE FROM {retriever.name} WHERE id IN "
                "(SELECT id FROM passages WHERE document = ?)",
                row,
            )
        run("DELETE FROM passages WHERE document = ?", row)
        run("DELETE FROM documents WHERE id = ?", row)
        return True

    def _count_generation(self) -> None:
        self._writer.execute("UPDATE settings SET value = value + 1 WHERE name = 'generation'")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._writing:
            begin(self._writer)
            try:
                yield
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")

    # === Search ===

    def search(
        self, method: str, query: str, count: int, candidates: Sequence[int] = ()
    ) -> Ranking:
        """Finds passages by one of the index's methods.

        Args:
            method: `"words"` for BM25, `"vectors"` for the cosine similarity of embeddings,
                `"sparse"` for the dot product of sparse embeddings, or `"late"` to order
                `candidates` by late interaction (MaxSim).
            query: The query.
            count: Maximum number of passages.
            candidates: The numbers of passages that other methods found. Only `"late"` needs them.

        Returns:
            The numbers and scores of passages, in descending order of score.

        Raises:
            ValueError: If the index has no such method, or if `count` is not positive.
            SearchIndexError: If the embeddings in the database are invalid.
        """
        checks.check_choice(self.methods, method=method)
        checks.POSITIVE_INT.check(count=count)
        retriever = self._retrievers[method]
        needed = retriever.read_query(query) if query.strip() else None
        count = min(count, self._newest())
        if needed is None or not count:
            return []
        try:
            with self._lock:
                return retriever.search(self._connection, needed, count, [*map(int, candidates)])
        except ValueError as error:
            if retriever is self._words:
                raise
            path = self.directory / DATABASE
            raise SearchIndexError(f"{path} cannot be read as an index: {error}") from error

    def methods_of(self, mode: str) -> tuple[str, ...]:
        """Returns the methods that `Searcher.search` uses in a mode, in this order."""
        needs_all = mode == FUSED or self._retrievers[mode].orders_candidates
        return self.methods if needs_all else (mode,)

    def rarities(self, query: str) -> dict[str, float]:
        """Returns the inverse document frequency of each term in a query, over all passages."""
        with self._lock:
            return self._words.rarities(self._connection, dict.fromkeys(terms(query)))

    def passages(self, numbers: Sequence[int]) -> list[Passage]:
        """Returns passages by their numbers. Removed passages are left out."""
        run, found = self._connection.execute, {}
        with self._lock, snapshot(self._connection):
            places: dict[int, list[tuple[int, int, int]]] = {}
            for document, *place in run(
                "SELECT document, id, start, stop FROM passages WHERE id IN "
                "(SELECT value FROM json_each(?))",
                (json.dumps(list(map(int, numbers))),),
            ):
                places.setdefault(document, []).append(place)
            for document, own in places.items():  # Its text is read once.
                name, title, text, page_starts = run(
                    "SELECT name, title, text, page_starts FROM documents WHERE id = ?", (document,)
                ).fetchone()
                pages = json.loads(page_starts)
                for number, start, stop in own:
                    page = _page(pages, start)
                    found[number] = Passage(number, name, title, text[start:stop], start, page)
        return [found[number] for number in numbers if number in found]

    def _newest(self) -> int:
        """Returns the largest number of a passage. Counting passages would read a whole index."""
        with self._lock:
            (newest,) = self._connection.execute("SELECT max(id) FROM passages").fetchone()
        return newest or 0


def embed_document(document: Document, embedder: Any) -> list[dict[str, Any]]:
    """Splits a document into passages and embeds them, for another search engine.

    The passages are the same as in a `SearchIndex`. Documents are embedded separately, so a
    document's vectors do not depend on other documents.

    Args:
        document: The document, for example from `read_documents`.
        embedder: The `TextEmbedder` or `StaticEmbedder` for passages.

    Returns:
        A dict for each passage, which can be written as JSON: `document` (its name), `title`,
        `text`, `start` (the offset of its first character), `page` (from 1, or `None`) and
        `vector`, a list of floats with unit norm.

    Raises:
        ValueError: If the embedder does not compute one vector for each text.

    Example:

    ```python
    embedder = keras_bert.TextEmbedder.from_preset("minilm")
    for document in read_documents("docs"):
        for passage in embed_document(document, embedder):
            print(json.dumps(passage))
    ```
    """
    check_embedder(embedder)
    # It reads no files, and needs no probe to split.
    window = NearestVectors(Path(), embedder, np.zeros(0, "float32")).window
    split = _split(document, b"", [window])
    if not split.spans:
        return []
    embeddings = embedder.embed_documents(split.texts)
    if kind_of(RETRIEVERS, embeddings) is not NearestVectors:
        raise ValueError(
            "embedder must be a TextEmbedder or a StaticEmbedder. Received: a "
            f"{type(embedder).__name__}"
        )
    vectors = unit_rows(embeddings).tolist()
    return [
        {
            "document": document.name,
            "title": document.title,
            "text": document.text[start:stop],
            "start": start,
            "page": _page(document.page_starts, start),
            "vector": vector,
        }
        for (start, stop), vector in zip(split.spans, vectors, strict=True)
    ]


def _split(document: Document, digest: bytes, windows: Sequence[Window]) -> _SplitDocument:
    """Splits a document into passages that fit into all windows."""
    text, title = document.text, document.title
    for tokenizer, max_tokens in windows:
        title = shorten_title(title, tokenizer, max_tokens // 2)
    narrowest, *others = sorted(windows, key=lambda window: window.max_tokens)
    spans = split_passages(text, narrowest.tokenizer, _room(narrowest, title))
    for window in others:  # Tokenizers differ in the lengths of texts.
        tokenizer, room = window.tokenizer, _room(window, title)
        spans = [
            (start + first, start + last)
            for start, stop in spans
            for first, last in (
                [(0, stop - start)]
                if len(tokenizer(text[start:stop])) <= room
                else split_passages(text[start:stop], tokenizer, room)
            )
        ]
    return _SplitDocument(document, digest, title, spans)


def _room(window: Window, title: str) -> int:
    """Returns the number of tokens that fit into a passage after a title."""
    return window.max_tokens - len(window.tokenizer(title))


def _page(page_starts: Sequence[int], start: int) -> int | None:
    """Returns the page of a character, from 1, or `None` for documents without pages."""
    return bisect.bisect_right(page_starts, start) if page_starts else None


def _digest(document: Document) -> bytes:
    content = json.dumps([document.title, document.text, document.page_starts])
    return hashlib.sha256(content.encode()).digest()
