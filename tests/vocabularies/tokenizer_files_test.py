# SPDX-License-Identifier: Apache-2.0
"""Reads the vocabulary and its casing from each of the files that can specify them."""

import json
import os
import warnings
from pathlib import Path

import pytest
import transformers

from keras_bert.vocabularies.tokenizer_reader import read_tokenizer
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer
from keras_bert.vocabularies.vocab_txt import load_vocabulary, looks_uncased, save_vocabulary

pytestmark = pytest.mark.backend_independent

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, "film", "##s", "\u2028", "é"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_transformers_files_without_vocab_txt(lowercase, tmp_path):
    vocabulary = [
        piece for piece in VOCABULARY if piece != "\u2028"
    ]  # transformers splits lines there.
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path, do_lower_case=lowercase)
    tokenizer.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "vocab.txt").unlink(missing_ok=True)
    assert (tmp_path / "saved" / "tokenizer.json").exists()
    config = read_tokenizer(tmp_path / "saved")
    assert config["vocabulary"] == vocabulary
    assert config["lowercase"] is lowercase
    (tmp_path / "saved" / "tokenizer_config.json").unlink()
    assert read_tokenizer(tmp_path / "saved")["lowercase"] is lowercase


def test_empty_directory_has_no_tokenizer(tmp_path):
    assert read_tokenizer(tmp_path) is None


@pytest.mark.parametrize("settings", [b"{}", b"\xef\xbb\xbf{}"])
def test_vocab_txt_matches_load_vocabulary(settings, tmp_path):
    """Handles a byte-order mark, Windows line ends, spaces and a missing last line end."""
    (tmp_path / "vocab.txt").write_bytes(
        b"\xef\xbb\xbf[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nfilm \r\n##s"
    )
    (tmp_path / "tokenizer_config.json").write_bytes(settings)
    vocabulary = read_tokenizer(tmp_path)["vocabulary"]
    assert vocabulary == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "film", "##s"]
    assert tuple(vocabulary) == load_vocabulary(tmp_path / "vocab.txt")


def test_tokenizer_json_without_special_tokens_raises(tmp_path):
    model = {"type": "WordPiece", "vocab": {"[PAD]": 0, "film": 1}}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(
        ValueError,
        match=r"tokenizer\.json: The vocabulary must contain \[PAD\], .* Received: 2 tokens "
        r"without \[UNK\], \[CLS\]",
    ):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"type": "WordLevel", "vocab": {"a": 0}},
            "model.type must be 'WordPiece', 'BPE' or 'Unigram'. Received: 'WordLevel'",
        ),
        ({"type": "WordPiece", "vocab": {"a": 0, "b": 2}}, "no token with the id 1"),
        (
            {"type": "WordPiece", "vocab": {"a": 0, "b": 0, "c": 1}},
            "a different id. Received: the id 0 for 'a' and 'b'",
        ),
        ({"type": "WordPiece", "vocab": {"a": 0.5}}, "an integer id. Received: 0.5 for 'a'"),
    ],
)
def test_invalid_tokenizer_json_model_raises(model, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    with pytest.raises(ValueError, match=message) as raised:
        read_tokenizer(tmp_path)
    assert str(tmp_path / "tokenizer.json") in str(raised.value)


def test_added_tokens_join_the_vocabulary(tmp_path):
    tokenizer = {
        "model": {"type": "WordPiece", "vocab": {token: i for i, token in enumerate(SPECIAL)}},
        "added_tokens": [{"id": 5, "content": "[ENTITY]", "special": True}],
        "normalizer": UNCASED,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": BERT_ROWS,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    tokenizer = read_tokenizer(tmp_path)
    assert tokenizer["vocabulary"] == [*SPECIAL, "[ENTITY]"]
    assert tokenizer["added_tokens"] == ["[ENTITY]"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"tokenizer_class": "BertJapaneseTokenizer"},
            "tokenizer_class must be one of AlbertTokenizer, .* Received: 'BertJapaneseTokenizer'",
        ),
        (
            {"word_tokenizer_type": "mecab"},
            "word_tokenizer_type must be 'basic' or absent. Received: 'mecab'",
        ),
        ({"do_basic_tokenize": False}, "do_basic_tokenize must be True or absent. Received: False"),
        (
            {"never_split": ["[MASK]", "C++"]},
            r"never_split may only contain special tokens. Received: 'C\+\+'",
        ),
    ],
)
def test_unsupported_setting_raises(settings, message, tmp_path):
    save_vocabulary(VOCABULARY, tmp_path / "vocab.txt")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=rf"tokenizer_config\.json: {message}"):
        read_tokenizer(tmp_path)


def test_unsupported_class_in_config_json_raises(tmp_path):
    save_vocabulary(VOCABULARY, tmp_path / "vocab.txt")
    (tmp_path / "config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    with pytest.raises(
        ValueError,
        match=r"tokenizer_class must be one of AlbertTokenizer, .* Received: "
        r"'BertJapaneseTokenizer'",
    ):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"[E]": 8}, "'\\[E\\]' must match the vocabulary of 9 tokens. Received: the id 8 of 'é'"),
        ({"[E]": 10}, "must match the vocabulary of 9 tokens. Received: the id 10 of no token"),
        ({"[E]": 9.5}, "an id of at least 0. Received"),
    ],
)
def test_mismatched_added_tokens_raise(added, message, tmp_path):
    save_vocabulary(VOCABULARY, tmp_path / "vocab.txt")
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    with pytest.raises(ValueError, match=rf"added_tokens\.json: .*{message}"):
        read_tokenizer(tmp_path)


@pytest.mark.needs_tensorflow
def test_added_tokens_match_transformers(tmp_path):
    pytest.importorskip("tensorflow_text")
    from keras_bert.text import tokenizer_from_config

    tokens = [*VOCABULARY[:7], "e", "##e", "[", "]", "/"]
    save_vocabulary(tokens, tmp_path / "vocab.txt")
    transformers_tokenizer = transformers.BertTokenizer.from_pretrained(
        tmp_path, do_lower_case=True
    )
    transformers_tokenizer.add_special_tokens(
        {"additional_special_tokens": ["[E]", "[/E]", "[E]e"]}
    )
    transformers_tokenizer.save_pretrained(tmp_path / "saved")
    texts = ["film [E] film [/E]s", "[e]", "films[E]ee [E]films[/E]", "[E][E]"]
    expected = transformers_tokenizer(texts, add_special_tokens=False)["input_ids"]
    config = read_tokenizer(tmp_path / "saved")
    assert config["vocabulary"] == [*tokens, "[E]", "[/E]", "[E]e"]
    assert tokenizer_from_config(config)(texts) == expected
    write_tokenizer(tmp_path / "saved", config, 12)
    assert read_tokenizer(tmp_path / "saved") == config


def test_byte_pair_added_tokens(tmp_path):
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "<old>"]
    (tmp_path / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    path = tmp_path / "added_tokens.json"
    path.write_text('{"<mask>": 4}')
    expected = read_tokenizer(tmp_path)
    assert "added_tokens" not in expected
    path.write_text('{"<old>": 6}')
    assert read_tokenizer(tmp_path) == {**expected, "added_tokens": ["<old>"]}
    path.write_text('{"<new>": 7}')
    config = read_tokenizer(tmp_path)
    assert config == {**expected, "vocabulary": [*tokens, "<new>"], "added_tokens": ["<new>"]}
    (tmp_path / "saved").mkdir()
    write_tokenizer(tmp_path / "saved", config, 12)
    assert read_tokenizer(tmp_path / "saved") == config
    path.write_text('{"<new>": 8}')
    with pytest.raises(
        ValueError, match=r"added_tokens\.json: the id of the added token '<new>' must match"
    ):
        read_tokenizer(tmp_path)


@pytest.mark.needs_tensorflow
def test_uncased_added_tokens_match_transformers(tmp_path):
    pytest.importorskip("tensorflow_text")
    from keras_bert.text import tokenizer_from_config

    save_vocabulary([*VOCABULARY[:7], "e", "##e"], tmp_path / "vocab.txt")
    transformers_tokenizer = transformers.BertTokenizer.from_pretrained(
        tmp_path, do_lower_case=True
    )
    transformers_tokenizer.add_tokens(["Covid", "ÉE", "[e1]"])
    transformers_tokenizer.save_pretrained(tmp_path / "saved")
    texts = ["film covid COVIDs", "Cóvid", "ee éÉ ÈE", "[E1]e films[e1]", "ecovide", "co vid"]
    expected = transformers_tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
    config = read_tokenizer(tmp_path / "saved")
    assert config["normalized_tokens"] == ["Covid", "ÉE", "[e1]"]
    tokenizer = tokenizer_from_config(config)
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    assert ids == expected["input_ids"]
    offsets = [
        list(zip(*template_row, strict=True)) for template_row in zip(starts, ends, strict=True)
    ]
    assert offsets == expected["offset_mapping"]
    write_tokenizer(tmp_path / "saved", config, 12)
    assert read_tokenizer(tmp_path / "saved") == config


@pytest.mark.parametrize(
    ("vocabulary", "uncased"),
    [
        (["film"], True),
        (["Film"], False),
        (["##É"], False),
        (["[unused1]", "<T>"], True),
        (["한국", "##어"], False),
        (["ที่", "मैं"], False),
        ([*"abcdefghijk", "が"], True),
    ],
)
def test_lowercase_is_inferred_from_vocabulary(vocabulary, uncased, tmp_path):
    save_vocabulary([*SPECIAL, *vocabulary], tmp_path / "vocab.txt")
    assert read_tokenizer(tmp_path)["lowercase"] is uncased


@pytest.mark.parametrize(
    ("name", "uncased"),
    [("bert-base-uncased", True), ("bert-base-cased", False), ("bert-base-chinese", True)],
)
def test_looks_uncased_on_released_vocabularies(name, uncased):
    path = Path(os.environ.get("KERAS_BERT_DATA", "")) / "vocab" / f"{name}.txt"
    if not path.is_file():
        pytest.skip("KERAS_BERT_DATA is not a directory with vocab/")
    assert looks_uncased(load_vocabulary(path)) is uncased


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strip_accents": "false"}, "strip_accents must be true or false. Received: 'false'"),
        (
            {"split_special_tokens": True},
            "split_special_tokens must be False or absent. Received: True",
        ),
        ({"cls_token": "film"}, r"cls_token must be '\[CLS\]' or absent. Received: 'film'"),
        (
            {"truncation_side": "middle"},
            "truncation_side must be right or left. Received: 'middle'",
        ),
        ({"extra_special_tokens": [5]}, r"extra_special_tokens\[0\] must be a token. Received: 5"),
    ],
)
def test_setting_that_changes_ids_raises(settings, message, tmp_path):
    write_tokenizer(tmp_path, {"vocabulary": VOCABULARY}, 12)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    with pytest.raises(ValueError, match=rf"tokenizer_config\.json: {message}"):
        read_tokenizer(tmp_path)


def test_left_padding_warns(tmp_path):
    write_tokenizer(tmp_path, {"vocabulary": VOCABULARY}, 12)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "padding_side": "left"}))
    with pytest.warns(UserWarning, match="but keras_bert pads on the right"):
        read_tokenizer(tmp_path)


NFD = {"type": "NFD"}
STRIP_ACCENTS = {"type": "StripAccents"}
LOWERCASE = {"type": "Lowercase"}
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}


BERT_SPLITS = {"type": "BertPreTokenizer"}
BERT_ROWS = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}


def write_tokenizer_json(directory, normalizer, pre_tokenizer=BERT_SPLITS, prefix="##"):
    """Writes a tokenizer defined by its tokenizer.json, with a vocabulary that looks cased."""
    words = ["film", "##s", "Caf", "##e", "##é", "caf", ".", "s", "中", "##文", "文"]
    vocabulary = [*SPECIAL, *words]
    fields = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": BERT_ROWS,
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "vocab": {token: index for index, token in enumerate(vocabulary)},
            "unk_token": "[UNK]",
            "continuing_subword_prefix": prefix,
            "max_input_chars_per_word": 100,
        },
    }
    (directory / "tokenizer.json").write_text(json.dumps(fields))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


UNCASED = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize(
    "normalizer",
    [
        UNCASED,
        {**UNCASED, "lowercase": False},
        {"type": "Sequence", "normalizers": [UNCASED]},
    ],
)
def test_tokenizer_json_normalizer(normalizer, tmp_path):
    pytest.importorskip("tensorflow_text")
    from keras_bert.text import tokenizer_from_config

    write_tokenizer_json(tmp_path, normalizer)
    text = "Cafés. Films"
    transformers_tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    tokenizer = tokenizer_from_config(read_tokenizer(tmp_path))
    assert tokenizer(text) == transformers_tokenizer(text, add_special_tokens=False)["input_ids"]


TWO_SPLITS = {
    "type": "Sequence",
    "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}],
}


def normalizer_sequence(*normalizers):
    return {"type": "Sequence", "normalizers": normalizers}


def replace_step(text, content):
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"pre_tokenizer": TWO_SPLITS}, ""),
        ({"normalizer": normalizer_sequence(STRIP, UNCASED)}, ""),
        (
            {"normalizer": {**UNCASED, "clean_text": False}},
            "normalizer.clean_text must be True. Received: False",
        ),
        ({"normalizer": {**UNCASED, "strip_accents": False}}, ""),
        ({"normalizer": {**UNCASED, "lowercase": False, "strip_accents": True}}, ""),
        ({"normalizer": {**UNCASED, "handle_chinese_chars": False}}, ""),
        (
            {"normalizer": normalizer_sequence(NFD, LOWERCASE, STRIP_ACCENTS)},
            "Received: NFD, Lowercase, Strip",
        ),
        ({"normalizer": None}, "normalizer must be BertNormalizer. Received: missing"),
        *(
            (
                {"pre_tokenizer": {"type": kind, **options}},
                f"pre_tokenizer must be BertPreTokenizer, or split at .* Received: {kind}",
            )
            for kind, options in {
                "ByteLevel": {"add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                "Metaspace": {"replacement": "▁", "prepend_scheme": "always", "split": True},
                "Whitespace": {},
            }.items()
        ),
        (
            {"normalizer": normalizer_sequence({"type": "NFKC"}, UNCASED)},
            "Received: NFKC, BertNormalizer",
        ),
        (
            {"normalizer": normalizer_sequence(replace_step("caf", "film"), UNCASED)},
            "Received: Replace, BertNorm",
        ),
        (
            {"normalizer": STRIP_ACCENTS},
            "normalizer must be BertNormalizer. Received: StripAccents",
        ),
        ({"prefix": "@@"}, "model.continuing_subword_prefix must be '##'. Received: '@@'"),
    ],
)
def test_tokenizer_json_steps(changes, expected, tmp_path):
    """Each step is applied to a text in which it matters, or raises an error or a warning."""
    pytest.importorskip("tensorflow_text")
    tokenizers = pytest.importorskip("tokenizers")
    from keras_bert.text import tokenizer_from_config

    write_tokenizer_json(tmp_path, **{"normalizer": UNCASED, **changes})
    transformers_tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    if expected:
        # Warnings are errors in this test suite.
        with pytest.raises((ValueError, UserWarning), match=expected):
            read_tokenizer(tmp_path)
    else:
        text = " film. CAFÉS Café caf-film\tfilm?  s 中文 film中"
        tokenizer = tokenizer_from_config(read_tokenizer(tmp_path))
        assert tokenizer(text) == transformers_tokenizer.encode(text, add_special_tokens=False).ids


def test_bert_tokenizer_class_ignores_pre_tokenizer(tmp_path):
    """Like transformers, whose class ignores the steps of the tokenizer.json."""
    write_tokenizer_json(tmp_path, UNCASED, {"type": "WhitespaceSplit"})
    expected = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    save_vocabulary(VOCABULARY, tmp_path / "vocab.txt")
    assert read_tokenizer(tmp_path)["vocabulary"] == list(expected)


def template_row(*parts):
    names = [part.partition(":") for part in parts]
    return [
        {"Sequence" if name in "AB" else "SpecialToken": {"id": name, "type_id": int(segment or 0)}}
        for name, _, segment in names
    ]


def template(single, pair):
    tokens = {
        name: {"id": name, "ids": [ids], "tokens": [name]}
        for name, ids in (("[CLS]", 2), ("[SEP]", 3))
    }
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}


SINGLE, PAIR = ["[CLS]", "A", "[SEP]"], ["B:1", "[SEP]:1"]


@pytest.mark.parametrize(
    ("post_processor", "message"),
    [
        (None, "because no special tokens are added otherwise. Received: missing"),
        (template(template_row(*SINGLE), template_row(*SINGLE, *PAIR)), ""),
        (
            {**BERT_ROWS, "sep": ["[SEP]", 2]},
            r"must give '\[SEP\]' its id in the vocabulary. Received: \[2\]",
        ),
        (template(template_row(*SINGLE), template_row(*SINGLE, "B", "[SEP]")), ""),
        (
            template(template_row(*SINGLE), template_row(*SINGLE, "B:1", "[SEP]")),
            r"Received: \[0, 0, 0, 1, 0\]",
        ),
        (
            template(template_row("A"), template_row("A", "B")),
            r"must add one token before and one after each text, for example \[CLS\] A \[SEP\]. "
            r"Received: A",
        ),
        (
            template(template_row(*SINGLE), template_row(*SINGLE, "[CLS]", *PAIR)),
            r"must return \[CLS\] A \[SEP\] \[SEP\] B \[SEP\] for a text pair. Received: \[CLS\] A "
            r"\[SEP\] \[CLS\] B",
        ),
        (template(["A"], ["A"]), "a tokenizer file is invalid"),
        (
            template(
                [{**template_row("[CLS]")[0], **template_row("A")[0]}, *template_row("A", "[SEP]")],
                template_row(*SINGLE, *PAIR),
            ),
            "a template has the part",
        ),
    ],
)
def test_tokenizer_json_post_processor(post_processor, message, tmp_path):
    write_tokenizer_json(tmp_path, UNCASED)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": post_processor}))
    if not message:
        read_tokenizer(tmp_path)
        return
    with pytest.raises((ValueError, UserWarning), match=message):
        read_tokenizer(tmp_path)


def test_original_settings_do_not_warn(tmp_path):
    write_tokenizer(tmp_path, {"vocabulary": VOCABULARY, "lowercase": False}, 12)
    path = tmp_path / "tokenizer_config.json"
    settings = {"do_lower_case": False, "strip_accents": None, "tokenize_chinese_chars": True}
    path.write_text(json.dumps(settings))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_tokenizer(tmp_path)
