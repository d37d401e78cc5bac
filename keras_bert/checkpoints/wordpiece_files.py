# SPDX-License-Identifier: Apache-2.0
"""A WordPiece vocabulary in files, and whether text is lowercased for it."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError, CheckpointWarning
from keras_bert.vocabularies import vocab_txt

VOCABULARY_FILE = "vocab.txt"

# The share of tokens that an uncased vocabulary may have and never use
_MOST_CHANGED = 0.1
_SPECIAL = re.compile(r"\[.+\]|<.+>")


def wordpiece_config(
    vocabulary: list[str], settings: Mapping[str, Any], normalizer: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """The config of a tokenizer.

    Lowercasing is what the settings say, else the normalizer, else what the vocabulary looks like.

    Args:
        vocabulary: The word pieces.
        settings: The fields of `tokenizer_config.json`.
        normalizer: Those of the normalizer in `tokenizer.json`.
        folder: Where they lie, for a warning.
    """
    lowercase = settings.get("do_lower_case", normalizer.get("lowercase"))
    if not isinstance(lowercase, bool):
        lowercase = looks_uncased(vocabulary)
    _warn_of_other_normalizing({**normalizer, **settings}, lowercase, folder)
    return {"vocabulary": vocabulary, "lowercase": lowercase}


def read_vocabulary(path: Path) -> list[str]:
    """The word pieces of a file with one a line.

    Raises:
        CheckpointError: If the file is missing or not UTF-8, has a piece twice or an empty one,
            or lacks a special token.
    """
    try:
        return list(vocab_txt.load_vocabulary(path))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{error}") from error


def looks_uncased(vocabulary: Sequence[str]) -> bool:
    """Whether word pieces are those of lower-cased text without accents.

    Special ones like `[CLS]` and `<S>` aside, none has an uppercase letter, and less than a tenth
    have what an uncased tokenizer never leaves: Hangul syllables, or marks of category Mn such as
    vowel signs of Thai and Hindi. For folders that do not say, the TF1 release's above all: of its
    vocabularies the cased ones have thousands of pieces with uppercase letters, and the uncased
    ones and the Chinese one none.
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


def write_vocabulary(path: Path, vocabulary: Sequence[str]) -> None:
    """Writes one word piece a line.

    Raises:
        CheckpointError: If a word piece would not be read back as it is.
    """
    try:
        vocab_txt.save_vocabulary(vocabulary, path)
    except ValueError as error:
        raise CheckpointError(f"{error}") from error


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
            stacklevel=4,
        )
