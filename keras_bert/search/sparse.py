# SPDX-License-Identifier: Apache-2.0
"""Finds passages by sparse embeddings (SPLADE), exactly, with an inverted index in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.search.retriever import (
    Array,
    EmbeddingRetriever,
    Ranking,
    StoredRows,
    best_rows,
    snapshot,
)

# An embedding is stored as the tokens with a weight above 0.
_WEIGHT = np.dtype([("token", "<i4"), ("weight", "<f4")])


class SparseVectors(EmbeddingRetriever):
    """Finds the passages whose sparse embeddings have the largest dot product with a query's.

    The embeddings of all passages are in memory, 8 bytes per weight above 0. They are ordered by
    token, so a search only reads the weights of the query's tokens.
    """

    name = "sparse"

    def __init__(self, directory: Path, embedder: Any, probe: Array) -> None:
        super().__init__(directory, embedder, probe)
        self._rows = StoredRows(self.name, self._decode, _concatenate)

    @staticmethod
    def accepts(embeddings: Any) -> bool:
        return hasattr(embeddings, "indptr")

    @staticmethod
    def flatten(embeddings: Any) -> Array:
        return np.asarray(embeddings.toarray()[0])

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        matrix = self.embedder.embed_documents(texts)
        weights = np.empty(len(matrix.data), _WEIGHT)
        weights["token"], weights["weight"] = matrix.indices, matrix.data
        return [part.tobytes() for part in np.split(weights, matrix.indptr[1:-1])]

    def read_query(self, query: str) -> Any:
        weights = self.embedder.embed_queries([query])
        return weights if weights.nnz else None

    def search(
        self, connection: sqlite3.Connection, query: Any, count: int, candidates: Sequence[int]
    ) -> Ranking:
        with snapshot(connection):
            self._rows.update(connection)
        if self._rows.matrix is None:
            return []
        scores = self._rows.matrix[:, query.indices] @ query.data
        found = np.flatnonzero(scores > 0)
        return best_rows(self._rows.numbers[found], scores[found], count)

    def _decode(self, rows: Sequence[bytes]) -> Any:
        """Returns a matrix `(rows, vocabulary)` in CSC format."""
        from scipy.sparse import csr_array

        weights = np.frombuffer(b"".join(rows), _WEIGHT)
        tokens = weights["token"]
        if len(tokens) and (tokens.min() < 0 or tokens.max() >= self.probe.size):
            # SciPy would write to other memory.
            raise ValueError("the sparse embeddings contain tokens outside the vocabulary")
        ends = np.cumsum([0, *(len(row) // _WEIGHT.itemsize for row in rows)])
        shape = len(rows), self.probe.size
        return csr_array((weights["weight"], tokens, ends), shape=shape).tocsc()


def _concatenate(matrices: Sequence[Any]) -> Any:
    from scipy.sparse import vstack

    return vstack(matrices, format="csc")
