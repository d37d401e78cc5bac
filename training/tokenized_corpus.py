# SPDX-License-Identifier: Apache-2.0
"""Files of text to a store of ids, by many processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.data import TokenStoreWriter, read_corpus
from keras_bert.text import WordPieceTokenizer
from training.pretraining_data_config import PretrainingDataConfig
from training.worker_pool import ordered_map

_CHUNK_CHARACTERS = 2**19

_tokenize: Callable[[tf.Tensor], tf.RaggedTensor]


class _Chunk(NamedTuple):
    """Sentences in a row, and after how many of them documents end."""

    sentences: list[str]
    document_ends: list[int]
    num_bytes: int


class _Tokens(NamedTuple):
    """The ids of a chunk `(tokens,)`, and the length of each sentence."""

    ids: Any
    lengths: Any
    document_ends: list[int]
    num_bytes: int


def write_token_store(
    config: PretrainingDataConfig, folder: Path, report: Callable[[int], Any]
) -> None:
    """Tokenizes a corpus into a store that is there whole or not at all.

    Args:
        config: which files, how read, by which tokenizer and how many processes.
        folder: the store to be.
        report: called with the number of bytes done since the last call.

    Raises:
        ValueError: if a file is malformed, with file and line, or there is no text in any.
    """
    with TokenStoreWriter(folder) as writer:
        for tokens in ordered_map(
            _tokenize_chunk,
            _chunks(config),
            config.workers(),
            _start_worker,
            (config.vocabulary, config.lowercase),
        ):
            _write(writer, tokens)
            report(tokens.num_bytes)
        writer.end_document()
        if writer.num_documents == 0:
            names = ", ".join(str(path) for path in config.paths()[:5])
            raise ValueError(f"there is no text in {names}")


def _chunks(config: PretrainingDataConfig) -> Iterator[_Chunk]:
    sentences: list[str] = []
    ends: list[int] = []
    size = 0
    for sentence in _sentences(config):
        if sentence is None:
            ends.append(len(sentences))
            continue
        if size >= _CHUNK_CHARACTERS:
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


def _start_worker(vocabulary: str, lowercase: bool) -> None:
    global _tokenize
    tokenizer = WordPieceTokenizer(vocabulary, lowercase=lowercase)
    _tokenize = tf.function(tokenizer, input_signature=[tf.TensorSpec([None], tf.string)])


def _tokenize_chunk(chunk: _Chunk) -> _Tokens:
    ragged = _tokenize(tf.constant(chunk.sentences, tf.string))
    return _Tokens(
        ragged.flat_values.numpy(),
        ragged.row_lengths().numpy(),
        chunk.document_ends,
        chunk.num_bytes,
    )


def _write(writer: TokenStoreWriter, tokens: _Tokens) -> None:
    sentences = np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1])
    start = 0
    for end in tokens.document_ends:
        writer.add_sentences(sentences[start:end])
        writer.end_document()
        start = end
    writer.add_sentences(sentences[start : len(tokens.lengths)])
