# SPDX-License-Identifier: Apache-2.0
"""Finds passages by their words with BM25, in a Tantivy index next to the database."""

from __future__ import annotations

import contextlib
import itertools
import math
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_bert import checks
from keras_bert.search.passages import text_with_title
from keras_bert.search.retriever import Ranking, Retriever, setting
from keras_bert.search.terms import terms

_DIRECTORY = "words"
_TOKENIZER = "whitespace"
_WORDS, _ID = "words", "id"
# Tantivy writes a segment when its new passages need this memory.
_HEAP_BYTES = 50_000_000


class WordIndex(Retriever):
    """Finds the passages that contain words of a query, by BM25.

    The database is the only store: `update` adds and removes what changed in it since the last
    call, so nothing is lost if a process is killed in between.

    Args:
        directory: The directory of the database.

    Reference:
        [The probabilistic relevance framework](https://doi.org/10.1561/1500000019), with k1=1.2 and
        b=0.75 as in Lucene.
    """

    name = "words"

    def __init__(self, directory: Path) -> None:
        with checks.importing("search", "Search"):
            import tantivy
        self._library: Any = tantivy
        builder = tantivy.SchemaBuilder()
        builder.add_text_field(_WORDS, tokenizer_name=_TOKENIZER, index_option="freq")
        builder.add_integer_field(_ID, indexed=True, fast=True)
        self._schema = builder.build()
        path = directory / _DIRECTORY
        path.mkdir(exist_ok=True)
        try:
            self._index = tantivy.Index(self._schema, str(path))
        except ValueError:  # Its files are damaged.
            shutil.rmtree(path)
            path.mkdir()
            self._index = tantivy.Index(self._schema, str(path))
        whitespace = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
        self._index.register_tokenizer(_TOKENIZER, whitespace)
        self._generation = -1

    def read_query(self, query: str) -> dict[str, None] | None:
        return dict.fromkeys(terms(query)) or None

    def search(
        self, connection: sqlite3.Connection, query: Any, count: int, candidates: Sequence[int]
    ) -> Ranking:
        queries, should = self._library.Query, self._library.Occur.Should
        parts = [
            (should, queries.term_query(self._schema, _WORDS, word, index_option="freq"))
            for word in query
        ]
        searcher = self._searcher(connection)
        hits = searcher.search(queries.boolean_query(parts), count, count=False).hits
        numbers = searcher.fast_field_values(_ID, [address for _, address in hits])
        pairs = zip(numbers, (score for score, _ in hits), strict=True)
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))

    def rarities(self, connection: sqlite3.Connection, words: Iterable[str]) -> dict[str, float]:
        """Returns the inverse document frequency of each term. It can include removed passages."""
        searcher = self._searcher(connection)
        total = searcher.num_docs
        return {word: math.log(1 + total / (1 + searcher.doc_freq(_WORDS, word))) for word in words}

    def is_current(self, connection: sqlite3.Connection) -> bool:
        """Returns whether there is nothing to update.

        It is false after a killed process, and if the database was replaced by an older copy.
        """
        (newest,) = connection.execute("SELECT max(id) FROM passages").fetchone()
        (num_removed,) = connection.execute("SELECT count(*) FROM removed").fetchone()
        last = self._last()
        return (newest or 0) <= last and not num_removed and self._fits(connection, last)

    def _fits(self, connection: sqlite3.Connection, last: int) -> bool:
        """Returns whether this index has the database's passages, up to a number."""
        expected = sum(
            connection.execute(f"SELECT count(*) FROM {table} WHERE id <= ?", (last,)).fetchone()[0]
            for table in ("passages", "removed")
        )
        # SQLite does not use a number again, unless an older copy replaces the database.
        return last <= _last_used(connection) and self._index.searcher().num_docs == expected

    def _last(self) -> int:
        """Returns the number of the newest passage in this index."""
        self._index.reload()
        newest = self._index.searcher().search(
            self._library.Query.all_query(), 1, order_by_field=_ID
        )
        return newest.hits[0][0] if newest.hits else 0

    def update(self, connection: sqlite3.Connection) -> None:
        """Adds and removes passages. Call it in a transaction that excludes other writers."""
        removed = [number for (number,) in connection.execute("SELECT id FROM removed")]
        last = self._last()
        with self._writer() as writer:
            if not self._fits(connection, last):
                writer.delete_all_documents()
                last = 0
            for number in removed:
                writer.delete_documents_by_term(_ID, number)
            rows = connection.execute(
                "SELECT document, id, start, stop FROM passages WHERE id > ? ORDER BY id", (last,)
            )
            for document, passages in itertools.groupby(rows, key=lambda row: row[0]):
                title, text = connection.execute(
                    "SELECT title, text FROM documents WHERE id = ?", (document,)
                ).fetchone()
                for _, number, start, stop in passages:
                    words = " ".join(terms(text_with_title(title, text[start:stop])))
                    writer.add_document(self._library.Document(**{_WORDS: words, _ID: number}))
        connection.execute("DELETE FROM removed")

    @contextlib.contextmanager
    def _writer(self) -> Iterator[Any]:
        writer = self._index.writer(_HEAP_BYTES, 1)
        try:
            yield writer
            writer.commit()
        finally:
            writer.wait_merging_threads()

    def _searcher(self, connection: sqlite3.Connection) -> Any:
        generation = setting(connection, "generation")
        if generation != self._generation:
            self._index.reload()
            self._generation = generation
        return self._index.searcher()


def _last_used(connection: sqlite3.Connection) -> int:
    """Returns the number of the last passage that was ever added to the database."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'passages'").fetchone()
    return row[0] if row else 0
