# SPDX-License-Identifier: Apache-2.0
"""What the methods to find passages have in common, and how they read their part of the database.

To add a method with an embedder, write an `EmbeddingRetriever`. Add it to `RETRIEVERS` in
`index.py`, and its name to `Mode` in `searching.py`.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import json
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from keras_bert.checks import shorten_repr
from keras_bert.data.arrays import unit_rows
from keras_bert.data.prompts import Prompts
from keras_bert.search.passages import Window

Array = np.ndarray[Any, Any]
Ranking = list[tuple[int, float]]
"""The numbers and scores of passages, in descending order of score."""

# A text whose embedding identifies the embedder
_PROBE = "The quick brown fox jumps over the lazy dog."
_MIN_SIMILARITY = 0.999
_ROWS_AT_A_TIME = 65_536
_PAUSE = 0.05  # seconds


class Retriever(abc.ABC):
    """A method to find passages."""

    name: ClassVar[str]
    """Its mode in `Searcher.search`."""
    orders_candidates: ClassVar[bool] = False
    """Whether it only orders the passages that other methods found."""

    @abc.abstractmethod
    def read_query(self, query: str) -> Any:
        """Returns what `search` needs of a query. `None` if no passage can match it."""

    @abc.abstractmethod
    def search(
        self, connection: sqlite3.Connection, query: Any, count: int, candidates: Sequence[int]
    ) -> Ranking:
        """Finds passages.

        Args:
            connection: The database.
            query: What `read_query` returned.
            count: Maximum number of passages.
            candidates: The numbers of passages that other methods found.

        Returns:
            A `Ranking`.
        """


class EmbeddingRetriever(Retriever):
    """A method that stores an embedding of each passage, in a table with its name.

    Args:
        directory: The directory of the database, for other files.
        embedder: The embedder for passages and queries.
        probe: The embedder's embedding of a text, float32 `(size,)`. It identifies the embedder.
    """

    def __init__(self, directory: Path, embedder: Any, probe: Array) -> None:
        self.directory = directory
        self.embedder = embedder
        self.probe = probe

    @staticmethod
    @abc.abstractmethod
    def accepts(embeddings: Any) -> bool:
        """Returns whether the result of `embedder.embed_queries([text])` has the right form."""

    @staticmethod
    def flatten(embeddings: Any) -> Array:
        """Converts such a result to an array."""
        return np.asarray(embeddings[0])

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """Returns what to store for each passage."""

    def build(self, connection: sqlite3.Connection, verbose: int) -> None:
        """Builds files for faster searches after a change, if there are any.

        Args:
            connection: A connection for this call only.
            verbose: 0 or 1. With 1, it shows a progress bar.
        """

    def close(self) -> None:
        """Closes the files."""

    @functools.cached_property  # Every document needs it.
    def window(self) -> Window:
        """What fits into a passage."""
        tokenizer = self.embedder.preprocessor.tokenizer
        prompts = Prompts(getattr(self.embedder, "prompts", {}))
        prompt = len(tokenizer(prompts.text(prompts.document_name)))
        return Window(tokenizer, max(1, self._sequence_tokens() - prompt))

    def _sequence_tokens(self) -> int:
        return int(self.embedder.preprocessor.max_tokens(1))

    def difference(self, stored: bytes, max_tokens: int) -> str:
        """Describes how the embedder differs from that of the stored values, or returns `""`."""
        other = np.frombuffer(stored, "float32")
        if other.shape != self.probe.shape:
            return f"embeddings of {self.probe.size} instead of {other.size} numbers"
        if max_tokens != self.window.max_tokens:
            return f"passages of up to {self.window.max_tokens} instead of {max_tokens} tokens"
        similarity = float(other @ self.probe)
        if similarity < _MIN_SIMILARITY and other.tobytes() != self.probe.tobytes():
            return f"another embedding for the same text (cosine similarity {similarity:.3f})"
        return ""


def make_retrievers(
    kinds: Sequence[type[EmbeddingRetriever]], directory: Path, embedders: Any | Sequence[Any]
) -> list[EmbeddingRetriever]:
    """Creates the retrievers for embedders, in the order of `kinds`.

    The form of an embedder's result determines its kind.

    Raises:
        ValueError: If two embedders are of the same kind.
    """
    given: list[Any] = list(embedders) if isinstance(embedders, list | tuple) else [embedders]
    for embedder in given:
        check_embedder(embedder)
    made: dict[type[EmbeddingRetriever], EmbeddingRetriever] = {}
    for embedder in given:
        embeddings = embedder.embed_queries([_PROBE])
        kind = kind_of(kinds, embeddings)
        probe = unit_rows(kind.flatten(embeddings).reshape(1, -1))[0]
        made[kind] = kind(directory, embedder, probe)
    if len(made) < len(given):
        names = ", ".join(type(embedder).__name__ for embedder in given)
        raise ValueError(
            "embedders must be an embedder, or a list with at most one dense, one sparse and one "
            f"late interaction embedder. Received: {names}"
        )
    return [made[kind] for kind in kinds if kind in made]


def kind_of(kinds: Sequence[type[EmbeddingRetriever]], embeddings: Any) -> type[EmbeddingRetriever]:
    """Returns the first kind of retriever that accepts embeddings."""
    return next(kind for kind in kinds if kind.accepts(embeddings))


def check_embedder(embedder: Any) -> None:
    """Checks that an object embeds queries and documents.

    Raises:
        ValueError: If it does not.
    """
    if not (hasattr(embedder, "embed_queries") and hasattr(embedder, "embed_documents")):
        raise ValueError(
            "An embedder must have embed_queries and embed_documents, like a TextEmbedder. "
            f"Received: {shorten_repr(embedder)}"
        )


class StoredRows:
    """The embeddings in a table, in memory. They follow the database.

    Args:
        table: The table's name.
        decode: Converts the content of rows to one matrix with as many rows.
        concatenate: Concatenates a list of such matrices.
    """

    def __init__(
        self,
        table: str,
        decode: Callable[[Sequence[bytes]], Any],
        concatenate: Callable[[Sequence[Any]], Any],
    ) -> None:
        self._table, self._decode, self._concatenate = table, decode, concatenate
        self.clear()

    def clear(self) -> None:
        """Forgets all rows."""
        self._generation = -1
        self.numbers: Array = np.zeros(0, "int64")
        self.matrix: Any = None

    def update(self, connection: sqlite3.Connection, after: int = 0) -> None:
        """Reads what other connections changed. Call it in a `snapshot`.

        Args:
            connection: The database.
            after: The number of the last passage to leave out. The same as in the last call, unless
                `clear` was called since.
        """
        generation = setting(connection, "generation")
        if generation == self._generation:
            return
        parts = [(self.numbers, self.matrix)] if len(self.numbers) else []
        first = max(after, int(self.numbers[-1])) if parts else after
        parts += self.chunks(connection, first)
        if parts:
            rows = connection.execute("SELECT id FROM passages WHERE id > ?", (after,))
            alive = [number for (number,) in rows]
            numbers = np.concatenate([part for part, _ in parts])
            matrices = [part for _, part in parts]
            matrix = matrices[0] if len(parts) == 1 else self._concatenate(matrices)
            kept = np.isin(numbers, alive)
            if not kept.all():
                numbers, matrix = numbers[kept], matrix[kept]
            self.numbers, self.matrix = numbers, matrix
        self._generation = generation

    def chunks(self, connection: sqlite3.Connection, first: int) -> Iterator[tuple[Array, Any]]:
        """Yields the numbers and embeddings of passages after a number."""
        rows = connection.execute(
            f"SELECT id, data FROM {self._table} WHERE id > ? ORDER BY id", (first,)
        )
        while chunk := rows.fetchmany(_ROWS_AT_A_TIME):
            numbers = np.array([number for number, _ in chunk], "int64")
            yield numbers, self._decode([part for _, part in chunk])


def best_rows(numbers: Array, scores: Array, count: int) -> Ranking:
    """Returns the passages with the largest scores.

    Args:
        numbers: The numbers of passages, int64 `(passages,)`.
        scores: Their scores, float32 `(passages,)`.
        count: Maximum number of passages to return.

    Example:

    >>> best_rows(np.array([4, 5, 6]), np.array([0.25, 1.0, 0.5]), 2)
    [(5, 1.0), (6, 0.5)]
    """
    if not len(numbers):
        return []
    best = np.argpartition(-scores, min(count, len(scores)) - 1)[:count]
    best = best[np.lexsort((numbers[best], -scores[best]))]
    return [(int(numbers[index]), float(scores[index])) for index in best]


def stored_rows(
    connection: sqlite3.Connection, table: str, numbers: Sequence[int]
) -> dict[int, bytes]:
    """Returns what a table contains for passages, by number. Removed passages are left out."""
    return dict(
        connection.execute(
            f"SELECT id, data FROM {table} WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(numbers)),),
        )
    )


def setting(connection: sqlite3.Connection, name: str) -> Any:
    """Returns a setting of the index."""
    return connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()[0]


def begin(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> None:
    """Starts a transaction that writes, as soon as no other process does.

    See `execute_when_free`.
    """
    execute_when_free(connection, f"BEGIN {kind}")


def execute_when_free(connection: sqlite3.Connection, statement: str) -> None:
    """Executes a statement as soon as no other process has locked the database.

    It waits without a limit, because an update of many passages can take minutes on a busy machine.
    A killed process holds no lock.
    """
    has_warned = False
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            # The lowest byte is the primary error code.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            if not has_warned:
                warnings.warn("waiting for another process to write to the index", stacklevel=2)
            has_warned = True
            time.sleep(_PAUSE)
        else:
            return


@contextlib.contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Context manager in which all reads see the same state of the database."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")
