# SPDX-License-Identifier: Apache-2.0
"""Reads and writes WordPiece vocabularies in `vocab.txt`, and detects uncased vocabularies."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from keras_bert.atomic import write_bytes
from keras_bert.vocabularies.byte_pair_files import BLANK
from keras_bert.vocabularies.files import read_bytes

REQUIRED_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")

# The fraction of tokens in an uncased vocabulary that may contain characters it never produces
_MOST_CHANGED = 0.1
_SPECIAL = re.compile(r"\[.+\]|<.+>")


def load_vocabulary(
    path: str | os.PathLike[str], required: Sequence[str] = REQUIRED_TOKENS
) -> tuple[str, ...]:
    """Reads a `vocab.txt` in UTF-8, with one token per line in id order.

    Whitespace around tokens is stripped, as in the original BERT code. A byte order mark and blank
    lines at the end are also stripped. Whitespace tokens, such as U+2028 in the Chinese vocabulary,
    are kept, because normalized text does not contain them.

    Args:
        path: Path of the file.
        required: Tokens that the vocabulary must contain.

    Returns:
        A tuple of the tokens.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is not UTF-8, contains a blank line between tokens or a duplicate
            token, or lacks a required token.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}. Pass a file with one token per line.")
    # Only "\n" ends a line. Other line breaks of Python's splitlines() are tokens.
    lines = read_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    tokens = [_parse_line(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    return _checked(tokens, lambda index: f"line {index + 1}", f"The vocabulary {path}", required)


def check_vocabulary(
    vocabulary: Sequence[str], required: Sequence[str] = REQUIRED_TOKENS
) -> tuple[str, ...]:
    """Checks that tokens are distinct strings and include the required tokens."""
    return _checked(list(vocabulary), lambda index: f"index {index}", "The vocabulary", required)


def save_vocabulary(vocabulary: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Writes a `vocab.txt` atomically.

    Args:
        vocabulary: The tokens in the order of their ids.
        path: Path of the file. An existing file is replaced.

    Raises:
        ValueError: If a token is empty, has whitespace around it or contains a line break, because
            it could not be read back.
    """
    path = Path(path)
    content = "".join(f"{token}\n" for token in vocabulary).encode("utf-8")
    for index, token in enumerate(vocabulary):
        if not token or "\n" in token or _parse_line(token.encode("utf-8"), str(path)) != token:
            raise ValueError(
                "To be saved, tokens must not be empty, have whitespace around them or contain "
                f"line breaks. Received: {token!r} (token {index})"
            )
    write_bytes(path, content)


def has_sentence_pieces(tokens: Iterable[str]) -> bool:
    """Returns whether tokens are SentencePiece pieces, such as `▁word`, not WordPiece tokens.

    This is the case if words start with `▁`, and no token starts with `##`.
    """
    tokens = list(tokens)
    return any(token.startswith(BLANK) and token != BLANK for token in tokens) and not any(
        token.startswith("##") for token in tokens
    )


def looks_uncased(vocabulary: Sequence[str]) -> bool:
    """Returns whether a WordPiece vocabulary seems to be for lowercased text without accents.

    This is the case if only special tokens contain uppercase letters, and less than a tenth of the
    other tokens contain characters that an uncased tokenizer never produces. These are Hangul
    syllables and marks of category Mn, such as vowel signs in Thai and Hindi. In the TF1 releases,
    only cased vocabularies have tokens with uppercase letters, thousands of them.
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
        raise ValueError(f"{where} must be UTF-8. Received: {line!r} ({error})") from None
    token = text.strip()
    # Whitespace tokens are kept. Inside a word, such a token would be stripped to "##".
    return token if token not in ("", "##") else text.strip(" \t\r\f\v")


def _checked(
    tokens: list[str],
    position: Callable[[int], str],
    vocabulary: str,
    required: Sequence[str] = REQUIRED_TOKENS,
) -> tuple[str, ...]:
    for index, token in enumerate(tokens):
        if not isinstance(token, str):
            raise TypeError(
                f"{vocabulary} must contain strings. Received: {token!r} ({position(index)})"
            )
        if not token:
            raise ValueError(f"{vocabulary} must not contain an empty token: {position(index)}.")
    distinct = set(tokens)
    if len(distinct) < len(tokens):
        positions = defaultdict(list)
        for index, token in enumerate(tokens):
            positions[token].append(position(index))
        twice = [f"{token!r} ({', '.join(at)})" for token, at in positions.items() if len(at) > 1]
        more = f" and {len(twice) - 5} more" if len(twice) > 5 else ""
        raise ValueError(f"{vocabulary} must not contain duplicates: {', '.join(twice[:5])}{more}.")
    absent_tokens = [token for token in required if token not in distinct]
    if absent_tokens:
        raise ValueError(
            f"{vocabulary} must contain {', '.join(required)}. Received: {len(tokens)} tokens "
            f"without {', '.join(absent_tokens)}"
        )
    return tuple(tokens)
