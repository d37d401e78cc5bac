# SPDX-License-Identifier: Apache-2.0
"""A byte-level byte-pair tokenizer in files: RoBERTa's `vocab.json` and `merges.txt`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import read_json, read_text, write_json
from keras_bert.checkpoints.tokenizer_json import TokenizerJson, tokens_in_order

KIND = "byte_pair"
TOKENS_FILE = "vocab.json"
MERGES_FILE = "merges.txt"

_FIRST_LINE = "#version:"
_REQUIRED = ("<s>", "<pad>", "</s>", "<unk>")
# What the tokenizers library can do and RoBERTa's tokenizer does not, and when it is off
_OFF: dict[str, tuple[Any, ...]] = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (None, False),
    "ignore_merges": (None, False),
}


def read_byte_pair(tokens_path: Path, merges_path: Path, add_prefix_space: bool) -> dict[str, Any]:
    """The config of a tokenizer in two files.

    Raises:
        CheckpointError: If one is missing or malformed; the message names the file and the line.
    """
    vocabulary = tokens_in_order(read_json(tokens_path), f"{tokens_path}: the file")
    lines = read_text(merges_path).split("\n")
    merges = [
        (f"{merges_path}, line {number}", line.removesuffix("\r"))
        for number, line in enumerate(lines, 1)
        if line.strip() and not (number == 1 and line.startswith(_FIRST_LINE))
    ]
    return _config(vocabulary, merges, add_prefix_space, str(tokens_path))


def convert_byte_pair(tokenizer: TokenizerJson, add_prefix_space: bool | None) -> dict[str, Any]:
    """The config of a tokenizer in a `tokenizer.json`.

    Args:
        tokenizer: The file.
        add_prefix_space: What is known from elsewhere; `None` takes what the file says.

    Raises:
        CheckpointError: If the file is malformed, or another kind of tokenizer than RoBERTa's.
    """
    model = tokenizer.part("model")
    for name, off in _OFF.items():
        if model.get(name) not in off:
            raise tokenizer.error(f"model.{name} is {model[name]!r}, which is not supported")
    if tokenizer.steps("normalizer"):
        raise tokenizer.error("it has a normalizer, which RoBERTa's tokenizer has not")
    steps = tokenizer.steps("pre_tokenizer")
    if [step.get("type") for step in steps] != ["ByteLevel"] or not steps[0].get("use_regex", True):
        types = ", ".join(str(step.get("type")) for step in steps) or "missing"
        raise tokenizer.error(f"pre_tokenizer is {types}; it must be ByteLevel with its use_regex")
    if add_prefix_space is None:
        add_prefix_space = bool(steps[0].get("add_prefix_space", False))
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise tokenizer.error(f"model.merges is {type(merges).__name__}; it must be a list")
    named = [
        (
            f"{tokenizer.path}: model.merges[{index}]",
            " ".join(map(str, merge)) if isinstance(merge, list) else str(merge),
        )
        for index, merge in enumerate(merges)
    ]
    return _config(tokenizer.vocabulary(), named, add_prefix_space, str(tokenizer.path))


def write_byte_pair(folder: Path, tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """Writes both files.

    Returns:
        What `tokenizer_config.json` is to say of them.
    """
    ids = {token: index for index, token in enumerate(tokenizer["vocabulary"])}
    write_json(folder / TOKENS_FILE, ids)
    lines = (f"{_FIRST_LINE} 0.2", *tokenizer["merges"])
    (folder / MERGES_FILE).write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8"))
    return {
        "tokenizer_class": "RobertaTokenizer",
        "add_prefix_space": bool(tokenizer.get("add_prefix_space", False)),
    }


def _config(
    vocabulary: list[str],
    merges: Sequence[tuple[str, str]],
    add_prefix_space: bool,
    where: str,
) -> dict[str, Any]:
    known = set(vocabulary)
    missing = [token for token in _REQUIRED if token not in known]
    if missing:
        raise CheckpointError(
            f"{where}: the vocabulary of {len(vocabulary)} tokens lacks {', '.join(missing)}; "
            f"RoBERTa's has {', '.join(_REQUIRED)}."
        )
    for place, merge in merges:
        left, _, right = merge.partition(" ")
        lacking = [token for token in (left, right, left + right) if token not in known]
        if lacking:
            raise CheckpointError(
                f"{place} is {merge!r}, and the vocabulary has no {lacking[0]!r}; expected two "
                "tokens with a space between, which joined are a third."
            )
    return {
        "kind": KIND,
        "vocabulary": vocabulary,
        "merges": [merge for _, merge in merges],
        "add_prefix_space": add_prefix_space,
    }
