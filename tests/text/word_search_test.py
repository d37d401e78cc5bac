# SPDX-License-Identifier: Apache-2.0

import re

import pytest

from keras_bert.text.word_search import fit_particle, is_whole_word, word_pattern

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        (["he", "she"], "She, the others and he's", "She|he"),
        (["man"], "a man_made man", "man"),
        (["cafe"], "cafe cafe\u0301", "cafe"),
        (["वह"], "वही वह", "वह"),
        (["사과"], "사과나무 사과했다 사과를", "사과+를"),
        (["사과"], "풋사과 사과이 사과는", "사과+는"),
        (["그", "그녀"], "그래서 그녀는 그만 그에게만 그녀석 그대로", "그녀+는|그+에게"),
        (["나"], "나이 우리나라는 나라도 나는", "나+는"),
        (["서울", "집"], "서울로 집으로 서울으로", "서울+로|집+으로"),
        (["의사"], "여의사 의사였다 의사입니다.", "의사+였|의사+입니다"),
        (["BERT"], "BERT를 BERT모델 我用BERT模型", "BERT+를|BERT"),
        (["彼", "彼女"], "彼女は彼を", "彼女|彼"),
        (["アイス"], "アイスクリームとアイスを", "アイス"),
        (["กา"], "กาก่า", "กา"),
    ],
)
def test_word_pattern_finds_whole_words(words, text, found):
    matches = list(re.finditer(word_pattern(words), text, re.IGNORECASE))
    assert "|".join("+".join(filter(None, match.groups())) for match in matches) == found
    assert all(is_whole_word(text, *match.span("word")) for match in matches)


def test_fit_particle_by_last_sound():
    for particle, word, form in (
        ("가", "신랑", "이"),
        ("은", "신부", "는"),
        ("으로", "서울", "로"),
        ("으로", "이모", "로"),
        ("로", "삼촌", "으로"),
        ("였", "삼촌", "이었"),
        ("다", "삼촌", "이다"),
        ("이다", "이모", "이다"),
        ("에게", "이모", "에게"),
        ("은", "Ann", "은"),
    ):
        assert fit_particle(particle, word) == form


def test_parts_of_words_are_not_whole_words():
    assert not is_whole_word("the man", 1, 3)
    assert not is_whole_word("사과나무", 0, 2)
