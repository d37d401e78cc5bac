# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")

from keras_bert import WordPieceTokenizer
from keras_bert.data import (
    MultipleChoicePreprocessor,
    QuestionAnswererPreprocessor,
    TextClassifierPreprocessor,
    TokenClassifierPreprocessor,
)
from keras_bert.data.arrays import Ragged
from keras_bert.data.packing import truncate_tokens
from tests.small_tasks import LETTERS
from tests.text import small_tokenizers

pytestmark = pytest.mark.backend_independent

PREPROCESSORS = (
    MultipleChoicePreprocessor,
    QuestionAnswererPreprocessor,
    TextClassifierPreprocessor,
    TokenClassifierPreprocessor,
)


@pytest.fixture(scope="module", params=["byte_pair", "sentence_piece"])
def tokenizer(request):
    return small_tokenizers.make(request.param)


def expected_pair(tokenizer, first, second):
    """Returns a pair's ids and segments, built by hand."""
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    first, second = (tokenizer(text) for text in (first, second))
    if tokenizer.kind == "byte_pair":
        ids = [cls, *first, sep, sep, *second, sep]
        return ids, [0] * len(ids)
    left, right = [cls, *first, sep], [*second, sep]
    return [*left, *right], [0] * len(left) + [1] * len(right)


def test_text_and_pair_formats(tokenizer):
    preprocessor = TextClassifierPreprocessor(tokenizer, 64)
    ids = tokenizer("the test")
    single = preprocessor("the test")
    assert single["token_ids"].tolist() == [
        tokenizer.cls_token_id, *ids, tokenizer.sep_token_id,
    ]  # fmt: skip
    pair = preprocessor("the test", "is skipped, always")
    assert (pair["token_ids"].tolist(), pair["segment_ids"].tolist()) == (
        expected_pair(tokenizer, "the test", "is skipped, always")
    )


def test_rows_are_padded_with_pad_token_id(tokenizer):
    preprocessor = TextClassifierPreprocessor(tokenizer, 64)
    texts = ["the test", "the test is skipped if it fails"]
    features = preprocessor(texts)
    ids, mask = features["token_ids"], features["padding_mask"]
    assert not mask.all()
    assert set(ids[~mask]) == {tokenizer.pad_token_id}
    assert not features["segment_ids"][~mask].any()


def test_long_pairs_are_truncated(tokenizer):
    preprocessor = TextClassifierPreprocessor(tokenizer, 20)
    pair = preprocessor("the test " * 30, "is skipped " * 30)
    assert pair["token_ids"].shape == (20,)
    separators = (pair["token_ids"] == tokenizer.sep_token_id).sum()
    assert separators == tokenizer.pair_separators + 1
    shortest = 4 + tokenizer.pair_separators
    TextClassifierPreprocessor(tokenizer, shortest)
    with pytest.raises(ValueError, match=f"must be an integer of at least {shortest}"):
        TextClassifierPreprocessor(tokenizer, shortest - 1)


def test_choices_are_packed_as_pairs(tokenizer):
    features = MultipleChoicePreprocessor(tokenizer, 64)("the test", ["fails", "is skipped"])
    for index, choice in enumerate(("fails", "is skipped")):
        ids, segments = expected_pair(tokenizer, "the test", choice)
        assert features["token_ids"][index, : len(ids)].tolist() == ids
        assert features["segment_ids"][index, : len(ids)].tolist() == segments


def test_question_windows_match_passage_tokens(tokenizer):
    preprocessor = QuestionAnswererPreprocessor(tokenizer, 32, doc_stride=5, max_query_length=8)
    passage = "Größe «été»: the  test\nfails, if it's skipped; or the case is closed. " * 2
    windows = preprocessor(["what fails?"], [passage])
    question = tokenizer("what fails?")[:8]
    passage_start = 1 + len(question) + tokenizer.pair_separators
    ids, starts, ends = map(np.array, tokenizer.tokenize_with_offsets(passage))
    assert windows.question_index.shape[0] > 3
    rows = zip(
        windows.features["token_ids"].to_list(),
        windows.char_starts.to_list(),
        windows.char_ends.to_list(),
        windows.first_token,
        strict=True,
    )
    for row, row_starts, row_ends, first in rows:
        window_tokens = slice(first, first + len(row) - passage_start - 1)
        assert len(row) <= 32
        assert row[1 : 1 + len(question)] == question
        assert row[passage_start:-1] == ids[window_tokens].tolist()
        assert row_starts[passage_start:-1] == starts[window_tokens].tolist()
        assert row_ends[passage_start:-1] == ends[window_tokens].tolist()
        assert not any(row_starts[:passage_start] + row_ends[:passage_start] + row_starts[-1:])
    assert windows.is_max_context.values.sum() == len(ids)


def test_word_positions_match_word_pieces(tokenizer):
    preprocessor = TokenClassifierPreprocessor(tokenizer, 64)
    words = ["The", "test", "\x07", "skipped", "."]
    windows = preprocessor.windows([words])
    (row,) = windows.token_ids.to_list()
    positions = [*windows.word_position.tolist(), len(row) - 1]
    for index, word in enumerate(words):
        pieces = tokenizer.tokenize_words(word) or [tokenizer.unk_token_id]
        assert row[positions[index] : positions[index + 1]] == pieces
    assert tokenizer.id_to_token(row[positions[1]]).startswith(("Ġ", "▁"))


def flatten_arrays(packed):
    """Flattens features or windows into a list of arrays."""
    parts = packed.values() if isinstance(packed, dict) else packed
    arrays = []
    for part in parts:
        is_nested = isinstance(part, (dict, Ragged))
        arrays += flatten_arrays(part) if is_nested else [np.asarray(part)]
    return arrays


TEXTS = ["", "the test", "is skipped, always", "a case", "Größe «été»: the  test\nfails " * 9]


# The ids of all tokenizers are packed by the same operations.
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        *((make, "wordpiece") for make in PREPROCESSORS),
        *((TextClassifierPreprocessor, kind) for kind in ("byte_pair", "sentence_piece")),
    ],
)
def test_graph_matches_numpy(make, kind):
    tf = pytest.importorskip("tensorflow")
    preprocessor = make(
        small_tokenizers.make(kind), *([14, 3, 4] if "Question" in make.__name__ else [14])
    )
    generator = np.random.default_rng(0)
    strings = tf.TensorSpec([None], tf.string)
    ragged = tf.RaggedTensorSpec([None, None], tf.string, row_splits_dtype=tf.int64)
    function, specs = preprocessor, [strings]
    if make is MultipleChoicePreprocessor:
        specs = [strings, ragged]
    elif make is QuestionAnswererPreprocessor:
        specs = [strings, strings]
    elif make is TokenClassifierPreprocessor:
        function, specs = preprocessor.windows, [ragged]
    traced = tf.function(function, input_signature=specs, autograph=False)
    for size in (0, 1, 4, 20):
        inputs = [generator.choice(TEXTS, size).tolist() for _ in specs]
        if specs[-1] is ragged:
            inputs[-1] = [generator.choice(TEXTS, 1 + n % 3).tolist() for n in range(size)]
        tensors = [
            tf.ragged.constant(x, tf.string, 1).with_row_splits_dtype(tf.int64)
            if spec is ragged
            else tf.constant(x, tf.string)
            for x, spec in zip(inputs, specs, strict=True)
        ]
        graph_arrays, expected = flatten_arrays(traced(*tensors)), flatten_arrays(function(*inputs))
        for tensor, array in zip(graph_arrays, expected, strict=True):
            assert tensor.dtype == array.dtype
            np.testing.assert_array_equal(tensor, array)


@pytest.mark.parametrize("side", ["left", "right"])
def test_offsets_are_truncated_like_ids(side):
    tokenizer = WordPieceTokenizer(LETTERS, truncation_side=side)
    preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=8)
    texts = ["a b a a b b b", "b", "", "a b a a b b", "b b b a a a a a a"]
    max_tokens = preprocessor.max_tokens(1)
    ids, starts, ends = truncate_tokens(
        tokenizer, tokenizer.tokenize_with_offsets(texts), max_tokens
    )
    for text, row, *bounds in zip(texts, ids, starts, ends, strict=True):
        assert [2, *row, 3] == preprocessor(text)["token_ids"].tolist()
        letters = [text[start:end] for start, end in zip(*bounds, strict=True)]
        assert [LETTERS[token] for token in row] == letters
