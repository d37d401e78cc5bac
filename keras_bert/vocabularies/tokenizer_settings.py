# SPDX-License-Identifier: Apache-2.0
"""Reads tokenizer settings from `tokenizer_config.json` and the files next to it.

Every field is read, has no effect on ids, or must have its default value. Therefore, no setting is
ignored silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert import checks
from keras_bert.families import FAMILIES
from keras_bert.families.shared import ROBERTA_TOKENS, WORDPIECE_TOKENS
from keras_bert.vocabularies import fairseq_ids
from keras_bert.vocabularies.byte_pair_files import MERGES_FILE, TOKENS_FILE
from keras_bert.vocabularies.files import read_json
from keras_bert.vocabularies.tokenizer_config import (
    BYTE_PAIR,
    SENTENCE_PIECE,
    TRUNCATION_SIDES,
    WORDPIECE,
)
from keras_bert.vocabularies.tokenizer_json import TOKENIZER_FILE, TokenizerJson

SETTINGS_FILE = "tokenizer_config.json"
NAMES_FILE = "special_tokens_map.json"
"""The special tokens by role, for settings without a list of all added tokens."""
ADDED_FILE = "added_tokens.json"
VOCABULARY_FILE = "vocab.txt"
MODEL_FILE = "spiece.model"
DEBERTA_MODEL_FILE = "spm.model"
RELEASED_MODEL_FILE = "30k-clean.model"
"""The SentencePiece model in ALBERT's TF1 release."""
ALL_FILES = (
    VOCABULARY_FILE,
    TOKENS_FILE,
    MERGES_FILE,
    MODEL_FILE,
    DEBERTA_MODEL_FILE,
    fairseq_ids.MODEL_FILE,
    TOKENIZER_FILE,
    SETTINGS_FILE,
    ADDED_FILE,
    NAMES_FILE,
)
"""All tokenizer files. Saving a model removes the files that its tokenizer does not have."""

# Fields of this package that the transformers library ignores
SPECIAL_IN_TEXT_FIELD = "special_tokens_in_text"
FIRST_WORD_FIELD = "space_before_first_word"
WORD_LENGTH_FIELD = "max_word_length"

ALBERT_TOKENS = {**WORDPIECE_TOKENS, "pad": "<pad>", "unk": "<unk>"}
"""ALBERT's special tokens by role."""
SAME_ROLES = {"cls": "bos", "sep": "eos"}
"""The transformers library's other names for the tokens at the start and end of a text."""

ALBERT, XLM_ROBERTA, CAMEMBERT = "AlbertTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer"
MPNET, DEBERTA_V2 = "MPNetTokenizer", "DebertaV2Tokenizer"
KOBERT = "KoBERTTokenizer"
KOBERT_CLASSES = (KOBERT, "KoBertTokenizer", "XLNetTokenizer")
"""The classes in the files of KoBERT, a BERT encoder with a SentencePiece model.

Its authors subclass XLNet's tokenizer, so their files contain either class.
"""
DEFINED_BY_FILE = ("PreTrainedTokenizer", "TokenizersBackend")
"""The `transformers` classes for tokenizers that a `tokenizer.json` defines completely."""
# Unsupported models with a supported tokenizer
_OTHER_MODELS = {
    "convbert": "ConvBertTokenizer",
    "layoutlm": "LayoutLMTokenizer",
    "mobilebert": "MobileBertTokenizer",
}
# The default tokenizer class by model_type in config.json
_MODEL_CLASSES = {
    **{family.name: family.tokenizer_class for family in FAMILIES.values()},
    **_OTHER_MODELS,
}
CLASS_FAMILIES = {
    family.tokenizer_class: family
    for family in FAMILIES.values()
    if family.tokenizer_class and family.tokenizer_class not in DEFINED_BY_FILE
}
"""The families with their own tokenizer class in `transformers`, by class."""
KINDS: dict[str, str] = {
    **{name: family.values.get("tokenizer", WORDPIECE) for name, family in CLASS_FAMILIES.items()},
    **dict.fromkeys(_OTHER_MODELS.values(), WORDPIECE),
    **dict.fromkeys(KOBERT_CLASSES, SENTENCE_PIECE),
}
"""The types of the `transformers` classes that only read a vocabulary from `tokenizer.json`."""
USUAL_TOKENS = {
    WORDPIECE: WORDPIECE_TOKENS,
    BYTE_PAIR: ROBERTA_TOKENS,
    SENTENCE_PIECE: ALBERT_TOKENS,
}
"""The default special tokens of each type."""
TOKENS_OF_CLASSES: dict[str, Mapping[str, str]] = {
    **{
        name: family.tokenizer.get("special_tokens", USUAL_TOKENS[KINDS[name]])
        for name, family in CLASS_FAMILIES.items()
    },
    **dict.fromkeys(KOBERT_CLASSES, WORDPIECE_TOKENS),
}
"""The special tokens of each class in `CLASS_FAMILIES` and `KOBERT_CLASSES`."""

# Fields that change ids in `transformers`, with the values that have no effect
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "split_special_tokens": (False, None),
    "init_inputs": ([], None),
    "vocab": (None,),
    "merges": (None,),
    "word_tokenizer_type": ("basic", None),
    "subword_tokenizer_type": ("wordpiece", None),
    "do_basic_tokenize": (True, None),
    "do_word_tokenize": (True, None),
    "do_subword_tokenize": (True, None),
}
# Additional fields for classes that only read a vocabulary from `tokenizer.json`
_KIND_DEFAULTS: dict[str, dict[str, tuple[Any, ...]]] = {
    WORDPIECE: {},
    BYTE_PAIR: {},
    SENTENCE_PIECE: {"add_prefix_space": (True,), "split_by_punct": (False,)},
}
# Additional fields for directories without a `tokenizer.json`, which would define special tokens
_DEFAULTS_WITHOUT_FILE: dict[str, tuple[Any, ...]] = {
    "add_bos_token": (False, None),
    "add_eos_token": (False, None),
}
_EXTRA = "extra_special_tokens"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_ID = re.compile("[0-9]{1,18}")


class TokenizerSettings:
    """The tokenizer settings in a directory, including its `tokenizer.json` if it has one.

    Raises:
        ValueError: If a file is invalid or the tokenizer class is not supported.
    """

    def __init__(self, directory: Path, file: TokenizerJson | None, kind: str) -> None:
        self._directory = directory
        self._file = file
        self.path = directory / SETTINGS_FILE
        self.fields = read_json(self.path) if self.path.exists() else {}
        names = directory / NAMES_FILE
        if names.exists() and "added_tokens_decoder" not in self.fields:
            more = read_json(names)
            first, second = self.fields.get(_EXTRA), more.get(_EXTRA)
            self.fields |= more
            if isinstance(first, list) and isinstance(second, list):
                self.fields[_EXTRA] = [*first, *second]
        self.is_empty = not (self.fields or file or (directory / "config.json").exists())
        """Whether the directory has a vocabulary, but no files of the transformers library."""
        self.tokenizer_class = self._class(kind)

    def _class(self, kind: str) -> str | None:
        """Returns the tokenizer class without `Fast`, or `None` if no file defines it."""
        path = self._directory / "config.json"
        config = read_json(path) if path.exists() else {}
        usual = _MODEL_CLASSES.get(str(config.get("model_type")))
        if usual in DEFINED_BY_FILE and self._file is not None:
            return usual  # It takes precedence over the class in the files.
        name = self.fields.get("tokenizer_class") or config.get("tokenizer_class")
        if name is None:
            # For example, Chinese ALBERT uses BERT's vocabulary.
            return usual if KINDS.get(usual or "", kind) == kind else None
        class_name = str(name).removesuffix("Fast")
        if class_name not in KINDS and class_name not in DEFINED_BY_FILE:
            classes = ", ".join(sorted((*KINDS, *DEFINED_BY_FILE)))
            raise self.error("tokenizer_class", f"must be one of {classes}", name)
        return class_name

    @property
    def is_defined_by_file(self) -> bool:
        """Whether the class reads everything from a `tokenizer.json`."""
        return self._file is not None and self.tokenizer_class in (None, *DEFINED_BY_FILE)

    def check(self, kind: str) -> None:
        """Checks that unread fields that may change ids have their default values."""
        defaults = {**_DEFAULTS}
        if not self.is_defined_by_file:
            defaults |= _KIND_DEFAULTS[kind]
            # Without one of these tokens, a different piece takes its place.
            needed = ("unk", "cls", "sep") if self.tokenizer_class == DEBERTA_V2 else ("unk",)
            tokens = self.special_tokens(kind)
            for role, token in tokens.items():
                defaults[f"{role}_token"] = (token,) if role in needed else (token, None)
                # PyLate pads with the mask token. Padding does not change the results.
                if role == "pad":
                    defaults["pad_token"] += (tokens.get("mask"),)
                if kind != WORDPIECE and role in SAME_ROLES:
                    defaults[f"{SAME_ROLES[role]}_token"] = (token, None)
        if self._file is None:
            defaults |= _DEFAULTS_WITHOUT_FILE
        for field, allowed in defaults.items():
            if field in self.fields:
                value = _content(self.fields[field])
                if not any(value == each and type(value) is type(each) for each in allowed):
                    raise self.error(field, f"must be {allowed[0]!r} or absent", value)
        words = self.fields.get("never_split") or ()
        others = [word for word in words if word not in WORDPIECE_TOKENS.values()]
        if others:
            raise ValueError(
                f"{self.path}: never_split may only contain special tokens. Received: "
                f"{', '.join(map(repr, others[:5]))}"
            )
        if self.side("padding", ("right", "left")) == "left":
            checks.warn(
                f"{self.path}: padding_side is 'left', but keras_bert pads on the right. This "
                "does not change the results here. In transformers, left padding changes the "
                "results with absolute positions, or if the first token is pooled."
            )

    def special_tokens(self, kind: str) -> Mapping[str, str]:
        """Returns the special tokens by role for a class that only reads a vocabulary."""
        usual = WORDPIECE_TOKENS if kind == WORDPIECE else {}
        return TOKENS_OF_CLASSES.get(self.tokenizer_class or "", usual)

    def flag(self, field: str) -> bool | None:
        """Returns a boolean field, or `None` if it is absent."""
        if field not in self.fields:
            return None
        value = self.fields[field]
        if not isinstance(value, bool):
            raise self.error(field, "must be true or false", value)
        return value

    def side(self, what: str, sides: Sequence[str] = TRUNCATION_SIDES) -> str:
        """Returns the padding or truncation side. It can also be defined in `tokenizer.json`."""
        field = f"{what}_side"
        part = self._file.part("truncation" if what == "truncation" else what) if self._file else {}
        value = self.fields.get(field) or str(part.get("direction", sides[0])).lower()
        if value not in sides:
            raise self.error(field, f"must be {' or '.join(sides)}", value)
        return str(value)

    def has_segments(self, default: bool) -> bool:
        """Returns whether the encoder gets segment ids."""
        names = self.fields.get("model_input_names")
        return default if names is None else "token_type_ids" in names

    def token(self, role: str) -> str | None:
        """Returns the token for a role, such as `"cls"` or `"bos"`, or `None` if it is absent."""
        token: str | None = _content(self.fields.get(f"{role}_token"))
        return token

    def added_tokens(self) -> list[dict[str, Any]]:
        """Returns the added tokens. Texts are split at these tokens.

        Each token has a `content`, an `id` and the `path` of its file. The id is `None` if only a
        field such as `mask_token` contains the token. A token can also have `single_word`,
        `lstrip`, `rstrip`, `special` and `normalized`.
        """
        settings: dict[str, dict[str, Any]] = {}
        for path, tokens in self._lists_of_added_tokens():
            for token in tokens:
                content, index = token.get("content"), token.get("id")
                if not isinstance(content, str) or not _ID.fullmatch(str(index)):
                    raise ValueError(
                        f"{path}: each added token must have a string content and an id of at "
                        f"least 0. Received: {token!r}"
                    )
                if not all(isinstance(token.get(flag, False), bool) for flag in _FLAGS):
                    raise ValueError(
                        f"{path}: an added token's {', '.join(_FLAGS)} must be true or false. "
                        f"Received: {token!r}"
                    )
                settings[content] = {**token, "id": int(str(index)), "path": path}
        for token in self._named_tokens():
            settings.setdefault(token["content"], token)
        return list(settings.values())

    def _lists_of_added_tokens(self) -> Iterator[tuple[Path, list[Mapping[str, Any]]]]:
        file_tokens = (self._file.path, list(self._file.added_tokens())) if self._file else None
        decoder = self.fields.get("added_tokens_decoder")
        if decoder is not None:
            if file_tokens and self.is_defined_by_file:
                yield file_tokens
            yield self.path, [{**token, "id": index} for index, token in decoder.items()]
            return
        path = self._directory / ADDED_FILE
        if path.exists():
            yield (
                path,
                [{"content": token, "id": index} for token, index in read_json(path).items()],
            )
        if file_tokens:
            yield file_tokens

    def _named_tokens(self) -> Iterator[dict[str, Any]]:
        """Yields the tokens in fields such as `mask_token`. Their `id` is `None`."""
        fields = self.fields
        more = fields.get(_EXTRA) or fields.get("additional_special_tokens") or []
        specific = fields.get("model_specific_special_tokens") or {}
        values = {name: value for name, value in fields.items() if name.endswith("_token")}
        if isinstance(more, dict):
            values |= more
        elif isinstance(more, list):
            values |= {f"{_EXTRA}[{index}]": value for index, value in enumerate(more)}
        else:
            raise self.error(_EXTRA, "must be a list of tokens or an object", more)
        for name, value in {**values, **specific}.items():
            # For example, add_bos_token is a boolean.
            if value is None or isinstance(value, bool):
                continue
            content = _content(value)
            if not isinstance(content, str) or not content:
                raise self.error(name, "must be a token", value)
            flags = value if isinstance(value, dict) else {}
            yield {**flags, "content": content, "id": None, "special": True, "path": self.path}

    def error(self, field: str, expected: str, value: Any) -> ValueError:
        """Creates an error for a field's value."""
        return ValueError(f"{self.path}: {field} {expected}. Received: {value!r}")


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token
