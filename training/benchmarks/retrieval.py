# SPDX-License-Identifier: Apache-2.0
"""Compares ways to find documents: their quality, speed, size and the time to index them.

    python -m training.benchmarks.retrieval --data_dir=cranfield \\
        --subjects=words,static:static,vectors:minilm,fused:minilm,bm25s,txtai:minilm

Each subject indexes the documents of a collection, and answers the queries one at a time, as a user
asks them. Other libraries run in separate processes, if necessary with other Python interpreters:
--python=pylate:/tmp/pylate/bin/python. The rounds alternate between the subjects, so other work on
the machine affects all of them equally.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import keras_bert
from keras_bert import atomic, minilm
from keras_bert.search import Document, Searcher, SearchIndex
from keras_bert.search.retriever import best_rows
from keras_bert.search.searching import Mode
from keras_bert.tables import markdown_table

from ..engine import program
from ..engine.options import CommandConfig, NonNegativeInt, PositiveInt
from ..readers.question_files import read_questions
from ..readers.trec_files import Collection, rank_documents, read_collection
from ..scores.ranking_scores import ranking_scores
from ..search import load_embedder
from . import retrieval_peers
from .retrieval_peers import MOST_FOUND, PEERS, Build, Documents, Search

Scored = list[tuple[str, float]]

_WITHOUT_CHECKPOINT = ("words", "bm25s")


@dataclasses.dataclass(frozen=True)
class RetrievalConfig(CommandConfig):
    """The collection and the subjects.

    Args:
        data_dir: Directory with documents, queries and relevance judgments in the formats of
            finetune --task=ranking. Of multiple splits, only the scored one is used. Or a file of
            questions in SQuAD's format, whose passages are the documents.
        subjects: The subjects, with a checkpoint except for words (BM25) and the library bm25s:
            static, vectors (a TextEmbedder), sparse, late (late interaction with the best
            passages of words), fused (words and vectors), reranked (a re-ranker's .keras file, for
            the best candidates of fused:minilm) and other libraries: sentence_transformers (with
            faiss), txtai (hybrid) and pylate (with fast-plaid). A checkpoint is a directory,
            hf://organization/model or minilm.
        python: Python interpreters of other libraries, each library:interpreter. By default, the
            interpreter of this command. Libraries that are not installed are skipped.
        num_queries: Number of queries to use, at equal distances. 0 uses all.
        candidates: Number of documents to re-rank.
        sequence_length: Maximum number of tokens in a document. Longer documents are truncated, or
            for words, late, fused and reranked split.
        rounds: Number of rounds per subject.
        json: File for the results as JSON.
        overwrite: Whether to replace an existing file of --json.
    """

    data_dir: str = ""
    subjects: tuple[str, ...] = ("words", f"vectors:{minilm.NAME}", f"fused:{minilm.NAME}")
    python: tuple[str, ...] = ()
    num_queries: NonNegativeInt = 0
    candidates: PositiveInt = 50
    sequence_length: PositiveInt = 256
    rounds: PositiveInt = 3
    json: str = ""
    overwrite: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for one in self.python:
            kind, _, interpreter = one.partition(":")
            if kind not in PEERS or not interpreter:
                raise ValueError(
                    f"--python must be library:interpreter with a library of {', '.join(PEERS)}. "
                    f"Received: {one!r}"
                )


class Subject(abc.ABC):
    """A way to find documents.

    Args:
        name: Its name in `--subjects`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._bytes, self._seconds = 0, 0.0
        self._times: list[float] = []
        self._run: dict[str, list[str]] = {}

    @abc.abstractmethod
    def index(self, documents: Documents) -> None:
        """Indexes documents."""

    @abc.abstractmethod
    def answer(self, queries: Mapping[str, str]) -> None:
        """Answers queries, one at a time."""

    def close(self) -> None:  # noqa: B027  (most subjects have nothing to stop)
        """Stops the subject's process."""

    def _record(self, number: str, seconds: float, found: Scored) -> None:
        self._times.append(seconds)
        self._run[number] = [name for name, _ in rank_documents(found)]

    def results(self, collection: Collection) -> dict[str, str | float]:
        """Returns the table's cells by column."""
        qrels = {number: collection.qrels[number] for number in self._run}
        return {
            "Subject": self.name,
            "nDCG@10": ranking_scores(self._run, qrels)["ndcg@10"],
            "Milliseconds per query": round(1000 * statistics.median(self._times), 1),
            "Bytes per document": round(self._bytes / len(collection.documents)),
            "Seconds to index": round(self._seconds, 1),
        }


class OwnSubject(Subject):
    """A way to find documents with `keras_bert`, in this process.

    Args:
        name: Its name in `--subjects`.
        build: Indexes documents.
    """

    def __init__(self, name: str, build: Build) -> None:
        super().__init__(name)
        self._build = build

    def index(self, documents: Documents) -> None:
        start = time.perf_counter()
        self._search, self._bytes = self._build(documents)
        self._seconds = time.perf_counter() - start

    def answer(self, queries: Mapping[str, str]) -> None:
        for number, query in queries.items():
            start = time.perf_counter()
            found = self._search(query)
            self._record(number, time.perf_counter() - start, found)


class PeerError(RuntimeError):
    """Raised if another library is not installed, or if its process stops."""


class Peer(Subject):
    """Another library, in a process.

    Args:
        name: Its name in `--subjects`.
        python: The library's Python interpreter.
        checkpoint: The checkpoint's directory, or an empty string.
        sequence_length: Maximum number of tokens in a document.

    Raises:
        PeerError: If the library is not installed.
    """

    def __init__(self, name: str, python: str, checkpoint: str, sequence_length: int) -> None:
        super().__init__(name)
        kind = name.partition(":")[0]
        # -P: The names of our files must not hide the modules of other libraries.
        command = [python, "-P", retrieval_peers.__file__, kind, checkpoint, str(sequence_length)]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8")
        except OSError as error:
            raise PeerError(f"{name}: {python} cannot be started: {error.strerror}") from error
        if error := self._receive():
            self.close()
            packages = PEERS[kind][1]
            raise PeerError(f"{name}: {error}. Run {python} -m pip install {packages}")

    def index(self, documents: Documents) -> None:
        self._bytes, self._seconds = self._ask(documents)

    def answer(self, queries: Mapping[str, str]) -> None:
        answers = self._ask(list(queries.values()))
        for number, (seconds, found) in zip(queries, answers, strict=True):
            self._record(number, seconds, found)

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def _ask(self, question: Any) -> Any:
        with contextlib.suppress(BrokenPipeError):  # `_receive` raises the error.
            print(json.dumps(question), file=self._process.stdin, flush=True)
        return self._receive()

    def _receive(self) -> Any:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            self.close()
            status = self._process.returncode
            raise PeerError(f"{self.name}: the process exited with status {status}")
        return json.loads(line)


def make_subject(name: str, config: RetrievalConfig, directory: Path) -> Subject:
    """Loads a subject's models.

    Args:
        name: The subject's name in `--subjects`.
        config: The options.
        directory: An empty directory for an index.

    Raises:
        ValueError: If the name is unknown, or its checkpoint is missing or not used.
    """
    kind, _, checkpoint = name.partition(":")

    def load(task: Any) -> Any:
        return task.from_preset(checkpoint, sequence_length=config.sequence_length)

    def index(mode: Mode, checkpoint: str = checkpoint, top_k: int = 10) -> Build:
        embedder = load_embedder(checkpoint, config.sequence_length)
        return _search_index(embedder, directory, mode, top_k)

    def reranked() -> Build:
        reranker = keras_bert.load_model(checkpoint, compile=False)
        return _reranked(index("fused", minilm.NAME, config.candidates), reranker)

    builds: dict[str, Callable[[], Build]] = {
        "words": lambda: _search_index((), directory, "words"),
        "static": lambda: _products(load(keras_bert.StaticEmbedder)),
        "vectors": lambda: _products(load(keras_bert.TextEmbedder)),
        "sparse": lambda: _products(load(keras_bert.SparseEmbedder)),
        "late": lambda: index("late"),
        "fused": lambda: index("fused"),
        "reranked": reranked,
    }
    kinds = [*builds, *PEERS]
    if kind not in kinds or bool(checkpoint) == (kind in _WITHOUT_CHECKPOINT):
        raise ValueError(
            f"--subjects must be among {', '.join(kinds)}, with a checkpoint after a colon except "
            f"for {' and '.join(_WITHOUT_CHECKPOINT)}. Received: {name!r}"
        )
    if kind in PEERS:
        python = dict(one.split(":", 1) for one in config.python).get(kind, sys.executable)
        return Peer(name, python, checkpoint and minilm.resolve(checkpoint), config.sequence_length)
    return OwnSubject(name, builds[kind]())


def _products(embedder: Any) -> Build:
    """Ranks by the dot products with all documents' vectors, dense or sparse."""

    def build(documents: Documents) -> tuple[Search, int]:
        vectors, names = embedder.embed_documents(list(documents.values())), [*documents]
        is_sparse = not isinstance(vectors, np.ndarray)

        def search(query: str) -> Scored:
            scores = vectors @ embedder.embed_queries([query]).T
            return _best(names, (scores.toarray() if is_sparse else scores)[:, 0])

        parts = (vectors.data, vectors.indices, vectors.indptr) if is_sparse else (vectors,)
        return search, sum(part.nbytes for part in parts)

    return build


def _best(names: Sequence[str], scores: np.ndarray) -> Scored:
    best = best_rows(np.arange(len(names)), scores, MOST_FOUND)
    return [(names[row], score) for row, score in best]


def _search_index(embedder: Any, directory: Path, mode: Mode, top_k: int = 10) -> Build:
    """Ranks by a `SearchIndex`. The best passage of a document decides its rank."""

    def build(documents: Documents) -> tuple[Search, int]:
        index = SearchIndex(directory, embedder)
        index.add(Document(name, text) for name, text in documents.items())

        def search(query: str) -> Scored:
            best: dict[str, float] = {}
            for count in (2 * top_k, MOST_FOUND):
                for hit in Searcher(index).search(query, count, mode=mode):
                    best.setdefault(hit.document, hit.score)
                if len(best) >= top_k:  # documents, which can have many passages
                    break
            return list(best.items())

        return search, sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())

    return build


def _reranked(build_first: Build, reranker: Any) -> Build:
    """Ranks the documents that another search finds by a re-ranker's scores."""

    def build(documents: Documents) -> tuple[Search, int]:
        search_first, num_bytes = build_first(documents)

        def search(query: str) -> Scored:
            names = [name for name, _ in search_first(query)]
            ranks = reranker.rank(query, [documents[name] for name in names])
            return [(names[rank["index"]], rank["score"]) for rank in ranks]

        return search, num_bytes

    return build


def _read_collection(path: Path) -> Collection:
    """Reads a directory with a collection, or a file of questions in SQuAD's format.

    A question's relevant document is its passage. Unanswerable questions are not used.
    """
    if path.is_dir():
        return read_collection(path)
    documents: dict[str, str] = {}  # IDs by text
    queries, qrels = {}, {}
    for example in read_questions(path).examples:
        document = documents.setdefault(example.context, str(len(documents)))
        if example.answers:
            queries[example.id] = example.question
            qrels[example.id] = {document: 1}
    return Collection({document: text for text, document in documents.items()}, queries, qrels)


def main(config: RetrievalConfig) -> None:
    program.check_new_file("--json", config.json, config.overwrite)
    if not config.data_dir:
        raise ValueError("--data_dir must be given. Received: no --data_dir")
    collection = _read_collection(Path(config.data_dir))
    scored = list(collection.parts(2).values())[-1] if collection.splits else collection.queries
    numbers = [number for number in scored if collection.qrels.get(number)]
    if config.num_queries:
        count = min(config.num_queries, len(numbers))
        numbers = [numbers[row * len(numbers) // count] for row in range(count)]
    queries = {number: collection.queries[number] for number in numbers}
    print(f"{len(collection.documents)} documents, {len(queries)} queries", flush=True)
    subjects: list[Subject] = []
    with tempfile.TemporaryDirectory() as parent, contextlib.ExitStack() as stack:
        for position, name in enumerate(config.subjects):
            try:
                subject = make_subject(name, config, Path(parent, str(position)))
            except PeerError as error:
                print(f"skipped: {error}", flush=True)
            else:
                stack.callback(subject.close)
                subjects.append(subject)
        if not subjects:
            raise ValueError("--subjects must contain one that is not skipped. Received: none")
        for subject in subjects:
            subject.index(collection.documents)
            print(f"indexed: {subject.name}", flush=True)
        for _, subject in itertools.product(range(config.rounds), subjects):
            subject.answer(queries)
    results = [subject.results(collection) for subject in subjects]
    print(markdown_table([*results[0]], [[*map(str, result.values())] for result in results]))
    if config.json:
        atomic.write_json(config.json, {"config": dataclasses.asdict(config), "results": results})


if __name__ == "__main__":
    program.run(main, RetrievalConfig)
