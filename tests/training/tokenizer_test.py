# SPDX-License-Identifier: Apache-2.0

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")

from keras_bert.text import tokenizer_from_config  # noqa: E402
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer  # noqa: E402
from tests.text import families, small_tokenizers  # noqa: E402
from training.tokenizer import TokenizerConfig, train_tokenizer  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpus")
    lines = small_tokenizers.texts()
    for name, part in (("a.txt", lines[:300]), ("b.txt", lines[300:])):
        (directory / name).write_text("\n".join(part) + "\n", encoding="utf-8")
    return directory


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("wordpiece", ["tokenizer.json", "vocab.txt"]),
        ("byte_pair", ["merges.txt", "tokenizer.json", "vocab.json"]),
        ("sentence_piece", ["spiece.model", "tokenizer.json"]),
    ],
)
def test_trained_tokenizer_is_read_from_files(kind, files, corpus, tmp_path):
    config = TokenizerConfig((str(corpus),), str(tmp_path / "made"), kind, 400, lowercase=False)
    paths = train_tokenizer(config)
    assert sorted(path.name for path in paths) == sorted([*files, "tokenizer_config.json"])
    tokenizer = tokenizer_from_config(read_tokenizer(tmp_path / "made"))
    assert tokenizer.kind == kind
    assert tokenizer.vocabulary_size == 400
    assert getattr(tokenizer, "lowercase", False) is False
    ids = tokenizer("the test fails")
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.detokenize(ids) == "the test fails"


def test_model_flag_sets_special_tokens(corpus, tmp_path):
    paths = train_tokenizer(
        TokenizerConfig(
            (str(corpus),), str(tmp_path / "made"), vocabulary_size=400, model="modernbert_base"
        )
    )
    assert [path.name for path in paths] == ["tokenizer.json", "tokenizer_config.json"]
    tokenizer = tokenizer_from_config(read_tokenizer(tmp_path / "made"))
    assert tokenizer.vocabulary[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert tokenizer.vocabulary_size == 400
    row = tokenizer.encode("the", "cafe\u0301")
    tokens = [tokenizer.id_to_token(index) for index in row]
    assert (tokens[0], tokens[-1], tokens.count("[SEP]")) == ("[CLS]", "[SEP]", 2)
    assert tokenizer("cafe\u0301") == tokenizer("caf\xe9")
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path / "made")
    assert reference("the", "cafe\u0301")["input_ids"] == row
    assert reference.mask_token == "[MASK]"


def test_eurobert_tokenizer_splits_numbers(corpus, tmp_path):
    (tmp_path / "numbers.txt").write_text(
        "in 12345678 or 12345678, x(years)\n" * 99, encoding="utf-8"
    )
    files = (str(corpus), str(tmp_path / "numbers.txt"))
    config = TokenizerConfig(
        files, str(tmp_path / "made"), vocabulary_size=700, model="eurobert_210m"
    )
    train_tokenizer(config)
    tokenizer = tokenizer_from_config(read_tokenizer(tmp_path / "made"))
    pad, end, start, mask = tokenizer.vocabulary[:4]
    assert (pad, start, end) == ("<|pad|>", "<|begin_of_text|>", "<|end_of_text|>")
    # Punctuation belongs to the word after it, and numbers have at most three digits.
    for token in ("(years", "123", "456"):
        assert token in tokenizer.vocabulary
    assert not any("1234" in token for token in tokenizer.vocabulary)
    row = tokenizer.encode("the (years", "1234")
    assert tokenizer.id_to_token(row[0]) == start
    assert row.count(tokenizer.sep_token_id) == 2
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path / "made")
    assert reference("the (years", "1234")["input_ids"] == row
    assert reference.mask_token == mask


def test_xlm_roberta_special_token_ids(corpus, tmp_path):
    lines = list(families.LANGUAGES.values())
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    trained = tmp_path / "made"
    files = (str(tmp_path / "lines.txt"), str(corpus))
    config = TokenizerConfig(files, str(trained), vocabulary_size=700, model="xlm_roberta_base")
    names = [path.name for path in train_tokenizer(config)]
    assert names == ["sentencepiece.bpe.model", "tokenizer.json", "tokenizer_config.json"]
    tokenizer = tokenizer_from_config(read_tokenizer(trained))
    assert tokenizer.vocabulary_size == 700
    assert tokenizer.vocabulary[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    assert tokenizer.vocabulary[-1] == tokenizer.mask_token == "<mask>"
    reference = transformers.AutoTokenizer.from_pretrained(trained)
    assert isinstance(reference, transformers.XLMRobertaTokenizer)
    assert reference.mask_token_id == 699
    texts = [*lines, " two  spaces", "Café  CAFÉ", ""]
    assert [tokenizer.encode(text) for text in texts] == reference(texts)["input_ids"]
    assert tokenizer.encode(*lines[:2]) == reference(*lines[:2])["input_ids"]
    # Without tokenizer.json, the SentencePiece model yields the same ids.
    (trained / "tokenizer.json").unlink()
    assert tokenizer_from_config(read_tokenizer(trained))(texts) == tokenizer(texts)
    sentence_piece_reference = transformers.AutoTokenizer.from_pretrained(trained)
    assert sentence_piece_reference(texts)["input_ids"] == reference(texts)["input_ids"]


KOREAN = [
    "서울은 대한민국의 수도이자 최대 도시이다.",
    "한국어는 한국의 공용어이다.",
    "인구는 약 5천만 명이다.",
]
THAI = ["กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", "ที่นี่มีผู้คนอาศัยอยู่มากมาย"]


@pytest.mark.parametrize(("kind", "lines"), [("wordpiece", KOREAN), ("sentence_piece", THAI)])
def test_caseless_text_is_not_lowercased(kind, lines, tmp_path, caplog):
    (tmp_path / "corpus.txt").write_text("\n".join(lines * 30) + "\n", encoding="utf-8")
    characters = {character for line in lines for character in line if character.isalpha()}
    trained = {}
    for lowercase in (None, True):
        directory = tmp_path / f"{lowercase}"
        with caplog.at_level("INFO", logger="absl"):
            train_tokenizer(
                TokenizerConfig(
                    (str(tmp_path / "corpus.txt"),), str(directory), kind, 300, lowercase
                )
            )
        trained[lowercase] = tokenizer_from_config(read_tokenizer(directory))
    assert trained[None].lowercase is False
    assert trained[True].lowercase is True
    assert characters <= set("".join(trained[None].vocabulary))
    ids = trained[None](lines[0])
    assert trained[None].unk_token_id not in ids
    text = trained[None].detokenize(ids)
    assert text.replace(" ", "") == lines[0].replace(" ", "")
    assert "the vocabulary is cased: 0% of the letters have a case" in caplog.text


def test_invalid_options_raise(corpus, tmp_path):
    with pytest.raises(ValueError, match="kind must be one of wordpiece, byte_pair"):
        TokenizerConfig(kind="bpe")
    with pytest.raises(ValueError, match="output_dir must be a directory"):
        train_tokenizer(TokenizerConfig((str(corpus),)))
    with pytest.raises(ValueError, match="--input_files must have at least one file"):
        train_tokenizer(TokenizerConfig((), str(tmp_path)))
    with pytest.raises(FileNotFoundError, match=r"none\.txt, which matches no file"):
        train_tokenizer(TokenizerConfig((str(tmp_path / "none.txt"),), str(tmp_path)))
