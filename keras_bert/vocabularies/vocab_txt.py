# SPDX-License-Identifier: Apache-2.0
"""`vocab.txt`, one token a line: reading it, checking it, writing it."""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

REQUIRED_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


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
    """Writes a `vocab.txt`, whole or not at all.

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
    write_whole(path, content)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; an existing one is replaced."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


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
    place: Callable[[int], str],
    vocabulary: str,
    required: Sequence[str] = REQUIRED_TOKENS,
) -> tuple[str, ...]:
    places = defaultdict(list)
    for index, token in enumerate(tokens):
        if not isinstance(token, str):
            raise TypeError(f"{vocabulary} has {token!r} at {place(index)}; expected a string.")
        if not token:
            raise ValueError(f"{vocabulary} has an empty token: {place(index)}.")
        places[token].append(place(index))
    twice = [f"{token!r} ({', '.join(at)})" for token, at in places.items() if len(at) > 1]
    if twice:
        more = f" and {len(twice) - 5} more" if len(twice) > 5 else ""
        raise ValueError(f"{vocabulary} has tokens more than once: {', '.join(twice[:5])}{more}.")
    missing = [token for token in required if token not in places]
    if missing:
        raise ValueError(
            f"{vocabulary} ({len(tokens)} tokens) lacks {', '.join(missing)}; "
            f"it must have {', '.join(required)}."
        )
    return tuple(tokens)
