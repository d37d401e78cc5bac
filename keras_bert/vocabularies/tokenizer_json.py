# SPDX-License-Identifier: Apache-2.0
"""Reads the parts of a `tokenizer.json`, the format of the `tokenizers` library.

ALBERT has such a file in addition to the SentencePiece model. Without it, the `transformers`
library (5.23) splits texts at user-defined pieces and starts a word after each of them, so its ids
differ from SentencePiece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert.vocabularies.byte_pair_files import tokens_in_order
from keras_bert.vocabularies.files import read_json

TOKENIZER_FILE = "tokenizer.json"
WORD_PATTERNS = {
    "gpt2": (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""The regular expression for each word pattern."""
# The field for the steps in a part of type Sequence
_STEPS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
}
QUOTES = ("``", "''")
"""ALBERT's normalizer replaces these quotes with a double quote."""
SPACES = " {2,}"
"""A regular expression for the runs of spaces that normalizers join."""
COMPOSING = [
    {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "},
    {"type": "NFC"},
    {"type": "Strip", "strip_left": False, "strip_right": True},
]
"""The normalizer of DeBERTa's class in `transformers` 5. It replaces the model's normalizer."""


class TokenizerJson:
    """The content of a `tokenizer.json`. Raises a `ValueError` if it is not a JSON object."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fields = read_json(path)

    def part(self, name: str) -> Mapping[str, Any]:
        """Returns a top-level object in the file, or `{}` if it is absent."""
        value: Mapping[str, Any] = self._fields.get(name) or {}
        return value

    def steps(self, name: str) -> list[Mapping[str, Any]]:
        """Lists the steps in a normalizer, pre-tokenizer or post-processor."""
        part = self.part(name)
        if part.get("type") != "Sequence":
            return [part] if part else []
        steps: list[Mapping[str, Any]] = part[_STEPS[name]]
        return steps

    @property
    def kind(self) -> str:
        """The model type: `"WordPiece"`, `"BPE"` or `"Unigram"`. Other types raise an error."""
        kind = self.part("model").get("type")
        if kind not in ("WordPiece", "BPE", "Unigram"):
            raise self.error(
                f"model.type must be 'WordPiece', 'BPE' or 'Unigram'. Received: {kind!r}"
            )
        return str(kind)

    def vocabulary(self) -> tuple[str, ...]:
        """Returns a WordPiece or BPE model's tokens, including added tokens."""
        vocabulary = self.part("model")["vocab"]
        ids = {token["content"]: token["id"] for token in self.added_tokens()}
        for token, index in ids.items():
            if vocabulary.get(token, index) != index:
                raise self.error(
                    f"{token!r} must have the same id in model.vocab and added_tokens. Received: "
                    f"{vocabulary[token]!r} and {index!r}"
                )
        return tokens_in_order({**vocabulary, **ids}, f"{self.path}: model.vocab")

    def added_tokens(self) -> Sequence[Mapping[str, Any]]:
        """Returns the added tokens, including the special tokens."""
        added: Sequence[Mapping[str, Any]] = self._fields.get("added_tokens") or []
        return added

    def error(self, what: str) -> ValueError:
        """Creates an error with the file's path."""
        return ValueError(f"{self.path}: {what}.")


class RowFormats(NamedTuple):
    """How a post-processor adds special tokens to texts.

    Args:
        single: The special tokens and `A` for the text, each with its segment.
        pair: The special tokens and `A` and `B` for two texts, each with its segment.
        ids: The ids that replace each special token.
    """

    single: list[tuple[str, int]]
    pair: list[tuple[str, int]]
    ids: dict[str, list[Any]]


def row_formats(tokenizer: TokenizerJson) -> RowFormats:
    """Reads how the post-processor adds special tokens to one or two texts.

    Any type except `BertProcessing`, `RobertaProcessing` and `TemplateProcessing` raises an error.
    """
    # ByteLevel only changes offsets.
    steps = [step for step in tokenizer.steps("post_processor") if step.get("type") != "ByteLevel"]
    kinds = ("BertProcessing", "RobertaProcessing", "TemplateProcessing")
    if len(steps) != 1 or steps[0].get("type") not in kinds:
        raise tokenizer.error(
            f"post_processor must be one of {', '.join(kinds)}, because no special tokens are "
            f"added otherwise. Received: {describe_steps(steps)}"
        )
    step = steps[0]
    if step["type"] == "TemplateProcessing":
        single, pair = ([_template_part(part) for part in step[row]] for row in ("single", "pair"))
        special = step.get("special_tokens") or {}
        return RowFormats(single, pair, {name: token["ids"] for name, token in special.items()})
    (cls, cls_id), (sep, sep_id) = step["cls"], step["sep"]
    single = [(cls, 0), ("A", 0), (sep, 0)]
    pair = [*single, ("B", 1), (sep, 1)]
    if step["type"] == "RobertaProcessing":
        # Without these fields, `tokenizers` treats it as a BertProcessing.
        if not all(isinstance(step[name], bool) for name in ("trim_offsets", "add_prefix_space")):
            raise TypeError("trim_offsets and add_prefix_space must be true or false")
        pair = [*single, (sep, 0), ("B", 0), (sep, 0)]
    return RowFormats(single, pair, {cls: [cls_id], sep: [sep_id]})


def _template_part(part: Mapping[str, Mapping[str, Any]]) -> tuple[str, int]:
    if len(part) != 1:
        raise TypeError(f"a template has the part {part!r}")
    ((kind, value),) = part.items()
    if (kind == "Sequence") != (value["id"] in ("A", "B")):
        raise TypeError(f"{kind} is {value['id']!r}")
    return value["id"], value["type_id"]


def describe_steps(steps: Sequence[Mapping[str, Any]]) -> str:
    """Returns the types of steps for an error message."""
    return ", ".join(str(step.get("type")) for step in steps) or "missing"
