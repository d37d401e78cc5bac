# SPDX-License-Identifier: Apache-2.0
"""The common behavior of all tokenizers."""

import copy
import gc
import itertools
import json
import os
import weakref

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")

from keras_bert.text import tokenizer_from_config  # noqa: E402
from tests.text import small_tokenizers  # noqa: E402
from tests.text.executors import EXECUTORS, select_executor  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

TEXTS = ["The test fails.", "", "  it's  the\tcase ", "Größe «été» 中国", "self.assertEqual(a, b)"]


@pytest.fixture(scope="module", params=small_tokenizers.MAKERS)
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=EXECUTORS)
def executor(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind, executor):
    return select_executor(small_tokenizers.make(kind), executor)


def test_output_shape_follows_input_shape(tokenizer):
    rows = tokenizer(TEXTS)
    assert rows[0]
    assert rows[1] == []
    assert tokenizer(TEXTS[0]) == rows[0]
    assert tokenizer(np.array(TEXTS)) == rows
    assert tokenizer([TEXTS[:2], TEXTS[2:4]]) == [rows[:2], rows[2:4]]
    assert tokenizer([]) == []
    assert tokenizer.tokenize_with_offsets([]) == ([], [], [])
    with pytest.raises((TypeError, ValueError)):
        tokenizer([1, 2])


@pytest.mark.parametrize("texts", [TEXTS, [], [""], np.array(TEXTS), [b"the \xff", "test"]])
def test_flat_arrays_concatenate_the_rows(kind, texts):
    tokenizer = small_tokenizers.make(kind)
    flat_rows = [*tokenizer.tokenize_with_offsets(texts)]
    lengths = list(map(len, flat_rows[0]))
    for *parts, num_tokens in (tokenizer.flat_ids(texts), tokenizer.flat_tokens(texts)):
        assert num_tokens.dtype == np.int64
        assert num_tokens.tolist() == lengths
        for part, rows in zip(parts, flat_rows, strict=False):
            assert part.dtype == np.int32
            assert part.tolist() == list(itertools.chain.from_iterable(rows))
    ids, lengths = tokenizer.flat_words(texts)
    rows = tokenizer.tokenize_words(texts)
    assert ids.tolist() == list(itertools.chain.from_iterable(rows))
    assert lengths.tolist() == list(map(len, rows))


def test_flat_arrays_of_long_and_invalid_texts(kind):
    tokenizer = small_tokenizers.make(kind)
    texts = ["the test " * 20_000, "", "test", *["the test"] * 3]
    *_, lengths = tokenizer.flat_tokens(texts)
    assert lengths.tolist() == list(map(len, tokenizer(texts)))
    for convert in (tokenizer.flat_ids, tokenizer.flat_tokens, tokenizer.flat_words):
        with pytest.raises(
            ValueError,
            match=r"^Text 3 must only contain characters that UTF-8 can represent. Received: the "
            r"lone surrogate '\\udc00' at position 1",
        ):
            convert([*texts[:3], "é\udc00"])
        with pytest.raises(TypeError, match=r"^Texts must be strings. Received: 7 of type int$"):
            convert(["the", 7])


def test_tokenizer_in_dataset_and_function(kind):
    tokenizer = small_tokenizers.make(kind)
    rows = tokenizer(TEXTS)
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS)
    assert [ids.numpy().tolist() for ids in dataset.map(tokenizer)] == rows
    signature = [tf.TensorSpec([None], tf.string)]
    function = tf.function(tokenizer.tokenize_with_offsets, input_signature=signature)
    graph_parts = tuple(part.to_list() for part in function(tf.constant(TEXTS)))
    assert graph_parts == tokenizer.tokenize_with_offsets(TEXTS)
    with pytest.raises(ValueError, match="rank of the text must be known"):
        tf.function(tokenizer, input_signature=[tf.TensorSpec(None, tf.string)])(tf.constant(TEXTS))


def test_offsets_are_sorted_and_match_ids(tokenizer):
    ids, starts, ends = tokenizer.tokenize_with_offsets(TEXTS)
    assert ids == tokenizer(TEXTS)
    for text, first, last in zip(TEXTS, starts, ends, strict=True):
        assert first == sorted(first)
        assert last == sorted(last)
        assert all(0 <= start <= end <= len(text) for start, end in zip(first, last, strict=True))
        spans = zip(first, last, strict=True)
        assert not any(text[start:end].startswith(" ") for start, end in spans)


def test_invalid_bytes_are_dropped(tokenizer):
    invalid = [b"the \xffte\xc3st\xe4\xb8", b"\xff", b"\xe4\xb8\xad\xff"]
    valid = [text.decode("utf-8", "ignore") for text in invalid]
    assert tokenizer(invalid) == tokenizer(valid)
    assert tokenizer.tokenize_with_offsets(invalid) == tokenizer.tokenize_with_offsets(valid)


def test_surrogate_error_includes_position(kind):
    tokenizer = small_tokenizers.make(kind)
    for texts, location in ((["a", "b \ud83d"], "1"), ([["a"], ["b", "b \ud83d"]], "1, 1")):
        for executor in (tokenizer, tokenizer.graph):
            with pytest.raises(
                ValueError,
                match=rf"^Text {location} must only contain characters that UTF-8 can represent. "
                rf"Received: the lone surrogate '\\ud83d' at position 2",
            ):
                executor(texts)


def test_special_tokens_in_text(tokenizer, executor):
    mask, sep = tokenizer.mask_token, tokenizer.sep_token
    text = f"the {mask} test{sep}é {mask}"
    special = {tokenizer.mask_token_id, tokenizer.sep_token_id}
    assert not special & set(tokenizer(text))
    special_tokenizer = select_executor(tokenizer.with_special_tokens_in_text, executor)
    assert special_tokenizer.with_special_tokens_in_text is tokenizer.with_special_tokens_in_text
    ids, starts, ends = special_tokenizer.tokenize_with_offsets(text)
    assert ids == special_tokenizer(text)
    id_pairs = [
        (special_tokenizer.id_to_token(token_id), text[start:end].strip())
        for token_id, start, end in zip(ids, starts, ends, strict=True)
        if token_id in special
    ]
    assert id_pairs == [(mask, mask), (sep, sep), (mask, mask)]
    assert starts == sorted(starts)
    assert ends == sorted(ends)
    assert special_tokenizer([text, "", mask]) == [ids, [], [special_tokenizer.mask_token_id]]


def test_token_id_round_trip(tokenizer):
    assert tokenizer.vocabulary_size == len(tokenizer.vocabulary) == len(set(tokenizer.vocabulary))
    for name in ("pad", "unk", "cls", "sep", "mask"):
        token = getattr(tokenizer, f"{name}_token")
        token_id = getattr(tokenizer, f"{name}_token_id")
        assert tokenizer.id_to_token(token_id) == token
        assert token_id in tokenizer.special_token_ids
        assert tokenizer.token_text(token_id) == token
    with pytest.raises(
        ValueError, match=r"token must be in the vocabulary of \d+ tokens. Received: 'no such'"
    ):
        tokenizer.token_to_id("no such")
    for token_id in (-1, tokenizer.vocabulary_size):
        with pytest.raises(
            ValueError,
            match=rf"Token ids must be in \[0, {tokenizer.vocabulary_size}\). Received: {token_id}",
        ):
            tokenizer.id_to_token(token_id)


def test_detokenize_skips_special_tokens(tokenizer):
    text = "the test is skipped"
    ids = tokenizer(text)
    assert tokenizer.detokenize(ids) == text
    row = [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id, tokenizer.pad_token_id]
    assert tokenizer.detokenize([row, [tokenizer.cls_token_id]], True) == [text, ""]
    assert tokenizer.cls_token in tokenizer.detokenize(row)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="99999"):
        tokenizer.detokenize([99999])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("wordpiece", {"lowercase": False}),
        ("byte_pair", {"add_prefix_space": True}),
        ("sentence_piece", {"lowercase": False, "keep_accents": True}),
    ],
)
def test_config_round_trip(kind, options):
    tokenizer = small_tokenizers.MAKERS[kind](special_tokens_in_text=True, **options)
    config = json.loads(json.dumps(tokenizer.get_config()))
    restored = tokenizer_from_config(config)
    assert type(restored) is type(tokenizer)
    assert restored.get_config() == tokenizer.get_config()
    text = [f"The {tokenizer.mask_token} CASE", *TEXTS]
    for duplicate in (restored, copy.deepcopy(tokenizer)):
        assert duplicate is not tokenizer
        assert duplicate(text) == tokenizer(text)


@pytest.mark.parametrize("kind", small_tokenizers.MAKERS)
def test_equal_configs_share_a_tokenizer(kind):
    config = small_tokenizers.MAKERS[kind]().get_config()
    first = tokenizer_from_config(config)
    assert tokenizer_from_config(json.loads(json.dumps(config))) is first
    other = tokenizer_from_config({**config, "special_tokens_in_text": True})
    assert other is not first
    assert other.special_tokens_in_text
    assert not first.special_tokens_in_text


def test_unused_tokenizer_is_garbage_collected():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat"]
    tokenizer = tokenizer_from_config({"vocabulary": tokens})
    tokenizer(["cat"])
    reference = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    ("kind", "field", "file"),
    [
        ("wordpiece", "vocabulary", "vocab.txt"),
        ("byte_pair", "vocabulary", "vocab.json"),
        ("byte_pair", "merges", "merges.txt"),
        ("sentence_piece", "model", "spiece.model"),
    ],
)
def test_config_rejects_file_arguments(kind, field, file, tmp_path):
    tokenizer = small_tokenizers.MAKERS[kind]()
    destination = tmp_path if kind == "byte_pair" else tmp_path / file
    tokenizer.save_vocabulary(destination)
    arguments = {**tokenizer.get_config(), field: os.fspath(tmp_path / file)}
    expected = f"{field} in a tokenizer config must be "
    for create in (type(tokenizer).from_config, tokenizer_from_config):
        with pytest.raises(ValueError, match=expected):
            create(arguments)
    arguments = {name: value for name, value in arguments.items() if name != "kind"}
    for path in (tmp_path / file, os.fspath(tmp_path / file)):
        loaded = type(tokenizer)(**{**arguments, field: path})
        assert loaded.get_config() == tokenizer.get_config()
    with pytest.raises(FileNotFoundError, match="none does not exist"):
        type(tokenizer)(**{**arguments, field: tmp_path / "none"})
