# SPDX-License-Identifier: Apache-2.0
"""Holds the reader of tokenizer files against `transformers`, on files that are altered.

    python -m tests.vocabularies.altered_tokenizers            # all, before a release
    python -m tests.vocabularies.altered_tokenizers --every=40  # every 40th one

Each key and each step of the tokenizer files of each kind is removed, and replaced by other values;
keys that the classes of `transformers` know are added. Both libraries then read the folder, and
encode some texts and pairs. They must be equal, or one of them must refuse the files; a file whose
word changes the answer, and that is read without that word, is a fault. So is an exception that is
not a `ValueError`.
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
    *("equal", "both refuse", "ours refuses", "theirs refuses", "differs as documented"),
    *("differ", "traceback"),
)
FAULTS = ("differ", "traceback")
# What differs as it is meant to, by the description of an alteration
DOCUMENTED = {
    r"^bert, cased: tokenizer_config.json(: do_lower_case)? removed$": (
        "A cased vocabulary is not lowercased where no file says whether to."
    ),
    r"^roberta, vocab.json: tokenizer_config.json(: added_tokens_decoder(.4)?)?( removed| = {})$": (
        "RoBERTa's mask token includes the space before it, which `transformers` 5 has forgotten."
    ),
}
SETTINGS, FILE, NAMES, ADDED = (
    "tokenizer_config.json",
    "tokenizer.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
# Without the special tokens of a row, an even number: of an odd one, BERT's released code gives a
# pair's first text one token more, `transformers` the longer text.
TOKENS_OF_ROW = 8

Files = dict[str, Any]
"""The content of a folder: JSON by the name of its file, or bytes."""


def _texts(mask: str | None) -> list[tuple[str, ...]]:
    """Texts and pairs that show differences; without a mask token, none has it."""
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


def _saved(config: dict[str, Any], model_type: str, **settings: Any) -> Files:
    """The files that `transformers` saves for a tokenizer, and a config.json."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), config, 512)
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        theirs.save_pretrained(f"{folder}/saved")
        files = _read(Path(folder, "saved"))
    return _loaded_by_transformers(files, model_type, **settings)


def _loaded_by_transformers(files: Files, model_type: str, **settings: Any) -> Files:
    """The files without fields of this package, and with a config.json."""
    ours = ("special_tokens_in_text", "space_before_first_word", "albert_rules", "max_word_length")
    for name in (*ours, "is_local", "local_files_only"):
        files[SETTINGS].pop(name, None)
    files[SETTINGS] |= settings
    return {**files, "config.json": {"model_type": model_type}}


def _written(config: dict[str, Any], model_type: str) -> Files:
    """The files that this package writes."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), config, 512)
        files = _read(Path(folder))
    return _loaded_by_transformers(files, model_type)


def _read(folder: Path) -> Files:
    return {
        path.name: json.loads(path.read_bytes()) if path.suffix == ".json" else path.read_bytes()
        for path in folder.iterdir()
        if path.is_file()
    }


def _small(kind: str, **options: Any) -> dict[str, Any]:
    return small_tokenizers.make(kind, **options).get_config()


def _with_names(files: Files) -> Files:
    """Files of `transformers` 4: special tokens also in their own file."""
    names = {key: value for key, value in files[SETTINGS].items() if key.endswith("_token")}
    names["mask_token"] = {
        "content": names["mask_token"],
        "lstrip": files[SETTINGS]["tokenizer_class"].startswith(("MPNet", "Roberta")),
        "rstrip": False,
        "normalized": False,
        "single_word": False,
    }
    return {**files, NAMES: names}


def _with_decoder(files: Files) -> Files:
    """Files of `transformers` 4 whose settings have all added tokens."""
    decoder = {
        str(token["id"]): {key: value for key, value in token.items() if key != "id"}
        for token in files[FILE]["added_tokens"]
    }
    return {**files, SETTINGS: {**files[SETTINGS], "added_tokens_decoder": decoder}}


KINDS: dict[str, Callable[[], Files]] = {
    "bert": lambda: _with_names(_saved(_small("wordpiece"), "bert")),
    "bert, cased": lambda: _with_decoder(_saved(_small("wordpiece", lowercase=False), "bert")),
    "bert, vocab.txt": lambda: _written(_small("wordpiece"), "bert"),
    "bert, tokenizer.json": lambda: _saved(
        _small("wordpiece"), "bert", tokenizer_class="PreTrainedTokenizerFast"
    ),
    "bert, accents": lambda: _saved(_small("wordpiece", strip_accents=False), "bert"),
    "mpnet": lambda: _with_names(_saved(small_tokenizers.mpnet_config(), "mpnet")),
    "mpnet, vocab.txt": lambda: _written(small_tokenizers.mpnet_config(), "mpnet"),
    "mpnet, tokenizer.json": lambda: _saved(
        small_tokenizers.mpnet_config(), "mpnet", tokenizer_class="PreTrainedTokenizerFast"
    ),
    "roberta": lambda: _with_names(_saved(_small("byte_pair"), "roberta")),
    "roberta, vocab.json": lambda: _written(_small("byte_pair"), "roberta"),
    "modernbert": lambda: _saved(families.CONFIGS["modernbert"](), "modernbert"),
    "eurobert": lambda: _saved(families.CONFIGS["eurobert"](), "eurobert"),
    "mmbert": lambda: _with_decoder(_saved(families.CONFIGS["mmbert"](), "modernbert")),
    "albert": lambda: _saved(_small("sentence_piece"), "albert"),
    "xlm_roberta": lambda: _with_names(_saved(families.CONFIGS["xlm_roberta"](), "xlm-roberta")),
    "camembert": lambda: _saved(families.CONFIGS["camembert"](), "camembert"),
    "deberta_v2": lambda: _with_decoder(_saved(families.CONFIGS["deberta_v2"](), "deberta-v2")),
    "deberta_v2, spm.model": lambda: {
        name: content
        for name, content in _written(families.CONFIGS["deberta_v2"](), "deberta-v2").items()
        if name != FILE
    },
    "deberta_v2, tokenizer.json": lambda: _saved(
        families.CONFIGS["deberta_v2"](), "deberta-v2", tokenizer_class="PreTrainedTokenizerFast"
    ),
    "unigram, tokenizer.json": lambda: _saved(
        families.CONFIGS["xlm_roberta"](),
        "xlm-roberta",
        tokenizer_class="PreTrainedTokenizerFast",
    ),
}


# === The alterations ===

# Fields of which only a few are altered, since all are alike, or none since they are data
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
# Values of keys of tokenizer_config.json that classes of `transformers` know
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
    "a_key_that_nobody_knows": [True],
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
# Values of fields of a `tokenizer.json` of their own
_VALUES: dict[str, list[Any]] = {
    "max_input_chars_per_word": [10, 120, 200],
    "dropout": [0.5],
    "unk_token": ["the", "[NEW]"],
    "unk_id": [0, 5, 10**6],
    "continuing_subword_prefix": [""],  # A longer one ends the process of `tokenizers`.
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


def _others(key: str, value: Any) -> list[Any]:
    """Other values of a field."""
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


def _altered(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yields descriptions of changes of a JSON value, each with the changed value."""
    if isinstance(value, dict):
        keys = list(value)
        if path and path[-1] in _SAMPLED:
            keys = [*keys[:2], *keys[-1:]]
        for key in keys:
            where = ".".join(map(str, (*path, key)))
            yield f"{where} removed", {name: each for name, each in value.items() if name != key}
            for other in _others(key, value[key]):
                yield f"{where} = {_shown(other)}", {**value, key: other}
            if path == () and key in _STEPS:
                for other in _STEPS[key]:
                    yield f"{where} = {_shown(other)}", {**value, key: other}
                yield from _with_steps(value, key)
            if key not in _DATA:
                for what, changed in _altered(value[key], (*path, key)):
                    yield what, {**value, key: changed}
    elif isinstance(value, list):
        indices = range(len(value))
        if path and path[-1] in _SAMPLED:
            indices = [0, 1, len(value) - 1] if len(value) > 2 else indices
        for index in indices:
            where = f"{'.'.join(map(str, path))}[{index}]"
            yield f"{where} removed", [*value[:index], *value[index + 1 :]]
            for what, changed in _altered(value[index], (*path, index)):
                yield what, [*value[:index], changed, *value[index + 1 :]]


def _with_steps(file: dict[str, Any], part: str) -> Iterator[tuple[str, Any]]:
    """Yields a part of a `tokenizer.json` with one step more."""
    names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
    if part not in names:
        return
    own = file[part]
    steps = own[names[part]] if own and own["type"] == "Sequence" else [own] if own else []
    for step in _STEPS[part]:
        for position, changed in (("first", [step, *steps]), ("last", [*steps, step])):
            sequence = {"type": "Sequence", names[part]: changed}
            yield f"{part} with {_shown(step)} {position}", {**file, part: sequence}


def _model_alterations(file: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields a `tokenizer.json` with another vocabulary or other merges."""
    model = file["model"]
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        *names, last = vocab
        others = {
            "a gap": {**vocab, last: len(vocab) + 1},
            "one less": {name: vocab[name] for name in names},
            "a list": names,
            "null": None,
            "an id of a string": {**vocab, last: "x"},
        }
    else:
        others = {
            "one less": vocab[:-1],
            "an entry null": [*vocab[:-1], None],
            "a score null": [*vocab[:-1], [vocab[-1][0], None]],
            "another score": [*vocab[:-1], [vocab[-1][0], -1.0]],
            "null": None,
        }
    if model.get("merges"):
        merges = model["merges"]
        for what, changed in {
            "null": [*merges, None],
            "a pair of null": [*merges, [None, None]],
            "a pair again": [*merges, merges[0]],
            "an empty one": [*merges, []],
            "of three": [*merges, ["t", "h", "e"]],
            "of unknown tokens": [*merges, ["qqq", "zzz"]],
            "a number": [*merges, 5],
            "strings": [" ".join(merge) for merge in merges],
        }.items():
            yield f"merges with {what}", {**file, "model": {**model, "merges": changed}}
    for what, changed in others.items():
        yield f"vocab with {what}", {**file, "model": {**model, "vocab": changed}}
    last = len(vocab)
    for what, token in {
        "the": {**_ADDED_TOKEN, "id": _index(vocab, "the")},
        "a new one": {**_ADDED_TOKEN, "content": "[NEW]", "id": last},
        "a new one, not special": {
            **{**_ADDED_TOKEN, "content": "[NEW]", "id": last},
            **{"special": False, "normalized": True},
        },
        "a line break": {**_ADDED_TOKEN, "content": "\n", "id": last},
    }.items():
        if token["id"] is not None:
            tokens = [*file["added_tokens"], token]
            yield f"added_tokens with {what}", {**file, "added_tokens": tokens}


def _index(vocab: Any, token: str) -> int | None:
    names = list(vocab) if isinstance(vocab, dict) else [piece for piece, _ in vocab]
    return names.index(token) if token in names else None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 90 else f"{text[:90]}…"


def alterations(files: Files) -> Iterator[tuple[str, Files]]:
    """Yields the files, and all alterations of them, each with its description."""
    yield "as it is", files
    for name in files:
        if name != "config.json":
            yield f"{name} removed", {each: files[each] for each in files if each != name}
    for name in (SETTINGS, FILE, NAMES):
        for what, changed in _altered(files.get(name, {}), ()):
            yield f"{name}: {what}", {**files, name: changed}
    settings = files[SETTINGS]
    for key, values in _KEYS.items():
        for value in values:
            changed = {**settings, key: value}
            if changed != settings:
                yield f"{SETTINGS}: with {key} = {_shown(value)}", {**files, SETTINGS: changed}
            named = {"additional_special_tokens", "extra_special_tokens", "image_token"}
            if key in named or (key.endswith("_token") and key in files.get(NAMES, {})):
                names = {**files.get(NAMES, {}), key: value}
                yield f"{NAMES}: with {key} = {_shown(value)}", {**files, NAMES: names}
    if FILE in files:
        for what, changed in _model_alterations(files[FILE]):
            yield f"{FILE}: {what}", {**files, FILE: changed}
    for added in ({"the": 5}, {"[NEW]": 10**4}, {"[NEW]": None}):
        yield f"{ADDED}: {_shown(added)}", {**files, ADDED: added}


# === The comparison ===


def _ours(folder: Path) -> Any:
    """What this library makes of a folder: rows and segment ids of texts and pairs."""
    config = read_tokenizer(folder)
    if config is None:
        raise ValueError("no tokenizer")
    tokenizer = tokenizer_from_config(config).with_special_tokens_in_text
    mask = tokenizer.mask_token
    rows = []
    for texts in _texts(mask if mask in tokenizer.vocabulary else None):
        special = len(tokenizer.row_format(len(texts))) - len(texts)
        preprocessor = TextClassifierPreprocessor(tokenizer, max(TOKENS_OF_ROW + special, 7))
        row = preprocessor(*texts)
        rows.append(
            (
                tokenizer(texts[0]),
                row["token_ids"].tolist(),
                row["segment_ids"].tolist(),
            )
        )
    known = mask if mask in tokenizer.vocabulary else None
    return known, tokenizer.pad_token_id, rows


def _theirs(folder: Path, mask: str | None) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = []
    for texts in _texts(tokenizer.mask_token and mask):
        special = tokenizer.num_special_tokens_to_add(len(texts) > 1)
        length = max(TOKENS_OF_ROW + special, 7)
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
    """Returns the outcome for some files, one of `OUTCOMES`, and what differs."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        for name, content in files.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            (folder / name).write_bytes(data)
        refused = ours = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ours = _ours(folder)
        except ValueError as error:
            refused = str(error)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            return "traceback", f"{error!r} at {Path(frame.filename).name}:{frame.lineno}"
        try:
            theirs = _theirs(folder, ours[0] if ours else None)
        except BaseException as error:  # Panics of `tokenizers` are no `Exception`.
            if isinstance(error, KeyboardInterrupt):
                raise
            theirs = None
        if refused is not None:
            return ("both refuse" if theirs is None else "ours refuses"), refused
        if theirs is None:
            return "theirs refuses", ""
        names = ("mask", "padding")
        for name, our, their in zip(names, ours, theirs, strict=False):
            if our != their and None not in (our, their):
                return "differ", f"{name}: ours {our}, theirs {their}"
        for texts, our, their in zip(_texts(ours[0]), ours[-1], theirs[-1], strict=True):
            if theirs[0] is None and ours[0] in texts[0]:
                continue
            if their[2] is None:
                # Without a field that says so, what a class of `transformers` gives its model
                # depends on its version.
                named = "model_input_names" in files.get(SETTINGS, {})
                their = (*their[:2], [0] * len(their[1]) if named else our[2])
            if our != their:
                what = ["tokens", "row", "segments"]
                first = next(i for i in range(3) if our[i] != their[i])
                shown = tuple(text[:20] for text in texts)
                sides = f"ours {our[first][:24]}, theirs {their[first][:24]}"
                return "differ", f"{what[first]} of {shown}: {sides}"
    return "equal", ""


def run(every: int = 1, only: str = "", progress: bool = True) -> dict[str, list[str]]:
    """Compares each `every`-th alteration; returns the descriptions by outcome."""
    logging.disable(logging.ERROR)
    kinds = {name: make() for name, make in KINDS.items() if only in name}
    cases = [
        (f"{kind}: {what}", altered)
        for kind, files in kinds.items()
        for what, altered in alterations(files)
    ][::every]
    by_outcome: dict[str, list[str]] = collections.defaultdict(list)
    try:
        for what, files in tqdm(cases, disable=not progress):
            outcome, detail = compare(files)
            if outcome == "differ" and any(re.search(each, what) for each in DOCUMENTED):
                outcome = "differs as documented"
            by_outcome[outcome].append(f"{what}: {detail}" if detail else what)
    finally:
        logging.disable(logging.NOTSET)
    return by_outcome


def main() -> None:
    """Prints the counts, and each fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of the name of a kind")
    parser.add_argument("--show", default=",".join(FAULTS), help="outcomes whose cases are printed")
    arguments = parser.parse_args()
    by_outcome = run(arguments.every, arguments.only)
    for outcome in arguments.show.split(","):
        for line in by_outcome[outcome]:
            print(f"{outcome}: {line}")
    print(", ".join(f"{outcome} {len(by_outcome[outcome])}" for outcome in OUTCOMES))
    sys.exit(any(by_outcome[outcome] for outcome in FAULTS))


if __name__ == "__main__":
    main()
