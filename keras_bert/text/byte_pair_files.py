# SPDX-License-Identifier: Apache-2.0
"""Byte-pair vocabularies in the files that RoBERTa has: `vocab.json` and `merges.txt`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from keras_bert.vocabularies.vocab_txt import write_whole

_FIRST_LINE = "#version:"


def load_tokens(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Reads a `vocab.json`: a JSON object of each token's id.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds anything else, or the ids are not 0, 1, 2 …
    """
    path = Path(path)
    try:
        ids = json.loads(_text(path, "an object of tokens and ids"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} holds no JSON: {error}.") from error
    if not isinstance(ids, dict) or sorted(ids.values(), key=str) != sorted(
        range(len(ids)), key=str
    ):
        raise ValueError(
            f"{path} must hold a JSON object that gives tokens the ids 0, 1, 2 …; received "
            f"{type(ids).__name__}" + (f" of {len(ids)}." if isinstance(ids, dict) else ".")
        )
    return tuple(sorted(ids, key=ids.__getitem__))


def load_merges(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Reads a `merges.txt`: two tokens a line, with a space between.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line has other parts; the message names it.
    """
    path = Path(path)
    merges = []
    for number, line in enumerate(_text(path, "two tokens a line").split("\n"), 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith(_FIRST_LINE)):
            continue
        if len(line.split(" ")) != 2:
            raise ValueError(f"{path}, line {number} is {line!r}; expected two tokens.")
        merges.append(line)
    return tuple(merges)


def save_tokens_and_merges(
    vocabulary: Sequence[str], merges: Sequence[str], folder: str | os.PathLike[str]
) -> None:
    """Writes `vocab.json` and `merges.txt`, each whole or not at all."""
    ids = {token: index for index, token in enumerate(vocabulary)}
    lines = (f"{_FIRST_LINE} 0.2", *merges)
    write_whole(Path(folder) / "vocab.json", json.dumps(ids, ensure_ascii=False).encode("utf-8"))
    write_whole(Path(folder) / "merges.txt", "".join(f"{line}\n" for line in lines).encode("utf-8"))


def _text(path: Path, expected: str) -> str:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; expected a file with {expected}.")
    try:
        return path.read_bytes().decode("utf-8-sig")  # without a byte-order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}).") from error
