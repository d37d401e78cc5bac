# SPDX-License-Identifier: Apache-2.0
"""Tokenizes text files into a token store."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from keras_bert.data import TokenStoreWriter, read_corpus
from keras_bert.data.arrays import Ragged
from keras_bert.data.file_systems import InputFile
from keras_bert.text import tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer

from .record_config import CorpusOptions
from .worker_pool import ordered_map, process_pool

_CHUNK_BYTES = 2**19
# Starting a process takes as long as tokenizing a few chunks.
_BYTES_PER_PROCESS = 16 * _CHUNK_BYTES

# The worker process's tokenizer
_tokenizer: Tokenizer


class CorpusCounts(NamedTuple):
    """Sizes of the tokenized corpus. `unknown` is the number of unknown tokens."""

    documents: int
    sentences: int
    tokens: int
    unknown: int


class _Chunk(NamedTuple):
    """Consecutive sentences. A document ends before each sentence index in `document_ends`."""

    sentences: list[str]
    document_ends: list[int]
    num_bytes: int


class _Tokens(NamedTuple):
    """A chunk's token ids `(tokens,)`, and the length of each sentence `(sentences,)`."""

    ids: Any
    lengths: Any
    document_ends: list[int]
    num_bytes: int


def write_token_store(
    directory: Path,
    inputs: Sequence[InputFile],
    options: CorpusOptions,
    tokenizer: Tokenizer,
    num_workers: int,
    report: Callable[[int], Any],
) -> None:
    """Tokenizes a corpus into a token store. The store is written atomically.

    `report` is called with the number of bytes processed since the last call.

    Raises:
        ValueError: If a file is invalid, with the file and the line, or if all files are empty.
    """
    sentences = itertools.chain.from_iterable(corpus_of_file(options, file.path) for file in inputs)
    chunks = _chunks(sentences)
    num_workers = min(num_workers, sum(file.size for file in inputs) // _BYTES_PER_PROCESS)
    with contextlib.ExitStack() as stack:
        results: Iterator[_Tokens] = map(functools.partial(_tokenized, tokenizer), chunks)
        if num_workers > 1:
            arguments = (tokenizer.get_config(),)
            pool = stack.enter_context(process_pool(num_workers, _start_worker, arguments))
            results = ordered_map(pool, _tokenize, chunks, ahead=2 * num_workers)
        writer = stack.enter_context(TokenStoreWriter(directory))
        for tokens in results:
            _write(writer, tokens)
            report(tokens.num_bytes)
        writer.end_document()
        check_any_text(writer.num_documents, inputs)


def write_tokens_of(
    sentences: Iterable[str | None], tokenizer: Tokenizer, writer: TokenStoreWriter
) -> None:
    """Tokenizes the sentences that `corpus_of_file` yields into a token store."""
    for chunk in _chunks(sentences):
        _write(writer, _tokenized(tokenizer, chunk))
    writer.end_document()


def corpus_of_file(
    options: CorpusOptions, path: str, file: BinaryIO | None = None
) -> Iterator[str | None]:
    """Yields the sentences in a file, and `None` at the end of each document."""
    return read_corpus(
        path,
        options.format,
        document_ends=options.document_ends,
        field=options.field,
        language=options.language,
        encoding=options.encoding,
        file=file,
    )


def check_any_text(num_documents: int, inputs: Sequence[InputFile]) -> None:
    """Raises a ValueError if the corpus has no documents."""
    if num_documents == 0:
        raise ValueError(
            "the input files must contain text. Received: "
            f"{', '.join(file.path for file in inputs[:5])}"
        )


def _chunks(corpus: Iterable[str | None]) -> Iterator[_Chunk]:
    sentences: list[str] = []
    ends: list[int] = []
    size = 0
    for sentence in corpus:
        if sentence is None:
            ends.append(len(sentences))
            continue
        if size >= _CHUNK_BYTES:
            yield _Chunk(sentences, ends, size)
            sentences, ends, size = [], [], 0
        sentences.append(sentence)
        size += len(sentence.encode()) + 1
    yield _Chunk(sentences, ends, size)


def _start_worker(tokenizer_config: dict[str, Any]) -> None:
    global _tokenizer
    _tokenizer = tokenizer_from_config(tokenizer_config)


def _tokenize(chunk: _Chunk) -> _Tokens:
    return _tokenized(_tokenizer, chunk)


def _tokenized(tokenizer: Tokenizer, chunk: _Chunk) -> _Tokens:
    ids, lengths = tokenizer.flat_ids(chunk.sentences)
    return _Tokens(ids, lengths, chunk.document_ends, chunk.num_bytes)


def _write(writer: TokenStoreWriter, tokens: _Tokens) -> None:
    ends = np.concatenate([[0], np.cumsum(tokens.lengths)])

    def add(first: int, last: int) -> None:
        ids = tokens.ids[ends[first] : ends[last]]
        writer.add_rows(Ragged(ids, tokens.lengths[first:last]))

    start = 0
    for end in tokens.document_ends:
        add(start, end)
        writer.end_document()
        start = end
    add(start, len(tokens.lengths))
