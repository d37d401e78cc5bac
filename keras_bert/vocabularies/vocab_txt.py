# SPDX-License-Identifier: Apache-2.0
"""WordPiece vocabularies: `vocab.txt`, one token a line, and whether its text is lower-cased."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from keras_bert.atomic import write_bytes

REQUIRED_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")

# The share of tokens that an uncased vocabulary may have and never use
_MOST_CHANGED = 0.1
_SPECIAL = re.compile(r"\[.+\]|<.+>")


def load_vocabulary(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Reads a `vocab.txt`: UTF-8, one token a line, a token's id being its line's number from 0.

    White space around a token is dropped, as the original does, and so are a byte order mark and
    blank lines at the end. A token that is white space alone, like the U+2028 of the Chinese
    vocabulary, is kept: no text has it once it is normalized.

    Args:
        path: The file.

    Returns:
        The tokens.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not UTF-8, has a blank line between tokens or a token twice, or
            lacks one of `[PAD]`, `[UNK]`, `[CLS]` and `[SEP]`.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; expected a file with one token a line.")
    # Only "\n" ends a line: characters that Python's splitlines() splits at are tokens.
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    tokens = [_parse_line(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    return _checked(tokens, lambda index: f"line {index + 1}", f"The vocabulary {path}")


def check_vocabulary(
    vocabulary: Sequence[str], required: Sequence[str] = REQUIRED_TOKENS
) -> tuple[str, ...]:
    """Checks that a list of tokens can be a vocabulary.

    Args:
        vocabulary: The tokens.
        required: Tokens that must be among them.

    Returns:
        The tokens.

    Raises:
        TypeError: If one of them is no string.
        ValueError: As by `load_vocabulary`.
    """
    return _checked(list(vocabulary), lambda index: f"index {index}", "The vocabulary", required)


def save_vocabulary(vocabulary: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Writes a `vocab.txt` atomically.

    Args:
        vocabulary: The tokens.
        path: The file; an existing one is replaced.

    Raises:
        ValueError: If a token would not be read back as it is.
    """
    path = Path(path)
    content = "".join(f"{token}\n" for token in vocabulary).encode("utf-8")
    for index, token in enumerate(vocabulary):
        if not token or "\n" in token or _parse_line(token.encode("utf-8"), str(path)) != token:
            raise ValueError(
                f"Token {index} of the vocabulary is {token!r}; a file cannot keep an empty token, "
                "white space around one, or a line end in one."
            )
    write_bytes(path, content)


def looks_uncased(vocabulary: Sequence[str]) -> bool:
    """Whether word pieces are those of lower-cased text without accents.

    Special ones like `[CLS]` and `<S>` aside, none has an uppercase letter, and less than a tenth
    have what an uncased tokenizer never leaves: Hangul syllables, or marks of category Mn such as
    vowel signs of Thai and Hindi. For folders that do not say, the TF1 release's above all: of its
    vocabularies the cased ones have thousands of pieces with uppercase letters, and the uncased
    ones and the Chinese one have none.
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
    # Tokens of white space alone; "##" is what one inside a word would be stripped to.
    return token if token not in ("", "##") else text.strip(" \t\r\f\v")


def _checked(
    tokens: list[str],
    position: Callable[[int], str],
    vocabulary: str,
    required: Sequence[str] = REQUIRED_TOKENS,
) -> tuple[str, ...]:
    positions = defaultdict(list)
    for index, token in enumerate(tokens):
        if not isinstance(token, str):
            raise TypeError(f"{vocabulary} has {token!r} at {position(index)}; expected a string.")
        if not token:
            raise ValueError(f"{vocabulary} has an empty token: {position(index)}.")
        positions[token].append(position(index))
    twice = [f"{token!r} ({', '.join(at)})" for token, at in positions.items() if len(at) > 1]
    if twice:
        more = f" and {len(twice) - 5} more" if len(twice) > 5 else ""
        raise ValueError(f"{vocabulary} has tokens more than once: {', '.join(twice[:5])}{more}.")
    missing = [token for token in required if token not in positions]
    if missing:
        raise ValueError(
            f"{vocabulary} ({len(tokens)} tokens) lacks {', '.join(missing)}; "
            f"it must have {', '.join(required)}."
        )
    return tuple(tokens)
