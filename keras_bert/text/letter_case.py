# SPDX-License-Identifier: Apache-2.0
"""Whether a vocabulary of a corpus should be lower-cased."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from keras_bert.text.training_corpus import Corpus, corpus_texts

_SAMPLE_BYTES = 2**21
# A file is looked at in so many parts, for its languages may follow one another.
_PARTS = 16
_LEAST_CASED = 0.5
_MOST_CHANGED = 0.1


class LetterCase(NamedTuple):
    """Whether to lower-case.

    Args:
        lowercase: Whether to lower-case text and strip its accents.
        reason: Why: the shares of letters that decided it.
    """

    lowercase: bool
    reason: str


def choose_lowercase(corpus: Corpus) -> LetterCase:
    """Whether text like a corpus's should be lower-cased and its accents stripped.

    Not where less than half of the letters have a case, so that little is gained, nor where
    stripping accents (NFD without the marks of category Mn) would change a tenth of the letters and
    marks: it takes Hangul syllables apart, and drops vowel signs and tones of Thai and Hindi, and
    of Vietnamese.

    Args:
        corpus: As for `train_vocabulary`, but no iterator, which could be read only once. About
            2 MB of it are looked at: of files parts from beginning to end, of texts every n-th.

    Returns:
        The decision, and the reason.

    Raises:
        ValueError: If the corpus is an iterator, or a text among others is the name of a file.

    Example:

    >>> from keras_bert.text import choose_lowercase
    >>> choose_lowercase(["Seoul is the capital."]).lowercase
    True
    >>> choose_lowercase(["서울은 대한민국의 수도이다."])
    LetterCase(lowercase=False, reason='0 % of the letters have a case')
    """
    characters: Counter[str] = Counter()
    for text in _sample(corpus):
        characters.update(text.decode("utf-8", "ignore"))
    letters, cased, changed, total = 0, 0, 0, 0
    for character, count in characters.items():
        category = unicodedata.category(character)[0]
        if category in "LM":
            total += count
            changed += count * (_without_accents(character) != character.lower())
        if category == "L":
            letters += count
            cased += count * (character.lower() != character.upper())
    if not letters:
        return LetterCase(True, "there are no letters")
    reason = f"{100 * cased / letters:.0f} % of the letters have a case"
    if cased < _LEAST_CASED * letters:
        return LetterCase(False, reason)
    reason += f", and stripping accents changes {100 * changed / total:.0f} % of letters and marks"
    return LetterCase(changed < _MOST_CHANGED * total, reason)


def chosen_lowercase(corpus: Corpus, progress: bool) -> bool:
    """What `choose_lowercase` says, reported to standard error if `progress`."""
    choice = choose_lowercase(corpus)
    if progress:
        print(f"lowercase={choice.lowercase}: {choice.reason}", file=sys.stderr, flush=True)
    return choice.lowercase


def _without_accents(character: str) -> str:
    parts = unicodedata.normalize("NFD", character.lower())
    return "".join(part for part in parts if unicodedata.category(part) != "Mn")


def _sample(corpus: Corpus) -> Iterator[bytes]:
    if isinstance(corpus, Iterator):
        raise ValueError(
            "lowercase is None, which looks at the corpus before it is read; expected a path or a "
            f"list of texts or paths, received {type(corpus).__name__}. Or pass True or False."
        )
    items = [Path(corpus)] if isinstance(corpus, str | os.PathLike) else list(corpus)
    files = [item for item in items if isinstance(item, os.PathLike)]
    for file in files:
        yield from _parts_of(Path(file), _SAMPLE_BYTES // len(files) // _PARTS + 1)
    texts = list(corpus_texts(item for item in items if not isinstance(item, os.PathLike)))
    yield from texts[:: 1 + sum(map(len, texts)) // _SAMPLE_BYTES]


def _parts_of(path: Path, size: int) -> Iterator[bytes]:
    """Parts of a file, from beginning to end; one that is small whole."""
    with open(path, "rb") as file:
        length = os.fstat(file.fileno()).st_size
        if length <= _PARTS * size:
            yield file.read()
            return
        for part in range(_PARTS):
            file.seek(part * length // _PARTS)
            yield file.read(size)
