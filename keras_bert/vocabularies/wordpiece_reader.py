# SPDX-License-Identifier: Apache-2.0
"""Reads a WordPiece tokenizer's config from the files in a directory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from keras_bert.families.shared import WORDPIECE_TOKENS
from keras_bert.vocabularies import vocab_txt
from keras_bert.vocabularies.special_tokens import (
    read_special_tokens,
    renamed_tokens,
    with_added_tokens,
)
from keras_bert.vocabularies.tokenizer_config import (
    MAX_WORD_LENGTH,
    WORD_LENGTH,
    WORDPIECE,
    without_defaults,
)
from keras_bert.vocabularies.tokenizer_json import TokenizerJson, describe_steps
from keras_bert.vocabularies.tokenizer_settings import (
    MPNET,
    VOCABULARY_FILE,
    WORD_LENGTH_FIELD,
    TokenizerSettings,
)

# The maximum word length in characters in the transformers library
_TRANSFORMERS_WORD_LENGTH = 100


def read_wordpiece_files(
    directory: Path, settings: TokenizerSettings, file: TokenizerJson | None
) -> dict[str, Any]:
    """Creates a WordPiece tokenizer's config.

    Lowercasing is read from `tokenizer_config.json`, otherwise from the normalizer in
    `tokenizer.json`, and otherwise inferred from the vocabulary. If the class is defined completely
    by `tokenizer.json`, or no file defines a class, all settings are read from `tokenizer.json`.
    """
    is_mpnet = settings.tokenizer_class == MPNET
    names = settings.special_tokens(WORDPIECE)
    options: dict[str, Any] = {
        "max_word_length": MAX_WORD_LENGTH if settings.is_empty else _TRANSFORMERS_WORD_LENGTH,
        "num_segments": 1 if is_mpnet else 1 + settings.has_segments(True),
        "pair_separators": 2 if is_mpnet else 1,
        "strip_accents": (
            None if settings.fields.get("strip_accents") is None else settings.flag("strip_accents")
        ),
        "tokenize_chinese_chars": settings.flag("tokenize_chinese_chars") is not False,
    }
    lowercase = settings.flag("do_lower_case")
    if file is None:
        required = [name for role, name in names.items() if role != "mask"]
        vocabulary = vocab_txt.load_vocabulary(directory / VOCABULARY_FILE, required)
    else:
        vocabulary = file.vocabulary()
        if settings.is_defined_by_file:
            options |= _wordpiece_options(file)
            names, between, options["num_segments"] = read_special_tokens(
                file, settings, vocabulary
            )
            options["pair_separators"] = len(between)
            lowercase = options.pop("lowercase")
            if names["mask"] not in vocabulary:
                names = {**names, "mask": WORDPIECE_TOKENS["mask"]}
        elif lowercase is None:
            lowercase = file.part("normalizer").get("lowercase")
        required = [name for role, name in names.items() if role != "mask"]
        try:
            vocab_txt.check_vocabulary(vocabulary, required)
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from error
    if not isinstance(lowercase, bool):
        lowercase = vocab_txt.looks_uncased(vocabulary)
    options["special_tokens"] = renamed_tokens(names, WORDPIECE_TOKENS)
    if options["strip_accents"] == lowercase:
        options["strip_accents"] = None
    own_length = settings.fields.get(WORD_LENGTH_FIELD)
    if own_length is not None:
        if not WORD_LENGTH.allows(own_length):
            raise settings.error(WORD_LENGTH_FIELD, f"must be {WORD_LENGTH}", own_length)
        options["max_word_length"] = own_length
    config: dict[str, Any] = {
        "vocabulary": list(vocabulary),
        "lowercase": lowercase,
        **without_defaults(WORDPIECE, options),
    }
    config, _ = with_added_tokens(config, settings)
    if lowercase or options["strip_accents"]:
        model_vocabulary: Collection[str] = file.part("model")["vocab"] if file else vocabulary
        normalized: Sequence[str] = config.get("normalized_tokens", ())
        added: Sequence[str] = config.get("added_tokens", ())
        for token in (*added, *names.values()):
            if token in model_vocabulary and token not in normalized and token.isalnum():
                raise ValueError(
                    f"{directory}: an added token must not also be a word in the vocabulary, "
                    f"because words are found in lowercased text. Received: {token!r}"
                )
    return config


def _wordpiece_options(tokenizer: TokenizerJson) -> dict[str, Any]:
    """Returns config fields for how a WordPiece tokenizer normalizes and splits text.

    Steps that BERT's tokenizer does not have raise an error.
    """
    model = tokenizer.part("model")
    prefix = model.get("continuing_subword_prefix", "##")
    if prefix != "##":
        raise tokenizer.error(f"model.continuing_subword_prefix must be '##'. Received: {prefix!r}")
    length = model.get("max_input_chars_per_word", 100)
    if not WORD_LENGTH.allows(length):
        raise tokenizer.error(
            f"model.max_input_chars_per_word must be {WORD_LENGTH}. Received: {length!r}"
        )
    steps = tokenizer.steps("pre_tokenizer")
    # BertPreTokenizer is equivalent to the other two steps together.
    splits = {str(step.get("type")) for step in steps}
    if (
        splits - {"BertPreTokenizer", "WhitespaceSplit", "Punctuation"}
        or not ("BertPreTokenizer" in splits or splits == {"WhitespaceSplit", "Punctuation"})
        or any(step.get("behavior", "Isolated") != "Isolated" for step in steps)
    ):
        raise tokenizer.error(
            "pre_tokenizer must be BertPreTokenizer, or split at whitespace and punctuation like "
            f"it. Received: {describe_steps(steps)}"
        )
    # Text is split at whitespace, so stripping it has no effect.
    steps = [step for step in tokenizer.steps("normalizer") if step.get("type") != "Strip"]
    if [step.get("type") for step in steps] != ["BertNormalizer"]:
        raise tokenizer.error(
            f"normalizer must be BertNormalizer. Received: {describe_steps(steps)}"
        )
    expected_options = {
        "lowercase": (True, False),
        "strip_accents": (None, True, False),
        "handle_chinese_chars": (True, False),
        "clean_text": (True,),
    }
    options = {name: steps[0].get(name, allowed[0]) for name, allowed in expected_options.items()}
    for name, allowed in expected_options.items():
        if options[name] not in allowed:
            raise tokenizer.error(
                f"normalizer.{name} must be {' or '.join(map(repr, allowed))}. Received: "
                f"{options[name]!r}"
            )
    return {
        "lowercase": options["lowercase"],
        "strip_accents": options["strip_accents"],
        "tokenize_chinese_chars": options["handle_chinese_chars"],
        "max_word_length": int(length),
    }
