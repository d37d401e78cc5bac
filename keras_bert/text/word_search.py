# SPDX-License-Identifier: Apache-2.0
"""Finds words in texts of any script."""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Iterable

from keras_bert.text.characters import UNSPACED, character_class, character_class_of

_SPACED_OR_CHARACTER = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")

# Korean particles (and forms of the copula) that other particles may follow, and those that end a
# word. A pair is the form after a consonant and the form after a vowel.
_INNER = (
    "과/와 으로/로 으로서/로서 으로써/로써 이랑/랑 까지 께 께서 더러 마저 보다 부터 에 "
    "에게 에게서 에서 조차 처럼 한테 한테서"
)
_LAST = "은/는 이/가 을/를 이다/다 이에요/예요 도 의 이다 인데 입니까 입니다"
# After one syllable, these often form a different word, such as 그만, 그대로 and 나라도.
_LONG_INNER = "같이 대로 마다 만 만큼 밖에 보고 뿐 하고"
_LONG_LAST = (
    "이고/고 이나/나 이든/든 이든지/든지 이라고/라고 이라는/라는 이라도/라도 이라면/라면 "
    "이라서/라서 이란/란 이며/며 이야/야 이지만/지만 "
    "이고 이니까 이며 이므로 이자 이지만 인 인가 인지 일 임"
)
# The past of the copula, which has further endings
_PAST = "이었/였"

# Hangul syllables are ordered by their final consonant: none, and 27 consonants.
_HANGUL = range(0xAC00, 0xD7A4)
_NUM_FINALS = 28
_FINAL_RIEUL = 8  # ㄹ. The particle 로 follows it as it follows a vowel.


def split_at_spaces(text: str) -> list[str]:
    """Splits a text at spaces, and around each character in scripts without spaces.

    Example:

    >>> split_at_spaces("BERT를 써요. 使用BERT")
    ['BERT를', '써요.', '使', '用', 'BERT']
    """
    return _SPACED_OR_CHARACTER.findall(text)


def count_words(text: str | tuple[str, str]) -> int:
    """Counts the words in a text or a text pair, see `split_at_spaces`."""
    return len(split_at_spaces(text if isinstance(text, str) else " ".join(text)))


def word_pattern(words: Iterable[str]) -> str:
    """Returns a regular expression that finds words as whole words.

    Its groups are `word` and `particle`, which is empty in most languages. If multiple words match
    at the same place, the longest is found. What a whole word is depends on the script:

    - Where spaces separate words, no letter, digit or mark precedes or follows the word.
    - In Korean, a particle may follow the word: 사과 is found in 사과를 and 사과에서는, but not in
      사과나무. The particle must fit the last sound of the word, so 그 is not found in 그녀는 and
      그래서. Particles are recognized by a list, so for words of one syllable the result may be
      part of a different word (휴 in 휴가). Endings of verbs are not particles.
    - In Chinese, Japanese and Thai, the word may stand anywhere, because no spaces separate words.
      Only a run of katakana is not divided.

    Example:

    >>> match = re.search(word_pattern(["그", "그녀"]), "그러나 그녀는 웃었다.")
    >>> match["word"], match["particle"]
    ('그녀', '는')
    """
    choices = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    before, after = _boundaries()
    return f"{before}(?P<word>{choices}){after}"


def is_whole_word(text: str, start: int, end: int) -> bool:
    """Returns whether these characters of a text are a whole word, as in `word_pattern`."""
    before, after = map(_compile, _boundaries())
    return all((before.match(text, start), after.match(text, end)))


def fit_particle(particle: str, word: str) -> str:
    """Returns the form of a Korean particle that follows a word.

    After a word that does not end in Hangul, the particle stays as it is.

    Example:

    >>> "신랑" + fit_particle("가", "신랑")
    '신랑이'
    """
    forms = _forms().get(particle)
    if forms is None or not word or ord(word[-1]) not in _HANGUL:
        return particle
    final = (ord(word[-1]) - _HANGUL.start) % _NUM_FINALS
    return forms[final == 0 or (final == _FINAL_RIEUL and forms[1].startswith("로"))]


_compile = functools.cache(re.compile)


@functools.cache
def _forms() -> dict[str, tuple[str, str]]:
    """Returns the two forms of each particle that does not fit after every word."""
    entries = " ".join((_INNER, _LAST, _LONG_INNER, _LONG_LAST, _PAST)).split()
    pairs = [(before, after) for before, _, after in (each.partition("/") for each in entries)]
    return {form: pair for pair in pairs if pair[1] for form in pair if form not in entries}


@functools.cache
def _boundaries() -> tuple[str, str]:
    """Returns the regular expressions before and after a word. The second has a `particle`."""
    katakana = "[\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f]"
    marks = character_class("M")
    letter = rf"[\w{marks}]"
    divisible = rf"(?!(?<={katakana}){katakana}|[{marks}])"
    before = rf"(?:(?<!{letter})|(?<=[{UNSPACED}])|(?=[{UNSPACED}])){divisible}"
    end = rf"(?!{letter})"
    inner, last = _particles(_INNER, _LONG_INNER), _particles(_LAST, _LONG_LAST)
    particle = "|".join(
        (
            rf"(?<=[{UNSPACED}])",
            rf"{inner}(?={inner}?{last}?{end})",
            rf"{last}(?={end})",
            rf"{_particles(_PAST)}(?=[가-힣]{{1,3}}{end})",
            rf"(?={end}|[{UNSPACED}])",
        )
    )
    return before, rf"{divisible}(?P<particle>{particle})"


def _particles(short: str, long: str = "") -> str:
    """Returns a regular expression for one of the particles.

    If the text before a particle does not end in Hangul, both forms of the particle are found.
    """
    choices: dict[str, list[str]] = {}  # by what must precede the particle
    for entries, length in ((short, ""), (long, r"(?<=\w\w)")):
        for entry in entries.split():
            consonant, slash, vowel = entry.partition("/")
            if not slash:
                choices.setdefault(length, []).append(entry)
                continue
            like_vowel = {0, _FINAL_RIEUL} if vowel.startswith("로") else {0}
            like_consonant = set(range(_NUM_FINALS)) - like_vowel
            for form, excluded in ((consonant, like_vowel), (vowel, like_consonant)):
                before = f"{length}(?<![{_syllables(excluded)}])"
                choices.setdefault(before, []).append(form)
    groups = (f"{before}(?:{'|'.join(forms)})" for before, forms in choices.items())
    return f"(?:{'|'.join(groups)})"


def _syllables(finals: Container[int]) -> str:
    """Returns the Hangul syllables with these final consonants, for regular expressions."""
    return character_class_of(
        point for point in _HANGUL if (point - _HANGUL.start) % _NUM_FINALS in finals
    )
