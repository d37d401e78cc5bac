# SPDX-License-Identifier: Apache-2.0
"""Offsets of texts in which normalization drops characters."""

import itertools
import unicodedata

import pytest

tf = pytest.importorskip("tensorflow")

from keras_bert.data import QuestionAnswererPreprocessor, QuestionExample, SpanAnswer  # noqa: E402
from keras_bert.data.questions import question_rows  # noqa: E402
from keras_bert.text import (  # noqa: E402
    SentencePieceTokenizer,
    WordPieceTokenizer,
    train_sentence_piece_model,
)
from tests.text import vocabularies  # noqa: E402
from tests.text.executors import GraphTokenizer  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

# Words that end or start with characters that an uncased tokenizer drops: vowel signs, viramas,
# tone marks, harakat, accents, variation selectors and joiners
WORDS = [
    "กรุงเทพมหานคร ที่ พรรคเพื่อไทยได้ นี้ ปี 2560 ซึ่ง มี",
    "नई दिल्ली में हिन्दी, की (जनसंख्या) थी। वाक् क्\u200d",
    "كِتَابٌ الدِّينِ، «مُحَمَّدٌ» فِي المَدِينَةِ می\u200cخواهم",
    unicodedata.normalize("NFD", "café Ünlü, Việt Nam’ñ Zoë résumé ç"),
    "葛\U000e0100 ❤\ufe0f 각 \u0301a\u0301 שָׁלוֹם",
]


def make_wordpiece(lowercase):
    """Creates a tokenizer in which every character is a token, so no piece is longer."""
    text = "".join(WORDS)
    return WordPieceTokenizer(vocabularies.character_vocabulary(text + text.lower()), lowercase)


def make_sentence_piece(lowercase):
    model = train_sentence_piece_model(
        WORDS * 20, 160, lowercase, not lowercase, 1.0, progress=False
    )
    return SentencePieceTokenizer(model, lowercase, keep_accents=not lowercase)


def words_with_starts(text):
    """Returns the words between spaces and their first characters' positions."""
    ends = itertools.accumulate(len(word) + 1 for word in text.split(" "))
    return [(word, end - len(word) - 1) for word, end in zip(text.split(" "), ends, strict=True)]


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
@pytest.mark.parametrize("make", [make_wordpiece, make_sentence_piece])
def test_token_spans_cover_whole_words(lowercase, make):
    # Texts in a batch do not affect each other, whatever they start and end with.
    texts = [text for words in WORDS for text in (words, f"\u0301{words}")]
    tokenizer = make(lowercase)
    parts = tokenizer.tokenize_with_offsets(texts)
    assert parts == GraphTokenizer(tokenizer).tokenize_with_offsets(texts)
    for text, starts, ends in zip(texts, *parts[1:], strict=True):
        assert starts == sorted(starts)
        assert ends == sorted(ends)
        for word, word_start in words_with_starts(text):
            word_end = word_start + len(word)
            tokens = [
                (start, end)
                for start, end in zip(starts, ends, strict=True)
                if start < word_end and end > word_start
            ]
            assert text[tokens[0][0] : tokens[-1][1]] == word


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
def test_answer_spans_round_trip(lowercase):
    preprocessor = QuestionAnswererPreprocessor(make_wordpiece(lowercase), 256, max_query_length=8)
    examples = []
    for context in WORDS:
        words = words_with_starts(context)
        for (_, start), (last_word, last_start) in itertools.combinations_with_replacement(
            words, 2
        ):
            answer = context[start : last_start + len(last_word)]
            examples.append(QuestionExample("0", "a", context, (SpanAnswer(answer, start),)))
    rows = question_rows(examples, preprocessor)
    assert len(rows) == len(examples)
    starts = rows.char_starts[rows.row_splits[:-1] + rows.start_positions]
    ends = rows.char_ends[rows.row_splits[:-1] + rows.end_positions]
    decoded = [
        example.context[start:end]
        for example, start, end in zip(examples, starts, ends, strict=True)
    ]
    assert decoded == [example.answers[0].text for example in examples]


def test_offsets_include_dropped_marks():
    tokenizer = make_wordpiece(lowercase=True)
    text = "a\u0301\u0323e\u200b\u0301 \xada\u200b, \u0301"
    _, starts, ends = tokenizer.tokenize_with_offsets(text)
    assert (starts, ends) == GraphTokenizer(tokenizer).tokenize_with_offsets(text)[1:]
    assert list(zip(starts, ends, strict=True)) == [(0, 3), (3, 4), (8, 9), (10, 11)]
