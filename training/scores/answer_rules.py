# SPDX-License-Identifier: Apache-2.0
"""How a predicted answer is compared with a gold answer: by words, by characters, by segments.

Words are those of SQuAD's scorer. They mean little where text has no spaces, or where particles are
written together with nouns, so that answers in Japanese and Korean are compared by characters, as
in KorQuAD 1.0's scorer ([Lim et al., 2019](https://arxiv.org/abs/1909.07005)), and in Chinese by
the longest run of common segments, as in CMRC 2018's
([Cui et al., 2019](https://aclanthology.org/D19-1600/)). TriviaQA's scorer has words of its own.
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
# What TriviaQA's scorer makes spaces of
_SPACES = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))
# KorQuAD's scorer makes spaces of these, before it removes ASCII's punctuation
_BRACKETS = str.maketrans(dict.fromkeys("'\"<>()《》〈〉‘’", " "))
# What CMRC's scorer removes; ASCII's period and comma, for instance, stay
_CHINESE_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
# A Chinese character; or of what is between them and spaces, nearly as NLTK divides it: a mark, or
# a run of others with inner commas of numbers and inner periods
_SEGMENT = re.compile(
    r"""[\u4e00-\u9fa5;@#$%&?!()\[\]{}<>"]|(?:[^\s\u4e00-\u9fa5;@#$%&?!()\[\]{}<>",:.]"""
    r"""|[,:](?=[0-9])|\.(?![\u4e00-\u9fa5]|$))+|[,:.]"""
)
# Among Chinese characters and kana, the percentage of kana from which a text is Japanese
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
    """Removes case and English articles, and makes of punctuation single spaces.

    Example:

    >>> normalized_trivia("The Jay-Z  song, a `hit`")
    'jay z song hit'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(_SPACES)).split())


def _strip_brackets(text: str) -> str:
    text = text.translate(_BRACKETS).lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(text.split())


def _strip_chinese_punctuation(text: str) -> str:
    return text.lower().strip().translate(_CHINESE_PUNCTUATION)


def _num_in_both(first: Sequence[str], second: Sequence[str]) -> int:
    return sum((collections.Counter(first) & collections.Counter(second)).values())


def _longest_run(first: Sequence[str], second: Sequence[str]) -> int:
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    return matcher.find_longest_match().size


@dataclasses.dataclass(frozen=True)
class AnswerRule:
    """How a prediction is compared with a gold answer.

    Args:
        name: What F1 counts, and whose rule it is.
        normalize: Removes what does not count.
        divide: Divides a normalized text into what F1 counts.
        common: Returns how many of them two answers share.
    """

    name: str
    normalize: Callable[[str], str]
    divide: Callable[[str], Sequence[str]] = str.split
    common: Callable[[Sequence[str], Sequence[str]], int] = _num_in_both

    def exact_match(self, prediction: str, gold: str) -> float:
        """Returns 1 if both texts are equal after they are normalized, otherwise 0."""
        return float(self.normalize(prediction) == self.normalize(gold))

    def f1(self, prediction: str, gold: str, both_empty: float = 1.0) -> float:
        """Returns the harmonic mean of precision and recall of what both answers share.

        If nothing of either counts, it is `both_empty`, which is 0 in SQuAD 1.1's scorer.
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
SEGMENTS = AnswerRule(
    "the longest common run of characters and words, as in CMRC's scorer",
    _strip_chinese_punctuation,
    _SEGMENT.findall,
    _longest_run,
)


def rule_for(texts: Iterable[str]) -> AnswerRule:
    """Returns the rule for answers, by the script of most of their letters.

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
