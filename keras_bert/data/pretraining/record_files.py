# SPDX-License-Identifier: Apache-2.0
"""Finds files with pre-training records, and reads the records in order or shuffled."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from keras_bert.data.bucketing import permutation
from keras_bert.data.file_systems import find_files
from keras_bert.data.pretraining.tfrecords import Item, Record, chunked, read_records

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# A shard's name consists of a prefix, its number, the number of shards, and a suffix.
_SHARD = re.compile(r"(.*)-(\d+)-of-(\d+)(.*)", re.DOTALL)
# The number of consecutive rows to shuffle together
SHUFFLE_WINDOW = 8192
_FILES_AT_ONCE = 16


def record_paths(files: Files) -> list[str]:
    """Returns the paths that match names and patterns.

    Raises:
        FileNotFoundError: If no file matches, or if a pattern does not match all shards of names
            such as `*-00000-of-00008.tfrecord`.
    """
    patterns = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths: list[str] = []
    for pattern in [os.fspath(pattern) for pattern in patterns]:
        matches = [file.path for file in find_files(pattern)]
        if matches != [pattern]:
            _check_all_shards(matches, pattern)
        paths += matches
    if not paths:
        raise FileNotFoundError(f"No file matches {files}. Pass TFRecord files.")
    return paths


def _check_all_shards(paths: Sequence[str], pattern: str) -> None:
    shards: dict[tuple[str, int, str], set[int]] = {}
    for path in paths:
        if match := _SHARD.fullmatch(path):
            start, number, count, end = match.groups()
            shards.setdefault((start, int(count), end), set()).add(int(number))
    for (start, count, end), numbers in shards.items():
        first = 1 if count in numbers else 0
        gaps = sorted(set(range(first, first + count)) - numbers)
        if gaps:
            raise FileNotFoundError(
                f"{pattern} must match all {count} record files. Received: {len(numbers)} files. "
                f"The first missing file is {start}-{gaps[0]:05}-of-{count:05}{end}. To read only "
                "some of the files, list them."
            )


def check_record_files(files: Files) -> int:
    """Reads TFRecord files completely to check that they are not truncated or corrupt.

    Args:
        files: TFRecord files, or a pattern.

    Returns:
        The number of records.

    Raises:
        FileNotFoundError: See `pretraining_batches`.
        ValueError: If a file is truncated or a checksum does not match. The message contains the
            file and the index of the record.
    """
    return sum(1 for path in record_paths(files) for _ in read_records(path))


def interleaved(paths: Sequence[str]) -> Iterator[Record]:
    """Yields records from up to 16 open files in alternation."""
    waiting = deque(paths)
    reading: list[Iterator[Record] | None] = [None] * min(_FILES_AT_ONCE, len(paths))
    while waiting or any(reading):
        for slot, records in enumerate(reading):
            if records is None and waiting:
                records = reading[slot] = read_records(waiting.popleft())
            record = None if records is None else next(records, None)
            if record is None:
                reading[slot] = None
            else:
                yield record


def shuffled_records(
    paths: Sequence[str], *seed: int, window: int = SHUFFLE_WINDOW
) -> Iterator[Record]:
    """Yields records in random order, shuffled within windows."""
    order = permutation(len(paths), *seed)
    return shuffled(interleaved([paths[index] for index in order]), *seed, window=window)


def shuffled(rows: Iterable[Item], *seed: int, window: int = SHUFFLE_WINDOW) -> Iterator[Item]:
    """Yields rows in random order, shuffled within windows. Only one window is in memory."""
    for number, chunk in enumerate(chunked(rows, window)):
        for index in permutation(len(chunk), *seed, number).tolist():
            yield chunk[index]
