# SPDX-License-Identifier: Apache-2.0
"""The corpora that vocabularies are made of, read once and a part at a time."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

_BATCH_BYTES = 2**20
_SECONDS_BETWEEN_REPORTS = 1.0
_WORDS_AT_A_TIME = 1024

Corpus = str | os.PathLike[str] | Iterable[str | bytes | os.PathLike[str]]


class Report:
    """How far the reading is, on one line of standard error, about once a second."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._next = time.monotonic()

    def __call__(self, num_bytes: int, num_words: int | None = None, done: bool = False) -> None:
        """How many bytes have come so far, and how many distinct words where they are counted."""
        if self._wanted and (done or time.monotonic() >= self._next):
            self._next = time.monotonic() + _SECONDS_BETWEEN_REPORTS
            line = f"\rRead: {num_bytes / 1e6:,.0f} MB"
            if num_words is not None:
                line = f"\rCounted words: {num_bytes / 1e6:,.0f} MB, {num_words:,} distinct words"
            print(line, end="\n" if done else "", file=sys.stderr, flush=True)


def corpus_texts(corpus: Corpus) -> Iterator[bytes]:
    """The texts of a corpus, as bytes; files by the line.

    Raises:
        ValueError: If a text among others is the name of a file.
    """
    if isinstance(corpus, str | os.PathLike):
        with open(corpus, "rb") as lines:
            yield from lines
        return
    for item in corpus:
        if isinstance(item, os.PathLike):
            yield from corpus_texts(item)
        elif isinstance(item, str) and os.path.isfile(item):
            raise ValueError(
                f"The corpus has the text {item!r}, which is the name of a file. To read files, "
                "give them as pathlib.Path."
            )
        else:
            yield item.encode("utf-8", "ignore") if isinstance(item, str) else item


def corpus_batches(texts: Iterable[bytes]) -> Iterator[tuple[list[bytes], int]]:
    """Texts of about a megabyte together, and how many bytes have come so far."""
    batch, size, total = [], 0, 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH_BYTES:
            total += size
            yield batch, total
            batch, size = [], 0
    if batch:
        yield batch, total + size


def count_words(
    texts: Iterable[bytes],
    split: Callable[[tf.Tensor], tf.Tensor],
    max_distinct_words: int,
    report: Report,
) -> dict[bytes, int]:
    """The words and how often they come, the most frequent first, ties in order of their bytes.

    Args:
        texts: The corpus.
        split: The words of strings `(texts,)`, flat, in graph.
        max_distinct_words: Where there are more, the rarest are forgotten.
        report: Is told how far it is.
    """
    function = tf.function(split, input_signature=[tf.TensorSpec([None], tf.string)])
    counts: Counter[bytes] = Counter()
    total, too_rare = 0, 0
    for batch, total in corpus_batches(texts):
        counts.update(function(tf.constant(batch)).numpy().tolist())
        while len(counts) > max_distinct_words:
            too_rare += 1
            counts = Counter({word: count for word, count in counts.items() if count > too_rare})
        report(total, len(counts))
    report(total, len(counts), done=True)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def spelled_out(counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Each word as often as it comes, for trainers that take no counts to count once more."""
    for word, count in counts:
        whole, rest = divmod(count, _WORDS_AT_A_TIME)
        for times in (*[_WORDS_AT_A_TIME] * whole, rest):
            yield " ".join([word] * times)


def import_trainer(name: str) -> Any:
    """The library that makes a vocabulary, or an error that says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"Training a vocabulary needs the package {name}: "
            'pip install "keras3-bert[vocabulary]".'
        ) from error
