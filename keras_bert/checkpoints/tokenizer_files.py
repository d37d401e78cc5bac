# SPDX-License-Identifier: Apache-2.0
"""The tokenizer that lies beside the weights, as the config that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import byte_pair_files, sentence_piece_files
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import read_json, write_json
from keras_bert.checkpoints.tokenizer_json import TOKENIZER_FILE, TokenizerJson
from keras_bert.checkpoints.wordpiece_files import (
    VOCABULARY_FILE,
    added_tokens_field,
    check_settings,
    read_vocabulary,
    with_added_tokens,
    wordpiece_config,
    write_vocabulary,
)
from keras_bert.vocabularies.vocab_txt import check_vocabulary

SETTINGS_FILE = "tokenizer_config.json"
ADDED_FILE = "added_tokens.json"
ALL_FILES = (
    VOCABULARY_FILE,
    byte_pair_files.TOKENS_FILE,
    byte_pair_files.MERGES_FILE,
    sentence_piece_files.MODEL_FILE,
    TOKENIZER_FILE,
    SETTINGS_FILE,
    ADDED_FILE,
)
"""The names that a tokenizer's files can have; those not written are another tokenizer's."""

WORDPIECE = "wordpiece"

# Ours alone: the transformers library has no such field, and passes it over.
_SPECIAL_TOKENS = "special_tokens_in_text"


def read_tokenizer(folder: Path) -> dict[str, Any] | None:
    """The tokenizer of a folder in Hugging Face's layout, a TF1 release's or ours.

    Looked for in this order: `vocab.txt` (WordPiece), `spiece.model` or the released
    `30k-clean.model` (SentencePiece), `vocab.json` and `merges.txt` (byte pairs), and
    `tokenizer.json`, which can be any of them.

    Returns:
        What `keras_bert.text.from_config.tokenizer_from_config` takes; `None` if the folder holds
        none of the files.

    Raises:
        CheckpointError: If a file is malformed, or its tokenizer is none of the supported ones.
    """
    settings_path = folder / SETTINGS_FILE
    settings = read_json(settings_path) if settings_path.exists() else {}
    if "tokenizer_class" not in settings and (folder / "config.json").exists():
        # Where some folders of the transformers library have it
        name = read_json(folder / "config.json").get("tokenizer_class")
        settings = {**settings, **({"tokenizer_class": name} if name else {})}
    tokenizer = _read_tokenizer(folder, settings)
    if tokenizer is not None and _SPECIAL_TOKENS in settings:
        if not isinstance(settings[_SPECIAL_TOKENS], bool):
            raise CheckpointError(
                f"{settings_path}: {_SPECIAL_TOKENS} is {settings[_SPECIAL_TOKENS]!r}; it must be "
                "true or false."
            )
        tokenizer[_SPECIAL_TOKENS] = settings[_SPECIAL_TOKENS]
    return tokenizer


def _read_tokenizer(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    tokenizer_path = folder / TOKENIZER_FILE
    if (folder / VOCABULARY_FILE).exists():
        file = TokenizerJson(tokenizer_path) if tokenizer_path.exists() else None
        normalizer = file.part("normalizer") if file else {}
        check_settings(settings, folder / SETTINGS_FILE)
        vocabulary = read_vocabulary(folder / VOCABULARY_FILE)
        config = wordpiece_config(vocabulary, settings, normalizer, folder)
        return with_added_tokens(config, *_added_tokens(folder, settings, file))
    for name in (sentence_piece_files.MODEL_FILE, sentence_piece_files.RELEASED_FILE):
        if (folder / name).exists():
            return sentence_piece_files.read_sentence_piece(folder / name, settings)
    tokens, merges = (
        folder / name for name in (byte_pair_files.TOKENS_FILE, byte_pair_files.MERGES_FILE)
    )
    if tokens.exists() and merges.exists():
        prefix = bool(settings.get("add_prefix_space", False))
        return byte_pair_files.read_byte_pair(tokens, merges, prefix)
    return _convert(TokenizerJson(tokenizer_path), settings) if tokenizer_path.exists() else None


def _added_tokens(
    folder: Path, settings: Mapping[str, Any], file: TokenizerJson | None
) -> tuple[list[Mapping[str, Any]], Path]:
    """The tokens that were added to a vocabulary, and the file that has them."""
    added: list[Mapping[str, Any]]
    decoder = settings.get("added_tokens_decoder")
    if isinstance(decoder, dict) and all(isinstance(token, dict) for token in decoder.values()):
        path = folder / SETTINGS_FILE
        added = [{**token, "id": index} for index, token in decoder.items()]
    elif (folder / ADDED_FILE).exists():
        path = folder / ADDED_FILE
        added = [{"content": token, "id": index} for token, index in read_json(path).items()]
    elif file is not None:
        path, added = file.path, list(file.added_tokens())
    else:
        return [], folder
    if not all("content" in token and str(token.get("id")).isdigit() for token in added):
        raise CheckpointError(f"{path}: the added tokens must each have a content and an id.")
    return added, path


def write_tokenizer(
    folder: Path, tokenizer: Mapping[str, Any] | None, max_sequence_length: int
) -> None:
    """Writes a tokenizer's files and `tokenizer_config.json`, or nothing without a tokenizer.

    Args:
        folder: Where to.
        tokenizer: A tokenizer's config.
        max_sequence_length: The longest row in tokens.

    Raises:
        CheckpointError: If a word piece cannot stand on a line, or there is no such kind.
    """
    if tokenizer is None:
        return
    kind = tokenizer.get("kind", WORDPIECE)
    if kind == byte_pair_files.KIND:
        settings = byte_pair_files.write_byte_pair(folder, tokenizer)
    elif kind == sentence_piece_files.KIND:
        settings = sentence_piece_files.write_sentence_piece(folder, tokenizer)
    elif kind == WORDPIECE:
        write_vocabulary(folder / VOCABULARY_FILE, tokenizer["vocabulary"])
        lowercase = bool(tokenizer.get("lowercase", True))
        settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase}
        if tokenizer.get("added_tokens"):
            settings["added_tokens_decoder"] = added_tokens_field(tokenizer)
    else:
        raise CheckpointError(
            f"kind of the tokenizer is {kind!r}; expected one of {WORDPIECE}, "
            f"{byte_pair_files.KIND}, {sentence_piece_files.KIND}."
        )
    settings["model_max_length"] = max_sequence_length
    if _SPECIAL_TOKENS in tokenizer:
        settings[_SPECIAL_TOKENS] = bool(tokenizer[_SPECIAL_TOKENS])
    write_json(folder / SETTINGS_FILE, settings)


def tokens_of(tokenizer: Mapping[str, Any]) -> list[str]:
    """The tokens of a tokenizer's config, a token's id being its index.

    Raises:
        ValueError: If it has a SentencePiece model that is none.
    """
    if tokenizer.get("kind") == sentence_piece_files.KIND:
        return sentence_piece_files.pieces_of(tokenizer)
    return list(tokenizer["vocabulary"])


def _convert(file: TokenizerJson, settings: Mapping[str, Any]) -> dict[str, Any]:
    if file.kind == "BPE":
        return byte_pair_files.convert_byte_pair(file, settings.get("add_prefix_space"))
    if file.kind == "Unigram":
        return sentence_piece_files.convert_sentence_piece(file)
    vocabulary = file.vocabulary()
    try:
        check_vocabulary(vocabulary)
    except ValueError as error:
        raise CheckpointError(f"{file.path}: {error}") from error
    check_settings(settings, file.path.parent / SETTINGS_FILE)
    config = wordpiece_config(vocabulary, settings, file.part("normalizer"), file.path.parent)
    return with_added_tokens(config, *_added_tokens(file.path.parent, settings, file))
