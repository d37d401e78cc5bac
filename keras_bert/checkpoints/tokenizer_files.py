# SPDX-License-Identifier: Apache-2.0
"""The tokenizer files of a checkpoint, read to and written from the config of a tokenizer."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError, warn
from keras_bert.checkpoints.folders import checkpoint_errors, read_json, write_json
from keras_bert.vocabularies import fairseq_ids, vocab_txt
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
    without_defaults,
)
from keras_bert.vocabularies.tokenizer_json import (
    TOKENIZER_FILE,
    TokenizerJson,
    byte_pair_json,
    byte_pair_options,
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
NAMES_FILE = "special_tokens_map.json"
"""The special tokens by their roles; they may also be in `tokenizer_config.json`."""
ALL_FILES = (
    VOCABULARY_FILE,
    TOKENS_FILE,
    MERGES_FILE,
    MODEL_FILE,
    fairseq_ids.MODEL_FILE,
    TOKENIZER_FILE,
    SETTINGS_FILE,
    ADDED_FILE,
    NAMES_FILE,
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
# The special tokens of RoBERTa and of ALBERT by their roles
_ROBERTA_NAMES = {
    "pad": "<pad>",
    "unk": "<unk>",
    "cls": "<s>",
    "sep": "</s>",
    "mask": "<mask>",
}
_ALBERT_NAMES = {
    "pad": "<pad>",
    "unk": "<unk>",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
}
# What they are in files that do not name them
_USUAL_NAMES = {
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    # Gemma's vocabulary has `<s>` too.
    "cls": ("<bos>", "<s>", "[CLS]"),
    "sep": ("<eos>", "</s>", "[SEP]"),
    "mask": ("<mask>", "[MASK]", "<|mask|>"),
}
# The names of the tokens at the beginning and the end of a text in the transformers library
_SAME_ROLES = {"cls": "bos", "sep": "eos"}
_ID = re.compile("[0-9]{1,18}")
# A field of this package, which the transformers library ignores.
_SPECIAL_IN_TEXT = "special_tokens_in_text"
_FIRST_WORD = "space_before_first_word"
# The fields of a config that RoBERTa's own files have
_ROBERTA_FIELDS = {
    "kind",
    "vocabulary",
    "merges",
    "add_prefix_space",
    "added_tokens",
    _SPECIAL_IN_TEXT,
}


def read_tokenizer(folder: Path) -> dict[str, Any] | None:
    """Reads the tokenizer of a folder of this package, of Hugging Face or of a TF1 release.

    The files are tried in this order: `vocab.txt` (WordPiece), `spiece.model`, the released
    `30k-clean.model` or XLM-RoBERTa's `sentencepiece.bpe.model` (SentencePiece), `vocab.json` and
    `merges.txt` (BPE), and `tokenizer.json` (any of them).

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
        fields = read_json(folder / "config.json")
        name = fields.get("tokenizer_class")
        if name is None and fields.get("model_type") == "camembert":
            name = "CamembertTokenizer"
        settings = {**settings, **({"tokenizer_class": name} if name else {})}
    if (folder / NAMES_FILE).exists():
        settings = {**read_json(folder / NAMES_FILE), **settings}
    with checkpoint_errors():
        tokenizer = _read_tokenizer(folder, settings)
        if tokenizer is not None and tokenizer.get("kind") == BYTE_PAIR:
            file = (
                TokenizerJson(folder / TOKENIZER_FILE)
                if (folder / TOKENIZER_FILE).exists()
                else None
            )
            tokenizer = _with_added_tokens(tokenizer, *_added_tokens(folder, settings, file))
        elif tokenizer is not None and "kind" in tokenizer:
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
    if (folder / fairseq_ids.MODEL_FILE).exists():
        return _fairseq(folder / fairseq_ids.MODEL_FILE, settings)
    is_defined_by_file = path.exists() and _tokenizer_class(settings) in _DEFINED_BY_FILE
    has_merges = (folder / TOKENS_FILE).exists() and (folder / MERGES_FILE).exists()
    if has_merges and not is_defined_by_file:
        prefix = bool(settings.get("add_prefix_space", False))
        return read_byte_pair(folder / TOKENS_FILE, folder / MERGES_FILE, prefix)
    if not path.exists():
        return None
    file = TokenizerJson(path)
    if file.kind == "BPE":
        return _byte_pair_of_file(file, settings)
    if file.kind == "Unigram":
        return _sentence_piece_of_file(file, settings)
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
    _check_names(_ROBERTA_NAMES, vocabulary, path, "RoBERTa's has")
    return {
        "kind": BYTE_PAIR,
        "vocabulary": list(vocabulary),
        "merges": list(merges),
        "add_prefix_space": add_prefix_space,
    }


def _byte_pair_of_file(file: TokenizerJson, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Creates the config of a BPE tokenizer from a `tokenizer.json`."""
    options = byte_pair_options(file)
    vocabulary = file.vocabulary()
    names, between, _ = _special_tokens(file, settings, vocabulary)
    _check_names(names, vocabulary, file.path, "expected")
    lstrip = {token.get("content"): token.get("lstrip") for token in file.added_tokens()}
    prefix = settings.get("add_prefix_space", options.pop("add_prefix_space"))
    config = {
        "kind": BYTE_PAIR,
        "vocabulary": list(vocabulary),
        "merges": options.pop("merges"),
        "add_prefix_space": bool(prefix),
    }
    is_roberta = names["cls"] == _ROBERTA_NAMES["cls"]
    return config | without_defaults(
        BYTE_PAIR,
        {
            **options,
            "special_tokens": _renamed(names, _ROBERTA_NAMES),
            "pair_separators": len(between),
            # Files of RoBERTa that transformers writes do not have it.
            "mask_takes_space": is_roberta or bool(lstrip.get(names["mask"], False)),
            _FIRST_WORD: bool(settings.get(_FIRST_WORD, is_roberta)),
            "repeats_cls": between[-1] == names["cls"],
        },
    )


def _sentence_piece_of_file(file: TokenizerJson, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Creates the config of a SentencePiece tokenizer from a `tokenizer.json`."""
    model, options = unigram_model(file)
    vocabulary = [piece.text for piece in read_pieces(model)]
    names, between, num_segments = _special_tokens(file, settings, vocabulary)
    return _sentence_piece(model, file.path, names, **options) | without_defaults(
        SENTENCE_PIECE, {"pair_separators": len(between), "num_segments": num_segments}
    )


def _special_tokens(
    file: TokenizerJson, settings: Mapping[str, Any], vocabulary: Collection[str]
) -> tuple[dict[str, str], list[str], int]:
    """Reads the special tokens of a tokenizer that is defined by a `tokenizer.json`.

    Those of a row are the ones that its post-processor adds. The others are named by
    `tokenizer_config.json` or `special_tokens_map.json`, or have usual names. In a vocabulary
    without padding it is the token at the end of a text, and without an unknown token the padding.

    Args:
        file: The file.
        settings: The fields of `tokenizer_config.json`.
        vocabulary: The tokens.

    Returns:
        A tuple of the tokens by their roles, of those between the texts of a pair, and of the
        number of segments.

    Raises:
        CheckpointError: If the post-processor makes other rows.
    """
    names = {}
    for role, usual in _USUAL_NAMES.items():
        given = [settings.get(f"{name}_token") for name in (role, _SAME_ROLES.get(role, role))]
        contents = [token.get("content") if isinstance(token, dict) else token for token in given]
        found = [name for name in (*contents, *usual) if name in vocabulary]
        names[role] = str(found[0] if found else _ROBERTA_NAMES[role])
    formats = row_formats(file)
    if formats:
        names["cls"], last = formats[0][0][0], formats[0][-1][0]
        names["sep"] = names["sep"] if last == "A" else last
    for role, other in (("pad", "sep"), ("unk", "pad")):
        if names[role] not in vocabulary:
            names[role] = names[other]
    cls, sep = names["cls"], names["sep"]
    if not formats:
        is_roberta = cls == _ROBERTA_NAMES["cls"]
        between = [sep, sep] if is_roberta else [sep]
        return names, between, 1 if is_roberta else 2
    between = [sep]
    if len(formats[1]) > len(formats[0]) + 2:
        between.append(cls if file.kind == "BPE" and formats[1][-3][0] == cls else sep)
    is_albert = file.kind == "Unigram" and cls == _ALBERT_NAMES["cls"]
    _check_rows(file, cls, sep, between, has_segments=is_albert)
    return names, between, 2 if is_albert else 1


def _check_names(
    names: Mapping[str, str], vocabulary: Collection[str], path: Path, expected: str
) -> None:
    """Checks that a vocabulary has all special tokens but for the mask token."""
    required = list(dict.fromkeys(names[role] for role in ("cls", "pad", "sep", "unk")))
    missing = [token for token in required if token not in vocabulary]
    if missing:
        raise CheckpointError(
            f"{path}: the vocabulary of {len(vocabulary)} tokens lacks {', '.join(missing)}; "
            f"{expected} {', '.join(required)}."
        )


def _renamed(names: Mapping[str, str], usual: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the special tokens that are not the usual ones; `None` if all are."""
    return {role: name for role, name in names.items() if name != usual[role]} or None


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
        _ALBERT_NAMES,
        lowercase=bool(settings.get("do_lower_case", True)),
        keep_accents=bool(settings.get("keep_accents", False)),
        albert_rules=bool(settings.get("albert_rules", True)),
    )


def _fairseq(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Creates the config of XLM-RoBERTa's or CamemBERT's tokenizer from its released model."""
    name = _tokenizer_class(settings) or ""
    ids = fairseq_ids.CAMEMBERT if name.startswith("Camembert") else fairseq_ids.XLM_ROBERTA
    try:
        model = fairseq_ids.with_fairseq_ids(read_bytes(path), ids)
    except ValueError as error:
        raise CheckpointError(f"{path}: the file is {error}.") from error
    config = _sentence_piece(
        model,
        path,
        fairseq_ids.SPECIAL_TOKENS,
        lowercase=False,
        keep_accents=True,
        albert_rules=False,
    )
    return {**config, "pair_separators": 2, "num_segments": 1}


def _sentence_piece(
    model: bytes,
    path: Path,
    names: Mapping[str, str],
    *,
    lowercase: bool,
    keep_accents: bool,
    albert_rules: bool,
) -> dict[str, Any]:
    try:
        pieces = {piece.text for piece in read_pieces(model)}
    except ValueError as error:
        raise CheckpointError(f"{path}: the file is {error}.") from error
    _check_names(names, pieces, path, "expected")
    renamed = _renamed(names, _ALBERT_NAMES)
    return {
        "kind": SENTENCE_PIECE,
        "model": base64.b64encode(model).decode("ascii"),
        "lowercase": lowercase,
        "keep_accents": keep_accents,
        "albert_rules": albert_rules,
        **({"special_tokens": renamed} if renamed else {}),
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
        _check_rows(file, "[CLS]", "[SEP]", ["[SEP]"])
    normalizer = file.part("normalizer") if file else {}
    lowercase = settings.get("do_lower_case", normalizer.get("lowercase"))
    if not isinstance(lowercase, bool):
        lowercase = vocab_txt.looks_uncased(vocabulary)
    _warn_of_other_normalizing({**normalizer, **settings}, lowercase, folder)
    config = {"vocabulary": list(vocabulary), "lowercase": lowercase}
    return _with_added_tokens(config, *_added_tokens(folder, settings, file))


def _check_rows(
    file: TokenizerJson,
    start: str,
    end: str,
    between: Sequence[str],
    has_segments: bool = True,
) -> None:
    """Checks that a post-processor packs texts into rows as the preprocessors do.

    It warns if only the segment ids of pairs differ, which some models ignore.

    Args:
        file: The file.
        start: The token at the beginning of a row.
        end: The token at the end of each text.
        between: The tokens between the texts of a pair.
        has_segments: Whether models with the tokenizer may have segments.

    Raises:
        CheckpointError: If it does not.
    """
    formats = row_formats(file)
    single = [start, "A", end]
    expected = [single, [start, "A", *between, "B", end]]
    found = [[name for name, _ in row] for row in formats]
    if found and found != expected:
        row, wanted = next(rows for rows in zip(found, expected, strict=True) if rows[0] != rows[1])
        raise CheckpointError(
            f"{file.path}: post_processor makes the row {' '.join(row)}; it must be "
            f"{' '.join(wanted)}."
        )
    segments = [segment for _, segment in formats[1]] if formats else []
    if has_segments and segments not in ([], [0, 0, 0, 1, 1]):
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
    """Checks that no tokens were added to a SentencePiece vocabulary, but for pieces of the model.

    SentencePiece itself recognizes user-defined symbols.

    Raises:
        CheckpointError: If an added token is not in the vocabulary.
    """
    path = folder / TOKENIZER_FILE
    added, path = _added_tokens(folder, settings, TokenizerJson(path) if path.exists() else None)
    vocabulary = set(list_tokens(tokenizer))
    missing = [str(token["content"]) for token in added if token["content"] not in vocabulary]
    if set(missing) - set(_ALBERT_NAMES.values()):
        raise CheckpointError(
            f"{path}: the tokens {', '.join(map(repr, missing[:5]))} were added to the vocabulary; "
            f"this is not supported for a {tokenizer['kind']} tokenizer."
        )


def _with_added_tokens(
    config: dict[str, Any], added: Sequence[Mapping[str, Any]], path: Path
) -> dict[str, Any]:
    """Adds tokens to the config of a WordPiece or BPE tokenizer.

    Args:
        config: The config without them.
        added: The tokens, each with its `id` and `content`, and optionally `single_word`, `special`
            and `normalized`. They may include the special tokens of the vocabulary.
        path: The file of the added tokens, for error messages.

    Raises:
        CheckpointError: If ids do not continue those of the vocabulary, or differ from them, or if
            a token has `single_word`, or one of BPE `lstrip` or `rstrip`, which is not supported.
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
    kind = config.get("kind", WORDPIECE)
    special = _WORDPIECE_TOKENS
    if kind == BYTE_PAIR:
        special = tuple({**_ROBERTA_NAMES, **(config.get("special_tokens") or {})}.values())
    own = [token for token in added if token["content"] not in special]
    for option in ("single_word", *(("lstrip", "rstrip") if kind == BYTE_PAIR else ())):
        having = [token["content"] for token in own if token.get(option)]
        if having:
            raise CheckpointError(
                f"{path}: the added token {having[0]!r} has {option}, which is not supported."
            )
    names = list(dict.fromkeys(str(token["content"]) for token in own))
    # "normalized" means that the token is recognized in the normalized text
    uncased = {
        str(token["content"])
        for token in own
        if config.get("lowercase") and token.get("normalized", not token.get("special", False))
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
        settings = _write_byte_pair(folder, tokenizer)
    elif kind == SENTENCE_PIECE:
        settings = _write_sentence_piece(folder, tokenizer)
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


def _write_byte_pair(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the vocabulary of a BPE tokenizer; returns the fields of `tokenizer_config.json`."""
    prefix = bool(config.get("add_prefix_space", False))
    if set(config) <= _ROBERTA_FIELDS:
        save_tokens_and_merges(config["vocabulary"], config["merges"], folder)
        return {
            "tokenizer_class": "RobertaTokenizer",
            "add_prefix_space": prefix,
            "added_tokens_decoder": _added_tokens_field(config),
        }
    names = {**_ROBERTA_NAMES, **(config.get("special_tokens") or {})}
    write_json(folder / TOKENIZER_FILE, byte_pair_json(config, names))
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": prefix,
        **_names_field(names, config["vocabulary"]),
        "model_input_names": ["input_ids", "attention_mask"],
        _FIRST_WORD: bool(config.get(_FIRST_WORD, True)),
    }


def _write_sentence_piece(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Writes a SentencePiece model; returns the fields of `tokenizer_config.json`."""
    model = decode_model(config)
    names = {**_ALBERT_NAMES, **(config.get("special_tokens") or {})}
    write_json(folder / TOKENIZER_FILE, unigram_json(model, config, names))
    names_field = _names_field(names, list_tokens(config))
    released = fairseq_ids.released_model(model)
    if released and names == fairseq_ids.SPECIAL_TOKENS:
        original, ids = released
        (folder / fairseq_ids.MODEL_FILE).write_bytes(original)
        name = "Camembert" if ids == fairseq_ids.CAMEMBERT else "XLMRoberta"
        inputs = ["input_ids", "attention_mask"]
        return {
            "tokenizer_class": f"{name}Tokenizer",
            **names_field,
            "model_input_names": inputs,
        }
    if names != _ALBERT_NAMES:
        inputs = ["input_ids", "attention_mask"]
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **names_field,
            "model_input_names": inputs,
        }
    rules = bool(config.get("albert_rules", True))
    (folder / MODEL_FILE).write_bytes(model)
    return {
        # ALBERT's class has its rules whatever is in tokenizer.json.
        "tokenizer_class": "AlbertTokenizer" if rules else "PreTrainedTokenizerFast",
        # It knows their names too.
        **({} if rules else names_field),
        # Both classes leave out the segment ids, which ALBERT needs for pairs.
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "do_lower_case": bool(config.get("lowercase", True)),
        "keep_accents": bool(config.get("keep_accents", False)),
        "remove_space": True,
        "albert_rules": rules,
    }


def _names_field(names: Mapping[str, str], vocabulary: Collection[str]) -> dict[str, str]:
    """Returns the fields of `tokenizer_config.json` for the special tokens of a vocabulary."""
    return {f"{role}_token": name for role, name in names.items() if name in vocabulary}
