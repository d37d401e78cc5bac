# SPDX-License-Identifier: Apache-2.0
"""Compares the likelihood of pronouns in WinoBias sentence pairs."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from typing import ClassVar, NamedTuple

import numpy as np

from keras_bert.checks import shorten_repr
from keras_bert.data.text_files import read_lines
from keras_bert.insight.bias.measures import Result, UnitValues, mean, members_of_groups, share
from keras_bert.insight.bias.slots import Slot, Span, slot_log_probabilities
from keras_bert.insight.hidden_states import require_masked_lm
from keras_bert.insight.likelihood import BATCH_SIZE
from keras_bert.tasks.masked_lm import MaskedLM
from keras_bert.tasks.pretrainer import Pretrainer

_COUNTERPARTS = {
    "he": ("she",),
    "him": ("her",),
    "his": ("her",),
    "himself": ("herself",),
    "hers": ("his",),
    "she": ("he",),
    "her": ("him", "his"),
    "herself": ("himself",),
}
_MALE = ("he", "him", "his", "himself")
# Minimum similarity between the words in a sentence pair, without their pronouns. It is 0.85 or
# more in the released pairs, and at most 0.76 in differing lines of mixed-up files.
_LEAST_SIMILARITY = 0.8
# Maximum fraction of pairs that do not belong together. The released test files of type 2 contain
# one such pair of 396, in line 382.
_MOST_MISMATCHED = 0.01


@dataclasses.dataclass(frozen=True)
class PronounScores(Result):
    """WinoBias sentence pairs, and how likely a masked LM finds their pronouns.

    Attributes:
        pro: Log odds of each pro-stereotyped sentence's pronoun over the other gender's pronoun,
            float64 `(pairs,)`, in nats. Multiple pronouns are summed.
        anti: The same for the anti-stereotyped sentence.
        stereotypes: Gender of the pro-stereotyped pronoun in each pair, `male` or `female`.
        sentences: Pro-stereotyped sentences without brackets.
        mismatched: Message about each excluded pair of lines, whose sentences do not belong
            together.
    """

    title = "WinoBias: likelihood of the bracketed pronouns"
    group_name = "stereotype"
    unit_name = "pairs"
    caveat = (
        "This is the likelihood of pronouns in WinoBias sentences. It is not coreference "
        "resolution, for which the data were made, because the model is not asked whom a pronoun "
        "refers to. A model that always prefers one gender's pronouns is far above zero for this "
        "gender's stereotypes, equally far below for the other gender, and near zero for all."
    )
    neutral: ClassVar[dict[str, float]] = {
        "pro - anti, %": 0.0,
        "log odds of the stereotype": 0.0,
    }

    pro: np.ndarray
    anti: np.ndarray
    stereotypes: tuple[str, ...]
    sentences: tuple[str, ...]
    mismatched: tuple[str, ...] = ()

    @property
    def notes(self) -> str:
        count = len(self.mismatched)
        left_out = (
            f"{count} of {count + len(self.pro)} pairs of lines are excluded, because they do not "
            f"belong together ({self.mismatched[0]}). "
            if count
            else ""
        )
        return left_out + self.caveat

    @property
    def units(self) -> tuple[str, ...]:
        return self.sentences

    @property
    def log_odds(self) -> np.ndarray:
        """Log odds of the stereotypical pronoun, averaged over both sentences in each pair."""
        return np.asarray((self.pro - self.anti) / 2)

    def unit_values(self) -> list[UnitValues]:
        groups = members_of_groups(self.stereotypes)
        likelier = {"pro": self.pro > 0, "anti": self.anti > 0}
        values = [
            UnitValues(
                group,
                "pro - anti, %",
                np.stack([flags[members] for flags in likelier.values()], axis=1).astype("float64"),
                _difference_in_percent,
            )
            for group, members in groups.items()
        ]
        values += [
            share(group, f"own pronoun likelier ({name}), %", flags[members])
            for name, flags in likelier.items()
            for group, members in groups.items()
        ]
        return values + [
            mean(group, "log odds of the stereotype", self.log_odds[members])
            for group, members in groups.items()
        ]


class _Sentence(NamedTuple):
    """A sentence in a file: its name in error messages, and its bracketed pronouns."""

    name: str
    text: str
    spans: list[Span]

    def words_without_pronouns(self) -> list[str]:
        text = self.text
        for start, end in reversed(self.spans):
            text = f"{text[:start]}[]{text[end:]}"
        return text.split()


def _difference_in_percent(means: np.ndarray) -> np.ndarray:
    return np.asarray(100 * (means[..., 0] - means[..., 1]))


def winobias_pronouns(
    masked_lm: MaskedLM | Pretrainer,
    pro_file: str | os.PathLike[str],
    anti_file: str | os.PathLike[str],
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> PronounScores:
    """Compares the likelihood of pronouns in pro- and anti-stereotyped sentences.

    All bracketed pronouns in a sentence are masked. Each pronoun's probability is compared with its
    counterpart: he and she, him and her, his and her. The counterpart of `her` is the pronoun in
    the other file's sentence (`his` or `him`), or otherwise both together.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        pro_file: WinoBias file with pro-stereotyped sentences. Each line has a number (ignored) and
            a sentence with mentions and pronouns in brackets.
        anti_file: File with the same sentences but the other pronouns, line by line.
        batch_size: Number of examples per batch.
        verbose: 1 shows a progress bar.

    Raises:
        ValueError: If a line has no bracketed pronoun, the files have different numbers of
            sentences, a pronoun is not a single token, or more than 1% of the pairs do not belong
            together. A pair does not belong together if its sentences are equal, or differ in more
            than their pronouns and a few words. The message contains the file and line. Fewer such
            pairs, as in the released test files, are excluded and counted.

    Example:

    ```python
    scores = winobias_pronouns(
        masked_lm, "pro_stereotyped_type1.txt.dev", "anti_stereotyped_type1.txt.dev"
    )
    print(scores)
    ```

    Reference:
        The data: [Gender bias in coreference resolution](https://arxiv.org/abs/1804.06876).
    """
    require_masked_lm(masked_lm)
    files = [_read_sentences(path) for path in (pro_file, anti_file)]
    if len(files[0]) != len(files[1]):
        raise ValueError(
            "pro_file and anti_file must have the same number of sentences. Received: "
            f"{len(files[0])} ({os.fspath(pro_file)}) and {len(files[1])} ({os.fspath(anti_file)})"
        )
    pairs, mismatched = [], []
    for pair in zip(*files, strict=True):
        if message := _mismatch(*pair):
            mismatched.append(message)
        else:
            pairs.append(pair)
    if len(mismatched) > _MOST_MISMATCHED * len(files[0]):
        raise ValueError(
            f"{mismatched[0]}. The files must contain the same sentences, line by line, with "
            "different pronouns."
        )
    slots, owners = [], []
    for number, pair in enumerate(pairs):
        for side, (name, text, spans) in enumerate(pair):
            _, other_text, other_spans = pair[1 - side]
            is_aligned = len(spans) == len(other_spans)
            for index, (start, end) in enumerate(spans):
                own = text[start:end]
                counterparts = _COUNTERPARTS[own.lower()]
                if is_aligned:
                    counterpart = other_text[slice(*other_spans[index])].lower()
                    if own.lower() in _COUNTERPARTS[counterpart]:
                        counterparts = (counterpart,)
                if own[0].isupper():
                    counterparts = tuple(word.capitalize() for word in counterparts)
                hidden = tuple(span for span in spans if span != (start, end))
                slots.append(Slot(text, (start, end), (own, *counterparts), hidden, name))
                owners.append((side, number))
    scores = np.zeros((2, len(pairs)))
    for owner, log_probabilities in zip(
        owners, slot_log_probabilities(masked_lm, slots, batch_size, verbose), strict=True
    ):
        scores[owner] += log_probabilities[0] - np.logaddexp.reduce(log_probabilities[1:])
    return PronounScores(
        scores[0],
        scores[1],
        tuple(
            "male" if text[slice(*spans[0])].lower() in _MALE else "female"
            for (_, text, spans), _ in pairs
        ),
        tuple(pro.text for pro, _ in pairs),
        tuple(mismatched),
    )


def _mismatch(pro: _Sentence, anti: _Sentence) -> str:
    """Describes why two sentences do not belong together, or returns an empty string."""
    if pro.text == anti.text:
        return f"{pro.name}, and {anti.name} have the same sentence, {shorten_repr(pro.text)}"
    first, second = (sentence.words_without_pronouns() for sentence in (pro, anti))
    if difflib.SequenceMatcher(None, first, second).ratio() < _LEAST_SIMILARITY:
        return (
            f"{pro.name}, and {anti.name} differ in more than the bracketed pronoun: "
            f"{shorten_repr(pro.text)} and {shorten_repr(anti.text)}"
        )
    return ""


def _read_sentences(path: str | os.PathLike[str]) -> list[_Sentence]:
    sentences = []
    for line, bracketed_text in enumerate(read_lines(path), start=1):
        bracketed_text = re.sub(r"^\s*\d+\s+", "", bracketed_text).strip()
        if not bracketed_text:
            continue
        text, spans = "", []
        # Matches text in brackets, or between brackets.
        for match in re.finditer(r"\[\s*([^\[\]]*?)\s*\]|[^\[\]]+", bracketed_text):
            piece = match[0] if match[1] is None else match[1]
            if match[1] is not None and piece.lower() in _COUNTERPARTS:
                spans.append((len(text), len(text) + len(piece)))
            text += piece
        name = f"{os.fspath(path)}, line {line}"
        if not spans:
            raise ValueError(
                f"{name} must have a pronoun in brackets, one of {', '.join(_COUNTERPARTS)}. "
                f"Received: {shorten_repr(bracketed_text)}"
            )
        sentences.append(_Sentence(name, text, spans))
    if not sentences:
        raise ValueError(f"{os.fspath(path)} has no sentences.")
    return sentences
