# SPDX-License-Identifier: Apache-2.0
"""WordPiece vocabularies: `vocab.txt` with one token per line, and detection of uncased ones."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from keras_bert.atomic import write_bytes
from keras_bert.vocabularies.files import read_bytes

REQUIRED_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")

# The fraction of tokens of an uncased vocabulary that may contain characters it never produces
_MOST_CHANGED = 0.1
_SPECIAL = re.compile(r"\[.+\]|<.+>")


def load_vocabulary(
    path: str | os.PathLike[str], required: Sequence[str] = REQUIRED_TOKENS
) -> tuple[str, ...]:
    """Reads a `vocab.txt`: UTF-8, with one token per line in the order of their ids.

    Whitespace around tokens is stripped, as in the original code, and so are a byte order mark and
    blank lines at the end. Tokens that are only whitespace, such as U+2028 in the Chinese
    vocabulary, are kept: normalized text does not contain them.

    Args:
        path: Path of the file.
        required: The tokens that the vocabulary must contain.

    Returns:
        A tuple of the tokens.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is not UTF-8, has a blank line between tokens or a duplicate token,
            or lacks a required one.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; expected a file with one token per line.")
    # Only "\n" ends a line: other characters that Python's splitlines() splits at are tokens.
    lines = read_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    tokens = [_parse_line(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    return _checked(tokens, lambda index: f"line {index + 1}", f"The vocabulary {path}", required)


def check_vocabulary(
    vocabulary: Sequence[str], required: Sequence[str] = REQUIRED_TOKENS
) -> tuple[str, ...]:
    """Checks that the tokens of a vocabulary are different strings, and the required ones there."""
    return _checked(list(vocabulary), lambda index: f"index {index}", "The vocabulary", required)


def save_vocabulary(vocabulary: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Writes a `vocab.txt` atomically.

    Args:
        vocabulary: The tokens in the order of their ids.
        path: Path of the file; an existing one is replaced.

    Raises:
        ValueError: If a token is empty, has whitespace around it, or contains a line break, so that
            it could not be read back.
    """
    path = Path(path)
    content = "".join(f"{token}\n" for token in vocabulary).encode("utf-8")
    for index, token in enumerate(vocabulary):
        if not token or "\n" in token or _parse_line(token.encode("utf-8"), str(path)) != token:
            raise ValueError(
                f"Token {index} of the vocabulary is {token!r}; a file cannot represent empty "
                "tokens, whitespace around tokens, or line breaks in tokens."
            )
    write_bytes(path, content)


def looks_uncased(vocabulary: Sequence[str]) -> bool:
    """Returns whether a WordPiece vocabulary seems to be for lowercased text without accents.

    That is the case if no token but special ones has an uppercase letter, and less than a tenth of
    them have characters that an uncased tokenizer never produces: Hangul syllables, or marks of
    category Mn such as vowel signs of Thai and Hindi. Cased vocabularies of the TF1 releases have
    thousands of tokens with uppercase letters, the uncased ones and the Chinese one have none.
    """
    words = [word for word in vocabulary if not _SPECIAL.fullmatch(word)]
    if any(word != word.lower() for word in words):
        return False
    changed = sum(
        unicodedata.normalize("NFD", word) != word
        or any(unicodedata.category(letter) == "Mn" for letter in word)
        for word in words
    )
    return changed < _MOST_CHANGED * max(1, len(words))


def _parse_line(line: bytes, where: str) -> str:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8: {line!r} ({error}).") from None
    token = text.strip()
    # Tokens of whitespace alone are kept; inside a word, such a token would be stripped to "##".
    return token if token not in ("", "##") else text.strip(" \t\r\f\v")


def _checked(
    tokens: list[str],
    position: Callable[[int], str],
    vocabulary: str,
    required: Sequence[str] = REQUIRED_TOKENS,
) -> tuple[str, ...]:
    for index, token in enumerate(tokens):
        if not isinstance(token, str):
            raise TypeError(f"{vocabulary} has {token!r} at {position(index)}; expected a string.")
        if not token:
            raise ValueError(f"{vocabulary} has an empty token: {position(index)}.")
    distinct = set(tokens)
    if len(distinct) < len(tokens):
        positions = defaultdict(list)
        for index, token in enumerate(tokens):
            positions[token].append(position(index))
        twice = [f"{token!r} ({', '.join(at)})" for token, at in positions.items() if len(at) > 1]
        more = f" and {len(twice) - 5} more" if len(twice) > 5 else ""
        raise ValueError(f"{vocabulary} has tokens more than once: {', '.join(twice[:5])}{more}.")
    absent_tokens = [token for token in required if token not in distinct]
    if absent_tokens:
        raise ValueError(
            f"{vocabulary} ({len(tokens)} tokens) lacks {', '.join(absent_tokens)}; "
            f"it must have {', '.join(required)}."
        )
    return tuple(tokens)
