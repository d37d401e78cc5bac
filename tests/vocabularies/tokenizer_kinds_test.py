# SPDX-License-Identifier: Apache-2.0
"""Reads RoBERTa's and ALBERT's tokenizer files from this library, transformers and KerasHub."""

import base64
import json
import warnings

import pytest

pytest.importorskip("tensorflow")
transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

from keras_bert import checkpoints  # noqa: E402
from keras_bert.checkpoints import CheckpointError  # noqa: E402
from keras_bert.checkpoints.formats.keras_hub import (  # noqa: E402
    read_tokenizer as read_hub_tokenizer,
)
from keras_bert.text import tokenizer_from_config  # noqa: E402
from keras_bert.vocabularies.sentence_piece_model import read_pieces  # noqa: E402
from keras_bert.vocabularies.tokenizer_config import list_tokens  # noqa: E402
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer  # noqa: E402
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer  # noqa: E402
from tests.checkpoints.small_models import small_backbone  # noqa: E402
from tests.text import small_tokenizers  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

KINDS = ("byte_pair", "sentence_piece")
SPECIAL_TOKENS_IN_TEXT = {"special_tokens_in_text": True}
OPTIONS = {
    "wordpiece": [{}, {"lowercase": False}, SPECIAL_TOKENS_IN_TEXT],
    "byte_pair": [{}, {"add_prefix_space": True}, SPECIAL_TOKENS_IN_TEXT],
    "sentence_piece": [
        {},
        {"lowercase": False, "keep_accents": True},
        {"albert_rules": False},
        SPECIAL_TOKENS_IN_TEXT,
    ],
}  # fmt: skip
TEXTS = [
    *small_tokenizers.texts()[:80],
    "Größe «été» it's  ``quoted''\n",
    " The TEST, (1) 2.5",
    "",
]


def make_config(kind, **options):
    config = small_tokenizers.make(kind, **options).get_config()
    del config["special_tokens_in_text"]
    return config


def encode_texts(config, texts=TEXTS):
    return tokenizer_from_config(config)(texts)


@pytest.mark.parametrize(
    ("kind", "options"), [(k, options) for k in OPTIONS for options in OPTIONS[k]]
)
def test_tokenizer_files_round_trip(kind, options, tmp_path):
    config = small_tokenizers.make(kind, **options).get_config()
    write_tokenizer(tmp_path, config, 12)
    assert read_tokenizer(tmp_path) == config
    assert list_tokens(config) == list(tokenizer_from_config(config).vocabulary)


@pytest.mark.parametrize("kind", KINDS)
def test_preset_tokenizer_is_replaced(kind, tmp_path):
    config = make_config(kind)
    size = len(list_tokens(config))
    backbone = small_backbone(vocabulary_size=size)
    other = {"vocabulary": ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]}
    checkpoints.save_preset(backbone, tmp_path, tokenizer=other)
    checkpoints.save_preset(backbone, tmp_path, tokenizer=config)
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    assert checkpoint.require_tokenizer() == config
    assert not (tmp_path / "vocab.txt").exists()
    smaller = small_backbone(vocabulary_size=size - 1)
    with pytest.raises(
        CheckpointError,
        match=f"vocabulary must have at most {size - 1} tokens, .* Received: {size}",
    ):
        checkpoints.save_preset(smaller, tmp_path, tokenizer=config)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(
        CheckpointError, match=r"tokenizer_config\.json: the file must contain JSON"
    ):
        _ = checkpoints.open_checkpoint(tmp_path).tokenizer


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_roberta_files_match_transformers(add_prefix_space, tmp_path):
    config = make_config("byte_pair", add_prefix_space=add_prefix_space)
    write_tokenizer(tmp_path, config, 12)
    transformers_tokenizer = transformers.RobertaTokenizerFast.from_pretrained(tmp_path)
    assert transformers_tokenizer(TEXTS, add_special_tokens=False)["input_ids"] == encode_texts(
        config
    )
    special = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(transformers_tokenizer, f"{name}_token_id") for name in special] == [
        1,
        3,
        0,
        2,
        4,
    ]
    # The mask token includes the space before it, as in the released models.
    masked = transformers_tokenizer("the <mask> the", add_special_tokens=False)["input_ids"]
    assert masked == encode_texts({**config, "special_tokens_in_text": True}, ["the <mask> the"])[0]
    transformers_tokenizer.save_pretrained(tmp_path / "saved")
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "saved" / name).unlink(missing_ok=True)
    assert (tmp_path / "saved" / "tokenizer.json").exists()
    read_config = read_tokenizer(tmp_path / "saved")
    assert read_config == config
    # Without tokenizer_config.json, tokenizer.json specifies whether to add a space before a text.
    (tmp_path / "saved" / "tokenizer_config.json").unlink()
    assert read_tokenizer(tmp_path / "saved") == config


@pytest.mark.parametrize("kind", ["wordpiece", "byte_pair"])
def test_modernbert_with_other_tokenizers(kind, tmp_path):
    """For this model_type, transformers reads everything from tokenizer.json and the settings."""
    config = make_config(kind)
    write_tokenizer(tmp_path, config, 12)
    (tmp_path / "config.json").write_text('{"model_type": "modernbert"}')
    transformers_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    batch = transformers_tokenizer(TEXTS, padding=True, add_special_tokens=False)
    rows = [
        [index for index, is_token in zip(*row, strict=True) if is_token]
        for row in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]
    assert rows == encode_texts(config)
    assert read_tokenizer(tmp_path) == config


@pytest.mark.parametrize("lowercase", [True, False])
def test_albert_files_match_transformers(lowercase, tmp_path):
    config = make_config("sentence_piece", lowercase=lowercase)
    write_tokenizer(tmp_path, config, 12)
    transformers_tokenizer = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    expected = encode_texts(config)
    actual = transformers_tokenizer(TEXTS, add_special_tokens=False)["input_ids"]
    assert actual == expected
    assert transformers_tokenizer("a", "b")["token_type_ids"][-1] == 1
    special = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(transformers_tokenizer, f"{name}_token_id") for name in special] == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_files_without_albert_rules_match_transformers(tmp_path):
    """KerasHub's tokenizers have no ALBERT rules, so two apostrophes stay unchanged."""
    options = {"lowercase": False, "keep_accents": True, "albert_rules": False}
    config = make_config("sentence_piece", **options)
    write_tokenizer(tmp_path, config, 512)
    assert read_tokenizer(tmp_path) == config
    transformers_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = ["the ''cat'' sat", "``on`` the mat", *TEXTS]
    assert transformers_tokenizer(texts, add_special_tokens=False)["input_ids"] == encode_texts(
        config, texts
    )
    pair = transformers_tokenizer("the", "cat")
    assert [pair["input_ids"][0], pair["input_ids"][-1]] == [2, 3]
    assert pair["token_type_ids"][-1] == 1
    special = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(transformers_tokenizer, f"{name}_token_id") for name in special] == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_unigram_in_tokenizer_json_becomes_a_model(tmp_path):
    config = make_config("sentence_piece")
    write_tokenizer(tmp_path, config, 12)
    transformers_tokenizer = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    transformers_tokenizer.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "spiece.model").unlink(missing_ok=True)
    read_config = read_tokenizer(tmp_path / "saved")
    assert {**read_config, "model": ""} == {**config, "model": ""}
    assert list_tokens(read_config) == list_tokens(config)
    assert encode_texts(read_config) == encode_texts(config)


def test_added_tokens_that_are_pieces_raise(tmp_path):
    """Without a tokenizer.json, transformers adds pieces that SentencePiece finds anyway.

    transformers starts a word after each added token.
    """
    write_tokenizer(tmp_path, make_config("sentence_piece"), 12)
    (tmp_path / "tokenizer.json").unlink()
    transformers_tokenizer = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    transformers_tokenizer.save_pretrained(tmp_path / "saved")
    with pytest.raises(
        ValueError, match=r"must not have added tokens, except for special tokens .* Received: '\('"
    ):
        read_tokenizer(tmp_path / "saved")


@pytest.mark.parametrize("kind", KINDS)
def test_keras_hub_files(kind, tmp_path):
    keras_hub = pytest.importorskip("keras_hub")
    config = make_config(kind)
    if kind == "byte_pair":
        ids = {token: index for index, token in enumerate(config["vocabulary"])}
        hub_tokenizer = keras_hub.models.RobertaTokenizer(ids, config["merges"])
    else:
        config |= {"lowercase": False, "keep_accents": True, "albert_rules": False}
        hub_tokenizer = keras_hub.models.AlbertTokenizer(base64.b64decode(config["model"]))
    assert read_hub_tokenizer(tmp_path) is None
    hub_tokenizer.save_to_preset(tmp_path)
    read_config = read_hub_tokenizer(tmp_path)
    assert read_config == config
    # Outside a graph, KerasHub splits texts for BPE by a different model's rules.
    texts = [text for text in TEXTS if text] if kind == "sentence_piece" else ["The test fails."]
    expected = [list(map(int, row)) for row in hub_tokenizer(texts)]
    assert tokenizer_from_config(read_config)(texts) == expected
    path = tmp_path / "tokenizer.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "registered_name": "keras_hub>GPT2Tokenizer"}))
    with pytest.raises(
        ValueError,
        match=r"tokenizer\.json: registered_name must be one of BertTokenizer, .* Received: "
        r"'GPT2Tokenizer'",
    ):
        read_hub_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("vocab.json", b"{", r"vocab\.json: the file must contain JSON"),
        (
            "vocab.json",
            b'{"<s>": 0, "a": 2}',
            r"vocab\.json: the file must contain the ids 0, 1, 2 …\. Received: no token with "
            r"the id 1",
        ),
        (
            "vocab.json",
            b'{"<s>": 0, "<pad>": 1}',
            r"vocab\.json: the vocabulary of 2 tokens lacks </s>, <unk>",
        ),
        (
            "merges.txt",
            b"#version: 0.2\n\xc4\xa0 t\nq z\n",
            r"merges\.txt, line 3 must be two tokens of the vocabulary .* Received: 'q z': the",
        ),
    ],
)
def test_invalid_byte_pair_file_error_includes_line(file, content, message, tmp_path):
    write_tokenizer(tmp_path, make_config("byte_pair"), 12)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pre_tokenizer": {"type": "Whitespace"}},
            "pre_tokenizer must be ByteLevel with its use_regex, .* Received: Whitespace",
        ),
        ({"normalizer": {"type": "NFKC"}}, "normalizer must be missing or NFC. Received: NFKC"),
        ({"end_of_word_suffix": "</w>"}, "model.end_of_word_suffix must be None. Received: '</w>'"),
        ({"byte_fallback": True}, "model.byte_fallback"),
        (
            {"merges": [["q", "zz"]]},
            r"model.merges\[0\] must be two tokens of the vocabulary .* Received: 'q zz': the "
            r"vocabulary lacks 'zz'",
        ),
    ],
)
def test_unsupported_byte_pair_tokenizer_raises(change, message, tmp_path):
    config = make_config("byte_pair")
    model = {
        "type": "BPE",
        "vocab": {token: index for index, token in enumerate(config["vocabulary"])},
        "merges": config["merges"],
    }
    fields = {"pre_tokenizer": {"type": "ByteLevel"}, "normalizer": None}
    changed_fields = {name: value for name, value in change.items() if name in fields}
    model |= {name: value for name, value in change.items() if name not in fields}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**fields, **changed_fields, "model": model}))
    with pytest.raises(ValueError, match=message) as raised:
        read_tokenizer(tmp_path)
    assert str(path) in str(raised.value)


SPLIT_AT_SPACES = {"type": "WhitespaceSplit"}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"normalizer": {"type": "NFKC"}},
            "normalizer must have ALBERT.s steps.* Received: NFKC",
        ),
        (
            {"pre_tokenizer": METASPACE},
            "pre_tokenizer must have ALBERT's steps, WhitespaceSplit and .* Received: Metaspace",
        ),
        ({"vocab": {"a": 0}}, "model.vocab must be a list of pieces with their scores"),
        (
            {"vocab": [["a", 0.0], ["b", 0.0]]},
            r"must give '\[CLS\]' its id in the vocabulary. Received: \[2\]",
        ),
        ({"byte_fallback": True}, "model.byte_fallback"),
    ],
)
def test_unsupported_unigram_tokenizer_raises(change, message, tmp_path):
    replace_steps = [
        {"type": "Replace", "pattern": {"String": quotes}, "content": '"'}
        for quotes in ("``", "''")
    ]
    pieces = [[piece, 0.0] for piece in ("<pad>", "<unk>", "[CLS]", "[SEP]", "▁a")]
    fields = {
        "normalizer": {"type": "Sequence", "normalizers": [*replace_steps, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT_AT_SPACES, METASPACE]},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    }
    model = {"type": "Unigram", "unk_id": 1, "vocab": pieces}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**fields, "model": model}))
    read_config = read_tokenizer(tmp_path)
    assert (read_config["lowercase"], read_config["keep_accents"]) == (True, True)
    changed_fields = {name: value for name, value in change.items() if name in fields}
    model |= {name: value for name, value in change.items() if name not in fields}
    path.write_text(json.dumps({**fields, **changed_fields, "model": model}))
    with pytest.raises(ValueError, match=message) as raised:
        read_tokenizer(tmp_path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"no model", b"\x0a\xff\xff", b"\x0a\x03\x0a\x01\xff", b"\xff" * 10**6],
    ids=lambda content: repr(content[:8]),
)
def test_invalid_model_error_includes_file(content, tmp_path):
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(ValueError, match=r"spiece\.model: the file is not a SentencePiece"):
        read_tokenizer(tmp_path)


def test_read_pieces_matches_sentencepiece():
    import sentencepiece

    model = small_tokenizers.sentence_piece_model()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = read_pieces(model)
    assert [piece.text for piece in pieces] == [
        processor.id_to_piece(index) for index in range(processor.vocab_size())
    ]
    assert [piece.score for piece in pieces] == [
        processor.get_score(index) for index in range(processor.vocab_size())
    ]


def test_original_albert_model_file_name(tmp_path):
    (tmp_path / "30k-clean.model").write_bytes(small_tokenizers.sentence_piece_model())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_tokenizer(tmp_path) == make_config("sentence_piece")
