# SPDX-License-Identifier: Apache-2.0
"""The tokenizer files of a checkpoint, read to and written from the config of a tokenizer."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError, warn
from keras_bert.checkpoints.folders import checkpoint_errors, read_json, write_json
from keras_bert.vocabularies import vocab_txt
from keras_bert.vocabularies.byte_pair_files import (
    MERGES_FILE,
    TOKENS_FILE,
    load_merges,
    load_tokens,
    save_tokens_and_merges,
)
from keras_bert.vocabularies.files import read_bytes
from keras_bert.vocabularies.sentence_piece_model import read_pieces
from keras_bert.vocabularies.tokenizer_config import (
    BYTE_PAIR,
    SENTENCE_PIECE,
    WORDPIECE,
    decode_model,
    list_tokens,
)
from keras_bert.vocabularies.tokenizer_json import (
    TOKENIZER_FILE,
    TokenizerJson,
    byte_pair_merges,
    row_formats,
    unigram_json,
    unigram_model,
    wordpiece_settings,
)

VOCABULARY_FILE = "vocab.txt"
MODEL_FILE = "spiece.model"
RELEASED_MODEL_FILE = "30k-clean.model"
"""The SentencePiece model of ALBERT's TF1 release."""
SETTINGS_FILE = "tokenizer_config.json"
ADDED_FILE = "added_tokens.json"
ALL_FILES = (
    VOCABULARY_FILE,
    TOKENS_FILE,
    MERGES_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    SETTINGS_FILE,
    ADDED_FILE,
)
"""The names of all tokenizer files; those that are not written belong to another tokenizer."""

_WORDPIECE_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Classes of the transformers library for tokenizers that are completely defined by a tokenizer.json
_DEFINED_BY_FILE = ("PreTrainedTokenizer", "TokenizersBackend")
# These, and those that are equal to BERT's tokenizer whatever normalizer a tokenizer.json has
_CLASSES = {
    *(
        f"{family}Tokenizer"
        for family in ("Bert", "ConvBert", "DistilBert", "Electra", "LayoutLM", "MobileBert")
    ),
    *_DEFINED_BY_FILE,
}
_BYTE_PAIR_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
_SENTENCE_PIECE_TOKENS = ("[CLS]", "[SEP]", "<pad>", "<unk>")
# What the class of ALBERT's tokenizer knows, and the one for any tokenizer.json does not
_SENTENCE_PIECE_NAMES = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "[MASK]",
}
_ID = re.compile("[0-9]{1,18}")
# A field of this package, which the transformers library ignores.
_SPECIAL_IN_TEXT = "special_tokens_in_text"


def read_tokenizer(folder: Path) -> dict[str, Any] | None:
    """Reads the tokenizer of a folder of this package, of Hugging Face or of a TF1 release.

    The files are tried in this order: `vocab.txt` (WordPiece), `spiece.model` or the released
    `30k-clean.model` (SentencePiece), `vocab.json` and `merges.txt` (BPE), and `tokenizer.json`
    (any of them).

    Args:
        folder: The folder.

    Returns:
        The config for `keras_bert.text.from_config.tokenizer_from_config`; `None` if the folder has
        none of the files.

    Raises:
        CheckpointError: If a file is malformed, or the tokenizer is not supported.
    """
    settings_path = folder / SETTINGS_FILE
    settings = read_json(settings_path) if settings_path.exists() else {}
    if "tokenizer_class" not in settings and (folder / "config.json").exists():
        # Some folders of the transformers library have it there
        name = read_json(folder / "config.json").get("tokenizer_class")
        settings = {**settings, **({"tokenizer_class": name} if name else {})}
    with checkpoint_errors():
        tokenizer = _read_tokenizer(folder, settings)
        if tokenizer is not None and "kind" in tokenizer:
            _check_added_tokens(tokenizer, folder, settings)
    if tokenizer is not None and _SPECIAL_IN_TEXT in settings:
        if not isinstance(settings[_SPECIAL_IN_TEXT], bool):
            raise CheckpointError(
                f"{settings_path}: {_SPECIAL_IN_TEXT} is {settings[_SPECIAL_IN_TEXT]!r}; it must "
                "be true or false."
            )
        tokenizer[_SPECIAL_IN_TEXT] = settings[_SPECIAL_IN_TEXT]
    return tokenizer


def _read_tokenizer(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    path = folder / TOKENIZER_FILE
    if (folder / VOCABULARY_FILE).exists():
        file = TokenizerJson(path) if path.exists() else None
        vocabulary = vocab_txt.load_vocabulary(folder / VOCABULARY_FILE)
        return _wordpiece(vocabulary, folder, settings, file)
    for name in (MODEL_FILE, RELEASED_MODEL_FILE):
        if (folder / name).exists():
            return read_sentence_piece(folder / name, settings)
    if (folder / TOKENS_FILE).exists() and (folder / MERGES_FILE).exists():
        prefix = bool(settings.get("add_prefix_space", False))
        return read_byte_pair(folder / TOKENS_FILE, folder / MERGES_FILE, prefix)
    if not path.exists():
        return None
    file = TokenizerJson(path)
    if file.kind == "BPE":
        merges, prefix = byte_pair_merges(file)
        prefix = bool(settings.get("add_prefix_space", prefix))
        _check_rows(file, "<s>", "</s>", pair_separators=2)
        return _byte_pair(file.vocabulary(), merges, prefix, path)
    if file.kind == "Unigram":
        model, lowercase, keep_accents = unigram_model(file)
        _check_rows(file, "[CLS]", "[SEP]", pair_separators=1)
        return _sentence_piece(model, path, lowercase, keep_accents, albert_rules=True)
    try:
        vocab_txt.check_vocabulary(file.vocabulary())
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return _wordpiece(file.vocabulary(), folder, settings, file)


def read_vocabulary(path: Path) -> list[str]:
    """Reads the tokens of a `vocab.txt`.

    Raises:
        CheckpointError: If the file is missing or malformed, or lacks a special token.
    """
    with checkpoint_errors():
        return list(vocab_txt.load_vocabulary(path))


def read_byte_pair(tokens_path: Path, merges_path: Path, add_prefix_space: bool) -> dict[str, Any]:
    """Reads the config of a BPE tokenizer from its two files.

    Args:
        tokens_path: Path of the `vocab.json`.
        merges_path: Path of the `merges.txt`.
        add_prefix_space: Whether to tokenize the first word of a text as if it followed a space.

    Raises:
        CheckpointError: If a file is missing or malformed; the message names the file and line.
    """
    with checkpoint_errors():
        vocabulary = load_tokens(tokens_path)
        config = _byte_pair(vocabulary, (), add_prefix_space, tokens_path)
        return {**config, "merges": list(load_merges(merges_path, set(vocabulary)))}


def _byte_pair(
    vocabulary: Sequence[str], merges: Sequence[str], add_prefix_space: bool, path: Path
) -> dict[str, Any]:
    missing = [token for token in _BYTE_PAIR_TOKENS if token not in vocabulary]
    if missing:
        raise CheckpointError(
            f"{path}: the vocabulary of {len(vocabulary)} tokens lacks {', '.join(missing)}; "
            f"RoBERTa's has {', '.join(_BYTE_PAIR_TOKENS)}."
        )
    return {
        "kind": BYTE_PAIR,
        "vocabulary": list(vocabulary),
        "merges": list(merges),
        "add_prefix_space": add_prefix_space,
    }


def read_sentence_piece(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the config of a SentencePiece tokenizer from the file of its model.

    Args:
        path: Path of the model.
        settings: The fields of `tokenizer_config.json`.

    Raises:
        CheckpointError: If the file is missing, or is not a model with ALBERT's special tokens.
    """
    with checkpoint_errors():
        model = read_bytes(path)
    return _sentence_piece(
        model,
        path,
        lowercase=bool(settings.get("do_lower_case", True)),
        keep_accents=bool(settings.get("keep_accents", False)),
        albert_rules=bool(settings.get("albert_rules", True)),
    )


def _sentence_piece(
    model: bytes, path: Path, lowercase: bool, keep_accents: bool, albert_rules: bool
) -> dict[str, Any]:
    try:
        pieces = {piece.text for piece in read_pieces(model)}
    except ValueError as error:
        raise CheckpointError(f"{path}: the file is {error}.") from error
    missing = [token for token in _SENTENCE_PIECE_TOKENS if token not in pieces]
    if missing:
        raise CheckpointError(
            f"{path}: the model of {len(pieces)} pieces lacks {', '.join(missing)}; ALBERT's has "
            f"{', '.join(_SENTENCE_PIECE_TOKENS)}."
        )
    return {
        "kind": SENTENCE_PIECE,
        "model": base64.b64encode(model).decode("ascii"),
        "lowercase": lowercase,
        "keep_accents": keep_accents,
        "albert_rules": albert_rules,
    }


def _wordpiece(
    vocabulary: Sequence[str],
    folder: Path,
    settings: Mapping[str, Any],
    file: TokenizerJson | None,
) -> dict[str, Any]:
    """Creates the config of a WordPiece tokenizer.

    Whether text is lowercased is read from `tokenizer_config.json`, or else from the normalizer of
    `tokenizer.json`, or else inferred from the vocabulary. Of a tokenizer that is defined by
    `tokenizer.json` (by its class, or as the only file), it is read from that file only.
    """
    _check_settings(settings, folder / SETTINGS_FILE)
    name = _tokenizer_class(settings)
    is_alone = name is None and not (folder / VOCABULARY_FILE).exists()
    if file and (name in _DEFINED_BY_FILE or is_alone):
        settings = {**settings, **wordpiece_settings(file)}
        _check_rows(file, "[CLS]", "[SEP]", pair_separators=1)
    normalizer = file.part("normalizer") if file else {}
    lowercase = settings.get("do_lower_case", normalizer.get("lowercase"))
    if not isinstance(lowercase, bool):
        lowercase = vocab_txt.looks_uncased(vocabulary)
    _warn_of_other_normalizing({**normalizer, **settings}, lowercase, folder)
    config = {"vocabulary": list(vocabulary), "lowercase": lowercase}
    return _with_added_tokens(config, *_added_tokens(folder, settings, file))


def _check_rows(file: TokenizerJson, start: str, end: str, pair_separators: int) -> None:
    """Checks that a post-processor packs texts into rows as the preprocessors do.

    It warns if only the segment ids of pairs differ, which some models ignore.

    Args:
        file: The file.
        start: The token at the beginning of a row.
        end: The token at the end of each text.
        pair_separators: The number of those between the texts of a pair.

    Raises:
        CheckpointError: If it does not.
    """
    formats = row_formats(file)
    single = [start, "A", end]
    expected = [single, [start, "A", *[end] * pair_separators, "B", end]]
    found = [[name for name, _ in row] for row in formats]
    if found and found != expected:
        row, wanted = next(rows for rows in zip(found, expected, strict=True) if rows[0] != rows[1])
        raise CheckpointError(
            f"{file.path}: post_processor makes the row {' '.join(row)}; it must be "
            f"{' '.join(wanted)}."
        )
    segments = [segment for _, segment in formats[1]] if formats else []
    if pair_separators == 1 and segments not in ([], [0, 0, 0, 1, 1]):
        warn(
            f"{file.path}: post_processor gives pairs the segment ids {segments}; those of "
            "keras_bert are [0, 0, 0, 1, 1], unless the model has no segments."
        )


def _tokenizer_class(settings: Mapping[str, Any]) -> str | None:
    """Returns the name of the tokenizer's class in the transformers library, without `Fast`."""
    name = settings.get("tokenizer_class")
    return None if name is None else str(name).removesuffix("Fast")


def _check_settings(settings: Mapping[str, Any], path: Path) -> None:
    """Checks that a WordPiece vocabulary belongs to BERT's tokenizer and not to another one.

    Args:
        settings: The fields of `tokenizer_config.json`.
        path: Path of the file.

    Raises:
        CheckpointError: If it does not; the message names the field.
    """
    name = _tokenizer_class(settings)
    if name is not None and name not in _CLASSES:
        raise CheckpointError(
            f"{path}: tokenizer_class is {settings['tokenizer_class']!r}, which is not supported; "
            f"with a WordPiece vocabulary it must be one of {', '.join(sorted(_CLASSES))}."
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
    words = [word for word in settings.get("never_split") or () if word not in _WORDPIECE_TOKENS]
    if words:
        raise CheckpointError(
            f"{path}: never_split has {', '.join(map(repr, words[:5]))}, which is not supported; "
            "it may have special tokens only."
        )


def _warn_of_other_normalizing(settings: Mapping[str, Any], lowercase: bool, folder: Path) -> None:
    strip_accents = settings.get("strip_accents")
    split_chinese = settings.get("tokenize_chinese_chars", settings.get("handle_chinese_chars"))
    differs = []
    if isinstance(strip_accents, bool) and strip_accents != lowercase:
        differs.append(f"strip_accents={strip_accents} with lowercase={lowercase}")
    if split_chinese is False:
        differs.append("tokenize_chinese_chars=False")
    if settings.get("clean_text") is False:
        differs.append("clean_text=False")
    if differs:
        warn(
            f"{folder}: the tokenizer has {' and '.join(differs)}, which the original BERT "
            "tokenizer does not support: some texts will have different ids than in its training.",
        )


def _added_tokens(
    folder: Path, settings: Mapping[str, Any], file: TokenizerJson | None
) -> tuple[list[Mapping[str, Any]], Path]:
    """Reads the tokens that were added to a vocabulary; returns them and the path of their file."""
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
    for token in added:
        if not isinstance(token.get("content"), str) or not _ID.fullmatch(str(token.get("id"))):
            raise CheckpointError(
                f"{path}: each added token must have a content, a string, and an id, an integer "
                f"from 0; received {token!r}."
            )
    return added, path


def _check_added_tokens(
    tokenizer: Mapping[str, Any], folder: Path, settings: Mapping[str, Any]
) -> None:
    """Checks that no tokens were added to a BPE or SentencePiece vocabulary.

    It warns about added tokens of BPE that are in the vocabulary: they are not recognized in texts.

    Raises:
        CheckpointError: If an added token is not in the vocabulary.
    """
    path = folder / TOKENIZER_FILE
    added, path = _added_tokens(folder, settings, TokenizerJson(path) if path.exists() else None)
    special = {*_BYTE_PAIR_TOKENS, *_SENTENCE_PIECE_TOKENS, "<mask>", "[MASK]"}
    own = [str(token["content"]) for token in added if token["content"] not in special]
    vocabulary = set(list_tokens(tokenizer))
    missing = [token for token in own if token not in vocabulary]
    if missing:
        raise CheckpointError(
            f"{path}: the tokens {', '.join(map(repr, missing[:5]))} were added to the vocabulary; "
            f"this is supported for WordPiece only, and this is a {tokenizer['kind']} tokenizer."
        )
    # SentencePiece itself recognizes user-defined symbols.
    if own and tokenizer["kind"] == BYTE_PAIR:
        warn(
            f"{path}: the added tokens {', '.join(map(repr, own[:5]))} are not recognized in "
            "texts: they are split like other text.",
        )


def _with_added_tokens(
    config: dict[str, Any], added: Sequence[Mapping[str, Any]], path: Path
) -> dict[str, Any]:
    """Adds tokens to the config of a WordPiece tokenizer.

    Args:
        config: The config without them.
        added: The tokens, each with its `id` and `content`, and optionally `single_word`, `special`
            and `normalized`. They may include the special tokens of the vocabulary.
        path: The file of the added tokens, for error messages.

    Raises:
        CheckpointError: If ids do not continue those of the vocabulary, or differ from them, or if
            a token has `single_word`, which is not supported.
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
    own = [token for token in added if token["content"] not in _WORDPIECE_TOKENS]
    whole = [token["content"] for token in own if token.get("single_word")]
    if whole:
        raise CheckpointError(
            f"{path}: the added token {whole[0]!r} has single_word, which is not supported."
        )
    names = list(dict.fromkeys(str(token["content"]) for token in own))
    # "normalized" means that the token is recognized in the normalized text
    uncased = {
        str(token["content"])
        for token in own
        if config["lowercase"] and token.get("normalized", not token.get("special", False))
    }
    return {
        **config,
        "vocabulary": vocabulary,
        **({"added_tokens": names} if names else {}),
        **({"uncased_tokens": [name for name in names if name in uncased]} if uncased else {}),
    }


def _added_tokens_field(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the field `added_tokens_decoder` of `tokenizer_config.json`."""
    ids = {token: index for index, token in enumerate(config["vocabulary"])}
    # RoBERTa's mask token includes the space before it, which its class in `transformers` 5 does
    # not know by itself.
    taking_space = ["<mask>"] if config.get("kind") == BYTE_PAIR and "<mask>" in ids else []
    return {
        str(ids[token]): {
            "content": token,
            "lstrip": token in taking_space,
            "rstrip": False,
            "single_word": False,
            "normalized": token in config.get("uncased_tokens", ()),
            "special": token not in config.get("uncased_tokens", ()),
        }
        for token in (*taking_space, *config.get("added_tokens", ()))
    }


def write_tokenizer(
    folder: Path, tokenizer: Mapping[str, Any] | None, max_sequence_length: int
) -> None:
    """Writes the files of a tokenizer, including `tokenizer_config.json`.

    Args:
        folder: The folder to write to.
        tokenizer: The config of a tokenizer; with `None`, nothing is written.
        max_sequence_length: Maximum length of a row in tokens.

    Raises:
        CheckpointError: If a token cannot be written to a line, or `kind` is not supported.
    """
    if tokenizer is None:
        return
    kind = tokenizer.get("kind", WORDPIECE)
    settings: dict[str, Any]
    if kind == BYTE_PAIR:
        save_tokens_and_merges(tokenizer["vocabulary"], tokenizer["merges"], folder)
        prefix = bool(tokenizer.get("add_prefix_space", False))
        settings = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": prefix}
        settings["added_tokens_decoder"] = _added_tokens_field(tokenizer)
    elif kind == SENTENCE_PIECE:
        model = decode_model(tokenizer)
        lowercase = bool(tokenizer.get("lowercase", True))
        keep_accents = bool(tokenizer.get("keep_accents", False))
        rules = bool(tokenizer.get("albert_rules", True))
        (folder / MODEL_FILE).write_bytes(model)
        write_json(folder / TOKENIZER_FILE, unigram_json(model, lowercase, keep_accents, rules))
        settings = {
            # ALBERT's class has its rules whatever is in tokenizer.json.
            "tokenizer_class": "AlbertTokenizer" if rules else "PreTrainedTokenizerFast",
            **({} if rules else _SENTENCE_PIECE_NAMES),
            # Both classes leave out the segment ids, which ALBERT needs for pairs.
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "do_lower_case": lowercase,
            "keep_accents": keep_accents,
            "remove_space": True,
            "albert_rules": rules,
        }
    elif kind == WORDPIECE:
        with checkpoint_errors():
            vocab_txt.save_vocabulary(tokenizer["vocabulary"], folder / VOCABULARY_FILE)
        lowercase = bool(tokenizer.get("lowercase", True))
        settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase}
        if tokenizer.get("added_tokens"):
            settings["added_tokens_decoder"] = _added_tokens_field(tokenizer)
    else:
        raise CheckpointError(
            f"kind of the tokenizer is {kind!r}; expected one of {WORDPIECE}, {BYTE_PAIR}, "
            f"{SENTENCE_PIECE}."
        )
    settings["model_max_length"] = max_sequence_length
    if _SPECIAL_IN_TEXT in tokenizer:
        settings[_SPECIAL_IN_TEXT] = bool(tokenizer[_SPECIAL_IN_TEXT])
    write_json(folder / SETTINGS_FILE, settings)
