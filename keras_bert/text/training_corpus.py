# SPDX-License-Identifier: Apache-2.0
"""Reads training corpora for vocabularies, counts their words, and chooses the case."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from keras_bert.progress import bar
from keras_bert.text.characters import category
from keras_bert.text.normalization import without_case

_SAMPLE_BYTES = 2**21
# The number of chunks sampled from a file, because its parts may be in different languages
_CHUNKS = 16
_LEAST_CASED = 0.5
_MOST_CHANGED = 0.1
_WORDS_AT_A_TIME = 1024
_BYTES_SHOWN = 8

Corpus = str | os.PathLike[str] | Iterable[str | bytes | os.PathLike[str]]


def corpus_texts(corpus: Corpus) -> Iterator[bytes]:
    """Yields the texts in a corpus as bytes. In files, each line is a text.

    Raises:
        ValueError: If a file is not UTF-8, or if a string in an iterable is a file name.
    """
    if isinstance(corpus, str | os.PathLike):
        with open(corpus, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.isascii():
                    _check_utf_8(line, f"{os.fspath(corpus)}, line {number}")
                yield line
        return
    for item in corpus:
        if isinstance(item, os.PathLike):
            yield from corpus_texts(item)
        elif isinstance(item, str) and os.path.isfile(item):
            raise ValueError(
                f"Files must be passed as pathlib.Path. Received: the text {item!r}, which is an "
                "existing file"
            )
        else:
            yield item.encode("utf-8", "ignore") if isinstance(item, str) else item


def _check_utf_8(line: bytes, where: str) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        found = line[error.start : error.start + _BYTES_SHOWN].hex(" ")
        raise ValueError(
            f"{where}: the file must be UTF-8. Received: bytes {found} at position {error.start} "
            "of the line. For another encoding, such as cp949, pass the lines of "
            "`open(path, encoding='cp949')` instead of the path."
        ) from error


def read_corpus(corpus: Corpus, progress: bool) -> Iterator[bytes]:
    """Yields the texts in a corpus. With `progress`, reports the progress on standard error."""
    size = os.path.getsize(corpus) if isinstance(corpus, str | os.PathLike) else None
    with bar("reading", size, "B", unit_scale=True, disable=not progress) as progress_bar:
        for text in corpus_texts(corpus):
            yield text
            progress_bar.update(len(text))


def count_words(
    texts: Iterable[bytes],
    split: Callable[[str], Iterable[str]],
    max_distinct_words: int,
    progress: bool,
) -> dict[str, int]:
    """Counts the words in a corpus, sorted by descending count, then by code points.

    Beyond `max_distinct_words` words in memory, the rarest words are dropped.
    """
    counts: Counter[str] = Counter()
    total, too_rare = 0, 0
    for text in texts:
        counts.update(split(text.decode("utf-8", "ignore")))
        while len(counts) > max_distinct_words:
            too_rare += 1
            counts = Counter({word: count for word, count in counts.items() if count > too_rare})
        total += len(text)
    if progress:
        summary = f"{total / 1e6:,.0f} MB, {len(counts):,} distinct words"
        print(f"Counted words: {summary}", file=sys.stderr, flush=True)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def repeat_words(counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Repeats each word according to its count, for trainers that do not accept counts."""
    for word, count in counts:
        whole, rest = divmod(count, _WORDS_AT_A_TIME)
        for times in (*[_WORDS_AT_A_TIME] * whole, rest):
            yield " ".join([word] * times)


class CaseChoice(NamedTuple):
    """The decision of `choose_lowercase`.

    Args:
        lowercase: Whether to lowercase text and strip accents.
        reason: The percentages of letters that determined the decision.
    """

    lowercase: bool
    reason: str


def choose_lowercase(corpus: Corpus) -> CaseChoice:
    """Decides whether text like a corpus should be lowercased and its accents stripped.

    It should not if less than half of the letters have a case, because there is little to gain. It
    also should not if stripping accents (NFD without the marks of category Mn) would change at
    least a tenth of the letters and marks. For example, it decomposes Hangul syllables, and drops
    vowel signs and tone marks in Thai, Hindi and Vietnamese.

    Args:
        corpus: The path to a text file, or an iterable of texts and `pathlib.Path`s of text files,
            but not an iterator. A sample of about 2 MB is read: file chunks at regular intervals,
            and every n-th text.

    Returns:
        A named tuple of the decision (`lowercase`) and its `reason`. Without letters, the decision
        is `True`.

    Raises:
        ValueError: If the corpus is an iterator, or if a string in an iterable is a file name.

    Example:

    >>> from keras_bert.text import choose_lowercase
    >>> choose_lowercase(["Seoul is the capital."]).lowercase
    True
    >>> choose_lowercase(["서울은 대한민국의 수도이다."])
    CaseChoice(lowercase=False, reason='0% of the letters have a case')
    """
    characters: Counter[str] = Counter()
    for text in _sample(corpus):
        characters.update(text.decode("utf-8", "ignore"))
    letters, num_cased, num_changed, total = 0, 0, 0, 0
    for character, count in characters.items():
        kind = category(character)[0]
        if kind in "LM":
            total += count
            num_changed += count * (without_case(character) != character.lower())
        if kind == "L":
            letters += count
            num_cased += count * (character.lower() != character.upper())
    if not letters:
        return CaseChoice(True, "there are no letters")
    reason = f"{100 * num_cased / letters:.0f}% of the letters have a case"
    if num_cased < _LEAST_CASED * letters:
        return CaseChoice(False, reason)
    reason += (
        f", and stripping accents changes {100 * num_changed / total:.0f}% of letters and marks"
    )
    return CaseChoice(num_changed < _MOST_CHANGED * total, reason)


def chosen_lowercase(corpus: Corpus, progress: bool) -> bool:
    """Calls `choose_lowercase`. With `progress`, reports the decision on standard error."""
    choice = choose_lowercase(corpus)
    if progress:
        print(f"lowercase={choice.lowercase}: {choice.reason}", file=sys.stderr, flush=True)
    return choice.lowercase


def _sample(corpus: Corpus) -> Iterator[bytes]:
    if isinstance(corpus, Iterator):
        raise ValueError(
            "corpus must be a path, or a list of texts or paths, because lowercase=None reads it "
            f"twice. Received: {type(corpus).__name__}. Or pass lowercase=True or lowercase=False."
        )
    items = [Path(corpus)] if isinstance(corpus, str | os.PathLike) else list(corpus)
    files = [item for item in items if isinstance(item, os.PathLike)]
    for file in files:
        yield from _sample_chunks(Path(file), _SAMPLE_BYTES // len(files) // _CHUNKS + 1)
    texts = list(corpus_texts(item for item in items if not isinstance(item, os.PathLike)))
    yield from texts[:: 1 + sum(map(len, texts)) // _SAMPLE_BYTES]


def _sample_chunks(path: Path, size: int) -> Iterator[bytes]:
    """Yields file chunks at regular intervals. Small files are yielded completely."""
    with open(path, "rb") as file:
        length = os.fstat(file.fileno()).st_size
        if length <= _CHUNKS * size:
            yield file.read()
            return
        for chunk in range(_CHUNKS):
            file.seek(chunk * length // _CHUNKS)
            yield file.read(size)
