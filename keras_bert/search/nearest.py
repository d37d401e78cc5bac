# SPDX-License-Identifier: Apache-2.0
"""Finds the nearest vectors of an index: exactly, and in large indexes from a graph.

The database is the only store. A graph is a file that can be built again from it: it contains all
passages up to a number, and later passages are compared exactly. A search reads a graph's file
through the page cache, so a process needs little memory of its own and starts at once.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sqlite3
import uuid
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_bert import checks
from keras_bert.atomic import atomic_path
from keras_bert.data.arrays import unit_rows
from keras_bert.progress import bar
from keras_bert.search.retriever import (
    Array,
    EmbeddingRetriever,
    Ranking,
    StoredRows,
    begin,
    best_rows,
    setting,
    snapshot,
    stored_rows,
)

MIN_PASSAGES = 50_000
"""The number of passages from which an index gets a graph. Fewer are compared in milliseconds."""
_MAX_NEW_FRACTION = 0.1
# Neighbors of a vector, and candidates that are compared for each, in construction and in searches
_CONNECTIVITY, _CONSTRUCTION, _SEARCH = 32, 128, 1024
# Vectors in the graph are rounded. Exact similarities order this multiple of the passages.
_OVERFETCH = 2
_FILE_NAME = re.compile(r"vectors-[0-9a-f]{12}\.usearch")
# The process that builds a graph keeps this database locked.
_LOCK_FILE = "graph.lock"
NO_GRAPH = ""


class Graph(NamedTuple):
    """The file of a graph, and the last passage that it contains."""

    name: str = NO_GRAPH
    last: int = 0


class NearestVectors(EmbeddingRetriever):
    """Finds the passages whose vectors have the largest cosine similarity to a query's."""

    name = "vectors"

    def __init__(self, directory: Path, embedder: Any, probe: Array) -> None:
        super().__init__(directory, embedder, probe)
        self._graph = Graph()
        self._index: Any = None
        self._rows = StoredRows(self.name, self._decode, np.concatenate)

    @staticmethod
    def accepts(embeddings: Any) -> bool:
        return np.ndim(embeddings[0]) == 1

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        return [vector.tobytes() for vector in unit_rows(self.embedder.embed_documents(texts))]

    def read_query(self, query: str) -> Any:
        vector = unit_rows(self.embedder.embed_queries([query]))[0]
        # A static embedder may know none of the words.
        return vector if vector.any() else None

    def search(
        self, connection: sqlite3.Connection, query: Any, count: int, candidates: Sequence[int]
    ) -> Ranking:
        with snapshot(connection):
            graph = _graph_of(connection)
            if graph != self._graph:
                self._graph, self._index = graph, self._open(graph)
                self._rows.clear()
            self._rows.update(connection, graph.last if self._index is not None else 0)
        numbers, scores = self._rows.numbers, np.zeros(0, "float32")
        if len(numbers):
            scores = self._rows.matrix @ query
        if self._index is not None:
            more = self._neighbors(connection, query, count)
            numbers = np.concatenate([numbers, np.array([*more], "int64")])
            scores = np.concatenate([scores, self._decode([*more.values()]) @ query])
        return best_rows(numbers, scores, count)

    def _decode(self, rows: Sequence[bytes]) -> Array:
        return np.frombuffer(b"".join(rows), "float32").reshape(len(rows), self.probe.size)

    def _neighbors(
        self, connection: sqlite3.Connection, vector: Array, count: int
    ) -> dict[int, bytes]:
        """Returns the vectors of at least `count` passages in the graph, if it has as many."""
        size, largest = _OVERFETCH * count, len(self._index)
        while True:
            size = min(size, largest)
            found = self._index.search(vector, size).keys.tolist()
            vectors = stored_rows(connection, self.name, found)
            if len(vectors) >= count or size == largest:
                return vectors
            size *= 4  # Many of the passages were removed.

    def close(self) -> None:
        self._graph, self._index = Graph(), None
        self._rows.clear()

    def _open(self, graph: Graph) -> Any:
        """Opens a graph without reading it.

        Returns `None` if its library is missing, or if its file is missing or damaged. All vectors
        are then compared exactly, until the next change builds a new graph.
        """
        if not _FILE_NAME.fullmatch(str(graph.name)):  # Others are not files of this index.
            return None
        path = self.directory / graph.name
        if importlib.util.find_spec("usearch") is None or not path.is_file():
            return None
        from usearch.index import Index

        try:
            index: Any = Index.restore(str(path), view=True)
        except (RuntimeError, ValueError):
            return None
        index.expansion_search = _SEARCH  # The file does not contain it.
        return index

    def build(self, connection: sqlite3.Connection, verbose: int) -> None:
        """Builds a graph, or adds passages to it, if the index has many passages without one.

        One process at a time builds. The others wait, and then only add what is still missing.
        """
        if not self._is_outdated(connection):
            return
        if importlib.util.find_spec("usearch") is None:
            (total,) = connection.execute("SELECT count(*) FROM passages").fetchone()
            warnings.warn(
                f"Each query is compared with all {total:,} passages, because usearch is not "
                f"installed: {checks.install('search')}",
                stacklevel=4,
            )
            return
        with _locked(self.directory / _LOCK_FILE):
            if self._is_outdated(connection):
                with snapshot(connection):
                    graph = self._save(*self._extended(connection, verbose))
                self._use(connection, graph)

    def _is_outdated(self, connection: sqlite3.Connection) -> bool:
        """Returns whether too many passages are missing in the graph, or were removed."""
        with snapshot(connection):
            (total,) = connection.execute("SELECT count(*) FROM passages").fetchone()
            if total < MIN_PASSAGES:
                return False
            graph = self._open(_graph_of(connection))
            changes = _changes(connection, graph, total)
        return graph is None or max(changes) > _MAX_NEW_FRACTION * total

    def _extended(self, connection: sqlite3.Connection, verbose: int) -> tuple[Any, int]:
        """Returns a graph with all passages, and the number of the last one."""
        from usearch.index import Index

        (total,) = connection.execute("SELECT count(*) FROM passages").fetchone()
        old = _graph_of(connection)
        graph, last = self._open(old), old.last
        num_new, num_removed = _changes(connection, graph, total)
        if graph is not None and num_removed <= _MAX_NEW_FRACTION * total:
            graph = Index.restore(str(self.directory / old.name))
        else:
            last, num_new = 0, total
            graph = Index(
                ndim=self.probe.size,
                metric="ip",
                dtype="f16",
                connectivity=_CONNECTIVITY,
                expansion_add=_CONSTRUCTION,
            )
        with bar("graph of vectors", num_new, " passages", disable=not verbose) as progress_bar:
            for numbers, vectors in self._rows.chunks(connection, last):
                graph.add(numbers, vectors)
                last = int(numbers[-1])
                progress_bar.update(len(numbers))
        return graph, last

    def _save(self, graph: Any, last: int) -> Graph:
        name = f"vectors-{uuid.uuid4().hex[:12]}.usearch"
        with atomic_path(self.directory / name) as temporary:
            graph.save(str(temporary))
        return Graph(name, last)

    def _use(self, connection: sqlite3.Connection, graph: Graph) -> None:
        """Replaces the graph. Processes that read an old one are not disturbed."""
        begin(connection)
        connection.executemany(
            "UPDATE settings SET value = ? WHERE name = ?",
            [(graph.name, "graph"), (graph.last, "graph_last")],
        )
        connection.execute("COMMIT")
        for path in self.directory.iterdir():
            if _FILE_NAME.fullmatch(path.name) and path.name != graph.name:
                with contextlib.suppress(OSError):  # Windows cannot remove an open file.
                    path.unlink()


def _graph_of(connection: sqlite3.Connection) -> Graph:
    return Graph(setting(connection, "graph"), setting(connection, "graph_last"))


def _changes(connection: sqlite3.Connection, graph: Any, total: int) -> tuple[int, int]:
    """Returns the numbers of passages that are not in a graph, and that were removed from it."""
    last = _graph_of(connection).last if graph is not None else 0
    (num_new,) = connection.execute(
        "SELECT count(*) FROM passages WHERE id > ?", (last,)
    ).fetchone()
    return num_new, len(graph) - (total - num_new) if graph is not None else 0


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Context manager that only one process at a time enters."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=1)) as connection:
        begin(connection, "EXCLUSIVE")
        yield
