# SPDX-License-Identifier: Apache-2.0
"""Finds documents with another library, in a process that can use its own Python environment.

    python -P training/benchmarks/retrieval_peers.py PEER CHECKPOINT SEQUENCE_LENGTH

This file does not import any other file of the project. `training.benchmarks.retrieval` starts it
and sends a line of JSON with the documents, and then lines with lists of queries. Each answer is a
line of JSON: an error or None after loading, then the bytes and seconds of the index, and then the
seconds and the scored documents of each query.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

Documents = Mapping[str, str]
Search = Callable[[str], list[tuple[str, float]]]
# Indexes documents, and returns a search function and the number of bytes of the index
Build = Callable[[Documents], tuple[Search, int]]

MOST_FOUND = 100


def _import_peer(name: str) -> Any:
    """Imports a library that is not a dependency of this project."""
    return import_module(name)


def load_bm25s(checkpoint: str, sequence_length: int) -> Build:
    """Ranks by BM25 without English stop words."""
    bm25s = _import_peer("bm25s")

    def tokenize(texts: list[str]) -> Any:
        return bm25s.tokenize(texts, stopwords="en", show_progress=False)

    def build(documents: Documents) -> tuple[Search, int]:
        retriever = bm25s.BM25()
        retriever.index(tokenize([*documents.values()]), show_progress=False)
        names = [*documents]

        def search(query: str) -> list[tuple[str, float]]:
            count = min(MOST_FOUND, len(names))
            (found,), (scores,) = retriever.retrieve(
                tokenize([query]), k=count, show_progress=False
            )
            return [(names[i], float(score)) for i, score in zip(found, scores, strict=True)]

        return search, sum(retriever.scores[part].nbytes for part in ("data", "indices", "indptr"))

    return build


def load_sentence_transformers(checkpoint: str, sequence_length: int) -> Build:
    """Ranks by cosine similarities with all documents, in a flat index of faiss."""
    faiss = _import_peer("faiss")
    model = _import_peer("sentence_transformers").SentenceTransformer(checkpoint, device="cpu")
    model.max_seq_length = sequence_length

    def encode(texts: list[str]) -> Any:
        return model.encode(texts, normalize_embeddings=True, show_progress_bar=False)

    def build(documents: Documents) -> tuple[Search, int]:
        vectors = encode([*documents.values()])
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        names = [*documents]

        def search(query: str) -> list[tuple[str, float]]:
            (scores,), (found,) = index.search(encode([query]), min(MOST_FOUND, len(names)))
            return [(names[i], float(score)) for i, score in zip(found, scores, strict=True)]

        return search, faiss.serialize_index(index).nbytes

    return build


def load_txtai(checkpoint: str, sequence_length: int) -> Build:
    """Ranks by a hybrid index: the mean of BM25 and of cosine similarities in faiss."""
    embeddings = _import_peer("txtai").Embeddings(
        path=checkpoint, hybrid=True, gpu=False, maxlength=sequence_length
    )

    def build(documents: Documents) -> tuple[Search, int]:
        embeddings.index(documents.items())
        with tempfile.TemporaryDirectory() as directory:
            embeddings.save(directory)
            size = _directory_bytes(directory)
        return lambda query: embeddings.search(query, MOST_FOUND), size

    return build


def load_pylate(checkpoint: str, sequence_length: int) -> Build:
    """Ranks by late interaction, in an index of fast-plaid."""
    _import_peer("fast_plaid")  # PyLate only imports it to build an index.
    indexes, models, retrieve = (
        _import_peer(f"pylate.{name}") for name in ("indexes", "models", "retrieve")
    )
    model = models.ColBERT(checkpoint, device="cpu", document_length=sequence_length)

    def encode(texts: list[str], is_query: bool) -> Any:
        return model.encode(texts, is_query=is_query, show_progress_bar=False)

    def build(documents: Documents) -> tuple[Search, int]:
        directory = tempfile.TemporaryDirectory()
        index = indexes.PLAID(directory.name, override=True, show_progress=False, device="cpu")
        vectors = encode([*documents.values()], is_query=False)
        index.add_documents([*documents], vectors)
        retriever = retrieve.ColBERT(index)

        def search(query: str) -> list[tuple[str, float]]:
            (found,) = retriever.retrieve(encode([query], is_query=True), k=MOST_FOUND)
            return [(one["id"], float(one["score"])) for one in found]

        weakref.finalize(search, directory.cleanup)
        return search, _directory_bytes(directory.name)

    return build


def _directory_bytes(directory: str) -> int:
    return sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())


# How to load each peer, and the packages to install
PEERS: dict[str, tuple[Callable[[str, int], Build], str]] = {
    "bm25s": (load_bm25s, "bm25s"),
    "sentence_transformers": (load_sentence_transformers, "sentence-transformers faiss-cpu"),
    "txtai": (load_txtai, "txtai"),
    "pylate": (load_pylate, "pylate"),
}


def main() -> None:
    peer, checkpoint, sequence_length = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print to the standard output

    def send(answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        build = PEERS[peer][0](checkpoint, int(sequence_length))
    except ImportError as error:
        return send(str(error))
    send(None)
    documents = json.loads(sys.stdin.readline())
    start = time.perf_counter()
    search, size = build(documents)
    send([size, time.perf_counter() - start])
    for line in sys.stdin:
        results = []
        for query in json.loads(line):
            start = time.perf_counter()
            found = search(query)
            results.append([time.perf_counter() - start, found])
        send(results)


if __name__ == "__main__":
    main()
