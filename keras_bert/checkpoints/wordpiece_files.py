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
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Those of the transformers library that do what BERT's does, and its names for any that is wholly
# in a tokenizer.json
_CLASSES = {
    *(
        f"{family}Tokenizer"
        for family in ("Bert", "ConvBert", "DistilBert", "Electra", "LayoutLM", "MobileBert")
    ),
    "PreTrainedTokenizer",
    "TokenizersBackend",
}
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


def check_settings(settings: Mapping[str, Any], path: Path) -> None:
    """Refuses what says that a vocabulary of word pieces is another tokenizer's than BERT's.

    Args:
        settings: The fields of `tokenizer_config.json`.
        path: The file.

    Raises:
        CheckpointError: Names the field.
    """
    name = settings.get("tokenizer_class")
    if name is not None and str(name).removesuffix("Fast") not in _CLASSES:
        raise CheckpointError(
            f"{path}: tokenizer_class is {name!r}, which is not supported; of tokenizers with a "
            f"vocabulary of word pieces there are {', '.join(sorted(_CLASSES))}."
        )
    others = {
        "word_tokenizer_type": "basic",
        "subword_tokenizer_type": "wordpiece",
        "do_basic_tokenize": True,
        "do_word_tokenize": True,
        "do_subword_tokenize": True,
    }
    for field, expected in others.items():
        if settings.get(field, expected) not in (expected, None):
            raise CheckpointError(
                f"{path}: {field} is {settings[field]!r}, which is not supported; it must be "
                f"{expected!r} or absent."
            )
    words = [word for word in settings.get("never_split") or () if word not in _SPECIAL_TOKENS]
    if words:
        raise CheckpointError(
            f"{path}: never_split names {', '.join(map(repr, words[:5]))}, which is not supported; "
            "it may name special tokens alone."
        )


def with_added_tokens(
    config: dict[str, Any], added: Sequence[Mapping[str, Any]], path: Path
) -> dict[str, Any]:
    """The config of a tokenizer with tokens that were added to its vocabulary.

    Args:
        config: Of the tokenizer without them.
        added: The tokens, each with its `id` and `content`, and perhaps `single_word`, `special`
            and `normalized`; those that the vocabulary has as special tokens too.
        path: The file that has them, for messages.

    Raises:
        CheckpointError: If the ids do not follow those of the vocabulary, are of other tokens, or
            a token is only to be found as a whole word.
    """
    vocabulary = list(config["vocabulary"])
    for token in sorted(added, key=lambda token: int(token["id"])):
        index, content = int(token["id"]), str(token["content"])
        if index == len(vocabulary):
            vocabulary.append(content)
        elif not 0 <= index < len(vocabulary) or vocabulary[index] != content:
            has = repr(vocabulary[index]) if 0 <= index < len(vocabulary) else "nothing"
            raise CheckpointError(
                f"{path}: the added token {content!r} has id {index}, where the vocabulary of "
                f"{len(vocabulary)} tokens has {has}."
            )
    own = [token for token in added if token["content"] not in _SPECIAL_TOKENS]
    whole = [token["content"] for token in own if token.get("single_word")]
    if whole:
        raise CheckpointError(
            f"{path}: the added token {whole[0]!r} has single_word, which is not supported."
        )
    folded = [
        str(token["content"])
        for token in own
        if config["lowercase"]
        and token.get("normalized", not token.get("special", False))
        and any(character.isalpha() for character in str(token["content"]))
    ]
    if folded:
        warnings.warn(
            f"{path}: the added tokens {', '.join(map(repr, folded[:5]))} are meant to be found in "
            "texts whatever their case and accents; here they are found as they are spelled alone.",
            CheckpointWarning,
            stacklevel=5,
        )
    names = list(dict.fromkeys(str(token["content"]) for token in own))
    return {**config, "vocabulary": vocabulary, **({"added_tokens": names} if names else {})}


def added_tokens_field(config: Mapping[str, Any]) -> dict[str, Any]:
    """What `tokenizer_config.json` says of added tokens, in the transformers library's words."""
    vocabulary = list(config["vocabulary"])
    return {
        str(vocabulary.index(token)): {
            "content": token,
            "lstrip": False,
            "rstrip": False,
            "single_word": False,
            "normalized": False,
            "special": True,
        }
        for token in config.get("added_tokens", ())
    }


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
