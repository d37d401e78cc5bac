# SPDX-License-Identifier: Apache-2.0
"""Tokenizer files of the families after BERT, RoBERTa and ALBERT, read and written."""

import functools
import json
import re

import pytest

pytest.importorskip("tensorflow")
transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

from keras_bert.text import tokenizer_from_config  # noqa: E402
from keras_bert.vocabularies.tokenizer_config import list_tokens  # noqa: E402
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer  # noqa: E402
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer  # noqa: E402
from tests.text import families, small_tokenizers  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

CONFIGS = {
    **families.CONFIGS,
    "mpnet": small_tokenizers.mpnet_config,
    "bert, accents": functools.partial(small_tokenizers.wordpiece_config, strip_accents=False),
    "bert, ideographs in words": functools.partial(
        small_tokenizers.wordpiece_config, tokenize_chinese_chars=False
    ),
    "wordpiece, other rows": functools.partial(
        small_tokenizers.wordpiece_config, pair_separators=2
    ),
}
ROLES = ("pad", "unk", "cls", "sep", "mask")
TEXTS = [*families.LANGUAGES.values(), "  two  spaces\n", "a |||IP_ADDRESS||| b", ""]


def config_of(family):
    return CONFIGS[family]() | {"special_tokens_in_text": False}


@pytest.mark.parametrize("family", CONFIGS)
def test_tokenizers_of_all_families_are_written_and_read(family, tmp_path):
    config = config_of(family)
    write_tokenizer(tmp_path, config, 12)
    assert read_tokenizer(tmp_path) == config
    assert list_tokens(config) == list(tokenizer_from_config(config).vocabulary)
    # Without our settings, the files themselves have everything but the words of taggers.
    (tmp_path / "tokenizer_config.json").unlink()
    if family in ("camembert", "mpnet"):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    elif "bert," in family:
        return  # A vocab.txt says nothing else.
    del config["special_tokens_in_text"]
    assert read_tokenizer(tmp_path) == config


@pytest.mark.parametrize("family", CONFIGS)
def test_transformers_reads_it_and_we_read_what_it_writes(family, tmp_path):
    config = config_of(family)
    write_tokenizer(tmp_path, config, 512)
    tokenizer = tokenizer_from_config(config)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(TEXTS, add_special_tokens=False)["input_ids"] == tokenizer(TEXTS)
    pair = theirs("the train", "the coast")["input_ids"]
    assert pair == tokenizer.encode("the train", "the coast")
    for role in ROLES:
        assert getattr(theirs, f"{role}_token_id") == getattr(tokenizer, f"{role}_token_id")
    typed = f"the {theirs.mask_token} train"
    expected = theirs(typed, add_special_tokens=False)["input_ids"]
    assert tokenizer.with_special_tokens_in_text(typed) == expected
    assert len(theirs) == tokenizer.vocabulary_size
    theirs.save_pretrained(tmp_path / "saved")
    own_config = read_tokenizer(tmp_path / "saved")
    # They write no SentencePiece model.
    assert {**own_config, "model": ""} == {**config, "model": ""}
    assert list_tokens(own_config) == list_tokens(config)
    again = tokenizer_from_config(own_config)
    assert again(TEXTS) == tokenizer(TEXTS)


RELEASED = {
    "xlm_roberta": ("XLMRobertaTokenizer", "sentencepiece.bpe.model"),
    "camembert": ("CamembertTokenizer", "sentencepiece.bpe.model"),
    "deberta_v2": ("DebertaV2Tokenizer", "spm.model"),
}


@pytest.mark.parametrize("family", RELEASED)
def test_the_released_model_alone(family, tmp_path):
    name, file = RELEASED[family]
    model = families.released_model(deberta=family == "deberta_v2")
    (tmp_path / file).write_bytes(model)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    config = read_tokenizer(tmp_path)
    expected = config_of(family)
    del expected["special_tokens_in_text"]
    assert config == expected
    (tmp_path / "saved").mkdir()
    write_tokenizer(tmp_path / "saved", config, 512)
    assert (tmp_path / "saved" / file).read_bytes() == model
    (tmp_path / file).write_bytes(b"no model")
    with pytest.raises(ValueError, match=rf"{re.escape(file)}: the file is not a Sent"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("option", ["do_lower_case", "split_by_punct"])
def test_options_of_deberta_that_change_ids_are_refused_by_name(option, tmp_path):
    write_tokenizer(tmp_path, config_of("deberta_v2"), 512)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), option: True}))
    with pytest.raises(ValueError, match=f"{option} must be .*Received: True"):
        read_tokenizer(tmp_path)


def written(family, tmp_path):
    """The content of a `tokenizer.json`, and a function that writes it with nothing beside it."""
    (tmp_path / "all").mkdir()
    write_tokenizer(tmp_path / "all", config_of(family), 512)
    content = json.loads((tmp_path / "all" / "tokenizer.json").read_text(encoding="utf-8"))
    folder = tmp_path / "file"
    folder.mkdir()

    def write(**changes):
        text = json.dumps({**content, **changes})
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
        return folder

    return content, write


@pytest.mark.parametrize(
    "steps",
    [
        ["Precompiled"],
        [
            "Precompiled",
            {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
        ],
    ],
)
def test_all_forms_of_a_unigram_tokenizer(steps, tmp_path):
    content, write = written("xlm_roberta", tmp_path)
    precompiled = next(
        step for step in content["normalizer"]["normalizers"] if step["type"] == "Precompiled"
    )
    steps = [precompiled if step == "Precompiled" else step for step in steps]
    one = len(steps) == 1
    normalizer = steps[0] if one else {"type": "Sequence", "normalizers": steps}
    metaspace = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    pre_tokenizers = [{"type": "WhitespaceSplit"}, metaspace]
    split = {"type": "Sequence", "pretokenizers": pre_tokenizers} if one else metaspace
    other = tokenizer_from_config(read_tokenizer(write(normalizer=normalizer, pre_tokenizer=split)))
    tokenizer = families.make("xlm_roberta")
    texts = ["  two  spaces \n", *families.LANGUAGES.values()]
    assert other(texts) == tokenizer(texts)
    assert other.encode("a", "b") == tokenizer.encode("a", "b")


def test_special_tokens_are_named_by_any_file(tmp_path):
    _, write = written("eurobert", tmp_path)
    names = {
        "bos_token": {"content": "<|begin_of_text|>"},
        "eos_token": "<|end_of_text|>",
        "pad_token": "<|end_of_text|>",
        "mask_token": {"content": "<|mask|>", "lstrip": False},
    }
    folder = write()
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        (folder / name).write_text(json.dumps(names))
        config = read_tokenizer(folder)
        assert config["special_tokens"] == config_of("eurobert")["special_tokens"]
        (folder / name).unlink()
    with pytest.raises(ValueError, match="because no special tokens are added otherwise"):
        read_tokenizer(write(post_processor=None))


SPLIT = {"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("modernbert", {"normalizer": {"type": "NFKC"}}, "normalizer must .* Received: NFKC"),
        (
            "eurobert",
            {
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [SPLIT, {"type": "ByteLevel", "use_regex": False}],
                }
            },
            "or a Split at the regular expression of gpt2 or llama3, Isolated",
        ),
    ],
)
def test_other_tokenizers_are_refused_by_name(family, changes, message, tmp_path):
    _, write = written(family, tmp_path)
    folder = write(**changes)
    with pytest.raises(ValueError, match=message.replace("|", r"\|")) as raised:
        read_tokenizer(folder)
    assert str(folder / "tokenizer.json") in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": None}, "normalizer must replace ' ' .* Received: missing"),
        ({"pre_tokenizer": {"type": "ByteLevel"}}, "pre_tokenizer must .* Received: ByteLevel"),
        (
            {
                "post_processor": {
                    "type": "TemplateProcessing",
                    "single": [
                        {"SpecialToken": {"id": "<bos>", "type_id": 0}},
                        {"Sequence": {"id": "A", "type_id": 0}},
                    ],
                    "pair": [
                        {"SpecialToken": {"id": "<bos>", "type_id": 0}},
                        {"Sequence": {"id": "A", "type_id": 0}},
                        {"Sequence": {"id": "B", "type_id": 1}},
                    ],
                }
            },
            "must add one token .* for example <bos> A <eos>. Received: <bos> A",
        ),
    ],
)
def test_other_tokenizers_with_byte_fallback_are_refused_by_name(changes, message, tmp_path):
    _, write = written("mmbert", tmp_path)
    folder = write(**changes)
    with pytest.raises(ValueError, match=message):
        read_tokenizer(folder)


def test_a_pair_may_begin_its_second_text_as_its_first(tmp_path):
    config = config_of("mmbert") | {"repeats_cls": True}
    del config["pair_separators"]  # 2 is the default
    write_tokenizer(tmp_path, config, 512)
    assert read_tokenizer(tmp_path) == config
    tokenizer = tokenizer_from_config(config)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    pair = theirs("the train", "the coast")["input_ids"]
    assert pair.count(tokenizer.cls_token_id) == 2
    assert tokenizer.encode("the train", "the coast") == pair


@pytest.mark.parametrize("option", ["single_word", "rstrip", "lstrip"])
def test_added_tokens_with_other_options_are_refused_by_name(option, tmp_path):
    content, write = written("modernbert", tmp_path)
    added = [
        {**token, option: True} if token["content"] == "[unused1]" else token
        for token in content["added_tokens"]
    ]
    with pytest.raises(ValueError, match=rf"{option} of the added token '\[unused1\]' is not"):
        read_tokenizer(write(added_tokens=added))
