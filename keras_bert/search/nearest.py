# SPDX-License-Identifier: Apache-2.0
"""Finds the nearest vectors of an index: exactly, and in large indexes from a graph.

The database is the only store. A graph is a file that can be built again from it: it contains all
passages up to a number, and later passages are compared exactly. A search reads a graph's file
through the page cache, so a process needs little memory of its own and starts at once.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import sqlite3
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_bert import checks
from keras_bert.atomic import atomic_path
from keras_bert.progress import bar

Array = np.ndarray[Any, Any]

MIN_PASSAGES = 50_000
"""The number of passages from which an index gets a graph. Fewer are compared in milliseconds."""
_MAX_NEW_FRACTION = 0.1
_ROWS_AT_A_TIME = 65_536
# Neighbors of a vector, and candidates that are compared for each, in construction and in searches
_CONNECTIVITY, _CONSTRUCTION, _SEARCH = 32, 128, 1024
# Vectors in the graph are rounded. Exact similarities order this multiple of the passages.
_OVERFETCH = 2
_FILE_NAME = re.compile(r"vectors-[0-9a-f]{12}\.usearch")
NO_GRAPH = ""


class Graph(NamedTuple):
    """The file of a graph, and the last passage that it contains."""

    name: str
    last: int


class NearestVectors:
    """Finds the passages whose vectors have the largest dot product with a query's.

    Args:
        directory: The directory for graphs.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._generation = -1
        self._graph = Graph(NO_GRAPH, 0)
        self._index: Any = None
        self._numbers: Array = np.zeros(0, "int64")
        self._vectors: Array = np.zeros((0, 0), "float32")

    def search(
        self, connection: sqlite3.Connection, vector: Array, count: int
    ) -> list[tuple[int, float]]:
        """Returns the numbers and similarities of passages, in descending order of similarity.

        Args:
            connection: The database.
            vector: float32 `(dim,)`.
            count: Maximum number of passages.
        """
        self._update(connection)
        numbers = self._numbers
        scores = self._vectors @ vector if len(numbers) else np.zeros(0, "float32")
        if self._index is not None:
            more = self._neighbors(connection, vector, count)
            numbers = np.concatenate([numbers, np.array([*more], "int64")])
            similarities = [np.frombuffer(part, "float32") @ vector for part in more.values()]
            scores = np.concatenate([scores, np.array(similarities, "float32")])
        if not len(numbers):
            return []
        best = np.argpartition(-scores, min(count, len(scores)) - 1)[:count]
        best = best[np.lexsort((numbers[best], -scores[best]))]
        return [(int(numbers[index]), float(scores[index])) for index in best]

    def _neighbors(
        self, connection: sqlite3.Connection, vector: Array, count: int
    ) -> dict[int, bytes]:
        """Returns the vectors of at least `count` passages in the graph, if it has as many."""
        size, largest = _OVERFETCH * count, len(self._index)
        while True:
            size = min(size, largest)
            found = self._index.search(vector, size).keys.tolist()
            vectors = _vectors_of(connection, found)
            if len(vectors) >= count or size == largest:
                return vectors
            size *= 4  # Many of the passages were removed.

    def _update(self, connection: sqlite3.Connection) -> None:
        """Reads what other connections changed since the last call."""
        with _snapshot(connection):
            settings = dict(connection.execute("SELECT name, value FROM settings"))
            if settings["generation"] == self._generation:
                return
            graph = Graph(settings["graph"], settings["graph_last"])
            if graph != self._graph:
                self._graph, self._index = graph, self._open(graph)
                self._numbers, self._vectors = self._numbers[:0], self._vectors[:0]
            last = graph.last if self._index is not None else 0
            first = max(last, int(self._numbers[-1]) if len(self._numbers) else 0)
            parts = [(self._numbers, self._vectors)] if len(self._numbers) else []
            parts += _chunks(connection, first)
            if parts:
                alive = [
                    number
                    for (number,) in connection.execute(
                        "SELECT id FROM passages INDEXED BY passages_of_documents WHERE id > ?",
                        (last,),
                    )
                ]
                numbers, vectors = map(np.concatenate, zip(*parts, strict=True))
                kept = np.isin(numbers, alive)
                if not kept.all():
                    numbers, vectors = numbers[kept], vectors[kept]
                self._numbers, self._vectors = numbers, vectors
            self._generation = settings["generation"]

    def close(self) -> None:
        """Closes the file of the graph."""
        self._generation, self._graph, self._index = -1, Graph(NO_GRAPH, 0), None

    def _open(self, graph: Graph) -> Any:
        """Opens a graph without reading it. Returns `None` if its file or its library is missing.

        All vectors are then compared exactly.
        """
        path = self._directory / (graph.name or "-")
        if importlib.util.find_spec("usearch") is None or not path.is_file():
            return None
        from usearch.index import Index

        index: Any = Index.restore(str(path), view=True)
        index.expansion_search = _SEARCH  # The file does not contain it.
        return index

    def build(self, connection: sqlite3.Connection, verbose: int = 0) -> Graph | None:
        """Builds a graph, or adds passages to it, if the index has many passages without one.

        Args:
            connection: A connection for this call only, because it reads for minutes.
            verbose: 0 or 1. With 1, it shows a progress bar.

        Returns:
            The new graph. `None` if there is nothing to build.
        """
        run = connection.execute
        with _snapshot(connection):
            (total,) = run("SELECT count(*) FROM passages").fetchone()
            if total < MIN_PASSAGES:
                return None
            old = Graph(
                *(
                    run("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()[0]
                    for name in ("graph", "graph_last")
                )
            )
            graph, last = self._open(old), old.last
            (num_new,) = run(
                "SELECT count(*) FROM passages INDEXED BY passages_of_documents WHERE id > ?",
                (last if graph else 0,),
            ).fetchone()
            num_removed = len(graph) - (total - num_new) if graph else 0
            limit = _MAX_NEW_FRACTION * total
            if graph and num_new <= limit and num_removed <= limit:
                return None
            if importlib.util.find_spec("usearch") is None:
                warnings.warn(
                    f"Each query is compared with all {total:,} passages, because usearch is not "
                    f"installed: {checks.install('search')}",
                    stacklevel=4,
                )
                return None
            from usearch.index import Index

            if graph and num_removed <= limit:
                graph = Index.restore(str(self._directory / old.name))
            else:
                last, num_new = 0, total
                (part,) = run("SELECT vector FROM passages LIMIT 1").fetchone()
                graph = Index(
                    ndim=len(part) // 4,
                    metric="ip",
                    dtype="f16",
                    connectivity=_CONNECTIVITY,
                    expansion_add=_CONSTRUCTION,
                )
            with bar("graph of vectors", num_new, " passages", disable=not verbose) as progress_bar:
                for numbers, vectors in _chunks(connection, last):
                    graph.add(numbers, vectors)
                    last = int(numbers[-1])
                    progress_bar.update(len(numbers))
        name = f"vectors-{uuid.uuid4().hex[:12]}.usearch"
        with atomic_path(self._directory / name) as temporary:
            graph.save(str(temporary))
        return Graph(name, last)

    def use(self, connection: sqlite3.Connection, graph: Graph) -> None:
        """Replaces the graph in a transaction. Processes that read an old one are not disturbed."""
        if not (self._directory / graph.name).exists():  # Another process has built one since.
            return
        settings = {"graph": graph.name, "graph_last": graph.last}
        connection.executemany(
            "UPDATE settings SET value = ? WHERE name = ?",
            [(value, name) for name, value in settings.items()],
        )
        for path in self._directory.iterdir():
            if _FILE_NAME.fullmatch(path.name) and path.name != graph.name:
                with contextlib.suppress(OSError):  # Windows cannot remove an open file.
                    path.unlink()


@contextlib.contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Context manager in which all reads see the same state of the database."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def _chunks(connection: sqlite3.Connection, first: int) -> Iterator[tuple[Array, Array]]:
    """Yields the numbers and vectors of passages after a number."""
    rows = connection.execute("SELECT id, vector FROM passages WHERE id > ? ORDER BY id", (first,))
    while chunk := rows.fetchmany(_ROWS_AT_A_TIME):
        vectors = np.frombuffer(b"".join(part for _, part in chunk), "float32")
        yield np.array([number for number, _ in chunk], "int64"), vectors.reshape(len(chunk), -1)


def _vectors_of(connection: sqlite3.Connection, numbers: list[int]) -> dict[int, bytes]:
    """Returns the vectors of passages by number. Removed passages are left out."""
    return dict(
        connection.execute(
            "SELECT id, vector FROM passages WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(numbers),),
        )
    )
