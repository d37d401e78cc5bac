# SPDX-License-Identifier: Apache-2.0
"""The vocabulary that lies beside the weights, and whether text is lowercased for it."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError, CheckpointWarning
from keras_bert.checkpoints.folders import read_json, read_text, write_json

VOCABULARY_FILE = "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"

_SPECIAL = re.compile(r"\[.+\]|<.+>")


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """What a WordPiece tokenizer is made of.

    Args:
        vocabulary: The word pieces; a piece's id is its index.
        lowercase: Whether text is lowercased and its accents are stripped.
    """

    vocabulary: list[str]
    lowercase: bool


def read_tokenizer(folder: Path) -> TokenizerFiles | None:
    """The tokenizer of a folder in Hugging Face's layout, the TF1 release's or ours.

    The vocabulary comes from `vocab.txt`, else from `tokenizer.json`. Lowercasing is what
    `tokenizer_config.json` says, else `tokenizer.json`, else what the vocabulary looks like.

    Returns:
        `None` if the folder holds neither file.

    Raises:
        CheckpointError: If a file is malformed, or the tokenizer is no WordPiece.
    """
    settings_path, tokenizer_path = folder / SETTINGS_FILE, folder / TOKENIZER_FILE
    settings = read_json(settings_path) if settings_path.exists() else {}
    tokenizer = read_json(tokenizer_path) if tokenizer_path.exists() else {}
    normalizer = tokenizer.get("normalizer")
    normalizer = normalizer if isinstance(normalizer, dict) else {}
    if (folder / VOCABULARY_FILE).exists():
        vocabulary = read_vocabulary(folder / VOCABULARY_FILE)
    elif tokenizer:
        vocabulary = _wordpiece_vocabulary(tokenizer, tokenizer_path)
    else:
        return None
    lowercase = settings.get("do_lower_case", normalizer.get("lowercase"))
    if not isinstance(lowercase, bool):
        lowercase = looks_uncased(vocabulary)
    _warn_of_other_normalizing({**normalizer, **settings}, lowercase, folder)
    return TokenizerFiles(vocabulary, lowercase)


def read_vocabulary(path: Path) -> list[str]:
    """The word pieces of a file with one a line.

    Raises:
        CheckpointError: If the file is missing, empty or not UTF-8.
    """
    # Only these ends of lines: some vocabularies hold pieces that Unicode counts as line ends.
    pieces = [line.removesuffix("\r") for line in read_text(path).split("\n")]
    if pieces[-1] == "":
        pieces.pop()
    if not pieces:
        raise CheckpointError(f"{path}: the vocabulary is empty; expected one word piece a line.")
    return pieces


def looks_uncased(vocabulary: Sequence[str]) -> bool:
    """Whether no word piece, special ones like `[CLS]` and `<S>` aside, has an uppercase letter.

    For folders that do not say, the TF1 release's above all: of its vocabularies the cased ones
    have thousands of such pieces, and the uncased ones and the Chinese one none.
    """
    return all(word == word.lower() for word in vocabulary if not _SPECIAL.fullmatch(word))


def write_tokenizer(
    folder: Path, vocabulary: Sequence[str] | None, lowercase: bool, max_sequence_length: int
) -> None:
    """Writes `vocab.txt` and `tokenizer_config.json`, or nothing without a vocabulary.

    Raises:
        CheckpointError: If a word piece cannot stand on a line.
    """
    if vocabulary is None:
        return
    write_vocabulary(folder / VOCABULARY_FILE, vocabulary)
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": lowercase,
        "model_max_length": max_sequence_length,
    }
    write_json(folder / SETTINGS_FILE, settings)


def write_vocabulary(path: Path, vocabulary: Sequence[str]) -> None:
    """Writes one word piece a line.

    Raises:
        CheckpointError: If a word piece holds a line end.
    """
    for index, piece in enumerate(vocabulary):
        if "\n" in piece or piece.endswith("\r"):
            raise CheckpointError(
                f"Word piece {index} of the vocabulary is {piece!r}; a piece must fit on a line."
            )
    path.write_bytes("".join(f"{piece}\n" for piece in vocabulary).encode("utf-8"))


def _wordpiece_vocabulary(tokenizer: Mapping[str, Any], path: Path) -> list[str]:
    model = tokenizer.get("model")
    model = model if isinstance(model, dict) else {}
    if model.get("type") != "WordPiece" or not isinstance(model.get("vocab"), dict):
        raise CheckpointError(
            f"{path}: model.type is {model.get('type')!r}; it must be 'WordPiece', with a "
            "dictionary model.vocab."
        )
    try:
        pieces = {index: piece for piece, index in model["vocab"].items()}
        pieces |= {token["id"]: token["content"] for token in tokenizer.get("added_tokens") or ()}
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: model.vocab must give each word piece an id, and added_tokens hold objects "
            f"with id and content; the file is malformed ({error!r})."
        ) from error
    gaps = [index for index in range(len(pieces)) if index not in pieces]
    if gaps or not pieces:
        raise CheckpointError(
            f"{path}: model.vocab must give the ids 0, 1, 2 …, each to a word piece; "
            f"no piece has id {gaps[0] if gaps else 0}."
        )
    return [pieces[index] for index in range(len(pieces))]


def _warn_of_other_normalizing(settings: Mapping[str, Any], lowercase: bool, folder: Path) -> None:
    strip_accents = settings.get("strip_accents")
    split_chinese = settings.get("tokenize_chinese_chars", settings.get("handle_chinese_chars"))
    differs = []
    if isinstance(strip_accents, bool) and strip_accents != lowercase:
        differs.append(f"strip_accents={strip_accents} with lowercase={lowercase}")
    if split_chinese is False:
        differs.append("tokenize_chinese_chars=False")
    if differs:
        warnings.warn(
            f"{folder}: the tokenizer asks for {' and '.join(differs)}, which the original BERT "
            "tokenizer does not have: some texts will get other ids than its authors gave them.",
            CheckpointWarning,
            stacklevel=3,
        )
