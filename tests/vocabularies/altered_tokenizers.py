# SPDX-License-Identifier: Apache-2.0
"""Compares the reader of tokenizer files with `transformers`, on altered files.

    python -m tests.vocabularies.altered_tokenizers            # all cases, before a release
    python -m tests.vocabularies.altered_tokenizers --every=40  # every 40th case

For each kind of tokenizer, each key and each step of its files is removed or replaced by other
values, and keys that the `transformers` classes support are added. Both libraries then read the
directory and encode some texts and pairs. Their results must be equal, or one of them must reject
the files. A different result is a fault, and so is any exception other than a `ValueError`.
"""

import argparse
import collections
import json
import logging
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import transformers
from tqdm import tqdm

from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.text import tokenizer_from_config
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer
from tests.text import families, small_tokenizers

OUTCOMES = (
    "equal",
    "both reject",
    "keras_bert rejects",
    "transformers rejects",
    "differs as documented",
    "differ",
    "traceback",
)
FAULTS = ("differ", "traceback")
# Intended differences, by a pattern of the alteration's description
DOCUMENTED = {
    r"^bert, cased: tokenizer_config.json(: do_lower_case)? removed$": (
        "If no file specifies the case, a cased vocabulary is not lowercased."
    ),
    r"^roberta, vocab.json: tokenizer_config.json(: added_tokens_decoder(.4)?)?( removed| = {})$": (
        "RoBERTa's mask token includes the space before it. `transformers` 5 lost this."
    ),
}
SETTINGS, FILE, NAMES, ADDED = (
    "tokenizer_config.json",
    "tokenizer.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
# The row length without special tokens. It is even because for an odd length, the original BERT
# code keeps one more token of the first text, and `transformers` one more of the longer text.
TOKENS_PER_ROW = 8

Files = dict[str, Any]
"""The content of a directory: parsed JSON or bytes by file name."""


def _texts(mask: str | None) -> list[tuple[str, ...]]:
    """Returns texts and pairs that reveal differences, with the mask token if it exists."""
    long = "x" * 150
    return [
        ("The train to the coast leaves at 7:45, doesn't it?",),
        ("  two  spaces \n\n at both ends \n",),
        ("Größe «été» naïve 中国 e\u0301 ﬁn Ａ I'LL",),
        (f"{long} y",),
        ("",),
        (f"the {mask} train and {mask}.",) if mask else ("",),
        (" The|||IP_ADDRESS|||and a[unused1] the [NEW] 1990, ``quoted'' ``\tb",),
        ("the train is late", "a test of the coast"),
        ("this is the test of a train that leaves", "late in the day at the coast, and again"),
    ]


# === The files ===


def _save_with_transformers(config: dict[str, Any], model_type: str, **settings: Any) -> Files:
    """Returns the files that `transformers` saves for a tokenizer, and a config.json."""
    with tempfile.TemporaryDirectory() as directory:
        write_tokenizer(Path(directory), config, 512)
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        tokenizer.save_pretrained(f"{directory}/saved")
        files = _read(Path(directory, "saved"))
    return _remove_own_fields(files, model_type, **settings)


def _remove_own_fields(files: Files, model_type: str, **settings: Any) -> Files:
    """Returns the files without this package's fields, and with a config.json."""
    own_fields = (
        "special_tokens_in_text",
        "space_before_first_word",
        "albert_rules",
        "max_word_length",
    )
    for name in (*own_fields, "is_local", "local_files_only"):
        files[SETTINGS].pop(name, None)
    files[SETTINGS] |= settings
    return {**files, "config.json": {"model_type": model_type}}


def _write(config: dict[str, Any], model_type: str) -> Files:
    """Returns the files that this package writes."""
    with tempfile.TemporaryDirectory() as directory:
        write_tokenizer(Path(directory), config, 512)
        files = _read(Path(directory))
    return _remove_own_fields(files, model_type)


def _read(directory: Path) -> Files:
    return {
        path.name: json.loads(path.read_bytes()) if path.suffix == ".json" else path.read_bytes()
        for path in directory.iterdir()
        if path.is_file()
    }


def _small_config(kind: str, **options: Any) -> dict[str, Any]:
    return small_tokenizers.make(kind, **options).get_config()


def _add_special_tokens_map(files: Files) -> Files:
    """Adds the file with special tokens that `transformers` 4 writes."""
    names = {key: value for key, value in files[SETTINGS].items() if key.endswith("_token")}
    names["mask_token"] = {
        "content": names["mask_token"],
        "lstrip": files[SETTINGS]["tokenizer_class"].startswith(("MPNet", "Roberta")),
        "rstrip": False,
        "normalized": False,
        "single_word": False,
    }
    return {**files, NAMES: names}


def _add_tokens_decoder(files: Files) -> Files:
    """Adds the added tokens to the settings, as `transformers` 4 does."""
    decoder = {
        str(token["id"]): {key: value for key, value in token.items() if key != "id"}
        for token in files[FILE]["added_tokens"]
    }
    return {**files, SETTINGS: {**files[SETTINGS], "added_tokens_decoder": decoder}}


KINDS: dict[str, Callable[[], Files]] = {
    "bert": lambda: _add_special_tokens_map(
        _save_with_transformers(_small_config("wordpiece"), "bert")
    ),
    "bert, cased": lambda: _add_tokens_decoder(
        _save_with_transformers(_small_config("wordpiece", lowercase=False), "bert")
    ),
    "bert, vocab.txt": lambda: _write(_small_config("wordpiece"), "bert"),
    "bert, tokenizer.json": lambda: _save_with_transformers(
        _small_config("wordpiece"), "bert", tokenizer_class="PreTrainedTokenizerFast"
    ),
    "bert, accents": lambda: _save_with_transformers(
        _small_config("wordpiece", strip_accents=False), "bert"
    ),
    "mpnet": lambda: _add_special_tokens_map(
        _save_with_transformers(small_tokenizers.mpnet_config(), "mpnet")
    ),
    "mpnet, vocab.txt": lambda: _write(small_tokenizers.mpnet_config(), "mpnet"),
    "mpnet, tokenizer.json": lambda: _save_with_transformers(
        small_tokenizers.mpnet_config(), "mpnet", tokenizer_class="PreTrainedTokenizerFast"
    ),
    "roberta": lambda: _add_special_tokens_map(
        _save_with_transformers(_small_config("byte_pair"), "roberta")
    ),
    "roberta, vocab.json": lambda: _write(_small_config("byte_pair"), "roberta"),
    "modernbert": lambda: _save_with_transformers(families.CONFIGS["modernbert"](), "modernbert"),
    "eurobert": lambda: _save_with_transformers(families.CONFIGS["eurobert"](), "eurobert"),
    "mmbert": lambda: _add_tokens_decoder(
        _save_with_transformers(families.CONFIGS["mmbert"](), "modernbert")
    ),
    "albert": lambda: _save_with_transformers(_small_config("sentence_piece"), "albert"),
    "xlm_roberta": lambda: _add_special_tokens_map(
        _save_with_transformers(families.CONFIGS["xlm_roberta"](), "xlm-roberta")
    ),
    "camembert": lambda: _save_with_transformers(families.CONFIGS["camembert"](), "camembert"),
    "deberta_v2": lambda: _add_tokens_decoder(
        _save_with_transformers(families.CONFIGS["deberta_v2"](), "deberta-v2")
    ),
    "deberta_v2, spm.model": lambda: {
        name: content
        for name, content in _write(families.CONFIGS["deberta_v2"](), "deberta-v2").items()
        if name != FILE
    },
    "deberta_v2, tokenizer.json": lambda: _save_with_transformers(
        families.CONFIGS["deberta_v2"](), "deberta-v2", tokenizer_class="PreTrainedTokenizerFast"
    ),
    "unigram, tokenizer.json": lambda: _save_with_transformers(
        families.CONFIGS["xlm_roberta"](),
        "xlm-roberta",
        tokenizer_class="PreTrainedTokenizerFast",
    ),
}


# === The alterations ===

# Only a few entries of sampled fields are altered because all are similar. Data is not altered.
_DATA = {"vocab", "merges", "precompiled_charsmap", "Regex"}
_SAMPLED = {"added_tokens", "added_tokens_decoder"}

_STEPS: dict[str, list[dict[str, Any]]] = {
    "normalizer": [
        {"type": "NFC"},
        {"type": "NFKC"},
        {"type": "Lowercase"},
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "b"},
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Sequence", "normalizers": []},
        {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]},
        {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": False,
            "strip_accents": False,
            "lowercase": True,
        },
    ],
    "pre_tokenizer": [
        {"type": "BertPreTokenizer"},
        {"type": "Whitespace"},
        {"type": "WhitespaceSplit"},
        {"type": "Punctuation", "behavior": "Isolated"},
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
        {"type": "Sequence", "pretokenizers": []},
    ],
    "post_processor": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "Sequence", "processors": []},
        {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        {
            "type": "RobertaProcessing",
            "sep": ["</s>", 2],
            "cls": ["<s>", 0],
            "trim_offsets": True,
            "add_prefix_space": True,
        },
        {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}},
        {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {},
        },
    ],
    "truncation": [
        {"direction": side, "max_length": 512, "strategy": "LongestFirst", "stride": 0}
        for side in ("Left", "Right")
    ],
    "padding": [
        {
            "strategy": "BatchLongest",
            "direction": "Left",
            "pad_to_multiple_of": 8,
            "pad_id": 5,
            "pad_type_id": 1,
            "pad_token": "the",
        }
    ],
}

_ADDED_TOKEN = {
    "content": "the",
    "lstrip": False,
    "rstrip": False,
    "single_word": False,
    "normalized": False,
    "special": True,
}
# Values for tokenizer_config.json keys that the `transformers` classes support
_KEYS: dict[str, list[Any]] = {
    "additional_special_tokens": [["the"], ["[NEW]"], [dict(_ADDED_TOKEN)], "the", None],
    "extra_special_tokens": [["the"], ["[NEW]"], {"new_token": "the"}, {}, "the"],
    "model_specific_special_tokens": [{"new_token": "the"}, {}],
    "image_token": ["the", "[NEW]", None],
    "add_prefix_space": [True, False, "false", "true", None, 0],
    "do_lower_case": [True, False, "false", None],
    "strip_accents": [True, False, None, "false"],
    "tokenize_chinese_chars": [True, False],
    "keep_accents": [True, False],
    "split_by_punct": [True, False, None],
    "clean_text": [False],
    "do_basic_tokenize": [False],
    "never_split": [["the"]],
    "trim_offsets": [True, False],
    "errors": ["ignore"],
    "split_special_tokens": [True, False],
    "truncation_side": ["left", "right", "middle", None],
    "padding_side": ["left", "right", "middle", None],
    "pad_token_type_id": [1],
    "pad_to_multiple_of": [8],
    "model_input_names": [
        ["input_ids", "attention_mask"],
        ["input_ids", "token_type_ids", "attention_mask"],
    ],
    "model_max_length": [8, None, 10**30],
    "max_len": [8],
    "max_length": [8],
    "stride": [2],
    "truncation_strategy": ["only_first"],
    "add_bos_token": [True, False],
    "add_eos_token": [True, False],
    "bos_token": ["the", "[NEW]", None, dict(_ADDED_TOKEN)],
    "eos_token": ["the", "[NEW]", None],
    "cls_token": ["the", "[NEW]", None],
    "sep_token": ["the", "[NEW]", None],
    "unk_token": ["the", "[NEW]", None],
    "pad_token": ["the", "[NEW]", None],
    "mask_token": [
        *("the", "[NEW]", None, dict(_ADDED_TOKEN)),
        {**_ADDED_TOKEN, "__type": "AddedToken", "lstrip": True},
    ],
    "backend": ["sentencepiece"],
    "legacy": [True, False],
    "from_slow": [True],
    "use_fast": [False],
    "clean_up_tokenization_spaces": [True],
    "chat_template": ["{{ messages }}"],
    "name_or_path": ["somewhere"],
    "special_tokens_map_file": [None, "/nowhere/special_tokens_map.json"],
    "tokenizer_file": ["/nowhere/tokenizer.json"],
    "vocab_file": ["/nowhere/vocab.txt"],
    "init_inputs": [[], ["the"]],
    "auto_map": [{"AutoTokenizer": ["a.B", None]}],
    "sp_model_kwargs": [{}, {"enable_sampling": True, "alpha": 0.1, "nbest_size": -1}],
    "remove_space": [False],
    "word_tokenizer_type": ["mecab"],
    "fix_mistral_regex": [True],
    "unk_id": [5],
    "vocab": [["the"]],
    "merges": [["t h"]],
    "an_unknown_key": [True],
    "tokenizer_class": [
        *("BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "RobertaTokenizer"),
        *("AlbertTokenizer", "XLMRobertaTokenizerFast", "CamembertTokenizer", "GemmaTokenizer"),
        *(
            "PreTrainedTokenizerFast",
            "TokenizersBackend",
            "MPNetTokenizer",
            "DebertaV2Tokenizer",
            "BertJapaneseTokenizer",
        ),
        *("ElectraTokenizer", "NoSuchTokenizer", None),
    ],
    "added_tokens_decoder": [
        {"5": {**_ADDED_TOKEN, "content": content}} for content in ("the", "[NEW]")
    ],
}
# Other values for specific fields of a `tokenizer.json`
_VALUES: dict[str, list[Any]] = {
    "max_input_chars_per_word": [10, 120, 200],
    "dropout": [0.5],
    "unk_token": ["the", "[NEW]"],
    "unk_id": [0, 5, 10**6],
    "continuing_subword_prefix": [""],  # A longer prefix crashes `tokenizers`.
    "end_of_word_suffix": ["</w>"],
    "prepend_scheme": ["first", "never"],
    "strip_accents": [True, False],
    "add_prefix_space": [True, False],
    "replacement": ["_"],
    "behavior": ["Removed", "MergedWithNext"],
    "direction": ["Left"],
    "ids": [[5], [5, 6], []],
    "type_id": [0, 1],
    "content": ["the", "[NEW]", "\n"],
}


def _other_values(key: str, value: Any) -> list[Any]:
    """Returns other values of a field."""
    values: list[Any] = [None, *_VALUES.get(key, ())]
    if isinstance(value, bool):
        values += [not value, "false"]
    elif isinstance(value, int):
        values += [value + 1, "x"]
    elif isinstance(value, str):
        values += ["the", 5]
    elif isinstance(value, list):
        values += [[], {}, "x"]
        if len(value) > 1 and key not in _DATA:
            values += [[*value, value[-1]], value[::-1]]
    elif isinstance(value, dict):
        values += [{}, []]
    return [other for other in values if other != value or type(other) is not type(value)]


def _alter(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yields descriptions of changes to a JSON value, each with the changed value."""
    if isinstance(value, dict):
        keys = list(value)
        if path and path[-1] in _SAMPLED:
            keys = [*keys[:2], *keys[-1:]]
        for key in keys:
            location = ".".join(map(str, (*path, key)))
            yield f"{location} removed", {name: item for name, item in value.items() if name != key}
            for other in _other_values(key, value[key]):
                yield f"{location} = {_format(other)}", {**value, key: other}
            if path == () and key in _STEPS:
                for other in _STEPS[key]:
                    yield f"{location} = {_format(other)}", {**value, key: other}
                yield from _add_steps(value, key)
            if key not in _DATA:
                for description, changed in _alter(value[key], (*path, key)):
                    yield description, {**value, key: changed}
    elif isinstance(value, list):
        indices = range(len(value))
        if path and path[-1] in _SAMPLED:
            indices = [0, 1, len(value) - 1] if len(value) > 2 else indices
        for index in indices:
            location = f"{'.'.join(map(str, path))}[{index}]"
            yield f"{location} removed", [*value[:index], *value[index + 1 :]]
            for description, changed in _alter(value[index], (*path, index)):
                yield description, [*value[:index], changed, *value[index + 1 :]]


def _add_steps(file: dict[str, Any], part: str) -> Iterator[tuple[str, Any]]:
    """Yields the `tokenizer.json` with one additional step in a part."""
    names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
    if part not in names:
        return
    old = file[part]
    steps = old[names[part]] if old and old["type"] == "Sequence" else [old] if old else []
    for step in _STEPS[part]:
        for position, changed in (("first", [step, *steps]), ("last", [*steps, step])):
            sequence = {"type": "Sequence", names[part]: changed}
            yield f"{part} with {_format(step)} {position}", {**file, part: sequence}


def _model_alterations(file: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the `tokenizer.json` with a different vocabulary or different merges."""
    model = file["model"]
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        *names, last = vocab
        altered_vocabularies = {
            "a gap": {**vocab, last: len(vocab) + 1},
            "one less": {name: vocab[name] for name in names},
            "a list": names,
            "null": None,
            "a string as id": {**vocab, last: "x"},
        }
    else:
        altered_vocabularies = {
            "one less": vocab[:-1],
            "an entry null": [*vocab[:-1], None],
            "a score null": [*vocab[:-1], [vocab[-1][0], None]],
            "a different score": [*vocab[:-1], [vocab[-1][0], -1.0]],
            "null": None,
        }
    if model.get("merges"):
        merges = model["merges"]
        for description, changed in {
            "null": [*merges, None],
            "a pair of null": [*merges, [None, None]],
            "a duplicate pair": [*merges, merges[0]],
            "an empty pair": [*merges, []],
            "three tokens": [*merges, ["t", "h", "e"]],
            "unknown tokens": [*merges, ["qqq", "zzz"]],
            "a number": [*merges, 5],
            "strings": [" ".join(merge) for merge in merges],
        }.items():
            yield f"merges with {description}", {**file, "model": {**model, "merges": changed}}
    for description, changed in altered_vocabularies.items():
        yield f"vocab with {description}", {**file, "model": {**model, "vocab": changed}}
    last = len(vocab)
    for description, token in {
        "the": {**_ADDED_TOKEN, "id": _index(vocab, "the")},
        "a new token": {**_ADDED_TOKEN, "content": "[NEW]", "id": last},
        "a new token that is not special": {
            **{**_ADDED_TOKEN, "content": "[NEW]", "id": last},
            **{"special": False, "normalized": True},
        },
        "a line break": {**_ADDED_TOKEN, "content": "\n", "id": last},
    }.items():
        if token["id"] is not None:
            tokens = [*file["added_tokens"], token]
            yield f"added_tokens with {description}", {**file, "added_tokens": tokens}


def _index(vocab: Any, token: str) -> int | None:
    names = list(vocab) if isinstance(vocab, dict) else [piece for piece, _ in vocab]
    return names.index(token) if token in names else None


def _format(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 90 else f"{text[:90]}…"


def alter_files(files: Files) -> Iterator[tuple[str, Files]]:
    """Yields the files and all their alterations, each with a description."""
    yield "unchanged", files
    for name in files:
        if name != "config.json":
            yield f"{name} removed", {other: files[other] for other in files if other != name}
    for name in (SETTINGS, FILE, NAMES):
        for description, changed in _alter(files.get(name, {}), ()):
            yield f"{name}: {description}", {**files, name: changed}
    settings = files[SETTINGS]
    for key, values in _KEYS.items():
        for value in values:
            changed = {**settings, key: value}
            if changed != settings:
                yield f"{SETTINGS}: with {key} = {_format(value)}", {**files, SETTINGS: changed}
            token_keys = {"additional_special_tokens", "extra_special_tokens", "image_token"}
            if key in token_keys or (key.endswith("_token") and key in files.get(NAMES, {})):
                names = {**files.get(NAMES, {}), key: value}
                yield f"{NAMES}: with {key} = {_format(value)}", {**files, NAMES: names}
    if FILE in files:
        for description, changed in _model_alterations(files[FILE]):
            yield f"{FILE}: {description}", {**files, FILE: changed}
    for added_tokens in ({"the": 5}, {"[NEW]": 10**4}, {"[NEW]": None}):
        yield f"{ADDED}: {_format(added_tokens)}", {**files, ADDED: added_tokens}


# === The comparison ===


def _encode_with_keras_bert(directory: Path) -> Any:
    """Returns the mask token, the padding id and the encoded rows of this library."""
    config = read_tokenizer(directory)
    if config is None:
        raise ValueError("no tokenizer")
    tokenizer = tokenizer_from_config(config).with_special_tokens_in_text
    mask = tokenizer.mask_token
    rows = []
    for texts in _texts(mask if mask in tokenizer.vocabulary else None):
        special = len(tokenizer.row_format(len(texts))) - len(texts)
        preprocessor = TextClassifierPreprocessor(tokenizer, max(TOKENS_PER_ROW + special, 7))
        row = preprocessor(*texts)
        rows.append(
            (
                tokenizer(texts[0]),
                row["token_ids"].tolist(),
                row["segment_ids"].tolist(),
            )
        )
    known_mask = mask if mask in tokenizer.vocabulary else None
    return known_mask, tokenizer.pad_token_id, rows


def _encode_with_transformers(directory: Path, mask: str | None) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    rows = []
    for texts in _texts(tokenizer.mask_token and mask):
        special = tokenizer.num_special_tokens_to_add(len(texts) > 1)
        length = max(TOKENS_PER_ROW + special, 7)
        row = tokenizer(*texts, truncation=True, max_length=length)
        rows.append(
            (
                tokenizer(texts[0], add_special_tokens=False)["input_ids"],
                row["input_ids"],
                row.get("token_type_ids"),
            )
        )
    return tokenizer.mask_token, tokenizer.pad_token_id, rows


def compare(files: Files) -> tuple[str, str]:
    """Returns the outcome for the files, one of `OUTCOMES`, and the difference."""
    with tempfile.TemporaryDirectory() as path:
        directory = Path(path)
        for name, content in files.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            (directory / name).write_bytes(data)
        error_message = result = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = _encode_with_keras_bert(directory)
        except ValueError as error:
            error_message = str(error)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            return "traceback", f"{error!r} at {Path(frame.filename).name}:{frame.lineno}"
        try:
            expected = _encode_with_transformers(directory, result[0] if result else None)
        except BaseException as error:  # Panics of `tokenizers` are not an `Exception`.
            if isinstance(error, KeyboardInterrupt):
                raise
            expected = None
        if error_message is not None:
            return ("both reject" if expected is None else "keras_bert rejects"), error_message
        if expected is None:
            return "transformers rejects", ""
        names = ("mask", "padding")
        for name, actual_value, expected_value in zip(names, result, expected, strict=False):
            if actual_value != expected_value and None not in (actual_value, expected_value):
                return "differ", f"{name}: keras_bert {actual_value}, transformers {expected_value}"
        for texts, actual_value, expected_value in zip(
            _texts(result[0]), result[-1], expected[-1], strict=True
        ):
            if expected[0] is None and result[0] in texts[0]:
                continue
            if expected_value[2] is None:
                # Without this field, the segments that a `transformers` class passes to its
                # model depend on the version of `transformers`.
                has_input_names = "model_input_names" in files.get(SETTINGS, {})
                expected_value = (
                    *expected_value[:2],
                    [0] * len(expected_value[1]) if has_input_names else actual_value[2],
                )
            if actual_value != expected_value:
                parts = ["tokens", "row", "segments"]
                first = next(i for i in range(3) if actual_value[i] != expected_value[i])
                excerpt = tuple(text[:20] for text in texts)
                values = (
                    f"keras_bert {actual_value[first][:24]}, transformers "
                    f"{expected_value[first][:24]}"
                )
                return "differ", f"{parts[first]} of {excerpt}: {values}"
    return "equal", ""


def run(every: int = 1, only: str = "", progress: bool = True) -> dict[str, list[str]]:
    """Compares every n-th alteration and returns the descriptions by outcome."""
    logging.disable(logging.ERROR)
    kinds = {name: make() for name, make in KINDS.items() if only in name}
    cases = [
        (f"{kind}: {description}", altered_files)
        for kind, files in kinds.items()
        for description, altered_files in alter_files(files)
    ][::every]
    descriptions: dict[str, list[str]] = collections.defaultdict(list)
    try:
        for description, files in tqdm(cases, disable=not progress):
            outcome, detail = compare(files)
            if outcome == "differ" and any(
                re.search(pattern, description) for pattern in DOCUMENTED
            ):
                outcome = "differs as documented"
            descriptions[outcome].append(f"{description}: {detail}" if detail else description)
    finally:
        logging.disable(logging.NOTSET)
    return descriptions


def main() -> None:
    """Prints the faults and the number of cases per outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of a kind's name")
    parser.add_argument("--show", default=",".join(FAULTS), help="outcomes whose cases are printed")
    arguments = parser.parse_args()
    descriptions = run(arguments.every, arguments.only)
    for outcome in arguments.show.split(","):
        for line in descriptions[outcome]:
            print(f"{outcome}: {line}")
    print(", ".join(f"{outcome} {len(descriptions[outcome])}" for outcome in OUTCOMES))
    sys.exit(any(descriptions[outcome] for outcome in FAULTS))


if __name__ == "__main__":
    main()
