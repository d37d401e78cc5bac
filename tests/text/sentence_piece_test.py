# SPDX-License-Identifier: Apache-2.0
"""Compares SentencePiece with the sentencepiece library and ALBERT's normalization in Python."""

import random

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("sentencepiece")

from keras_bert.text import SentencePieceTokenizer, train_sentence_piece_model  # noqa: E402
from tests.text import real_text, small_tokenizers, vocabularies  # noqa: E402
from tests.text.executors import GraphTokenizer  # noqa: E402
from tests.text.reference_sentence_piece import SPACE, ReferenceTokenizer  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

MIXED = (
    "abAB 12,..,'`\"``''s"
    "ΣσςİıIſÉé\u0301\u0327½①²Ⅷ…\t\n\r\x0b\x1c\x85\xa0\u2003\u2028\u3000   中国ガｶﾞ"
    "각\u1100\u1161\u11a8’“ﬁ🙂\x00\x08\u200b\u00ad\ufeff\ufffd\ue000()-–£€▁<>[]"
)


def find_mismatches(texts, tokenizer, reference):
    """Returns texts whose ids differ from the reference, except pieces with equal scores."""
    return [
        text
        for executor in (tokenizer, GraphTokenizer(tokenizer))
        for text in _find_mismatches(list(texts), executor, reference)
    ]


def _find_mismatches(texts, tokenizer, reference):
    ids_only = tokenizer(texts)
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    return [
        text
        for index, text in enumerate(texts)
        if ids[index] != ids_only[index]
        or not reference.is_best(text, ids[index])
        or not _has_valid_offsets(reference, text, ids[index], starts[index], ends[index])
    ]


def _has_valid_offsets(reference, text, ids, starts, ends):
    """Returns whether each span, normalized, contains its piece.

    With accents, the model itself splits ligatures, so a piece may end inside a ligature.
    """
    for piece, start, end in zip(reference.to_pieces(ids), starts, ends, strict=True):
        visible_text = piece.removeprefix(SPACE).replace("ς", "σ")
        span = reference.normalize(text[start:end]).replace("ς", "σ")
        visible_text = visible_text[:1] if reference.keep_accents else visible_text
        if piece != "<unk>" and visible_text not in span.replace(" ", SPACE):
            return False
    return starts == sorted(starts) and ends == sorted(ends)


@pytest.fixture(
    scope="module",
    params=[{}, {"lowercase": False}, {"keep_accents": True}],
    ids=["uncased", "cased", "keep_accents"],
)
def pair(request):
    model = small_tokenizers.sentence_piece_model()
    return SentencePieceTokenizer(model, **request.param), ReferenceTokenizer(
        model, **request.param
    )


def test_texts_match_reference(pair):
    assert find_mismatches(small_tokenizers.texts(), *pair) == []


def test_random_mixtures_match_reference(pair):
    generator = random.Random(0)
    texts = ["".join(generator.choices(MIXED, k=generator.randrange(24))) for _ in range(3000)]
    assert find_mismatches(texts, *pair) == []


def test_characters_match_reference(pair):
    texts = [
        f"a{character}b {character} the"
        for character in vocabularies.assigned_characters()[:: 13 * real_text.STEP]
    ]
    assert find_mismatches(texts, *pair) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \t\n",
        "1990, 1991, and 2,000, 1990,1991,",
        "`` quoted '' ''' ```` it''s",
        "ΟΔΥΣΣΕΥΣ ΣΑΣ Σ Σ. İstanbul",
        "e\u0301 \u0301 \u0301\u0327a ¨a",
        "a\u2028b\x85c\x1cd",
        "x" * 3000,
    ],
)
def test_edge_cases_match_reference(pair, text):
    assert find_mismatches([text, "it", text], *pair) == []


def piece_spans(tokenizer, text):
    ids, starts, ends = tokenizer.tokenize_with_offsets(text)
    assert (ids, starts, ends) == GraphTokenizer(tokenizer).tokenize_with_offsets(text)
    return [
        (tokenizer.id_to_token(token_id), text[start:end])
        for token_id, start, end in zip(ids, starts, ends, strict=True)
    ]


def test_numbers_are_split_from_commas():
    tokenizer = small_tokenizers.make("sentence_piece")
    assert "▁1991," in tokenizer.vocabulary
    parts = piece_spans(tokenizer, "in  １９９１, the")
    assert parts[-2:] == [(",", ","), ("▁the", "the")]
    assert "".join(span for _, span in parts) == "in１９９１,the"
    without_albert_rules = small_tokenizers.make("sentence_piece", albert_rules=False)
    assert ("▁1991,", "1991,") in piece_spans(without_albert_rules, "in 1991, the")


def test_offsets_of_quotes_accents_and_spaces():
    tokenizer = small_tokenizers.make("sentence_piece")
    quotes = [span for piece, span in piece_spans(tokenizer, "the ``test'' '") if '"' in piece]
    assert quotes == ["``", "''"]
    accents = piece_spans(tokenizer, "E\u0301te\u0301")
    assert "".join(span for _, span in accents) == "E\u0301te\u0301"
    assert [span for _, span in piece_spans(tokenizer, "\u3000 the  ")] == ["the"]


def test_invalid_model_raises():
    with pytest.raises(ValueError, match=r"must be a SentencePiece model. Received: 4 bytes"):
        SentencePieceTokenizer(b"text")
    config = small_tokenizers.make("sentence_piece").get_config()
    with pytest.raises(ValueError, match=r"model in a tokenizer config must be base64"):
        SentencePieceTokenizer.from_config({**config, "model": "%"})


def test_continuation_token_ids():
    tokenizer = small_tokenizers.make("sentence_piece")
    continuing = {tokenizer.vocabulary[index] for index in tokenizer.continuation_token_ids}
    assert {"s", "ing"} <= continuing
    assert not continuing & {"▁", "▁the", ".", "(", "1", "é", "<unk>", "[MASK]"}


def test_training_is_deterministic(tmp_path):
    texts = small_tokenizers.texts()
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(texts), encoding="utf-8")
    options = {"character_coverage": 1.0, "progress": False}
    first = train_sentence_piece_model(path, 500, **options)
    assert first == small_tokenizers.sentence_piece_model()
    vocabulary = SentencePieceTokenizer(first).vocabulary
    assert vocabulary[:5] == ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    assert len(vocabulary) == 500
    assert not any(piece != piece.lower() for piece in vocabulary[5:])
    cased = train_sentence_piece_model(path, 500, lowercase=False, **options)
    assert any(piece != piece.lower() for piece in SentencePieceTokenizer(cased).vocabulary[5:])
