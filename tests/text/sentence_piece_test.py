# SPDX-License-Identifier: Apache-2.0
"""SentencePiece against the library and ALBERT's normalization in plain Python."""

import random

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("sentencepiece")

from keras_bert.text import SentencePieceTokenizer, train_sentence_piece_model  # noqa: E402
from tests.text import small_tokenizers, vocabularies  # noqa: E402
from tests.text.executors import InGraph  # noqa: E402
from tests.text.reference_sentence_piece import SPACE, ReferenceTokenizer  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

MIXED = (
    "abAB 12,..,'`\"``''s"
    "ΣσςİıIſÉé\u0301\u0327½①²Ⅷ…\t\n\r\x0b\x1c\x85\xa0\u2003\u2028\u3000   中国ガｶﾞ"
    "각\u1100\u1161\u11a8’“ﬁ🙂\x00\x08\u200b\u00ad\ufeff\ufffd\ue000()-–£€▁<>[]"
)


def differences(texts, tokenizer, reference):
    """Texts whose ids are not the reference's, but for pieces of equal scores in another order."""
    return [
        text
        for executor in (tokenizer, InGraph(tokenizer))
        for text in _differing(list(texts), executor, reference)
    ]


def _differing(texts, tokenizer, reference):
    alone = tokenizer(texts)
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    return [
        text
        for index, text in enumerate(texts)
        if ids[index] != alone[index]
        or not reference.is_best(text, ids[index])
        or not _well_placed(reference, text, ids[index], starts[index], ends[index])
    ]


def _well_placed(reference, text, ids, starts, ends):
    """Whether each piece is in what its place is cleaned up to.

    With accents, where the model itself takes ligatures apart, of a piece that ends inside one.
    """
    for piece, start, end in zip(reference.to_pieces(ids), starts, ends, strict=True):
        visible_text = piece.removeprefix(SPACE).replace("ς", "σ")
        span = reference.normalized(text[start:end]).replace("ς", "σ")
        visible_text = visible_text[:1] if reference.keep_accents else visible_text
        if piece != "<unk>" and visible_text not in span.replace(" ", SPACE):
            return False
    return starts == sorted(starts) and ends == sorted(ends)


@pytest.fixture(
    scope="module",
    params=[{}, {"lowercase": False}, {"keep_accents": True}],
    ids=["usual", "cased", "accents"],
)
def pair(request):
    model = small_tokenizers.sentence_piece_model()
    return SentencePieceTokenizer(model, **request.param), ReferenceTokenizer(
        model, **request.param
    )


def test_english_and_other_text(pair):
    assert differences(small_tokenizers.texts(), *pair) == []


def test_random_mixtures(pair):
    generator = random.Random(0)
    texts = ["".join(generator.choices(MIXED, k=generator.randrange(24))) for _ in range(3000)]
    assert differences(texts, *pair) == []


def test_every_thirteenth_character(pair):
    texts = [f"a{it}b {it} the" for it in vocabularies.assigned_characters()[::13]]
    assert differences(texts, *pair) == []


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
def test_edges(pair, text):
    assert differences([text, "it", text], *pair) == []


def places(tokenizer, text):
    ids, starts, ends = tokenizer.tokenize_with_offsets(text)
    assert (ids, starts, ends) == InGraph(tokenizer).tokenize_with_offsets(text)
    return [
        (tokenizer.id_to_token(token_id), text[start:end])
        for token_id, start, end in zip(ids, starts, ends, strict=True)
    ]


def test_numbers_lose_their_commas_and_keep_their_places():
    tokenizer = small_tokenizers.make("sentence_piece")
    assert "▁1991," in tokenizer.vocabulary
    parts = places(tokenizer, "in  １９９１, the")
    assert parts[-2:] == [(",", ","), ("▁the", "the")]
    assert "".join(place for _, place in parts) == "in１９９１,the"
    plain = small_tokenizers.make("sentence_piece", albert_rules=False)
    assert ("▁1991,", "1991,") in places(plain, "in 1991, the")


def test_places_of_quotes_accents_and_spaces():
    tokenizer = small_tokenizers.make("sentence_piece")
    quotes = [place for piece, place in places(tokenizer, "the ``test'' '") if '"' in piece]
    assert quotes == ["``", "''"]
    accents = places(tokenizer, "E\u0301te\u0301")
    assert "".join(place for _, place in accents) == "E\u0301te\u0301"
    assert [place for _, place in places(tokenizer, "\u3000 the  ")] == ["the"]


def test_files_that_are_no_model_are_refused():
    with pytest.raises(ValueError, match=r"must be a SentencePiece model. Received: 4 bytes"):
        SentencePieceTokenizer(b"text")
    config = small_tokenizers.make("sentence_piece").get_config()
    with pytest.raises(ValueError, match=r"model in a tokenizer config must be base64"):
        SentencePieceTokenizer.from_config({**config, "model": "%"})


def test_words_that_continue():
    tokenizer = small_tokenizers.make("sentence_piece")
    continuing = {tokenizer.vocabulary[index] for index in tokenizer.continuation_token_ids}
    assert {"s", "ing"} <= continuing
    assert not continuing & {"▁", "▁the", ".", "(", "1", "é", "<unk>", "[MASK]"}


def test_the_same_corpus_makes_the_same_model(tmp_path):
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
