# SPDX-License-Identifier: Apache-2.0
"""Compares `encode` and `decode` with the preprocessors and with `transformers`."""

import itertools
import json

import numpy as np
import pytest

transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

import keras_bert  # noqa: E402
from keras_bert.checkpoints import CheckpointError  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from keras_bert.text import Tokenizer, WordPieceTokenizer  # noqa: E402
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer  # noqa: E402
from tests.checkpoints.small_models import small_backbone  # noqa: E402
from tests.text import real_text, small_tokenizers  # noqa: E402

pytestmark = pytest.mark.backend_independent

TEXTS = ["The test fails.", "", "it's  the\tcase , 'quoted' !", "Größe «été» 中国 [SEP] </s> <unk>"]
# transformers recognizes special tokens in texts by default.
SPECIAL_TOKENS_IN_TEXT = {"special_tokens_in_text": True}


@pytest.fixture(scope="module", params=small_tokenizers.MAKERS)
def tokenizer(request):
    return small_tokenizers.make(request.param, **SPECIAL_TOKENS_IN_TEXT)


@pytest.fixture(scope="module")
def directory(tokenizer, tmp_path_factory):
    """A directory that only contains the tokenizer files."""
    path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(path, tokenizer.get_config(), 512)
    return path


@pytest.fixture(scope="module")
def transformers_tokenizer(directory):
    return transformers.AutoTokenizer.from_pretrained(directory)


# === encode, decode ===


def test_encode_matches_preprocessor(tokenizer):
    assert tokenizer.encode(TEXTS) == [
        TextClassifierPreprocessor(tokenizer)(text)["token_ids"].tolist() for text in TEXTS
    ]
    for text, other, length in itertools.product(TEXTS, TEXTS, (6, 9, 512)):
        features = TextClassifierPreprocessor(tokenizer, length)(text, other)
        row = tokenizer.encode(text, other, sequence_length=length)
        assert row == features["token_ids"].tolist()


def test_encode_batch_matches_single_texts(tokenizer):
    second_texts = TEXTS[::-1]
    rows = [tokenizer.encode(*pair) for pair in zip(TEXTS, second_texts, strict=True)]
    assert tokenizer.encode(TEXTS, second_texts) == rows
    assert tokenizer.encode(np.array(TEXTS), [text.encode() for text in second_texts]) == rows
    assert tokenizer.encode([]) == []
    no_special_tokens = {"add_special_tokens": False}
    assert tokenizer.encode(TEXTS, **no_special_tokens) == tokenizer(TEXTS)
    pair = tokenizer.encode(TEXTS[2], TEXTS[2], **no_special_tokens, sequence_length=5)
    assert pair == [*tokenizer(TEXTS[2])[:3], *tokenizer(TEXTS[2])[:2]]


def test_encode_and_decode_match_transformers(tokenizer, transformers_tokenizer):
    texts = [*small_tokenizers.texts()[:100], *TEXTS]
    rows = transformers_tokenizer(texts)["input_ids"]
    assert tokenizer.encode(texts) == rows
    assert (
        tokenizer.encode(texts, texts[::-1])
        == transformers_tokenizer(texts, texts[::-1])["input_ids"]
    )
    for skip in (False, True):
        expected = transformers_tokenizer.decode(rows, skip_special_tokens=skip)
        assert tokenizer.decode(rows, skip_special_tokens=skip) == expected
        assert tokenizer.decode(np.array(rows[0]), skip) == expected[0]
    # Ids that no text has: word pieces at the start, and all tokens in vocabulary order
    ids = [[5, 6, 7], [], list(range(tokenizer.vocabulary_size))]
    assert tokenizer.decode(ids) == transformers_tokenizer.decode(ids)


@real_text.requires_data
def test_real_text_matches_transformers(tmp_path):
    pairs = []
    for name in ("uncased", "cased"):
        tokenizer = WordPieceTokenizer(
            real_text.vocabulary(name), name == "uncased", **SPECIAL_TOKENS_IN_TEXT
        )
        (tmp_path / name).mkdir()
        write_tokenizer(tmp_path / name, tokenizer.get_config(), 512)
        pairs.append((tokenizer, transformers.AutoTokenizer.from_pretrained(tmp_path / name)))
    for lines in real_text.batches(500, every=100):
        for tokenizer, transformers_tokenizer in pairs:
            rows = transformers_tokenizer(lines, verbose=False)["input_ids"]
            assert tokenizer.encode(lines) == rows
            assert tokenizer.decode(rows) == transformers_tokenizer.decode(rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], "b"), "Received: 1 strings and a single string"),
        ((["a"], ["b", "c"]), "Received: 1 strings and 2 strings"),
        (([("a", "b")],), "Pass pairs as two lists"),
        ((5,), "Texts must be strings"),
    ],
)
def test_encode_rejects_invalid_input(tokenizer, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        tokenizer.encode(*arguments)


# === from_preset ===


def test_from_preset_detects_the_class(tokenizer, directory, transformers_tokenizer, tmp_path):
    """Detects it in a tokenizer directory, a Hugging Face directory and a preset."""
    backbone = small_backbone(vocabulary_size=tokenizer.vocabulary_size)
    preprocessor = TextClassifierPreprocessor(tokenizer, 8)
    task = keras_bert.TextClassifier(backbone, 2, preprocessor)
    task.save_to_preset(tmp_path / "preset")
    keras_bert.checkpoints.save_hugging_face(task, tmp_path / "hugging_face")
    transformers_tokenizer.save_pretrained(tmp_path / "saved")
    for path in (directory, tmp_path / "preset", str(tmp_path / "hugging_face")):
        loaded_tokenizer = keras_bert.Tokenizer.from_preset(path)
        assert type(loaded_tokenizer) is type(tokenizer)
        assert loaded_tokenizer.get_config() == tokenizer.get_config()
    loaded_tokenizer = type(tokenizer).from_preset(tmp_path / "saved", **SPECIAL_TOKENS_IN_TEXT)
    assert loaded_tokenizer.encode(TEXTS) == tokenizer.encode(TEXTS)
    assert not Tokenizer.from_preset(directory, special_tokens_in_text=False).special_tokens_in_text


def test_from_preset_of_subclass(directory, tokenizer):
    class Subclass(type(tokenizer)):
        pass

    assert type(Subclass.from_preset(directory)) is Subclass
    assert type(Tokenizer.from_preset(directory)) is type(tokenizer)
    other = keras_bert.BytePairTokenizer if tokenizer.kind == "wordpiece" else WordPieceTokenizer
    with pytest.raises(
        ValueError, match=f"must be a {other.__name__}. Received: {type(tokenizer).__name__}"
    ):
        other.from_preset(directory)


def test_from_preset_without_tokenizer_raises(tmp_path):
    with pytest.raises(CheckpointError, match=r"has no checkpoint\. It must contain"):
        Tokenizer.from_preset(tmp_path)
    (tmp_path / "model.keras").touch()
    with pytest.raises(CheckpointError, match=r"Load it with `keras_bert\.load_model`"):
        Tokenizer.from_preset(tmp_path / "model.keras")
    keras_bert.checkpoints.save_preset(small_backbone(), tmp_path / "encoder")
    with pytest.raises(CheckpointError, match=r"has no vocabulary\. It must contain"):
        Tokenizer.from_preset(tmp_path / "encoder")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(
        CheckpointError, match=r"model_type must be 'bert' or .* or 'deberta-v2'. Received: 'gpt2'"
    ):
        Tokenizer.from_preset(tmp_path)
