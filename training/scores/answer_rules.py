# SPDX-License-Identifier: Apache-2.0
"""Compares predicted and gold answers by words, characters or segments.

By default, answers are compared by words, as in SQuAD's scorer. This does not work for languages
that have no spaces, or that attach particles to nouns. Therefore, Japanese and Korean answers are
compared by characters, as in KorQuAD 1.0's scorer
([Lim et al., 2019](https://arxiv.org/abs/1909.07005)). Korean answers are also compared by their
longest common substring, as in KLUE's scorer
([Park et al., 2021](https://arxiv.org/abs/2105.09680)). Chinese answers are compared by their
longest common run of segments, as in CMRC 2018's scorer
([Cui et al., 2019](https://aclanthology.org/D19-1600/)). TriviaQA's scorer splits words
differently.
"""

from __future__ import annotations

import collections
import dataclasses
import difflib
import functools
import re
import string
from collections.abc import Callable, Iterable, Sequence

from ..readers.scripts import scripts

ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
# TriviaQA's scorer replaces these characters with spaces.
_SPACES = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))
# KorQuAD's scorer replaces these characters with spaces, then removes ASCII punctuation.
_BRACKETS = str.maketrans(dict.fromkeys("'\"<>()《》〈〉‘’", " "))
# CMRC's scorer removes these characters. For example, it keeps the ASCII period and comma.
_CHINESE_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
# Matches a segment: a Chinese character, a punctuation mark, or a run of other characters. Such a
# run may contain periods and the commas in numbers. NLTK splits text in nearly the same way.
_SEGMENT = re.compile(
    r"""[\u4e00-\u9fa5;@#$%&?!()\[\]{}<>"]|(?:[^\s\u4e00-\u9fa5;@#$%&?!()\[\]{}<>",:.]"""
    r"""|[,:](?=[0-9])|\.(?![\u4e00-\u9fa5]|$))+|[,:.]"""
)
# Text is Japanese if at least this percentage of its Chinese characters and kana are kana.
_KANA = 5


@functools.lru_cache(maxsize=200_000)
def normalized(text: str) -> str:
    """Removes case, ASCII punctuation, English articles and extra spaces.

    Example:

    >>> normalized("The U.S. president,  a  man")
    'us president man'
    """
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", text).split())


@functools.lru_cache(maxsize=200_000)
def normalized_trivia(text: str) -> str:
    """Removes case and English articles, and replaces punctuation with single spaces.

    Example:

    >>> normalized_trivia("The Jay-Z  song, a `hit`")
    'jay z song hit'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(_SPACES)).split())


def _strip_brackets(text: str) -> str:
    text = text.translate(_BRACKETS).lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(text.split())


def _strip_punctuation(text: str) -> str:
    return " ".join(text.lower().translate(_WITHOUT_PUNCTUATION).split())


def _strip_chinese_punctuation(text: str) -> str:
    return text.lower().strip().translate(_CHINESE_PUNCTUATION)


def _num_in_both(first: Sequence[str], second: Sequence[str]) -> int:
    return sum((collections.Counter(first) & collections.Counter(second)).values())


def _longest_run(first: Sequence[str], second: Sequence[str]) -> int:
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    return matcher.find_longest_match().size


def _longest_run_of_rare(first: Sequence[str], second: Sequence[str]) -> int:
    # In a gold answer of 200 or more characters, KLUE's scorer ignores frequent characters. This is
    # the default of `SequenceMatcher`.
    return difflib.SequenceMatcher(None, first, second).find_longest_match().size


@dataclasses.dataclass(frozen=True)
class AnswerRule:
    """A rule for comparing a prediction with a gold answer.

    Args:
        name: The units that F1 counts and the scorer that defines them, for log messages.
        normalize: Removes characters that do not count, such as punctuation.
        divide: Splits a normalized text into units, such as words.
        common: Counts the units that two answers share.
    """

    name: str
    normalize: Callable[[str], str]
    divide: Callable[[str], Sequence[str]] = str.split
    common: Callable[[Sequence[str], Sequence[str]], int] = _num_in_both

    def exact_match(self, prediction: str, gold: str) -> float:
        """Returns 1 if both texts are equal after normalization, and 0 otherwise."""
        return float(self.normalize(prediction) == self.normalize(gold))

    def f1(self, prediction: str, gold: str, both_empty: float = 1.0) -> float:
        """Returns F1, the harmonic mean of precision and recall, of the shared units.

        Returns `both_empty` if both answers are empty after normalization. SQuAD 1.1's scorer
        returns 0 in this case.
        """
        answer, true = (self.divide(self.normalize(text)) for text in (prediction, gold))
        if not answer or not true:
            return both_empty if answer == true else 0.0
        common = self.common(answer, true)
        if not common:
            return 0.0
        precision, recall = common / len(answer), common / len(true)
        return 2 * precision * recall / (precision + recall)


WORDS = AnswerRule("words, as in SQuAD's scorer", normalized)
TRIVIA_WORDS = AnswerRule("words, as in TriviaQA's scorer", normalized_trivia)
CHARACTERS = AnswerRule(
    "characters, as in KorQuAD's scorer",
    _strip_brackets,
    lambda text: list(text.replace(" ", "")),
)
# Its F1 is called ROUGE-W in KLUE. Spaces count as characters.
KLUE = AnswerRule(
    "the longest common run of characters, as in KLUE's scorer",
    _strip_punctuation,
    list,
    _longest_run_of_rare,
)
SEGMENTS = AnswerRule(
    "the longest common run of characters and words, as in CMRC's scorer",
    _strip_chinese_punctuation,
    _SEGMENT.findall,
    _longest_run,
)


def is_korean(texts: Iterable[str]) -> bool:
    """Returns whether most letters are Hangul.

    Example:

    >>> is_korean(["이순신", "1598년"])
    True
    """
    return scripts(texts).get("Hangul", 0.0) > 50


def rule_for(texts: Iterable[str]) -> AnswerRule:
    """Chooses the rule for answers by the scripts of their letters.

    Example:

    >>> rule_for(["이순신", "1598년"]).name
    "characters, as in KorQuAD's scorer"
    """
    shares = scripts(texts)
    chinese, korean = shares.get("Cjk", 0.0), shares.get("Hangul", 0.0)
    kana = sum(share for name, share in shares.items() if name.startswith(("Hira", "Kata")))
    if chinese + korean + kana <= 50:
        return WORDS
    return SEGMENTS if chinese > korean and kana < _KANA / 100 * (chinese + kana) else CHARACTERS
