# SPDX-License-Identifier: Apache-2.0
"""Orders passages by late interaction (ColBERT), with the vectors of their tokens."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bert.data.token_vectors import max_similarities
from keras_bert.search.retriever import EmbeddingRetriever, Ranking, best_rows, stored_rows

# The average number of tokens per stored vector
_POOL_FACTOR = 2


class TokenVectors(EmbeddingRetriever):
    """Orders candidates by MaxSim.

    The vectors of similar tokens in a passage are averaged, which halves their number, and are
    stored in float16. A search reads only the candidates' vectors, so its time does not depend on
    the size of the index.

    Reference:
        [Token pooling](https://arxiv.org/abs/2409.14683), section 4.
    """

    name = "late"
    orders_candidates = True

    @staticmethod
    def accepts(embeddings: Any) -> bool:
        return np.ndim(embeddings[0]) == 2

    def _sequence_tokens(self) -> int:
        return int(self.embedder.preprocessor.max_tokens(is_query=False))

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        vectors = self.embedder.embed_documents(texts, pool_factor=_POOL_FACTOR)
        return [part.astype("<f2").tobytes() for part in vectors]

    def read_query(self, query: str) -> Any:
        return self.embedder.embed_queries([query])[0]

    def search(
        self, connection: sqlite3.Connection, query: Any, count: int, candidates: Sequence[int]
    ) -> Ranking:
        stored = stored_rows(connection, self.name, candidates)
        vectors = [
            np.frombuffer(part, "<f2").astype("float32").reshape(-1, query.shape[1])
            for part in stored.values()
        ]
        return best_rows(np.array([*stored], "int64"), max_similarities(query, vectors), count)
