# SPDX-License-Identifier: Apache-2.0
"""Stores a corpus of token ids on disk, with access by document and sentence."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, overload

import numpy as np

from keras_bert.atomic import atomic_path, make_directory
from keras_bert.data.arrays import Ragged

Ids = np.ndarray[Any, np.dtype[np.int32]]
Sentences = Sequence[Ids]
Documents = Sequence[Sentences]

# Longer documents are split, because all of a document's instances are in memory at once.
MAX_DOCUMENT_TOKENS = 2**20
_TOKENS_AT_ONCE = 2**20

_TOKENS, _SENTENCES, _DOCUMENTS = "token_ids.bin", "sentences.bin", "documents.bin"
_OFFSET = np.dtype("<i8")
_ID = np.dtype("<i4")
_position_lock = threading.Lock()


class TokenStoreWriter:
    """Writes a token store atomically. The directory is renamed when it is complete.

    Use it as a context manager.

    Args:
        path: The store's directory. It must not exist.

    Raises:
        FileExistsError: If the directory exists.

    Example:

    >>> from keras_bert.data.pretraining.token_store import TokenStore, TokenStoreWriter
    >>> directory = getfixture("tmp_path") / "store"
    >>> with TokenStoreWriter(directory) as writer:
    ...     writer.add_sentences([[7, 8], [9]])
    ...     writer.end_document()
    >>> TokenStore(directory)[0][1].tolist()
    [9]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._directory = Path(path)
        if self._directory.exists():
            raise FileExistsError(f"{self._directory} already exists.")
        make_directory(self._directory.parent)
        # The files must be closed before the directory is renamed.
        self._exits = contextlib.ExitStack()
        self._partial = self._exits.enter_context(atomic_path(self._directory))
        self._partial.mkdir()
        self._tokens, self._sentences, self._documents = (
            self._create(name) for name in (_TOKENS, _SENTENCES, _DOCUMENTS)
        )
        self.num_tokens = self.num_sentences = self.num_documents = 0
        self._document_start = self._document_start_tokens = 0
        for file in (self._sentences, self._documents):
            file.write(np.zeros(1, _OFFSET).tobytes())

    def add_sentences(self, sentences: Iterable[Sequence[int] | Ids]) -> None:
        """Appends sentences of ids to the current document. Empty sentences are dropped."""
        self.add_rows(Ragged.from_rows(list(sentences), _ID))

    def add_rows(self, sentences: Ragged) -> None:
        """Appends sentences as `Ragged` rows. This is faster than `add_sentences`."""
        ids = sentences.values.astype(_ID, copy=False)
        ends = np.cumsum(sentences.lengths[sentences.lengths > 0])
        while len(ends):
            # A sentence after too many tokens starts a new document.
            room = MAX_DOCUMENT_TOKENS - (self.num_tokens - self._document_start_tokens)
            count = 0 if room <= 0 else 1 + int(np.searchsorted(ends[:-1], room))
            if count:
                size = int(ends[count - 1])
                self._tokens.write(ids[:size].tobytes())
                self._sentences.write((ends[:count] + self.num_tokens).astype(_OFFSET).tobytes())
                self.num_tokens += size
                self.num_sentences += count
                ids, ends = ids[size:], ends[count:] - size
            if len(ends):
                self.end_document()

    def end_document(self) -> None:
        """Ends the current document. A document without sentences is dropped."""
        if self.num_sentences == self._document_start:
            return
        self._document_start, self._document_start_tokens = self.num_sentences, self.num_tokens
        self.num_documents += 1
        self._documents.write(np.asarray([self.num_sentences], _OFFSET).tobytes())

    def _create(self, name: str) -> BinaryIO:
        return self._exits.enter_context(open(self._partial / name, "wb"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end_document()
        self._exits.__exit__(kind, error, traceback)


class TokenStore(Documents):
    """A corpus of token ids. It is a sequence of documents, and documents contain sentences.

    Sentences are int32 arrays `(length,)`. They are read from the files on access. The files are
    not memory-mapped, because mapped pages count as memory of every process that reads them.

    Args:
        path: The directory that a `TokenStoreWriter` wrote.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If the file sizes do not match.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        path = Path(path)
        if not path.is_dir():
            raise FileNotFoundError(f"{path} does not exist. Pass a token store's directory.")
        self._tokens = _Array(path / _TOKENS, _ID)
        self._sentences = _Array(path / _SENTENCES, _OFFSET)
        self._documents = _Array(path / _DOCUMENTS, _OFFSET)
        self.num_tokens = len(self._tokens)
        self.num_sentences = len(self._sentences) - 1
        ends = (self._last(self._sentences), self._last(self._documents))
        if ends != (self.num_tokens, self.num_sentences):
            raise ValueError(
                f"{path} is corrupt: its offsets must end at "
                f"{(self.num_tokens, self.num_sentences)}. Received: {ends}"
            )

    @staticmethod
    def _last(offsets: _Array) -> int:
        return int(offsets.read(len(offsets) - 1, len(offsets))[0])

    def __len__(self) -> int:
        return len(self._documents) - 1

    @overload
    def __getitem__(self, index: int) -> StoredDocument: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredDocument]: ...

    def __getitem__(self, index: int | slice) -> StoredDocument | Sequence[StoredDocument]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = _validate_index(index, len(self))
        first, last = self._documents.read(index, index + 2).tolist()
        return StoredDocument(self, first, last)

    def sentences(self, first: int, last: int) -> list[Ids]:
        """Reads the sentences from index `first` to `last` (exclusive) in the corpus."""
        offsets = self._sentences.read(first, last + 1)
        tokens = self._tokens.read(int(offsets[0]), int(offsets[-1]))
        return Ragged(tokens, np.diff(offsets)).to_arrays()

    def token_count(self, token_id: int) -> int:
        """Counts an id's occurrences in the corpus."""
        starts = range(0, self.num_tokens, _TOKENS_AT_ONCE)
        ends = (min(start + _TOKENS_AT_ONCE, self.num_tokens) for start in starts)
        blocks = (self._tokens.read(*ends) for ends in zip(starts, ends, strict=True))
        return sum(int(np.count_nonzero(block == token_id)) for block in blocks)


class StoredDocument(Sentences):
    """A document's sentences, read on access. Iterating reads them all at once."""

    def __init__(self, store: TokenStore, first: int, last: int) -> None:
        self._store, self._first, self._last = store, first, last

    def __len__(self) -> int:
        return self._last - self._first

    @overload
    def __getitem__(self, index: int) -> Ids: ...

    @overload
    def __getitem__(self, index: slice) -> list[Ids]: ...

    def __getitem__(self, index: int | slice) -> Ids | list[Ids]:
        if isinstance(index, slice):
            return list(self)[index]
        sentence = self._first + _validate_index(index, len(self))
        return self._store.sentences(sentence, sentence + 1)[0]

    def __iter__(self) -> Iterator[Ids]:
        return iter(self._store.sentences(self._first, self._last))


class _Array:
    """A one-dimensional array in a file."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._descriptor)
        self._dtype = dtype
        self._length = path.stat().st_size // dtype.itemsize

    def __len__(self) -> int:
        return self._length

    def read(self, first: int, last: int) -> np.ndarray[Any, Any]:
        size = self._dtype.itemsize
        return np.frombuffer(
            _read_at(self._descriptor, (last - first) * size, first * size), self._dtype
        )


def _read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Reads bytes from a file. Multiple threads can call it at once."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, offset)
    # Windows does not fork processes, so no other process moves the position in this file.
    with _position_lock:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, size)


def _validate_index(index: int, length: int) -> int:
    if not -length <= index < length:
        raise IndexError(f"index must be in [{-length}, {length}). Received: {index}")
    return index % length
