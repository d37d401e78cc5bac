# SPDX-License-Identifier: Apache-2.0
"""Tokenizes text files into a token store."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_bert.data import TokenStore, TokenStoreWriter, read_corpus
from keras_bert.data.pretraining.instances import PAIR_KINDS
from keras_bert.text.tokenizer import Tokenizer

from .config import PretrainingDataConfig
from .tokenizer_source import open_tokenizer
from .worker_pool import ordered_map, process_pool

_CHUNK_BYTES = 2**19
# To start a process takes as long as to tokenize a few chunks.
_BYTES_PER_PROCESS = 16 * _CHUNK_BYTES

# The tokenizer of a worker process
_tokenizer: Tokenizer


class _Chunk(NamedTuple):
    """Consecutive sentences, and the indices of the sentences before which a document ends."""

    sentences: list[str]
    document_ends: list[int]
    num_bytes: int


class _Tokens(NamedTuple):
    """The token ids of a chunk `(tokens,)`, and the length of each sentence `(sentences,)`."""

    ids: Any
    lengths: Any
    document_ends: list[int]
    num_bytes: int


def write_token_store(
    config: PretrainingDataConfig, folder: Path, report: Callable[[int], Any]
) -> None:
    """Tokenizes a corpus into a token store, which is written atomically.

    Args:
        config: The files, their format and the tokenizer.
        folder: The folder of the token store.
        report: Called with the number of bytes processed since the last call.

    Raises:
        ValueError: If a file is malformed, with file and line, or no file has any text.
    """
    _start_worker(config)
    size = sum(path.stat().st_size for path in config.paths())
    workers = min(config.workers(), size // _BYTES_PER_PROCESS)
    with contextlib.ExitStack() as stack:
        results: Iterator[_Tokens] = map(_tokenize, _chunks(config))
        if workers > 1:
            pool = stack.enter_context(process_pool(workers, _start_worker, (config,)))
            results = ordered_map(pool, _tokenize, _chunks(config), ahead=2 * workers)
        writer = stack.enter_context(TokenStoreWriter(folder))
        for tokens in results:
            _write(writer, tokens)
            report(tokens.num_bytes)
        writer.end_document()
        if writer.num_documents == 0:
            names = ", ".join(str(path) for path in config.paths()[:5])
            raise ValueError(f"there is no text in {names}")


def count_unknown(config: PretrainingDataConfig, store: TokenStore) -> int:
    """Returns the number of tokens in a token store that are unknown to the vocabulary."""
    return store.token_count(open_tokenizer(config.vocabulary, config.lowercase).unk_token_id)


def _chunks(config: PretrainingDataConfig) -> Iterator[_Chunk]:
    sentences: list[str] = []
    ends: list[int] = []
    size = 0
    for sentence in _sentences(config):
        if sentence is None:
            ends.append(len(sentences))
            continue
        if size >= _CHUNK_BYTES:
            yield _Chunk(sentences, ends, size)
            sentences, ends, size = [], [], 0
        sentences.append(sentence)
        size += len(sentence.encode()) + 1
    yield _Chunk(sentences, ends, size)


def _sentences(config: PretrainingDataConfig) -> Iterator[str | None]:
    return itertools.chain.from_iterable(
        read_corpus(
            path,
            config.format,
            document_ends=config.document_ends,
            field=config.field,
            language=config.language,
        )
        for path in config.paths()
    )


def _start_worker(config: PretrainingDataConfig) -> None:
    """Opens the tokenizer of a process."""
    global _tokenizer
    tokenizer = open_tokenizer(config.vocabulary, config.lowercase)
    if tokenizer.pair_separators > 1 and config.kind in PAIR_KINDS:
        raise ValueError(
            f"--kind is {config.kind}, whose pairs have one separator between the segments, but a "
            f"{tokenizer.kind} tokenizer's have {tokenizer.pair_separators}; expected "
            "full_sentences or document_sentences"
        )
    _tokenizer = tokenizer


def _tokenize(chunk: _Chunk) -> _Tokens:
    ids, lengths = _tokenizer.flat_ids(chunk.sentences)
    return _Tokens(ids, lengths, chunk.document_ends, chunk.num_bytes)


def _write(writer: TokenStoreWriter, tokens: _Tokens) -> None:
    sentences = np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1])
    start = 0
    for end in tokens.document_ends:
        writer.add_sentences(sentences[start:end])
        writer.end_document()
        start = end
    writer.add_sentences(sentences[start : len(tokens.lengths)])
