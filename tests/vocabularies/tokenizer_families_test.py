# SPDX-License-Identifier: Apache-2.0
"""Reads and writes tokenizer files of the families after BERT, RoBERTa and ALBERT."""

import functools
import json
import re

import pytest

tf = pytest.importorskip("tensorflow")
transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

from keras_bert.text import SentencePieceTokenizer, tokenizer_from_config  # noqa: E402
from keras_bert.vocabularies.sentence_piece_model import (  # noqa: E402
    Piece,
    PieceType,
    read_pieces,
    replace_pieces,
)
from keras_bert.vocabularies.tokenizer_config import decode_model, list_tokens  # noqa: E402
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer  # noqa: E402
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer  # noqa: E402
from tests.text import families, small_tokenizers  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

KOBERT_TOKENS = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


@functools.cache
def kobert_vocabulary():
    """Returns a vocabulary that has the pieces of `released_model`, but in a different order."""
    pieces = [piece.text for piece in read_pieces(families.released_model())]
    return [*KOBERT_TOKENS.values(), *sorted(pieces[3:])]


def kobert_config():
    pieces = {piece.text: piece for piece in read_pieces(families.released_model())}
    kinds = dict.fromkeys(KOBERT_TOKENS.values(), PieceType.CONTROL) | {"[UNK]": PieceType.UNKNOWN}
    special = {token: Piece(token, 0.0, kind) for token, kind in kinds.items()}
    ordered_pieces = [(pieces | special)[token] for token in kobert_vocabulary()]
    tokenizer = SentencePieceTokenizer(
        replace_pieces(families.released_model(), ordered_pieces),
        lowercase=False,
        keep_accents=True,
        albert_rules=False,
        special_tokens=KOBERT_TOKENS,
    )
    return tokenizer.get_config()


CONFIGS = {
    "kobert": kobert_config,
    **families.CONFIGS,
    "mpnet": small_tokenizers.mpnet_config,
    "bert, strip_accents=False": functools.partial(
        small_tokenizers.wordpiece_config, strip_accents=False
    ),
    "bert, tokenize_chinese_chars=False": functools.partial(
        small_tokenizers.wordpiece_config, tokenize_chinese_chars=False
    ),
    "wordpiece, pair_separators=2": functools.partial(
        small_tokenizers.wordpiece_config, pair_separators=2
    ),
}
ROLES = ("pad", "unk", "cls", "sep", "mask")
TEXTS = [*families.LANGUAGES.values(), "  two  spaces\n", "a |||IP_ADDRESS||| b", ""]


def make_config(family):
    return CONFIGS[family]() | {"special_tokens_in_text": False}


@pytest.mark.parametrize("family", CONFIGS)
def test_tokenizer_files_round_trip(family, tmp_path):
    config = make_config(family)
    write_tokenizer(tmp_path, config, 12)
    assert read_tokenizer(tmp_path) == config
    assert list_tokens(config) == list(tokenizer_from_config(config).vocabulary)
    # Without our settings, the other files contain everything except special_tokens_in_text.
    (tmp_path / "tokenizer_config.json").unlink()
    if family in ("camembert", "mpnet"):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    elif "bert," in family:
        return  # A vocab.txt has no other information.
    del config["special_tokens_in_text"]
    assert read_tokenizer(tmp_path) == config


@pytest.mark.parametrize("family", CONFIGS)
def test_tokenizer_files_match_transformers(family, tmp_path):
    config = make_config(family)
    write_tokenizer(tmp_path, config, 512)
    tokenizer = tokenizer_from_config(config)
    transformers_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert transformers_tokenizer(TEXTS, add_special_tokens=False)["input_ids"] == tokenizer(TEXTS)
    pair = transformers_tokenizer("the train", "the coast")["input_ids"]
    assert pair == tokenizer.encode("the train", "the coast")
    for role in ROLES:
        assert getattr(transformers_tokenizer, f"{role}_token_id") == getattr(
            tokenizer, f"{role}_token_id"
        )
    text = f"the {transformers_tokenizer.mask_token} train"
    expected = transformers_tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.with_special_tokens_in_text(text) == expected
    assert len(transformers_tokenizer) == tokenizer.vocabulary_size
    transformers_tokenizer.save_pretrained(tmp_path / "saved")
    read_config = read_tokenizer(tmp_path / "saved")
    # transformers does not write the SentencePiece model.
    assert {**read_config, "model": ""} == {**config, "model": ""}
    assert list_tokens(read_config) == list_tokens(config)
    restored = tokenizer_from_config(read_config)
    assert restored(TEXTS) == tokenizer(TEXTS)


MARKERS = ["<e1>", "</e1>", "[SUBJ:PER]", "<주어>"]
MARKED_TEXTS = [
    "The <e1> train </e1> to the<e1>coast</e1>leaves",
    "[SUBJ:PER] [subj:per] <E1> <e1><e1> </e1",
    "  <e1>  two \n <주어>spaces<주어>  ",
    "a<e1>\u200bb",
    *TEXTS,
]


@pytest.mark.parametrize("family", ["mpnet", "modernbert", "mmbert", "xlm_roberta", "deberta_v2"])
def test_added_tokens_match_transformers(family, tmp_path):
    base = tokenizer_from_config(make_config(family))
    tokenizer = base.with_added_tokens(MARKERS)
    expected = tokenizer(MARKED_TEXTS)
    assert tokenizer(tf.constant(MARKED_TEXTS)).to_list() == expected
    for directory, added in ("base", []), ("added", MARKERS):
        (tmp_path / directory).mkdir()
        config = base.with_added_tokens(added).get_config()
        write_tokenizer(tmp_path / directory, config, 512)
        assert read_tokenizer(tmp_path / directory) == config
        transformers_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / directory)
        if not added:
            tokens = [transformers.AddedToken(marker, normalized=False) for marker in MARKERS]
            transformers_tokenizer.add_tokens(tokens)
        ids = transformers_tokenizer(MARKED_TEXTS, add_special_tokens=False)["input_ids"]
        assert ids == expected
        transformers_tokenizer.save_pretrained(tmp_path / directory / "saved")
        saved = tokenizer_from_config(read_tokenizer(tmp_path / directory / "saved"))
        assert saved.added_tokens == tokenizer.added_tokens
        assert saved(MARKED_TEXTS) == expected


RELEASED_FILES = {
    "xlm_roberta": ("XLMRobertaTokenizer", "sentencepiece.bpe.model"),
    "camembert": ("CamembertTokenizer", "sentencepiece.bpe.model"),
    "deberta_v2": ("DebertaV2Tokenizer", "spm.model"),
}


@pytest.mark.parametrize("family", RELEASED_FILES)
def test_released_model_without_other_files(family, tmp_path):
    name, file = RELEASED_FILES[family]
    model = families.released_model(deberta=family == "deberta_v2")
    (tmp_path / file).write_bytes(model)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    config = read_tokenizer(tmp_path)
    expected = make_config(family)
    del expected["special_tokens_in_text"]
    assert config == expected
    (tmp_path / "saved").mkdir()
    write_tokenizer(tmp_path / "saved", config, 512)
    assert (tmp_path / "saved" / file).read_bytes() == model
    (tmp_path / file).write_bytes(b"no model")
    with pytest.raises(ValueError, match=rf"{re.escape(file)}: the file is not a Sent"):
        read_tokenizer(tmp_path)


def test_kobert_files(tmp_path):
    """The pieces are looked up in the model, and their ids in `vocab.txt`."""
    (tmp_path / "tokenizer_78b3253a26.model").write_bytes(families.released_model())
    (tmp_path / "vocab.txt").write_text("\n".join(kobert_vocabulary()), encoding="utf-8")
    expected = make_config("kobert")
    del expected["special_tokens_in_text"]
    config = read_tokenizer(tmp_path)
    assert config == expected
    ids = {token: index for index, token in enumerate(kobert_vocabulary())}
    processor = sentencepiece.SentencePieceProcessor(model_proto=families.released_model())
    assert tokenizer_from_config(config)(TEXTS) == [
        [ids.get(piece, ids["[UNK]"]) for piece in pieces]
        for pieces in processor.encode(TEXTS, out_type=str)
    ]
    directory = tmp_path / "other"
    directory.mkdir()
    (directory / "spiece.model").write_bytes(decode_model(config))
    assert read_tokenizer(directory) == config
    fields = {f"{role}_token": token for role, token in KOBERT_TOKENS.items()}
    fields |= {"bos_token": "[CLS]", "eos_token": "[SEP]", "tokenizer_class": "XLNetTokenizer"}
    (directory / "tokenizer_config.json").write_text(json.dumps(fields))
    assert read_tokenizer(directory) == config


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ((), "must contain one SentencePiece model .* Received: no model"),
        (("a.model", "b.model"), r"must contain one .* Received: a\.model, b\.model"),
        (("a.model",), r"must contain the pieces of a\.model\. Received: .* without"),
    ],
)
def test_unsuitable_model_for_pieces_raises(models, message, tmp_path):
    for name in models:
        (tmp_path / name).write_bytes(small_tokenizers.sentence_piece_model())
    (tmp_path / "vocab.txt").write_text("\n".join(kobert_vocabulary()), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("option", ["do_lower_case", "split_by_punct"])
def test_deberta_options_that_change_ids_raise(option, tmp_path):
    write_tokenizer(tmp_path, make_config("deberta_v2"), 512)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), option: True}))
    with pytest.raises(ValueError, match=f"{option} must be False or absent. Received: True"):
        read_tokenizer(tmp_path)


def write_files(family, tmp_path):
    """Returns the content of a `tokenizer.json` and a function that writes only that file."""
    (tmp_path / "all").mkdir()
    write_tokenizer(tmp_path / "all", make_config(family), 512)
    content = json.loads((tmp_path / "all" / "tokenizer.json").read_text(encoding="utf-8"))
    directory = tmp_path / "file"
    directory.mkdir()

    def write(**changes):
        text = json.dumps({**content, **changes})
        (directory / "tokenizer.json").write_text(text, encoding="utf-8")
        return directory

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
def test_unigram_tokenizer_variants(steps, tmp_path):
    content, write = write_files("xlm_roberta", tmp_path)
    precompiled = next(
        step for step in content["normalizer"]["normalizers"] if step["type"] == "Precompiled"
    )
    steps = [precompiled if step == "Precompiled" else step for step in steps]
    has_one_step = len(steps) == 1
    normalizer = steps[0] if has_one_step else {"type": "Sequence", "normalizers": steps}
    metaspace = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    pre_tokenizers = [{"type": "WhitespaceSplit"}, metaspace]
    split = {"type": "Sequence", "pretokenizers": pre_tokenizers} if has_one_step else metaspace
    variant = tokenizer_from_config(
        read_tokenizer(write(normalizer=normalizer, pre_tokenizer=split))
    )
    tokenizer = families.make("xlm_roberta")
    texts = ["  two  spaces \n", *families.LANGUAGES.values()]
    assert variant(texts) == tokenizer(texts)
    assert variant.encode("a", "b") == tokenizer.encode("a", "b")


def test_special_tokens_are_read_from_any_file(tmp_path):
    _, write = write_files("eurobert", tmp_path)
    names = {
        "bos_token": {"content": "<|begin_of_text|>"},
        "eos_token": "<|end_of_text|>",
        "pad_token": "<|end_of_text|>",
        "mask_token": {"content": "<|mask|>", "lstrip": False},
    }
    directory = write()
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        (directory / name).write_text(json.dumps(names))
        config = read_tokenizer(directory)
        assert config["special_tokens"] == make_config("eurobert")["special_tokens"]
        (directory / name).unlink()
    with pytest.raises(ValueError, match="because no special tokens are added otherwise"):
        read_tokenizer(write(post_processor=None))


SPLIT = {"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        (
            "modernbert",
            {"normalizer": {"type": "NFKC"}},
            "normalizer must be missing or NFC. Received: NFKC",
        ),
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
def test_unsupported_tokenizer_json_raises(family, changes, message, tmp_path):
    _, write = write_files(family, tmp_path)
    directory = write(**changes)
    with pytest.raises(ValueError, match=message.replace("|", r"\|")) as raised:
        read_tokenizer(directory)
    assert str(directory / "tokenizer.json") in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"normalizer": None},
            "normalizer must replace ' ' with '▁', as in Gemma. Received: missing",
        ),
        (
            {"pre_tokenizer": {"type": "ByteLevel"}},
            "pre_tokenizer must be missing or a Split at ' ', as in Gemma. Received: ByteLevel",
        ),
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
            "must add one token before and one after each text, for example <bos> A <eos>. "
            "Received: <bos> A",
        ),
    ],
)
def test_unsupported_byte_fallback_tokenizer_raises(changes, message, tmp_path):
    _, write = write_files("mmbert", tmp_path)
    directory = write(**changes)
    with pytest.raises(ValueError, match=message):
        read_tokenizer(directory)


def test_pair_can_repeat_cls_token(tmp_path):
    config = make_config("mmbert") | {"repeats_cls": True}
    del config["pair_separators"]  # 2 is the default.
    write_tokenizer(tmp_path, config, 512)
    assert read_tokenizer(tmp_path) == config
    tokenizer = tokenizer_from_config(config)
    transformers_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    pair = transformers_tokenizer("the train", "the coast")["input_ids"]
    assert pair.count(tokenizer.cls_token_id) == 2
    assert tokenizer.encode("the train", "the coast") == pair


@pytest.mark.parametrize("option", ["single_word", "rstrip", "lstrip"])
def test_unsupported_added_token_option_raises(option, tmp_path):
    content, write = write_files("modernbert", tmp_path)
    added = [
        {**token, option: True} if token["content"] == "[unused1]" else token
        for token in content["added_tokens"]
    ]
    with pytest.raises(ValueError, match=rf"{option} of the added token '\[unused1\]' is not"):
        read_tokenizer(write(added_tokens=added))
