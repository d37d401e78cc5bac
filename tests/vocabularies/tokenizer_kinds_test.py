# SPDX-License-Identifier: Apache-2.0
"""Tokenizer files of RoBERTa and ALBERT: our own, those of transformers and of KerasHub."""

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
TYPED = {"special_tokens_in_text": True}
OPTIONS = {
    "wordpiece": [{}, {"lowercase": False}, TYPED],
    "byte_pair": [{}, {"add_prefix_space": True}, TYPED],
    "sentence_piece": [
        {}, {"lowercase": False, "keep_accents": True}, {"albert_rules": False}, TYPED,
    ],
}  # fmt: skip
TEXTS = [
    *small_tokenizers.texts()[:80],
    "Größe «été» it's  ``quoted''\n",
    " The TEST, (1) 2.5",
    "",
]


def config_of(kind, **options):
    config = small_tokenizers.make(kind, **options).get_config()
    del config["special_tokens_in_text"]
    return config


def ids_of(config, texts=TEXTS):
    return tokenizer_from_config(config)(texts)


@pytest.mark.parametrize(("kind", "options"), [(k, each) for k in OPTIONS for each in OPTIONS[k]])
def test_tokenizers_of_all_kinds_are_written_and_read(kind, options, tmp_path):
    config = small_tokenizers.make(kind, **options).get_config()
    write_tokenizer(tmp_path, config, 12)
    assert read_tokenizer(tmp_path) == config
    assert list_tokens(config) == list(tokenizer_from_config(config).vocabulary)


@pytest.mark.parametrize("kind", KINDS)
def test_a_preset_has_it_and_one_of_another_kind_takes_its_place(kind, tmp_path):
    config = config_of(kind)
    size = len(list_tokens(config))
    backbone = small_backbone(vocabulary_size=size)
    other = {"vocabulary": ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]}
    checkpoints.save_preset(backbone, tmp_path, tokenizer=other)
    checkpoints.save_preset(backbone, tmp_path, tokenizer=config)
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    assert checkpoint.require_tokenizer() == config
    assert not (tmp_path / "vocab.txt").exists()
    smaller = small_backbone(vocabulary_size=size - 1)
    with pytest.raises(CheckpointError, match=f"vocabulary must have at most .* Received: {size}"):
        checkpoints.save_preset(smaller, tmp_path, tokenizer=config)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(
        CheckpointError, match=r"tokenizer_config\.json: the file must contain JSON"
    ):
        _ = checkpoints.open_checkpoint(tmp_path).tokenizer


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_transformers_reads_roberta_s_and_we_read_what_it_writes(add_prefix_space, tmp_path):
    config = config_of("byte_pair", add_prefix_space=add_prefix_space)
    write_tokenizer(tmp_path, config, 12)
    theirs = transformers.RobertaTokenizerFast.from_pretrained(tmp_path)
    assert theirs(TEXTS, add_special_tokens=False)["input_ids"] == ids_of(config)
    special = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(theirs, f"{name}_token_id") for name in special] == [1, 3, 0, 2, 4]
    # As in the released models, the mask token includes the space before it.
    masked = theirs("the <mask> the", add_special_tokens=False)["input_ids"]
    assert masked == ids_of({**config, "special_tokens_in_text": True}, ["the <mask> the"])[0]
    theirs.save_pretrained(tmp_path / "saved")
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "saved" / name).unlink(missing_ok=True)
    assert (tmp_path / "saved" / "tokenizer.json").exists()
    own_config = read_tokenizer(tmp_path / "saved")
    assert own_config == config
    # Without the settings, the file itself specifies whether a space is added before a text.
    (tmp_path / "saved" / "tokenizer_config.json").unlink()
    assert read_tokenizer(tmp_path / "saved") == config


@pytest.mark.parametrize("lowercase", [True, False])
def test_transformers_reads_albert_s(lowercase, tmp_path):
    config = config_of("sentence_piece", lowercase=lowercase)
    write_tokenizer(tmp_path, config, 12)
    theirs = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    expected = ids_of(config)
    # KerasHub's has no rule for commas after numbers.
    received = theirs(TEXTS, add_special_tokens=False)["input_ids"]
    assert received == expected
    assert theirs("a", "b")["token_type_ids"][-1] == 1
    special = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(theirs, f"{name}_token_id") for name in special] == [0, 1, 2, 3, 4]


def test_transformers_reads_a_model_without_albert_s_rules(tmp_path):
    """As KerasHub's tokenizers are: two apostrophes stay what they are."""
    rules_off = {"lowercase": False, "keep_accents": True, "albert_rules": False}
    config = config_of("sentence_piece", **rules_off)
    write_tokenizer(tmp_path, config, 512)
    assert read_tokenizer(tmp_path) == config
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = ["the ''cat'' sat", "``on`` the mat", *TEXTS]
    assert theirs(texts, add_special_tokens=False)["input_ids"] == ids_of(config, texts)
    pair = theirs("the", "cat")
    assert [pair["input_ids"][0], pair["input_ids"][-1]] == [2, 3]
    assert pair["token_type_ids"][-1] == 1
    special = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(theirs, f"{name}_token_id") for name in special] == [0, 1, 2, 3, 4]


def test_a_unigram_in_a_tokenizer_json_becomes_a_model(tmp_path):
    config = config_of("sentence_piece")
    write_tokenizer(tmp_path, config, 12)
    theirs = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "spiece.model").unlink(missing_ok=True)
    own_config = read_tokenizer(tmp_path / "saved")
    assert {**own_config, "model": ""} == {**config, "model": ""}
    assert list_tokens(own_config) == list_tokens(config)
    assert ids_of(own_config) == ids_of(config)


def test_added_tokens_that_are_pieces_are_refused(tmp_path):
    """Without a tokenizer.json, theirs adds the pieces that SentencePiece finds by itself.

    It begins a word after each of them, as after all added tokens.
    """
    write_tokenizer(tmp_path, config_of("sentence_piece"), 12)
    (tmp_path / "tokenizer.json").unlink()
    theirs = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"must not have added tokens.*'\('"):
        read_tokenizer(tmp_path / "saved")


@pytest.mark.parametrize("kind", KINDS)
def test_keras_hub_s(kind, tmp_path):
    keras_hub = pytest.importorskip("keras_hub")
    config = config_of(kind)
    if kind == "byte_pair":
        ids = {token: index for index, token in enumerate(config["vocabulary"])}
        theirs = keras_hub.models.RobertaTokenizer(ids, config["merges"])
    else:
        config |= {"lowercase": False, "keep_accents": True, "albert_rules": False}
        theirs = keras_hub.models.AlbertTokenizer(base64.b64decode(config["model"]))
    assert read_hub_tokenizer(tmp_path) is None
    theirs.save_to_preset(tmp_path)
    own_config = read_hub_tokenizer(tmp_path)
    assert own_config == config
    # Outside of graphs, KerasHub splits texts for BPE by another model's rules.
    texts = [text for text in TEXTS if text] if kind == "sentence_piece" else ["The test fails."]
    expected = [list(map(int, row)) for row in theirs(texts)]
    assert tokenizer_from_config(own_config)(texts) == expected
    path = tmp_path / "tokenizer.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "registered_name": "keras_hub>GPT2Tokenizer"}))
    with pytest.raises(ValueError, match=r"tokenizer\.json: registered_name must .*'GPT2Tok"):
        read_hub_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("vocab.json", b"{", r"vocab\.json: the file must contain JSON"),
        ("vocab.json", b'{"<s>": 0, "a": 2}', r"vocab\.json: the file must .* the ids 0, 1, 2"),
        ("vocab.json", b'{"<s>": 0, "<pad>": 1}', r"vocab\.json: .* 2 tokens lacks </s>, <unk>"),
        (
            "merges.txt",
            b"#version: 0.2\n\xc4\xa0 t\nq z\n",
            r"merges\.txt, line 3 must .*'q z': the",
        ),
    ],
)
def test_malformed_byte_pairs_name_the_file_and_the_line(file, content, message, tmp_path):
    write_tokenizer(tmp_path, config_of("byte_pair"), 12)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer must be Byte"),
        ({"normalizer": {"type": "NFKC"}}, "normalizer must be missing or NFC. Received: NFKC"),
        ({"end_of_word_suffix": "</w>"}, "model.end_of_word_suffix must .*</w>"),
        ({"byte_fallback": True}, "model.byte_fallback"),
        (
            {"merges": [["q", "zz"]]},
            r"model.merges\[0\] must be .*'q zz': the vocabulary lacks 'zz'",
        ),
    ],
)
def test_another_byte_pair_tokenizer_is_refused(change, message, tmp_path):
    config = config_of("byte_pair")
    model = {
        "type": "BPE",
        "vocab": {token: index for index, token in enumerate(config["vocabulary"])},
        "merges": config["merges"],
    }
    fields = {"pre_tokenizer": {"type": "ByteLevel"}, "normalizer": None}
    parts = {name: value for name, value in change.items() if name in fields}
    model |= {name: value for name, value in change.items() if name not in fields}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**fields, **parts, "model": model}))
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
            "pre_tokenizer must .*ALBERT.s steps, WhitespaceSplit.* Received: Metaspace",
        ),
        ({"vocab": {"a": 0}}, "model.vocab must be a list of pieces with their scores"),
        ({"vocab": [["a", 0.0], ["b", 0.0]]}, r"must give '\[CLS\]' its id .*\[2\]"),
        ({"byte_fallback": True}, "model.byte_fallback"),
    ],
)
def test_another_unigram_is_refused(change, message, tmp_path):
    replaced = [
        {"type": "Replace", "pattern": {"String": quotes}, "content": '"'}
        for quotes in ("``", "''")
    ]
    pieces = [[piece, 0.0] for piece in ("<pad>", "<unk>", "[CLS]", "[SEP]", "▁a")]
    fields = {
        "normalizer": {"type": "Sequence", "normalizers": [*replaced, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT_AT_SPACES, METASPACE]},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    }
    model = {"type": "Unigram", "unk_id": 1, "vocab": pieces}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**fields, "model": model}))
    own_config = read_tokenizer(tmp_path)
    assert (own_config["lowercase"], own_config["keep_accents"]) == (True, True)
    parts = {name: value for name, value in change.items() if name in fields}
    model |= {name: value for name, value in change.items() if name not in fields}
    path.write_text(json.dumps({**fields, **parts, "model": model}))
    with pytest.raises(ValueError, match=message) as raised:
        read_tokenizer(tmp_path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"no model", b"\x0a\xff\xff", b"\x0a\x03\x0a\x01\xff", b"\xff" * 10**6],
    ids=lambda content: repr(content[:8]),
)
def test_the_error_about_a_malformed_model_names_the_file(content, tmp_path):
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


def test_the_released_albert_names_its_model_otherwise(tmp_path):
    (tmp_path / "30k-clean.model").write_bytes(small_tokenizers.sentence_piece_model())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_tokenizer(tmp_path) == config_of("sentence_piece")
