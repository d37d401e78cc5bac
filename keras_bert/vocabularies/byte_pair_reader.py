# SPDX-License-Identifier: Apache-2.0
"""Reads a BPE tokenizer's config from the files in a directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_bert.families.shared import ROBERTA_TOKENS
from keras_bert.vocabularies.byte_pair_files import (
    BLANK,
    MERGES_FILE,
    TOKENS_FILE,
    check_merge,
    load_merges,
    load_tokens,
)
from keras_bert.vocabularies.special_tokens import (
    check_names,
    read_special_tokens,
    renamed_tokens,
    with_added_tokens,
)
from keras_bert.vocabularies.tokenizer_config import BYTE_PAIR, without_defaults
from keras_bert.vocabularies.tokenizer_json import WORD_PATTERNS, TokenizerJson, describe_steps
from keras_bert.vocabularies.tokenizer_settings import FIRST_WORD_FIELD, TokenizerSettings

# Unsupported options of BPE models, with the values that disable them
_OFF: dict[str, tuple[Any, ...]] = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
}


def read_byte_pair(tokens_path: Path, merges_path: Path, add_prefix_space: bool) -> dict[str, Any]:
    """Reads a BPE tokenizer's config from its two files.

    With `add_prefix_space`, a text's first word is tokenized as if it followed a space.
    """
    vocabulary = load_tokens(tokens_path)
    config = _roberta(vocabulary, add_prefix_space, tokens_path)
    return {**config, "merges": list(load_merges(merges_path, set(vocabulary)))}


def read_byte_pair_files(
    directory: Path, settings: TokenizerSettings, file: TokenizerJson | None
) -> dict[str, Any]:
    """Creates a BPE tokenizer's config."""
    if settings.is_defined_by_file and file is not None:
        return _byte_pair_from_json(file, settings)
    prefix = bool(settings.flag("add_prefix_space"))
    if file is None:
        config = read_byte_pair(directory / TOKENS_FILE, directory / MERGES_FILE, prefix)
    else:
        config = _roberta(file.vocabulary(), prefix, file.path)
        config["merges"] = _read_merges(file)
    config, lstrip = with_added_tokens(config, settings)
    takes_space = lstrip.get(ROBERTA_TOKENS["mask"], True)
    return config | without_defaults(BYTE_PAIR, {"mask_takes_space": takes_space})


def _roberta(vocabulary: Sequence[str], add_prefix_space: bool, path: Path) -> dict[str, Any]:
    check_names(ROBERTA_TOKENS, vocabulary, path, "RoBERTa's has")
    return {
        "kind": BYTE_PAIR,
        "vocabulary": list(vocabulary),
        "add_prefix_space": add_prefix_space,
    }


def _byte_pair_from_json(file: TokenizerJson, settings: TokenizerSettings) -> dict[str, Any]:
    """Creates a BPE tokenizer's config from a `tokenizer.json`."""
    options = _byte_pair_options(file)
    vocabulary = file.vocabulary()
    names, between, _ = read_special_tokens(file, settings, vocabulary)
    check_names(names, vocabulary, file.path, "It must have")
    unknown = file.part("model").get("unk_token")
    if unknown not in (None, names["unk"]):
        raise file.error(f"model.unk_token must be {names['unk']!r}. Received: {unknown!r}")
    config = {
        "kind": BYTE_PAIR,
        "vocabulary": list(vocabulary),
        "merges": options.pop("merges"),
        "add_prefix_space": options.pop("add_prefix_space"),
        "special_tokens": renamed_tokens(names, ROBERTA_TOKENS),
    }
    config, lstrip = with_added_tokens(config, settings)
    is_roberta = names["cls"] == ROBERTA_TOKENS["cls"]
    first_word = settings.flag(FIRST_WORD_FIELD)
    return config | without_defaults(
        BYTE_PAIR,
        {
            **options,
            "special_tokens": config.pop("special_tokens"),
            "pair_separators": len(between),
            "mask_takes_space": lstrip.get(names["mask"], False),
            FIRST_WORD_FIELD: is_roberta if first_word is None else first_word,
            "repeats_cls": between[-1] == names["cls"],
        },
    )


def _byte_pair_options(tokenizer: TokenizerJson) -> dict[str, Any]:
    """Returns config fields for how a BPE tokenizer splits and merges text."""
    model = tokenizer.part("model")
    for name, off in _OFF.items():
        if model.get(name) not in off:
            raise tokenizer.error(f"model.{name} must be {off[0]!r}. Received: {model[name]!r}")
    options = {
        "merges": _read_merges(tokenizer),
        "ignore_merges": bool(model.get("ignore_merges", False)),
        "byte_fallback": bool(model.get("byte_fallback", False)),
    }
    if options["byte_fallback"]:
        _check_byte_fallback(tokenizer)
        return {**options, "add_prefix_space": False, "word_pattern": "gpt2", "compose": False}
    normalizer = tokenizer.steps("normalizer")
    if [step.get("type") for step in normalizer] not in ([], ["NFC"]):
        raise tokenizer.error(
            f"normalizer must be missing or NFC. Received: {describe_steps(normalizer)}"
        )
    word_pattern, add_prefix_space = _byte_words(tokenizer)
    return {
        **options,
        "add_prefix_space": add_prefix_space,
        "word_pattern": word_pattern,
        "compose": bool(normalizer),
    }


def _read_merges(tokenizer: TokenizerJson) -> list[str]:
    """Reads and validates a BPE model's merges."""
    merges = tokenizer.part("model").get("merges")
    if not isinstance(merges, list):
        raise tokenizer.error(f"model.merges must be a list. Received: {type(merges).__name__}")
    merges = [" ".join(map(str, merge)) if isinstance(merge, list) else merge for merge in merges]
    vocabulary = set(tokenizer.vocabulary())
    for index, merge in enumerate(merges):
        check_merge(merge, vocabulary, f"{tokenizer.path}: model.merges[{index}]")
    return merges


def _check_byte_fallback(tokenizer: TokenizerJson) -> None:
    """Checks that a tokenizer with byte fallback only replaces spaces, as in Gemma.

    Gemma's pre-tokenizer splits at spaces, but its normalizer has already replaced them all.
    """
    steps = tokenizer.steps("normalizer")
    replaced = [
        (step.get("pattern"), step.get("content"))
        for step in steps
        if step.get("type") == "Replace"
    ]
    if len(steps) != 1 or replaced != [({"String": " "}, BLANK)]:
        raise tokenizer.error(
            f"With model.byte_fallback, normalizer must replace ' ' with {BLANK!r}, as in Gemma. "
            f"Received: {describe_steps(steps)}"
        )
    steps = tokenizer.steps("pre_tokenizer")
    splits_spaces = [step.get("pattern") == {"String": " "} for step in steps]
    if steps and ([step.get("type") for step in steps] != ["Split"] or not all(splits_spaces)):
        raise tokenizer.error(
            "With model.byte_fallback, pre_tokenizer must be missing or a Split at ' ', as in "
            f"Gemma. Received: {describe_steps(steps)}"
        )
    normalized_tokens = [
        token.get("content") for token in tokenizer.added_tokens() if token.get("normalized", False)
    ]
    if any(BLANK in str(token) for token in normalized_tokens):
        raise tokenizer.error(f"added tokens with {BLANK} must not be found in normalized text")


def _byte_words(tokenizer: TokenizerJson) -> tuple[str, bool]:
    """Reads the word pattern and whether a space is added before a text."""
    steps = tokenizer.steps("pre_tokenizer")
    *splits, last = steps or [{}]
    names = {pattern: name for name, pattern in WORD_PATTERNS.items()}
    word_pattern = None
    if last.get("type") == "ByteLevel" and last.get("use_regex", True) == (not splits):
        if not splits:
            word_pattern = "gpt2"
        # After a Split, add_prefix_space would add a space before every word.
        elif splits[0].get("type") == "Split" and not (splits[1:] or last.get("add_prefix_space")):
            is_usual = splits[0].get("behavior") == "Isolated" and not splits[0].get("invert")
            pattern = splits[0].get("pattern")
            regex = pattern.get("Regex") if isinstance(pattern, dict) else None
            word_pattern = names.get(str(regex)) if is_usual else None
    if word_pattern is None:
        raise tokenizer.error(
            "pre_tokenizer must be ByteLevel with its use_regex, or a Split at the regular "
            f"expression of {' or '.join(WORD_PATTERNS)}, Isolated, before a ByteLevel without. "
            f"Received: {describe_steps(steps)}"
        )
    return word_pattern, bool(last.get("add_prefix_space", False))
