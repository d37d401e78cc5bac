# SPDX-License-Identifier: Apache-2.0
"""Tokenizers that only convert texts to ids, from the content of any `tokenizer.json`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checks import importing
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.vocabularies.tokenizer_json import TOKENIZER_FILE
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer

Array = np.ndarray[Any, Any]


def tokenizer_from_json(content: str) -> Tokenizer | JsonTokenizer:
    """Creates a tokenizer that converts texts to ids, but adds no special tokens.

    Args:
        content: The content of a `tokenizer.json`.

    Returns:
        A `Tokenizer`, which is faster than the `tokenizers` library on one core. A
        `JsonTokenizer` if the file has steps that a `Tokenizer` does not support.

    Raises:
        ImportError: If the file has such steps, and the `tokenizers` library is not installed.
        ValueError: If the content is invalid.
    """
    try:
        fields = json.loads(content)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / TOKENIZER_FILE
            path.write_text(json.dumps(_with_post_processor(fields)), "utf-8")
            config = read_tokenizer(Path(directory))
        return tokenizer_from_config(config or {})
    except (ValueError, AttributeError, IndexError, KeyError, TypeError):
        return JsonTokenizer(content)


def _with_post_processor(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Adds the post-processor that a `Tokenizer` requires. Its special tokens are never used."""
    if fields.get("post_processor"):
        return fields
    token = _model_tokens(fields["model"])[0]
    special = {"SpecialToken": {"id": token, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        **fields,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special, first, special],
            "pair": [special, first, special, second, special],
            "special_tokens": {token: {"id": token, "ids": [0], "tokens": [token]}},
        },
    }


def _model_tokens(model: Mapping[str, Any]) -> list[str]:
    """Returns a model's tokens in the order of their ids."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):  # pieces with scores
        return [token for token, _ in vocabulary]
    return sorted(vocabulary, key=vocabulary.__getitem__)


class JsonTokenizer:
    """A tokenizer from the content of a `tokenizer.json`, with the `tokenizers` library.

    Unlike a `Tokenizer`, it supports all steps, but has no special tokens and no graph operations.

    Args:
        content: The content of the file.

    Raises:
        ImportError: If the `tokenizers` library is not installed.
        ValueError: If the library cannot read the content.
    """

    def __init__(self, content: str) -> None:
        with importing("vocabulary", "Reading a tokenizer.json"):
            import tokenizers
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(content)
        except Exception as error:  # The library raises no other class.
            raise ValueError(f"The tokenizer.json is invalid: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        ids = self._tokenizer.get_vocab()
        self.vocabulary = tuple(sorted(ids, key=ids.__getitem__))

    def __call__(self, text: str) -> list[int]:
        """Converts a text to ids."""
        ids, _ = self.flat_ids([text])
        return [int(token_id) for token_id in ids]

    def flat_ids(self, texts: Sequence[str]) -> tuple[Array, Array]:
        """Converts texts to ids in a flat array, see `Tokenizer.flat_ids`."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        ids = np.array([token_id for row in rows for token_id in row], "int32")
        return ids, np.array(list(map(len, rows)), "int64")

    def tokenize_with_offsets(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """Converts a text to ids with character offsets, see `Tokenizer.tokenize_with_offsets`."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        starts, ends = zip(*encoding.offsets, strict=True) if encoding.offsets else ((), ())
        return encoding.ids, list(starts), list(ends)


def unknown_token_id(content: str) -> int | None:
    """Returns the id of a `tokenizer.json`'s unknown token, or `None` if its model has none."""
    model = json.loads(content)["model"]
    token = model.get("unk_token")
    unknown: int | None = model.get("unk_id") if token is None else model["vocab"].get(token)
    return unknown


def without_tokens(content: str, removed: Collection[str]) -> tuple[str, list[int]]:
    """Removes tokens from the content of a `tokenizer.json`. No special tokens are added to texts.

    Added tokens outside the model's vocabulary are also removed. All other tokens get new ids in
    the same order.

    Returns:
        The new content, and the old ids of the remaining tokens.
    """
    fields = json.loads(content)
    model = fields["model"]
    is_unigram = isinstance(model["vocab"], list)
    tokens = _model_tokens(model)
    kept = [index for index, token in enumerate(tokens) if token not in removed]
    new_ids = {tokens[index]: number for number, index in enumerate(kept)}
    if is_unigram:
        model["unk_id"] = new_ids[tokens[model["unk_id"]]]
        model["vocab"] = [model["vocab"][index] for index in kept]
    else:
        model["vocab"] = new_ids
    fields["added_tokens"] = [
        {**token, "id": new_ids[token["content"]]}
        for token in fields["added_tokens"]
        if token["content"] in new_ids
    ]
    fields["post_processor"] = None
    return json.dumps(fields, ensure_ascii=False), kept
