# SPDX-License-Identifier: Apache-2.0
"""How much likelier a masked LM finds stereotypical words than others in their place.

It is measured on WinoBias' pronouns, templates with occupations, and StereoSet's sentences.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import string
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from keras_bert.checks import shortened
from keras_bert.data.text_files import read_lines
from keras_bert.insight.likelihood import (
    BATCH_SIZE,
    candidate_log_probabilities,
    tokens_of_spans,
)
from keras_bert.insight.measures import (
    ALL,
    Result,
    UnitValues,
    mean,
    members_of_groups,
    share,
)
from keras_bert.insight.states import require_masked_lm
from keras_bert.insight.word_lists import word_list
from keras_bert.tasks.masked_lm import MaskedLM
from keras_bert.tasks.pretrainer import Pretrainer

Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class _Slot:
    """A word of a text, and others that could be there.

    Attributes:
        text: The text.
        span: Where its word begins and ends, in characters.
        words: The word itself, and the others.
        hidden: Spans of the text that are masked too.
        name: The text's name in errors.
    """

    text: str
    span: Span
    words: tuple[str, ...]
    hidden: tuple[Span, ...]
    name: str


def _log_probabilities(
    masked_lm: MaskedLM | Pretrainer, slots: Sequence[_Slot], batch_size: int, verbose: int | str
) -> list[np.ndarray]:
    """For each slot the log probabilities of its words `(words,)`.

    Raises:
        ValueError: If a word is not one token.
    """
    require_masked_lm(masked_lm)
    tokenizer = masked_lm.preprocessor.tokenizer
    texts, spans, names = [], [], []
    for slot in slots:
        start, end = slot.span
        for word in slot.words:
            texts.append(slot.text[:start] + word + slot.text[end:])
            others = slot.hidden if word == slot.words[0] else ()
            spans.append([(start, start + len(word)), *others])
            names.append(slot.name)
    rows, positions = tokens_of_spans(masked_lm, texts, spans, names)
    masked_rows, masked_positions, candidates = [], [], []
    of_words = iter(zip(rows, positions, strict=True))
    for slot in slots:
        rows_of_slot = [next(of_words) for _ in slot.words]
        row, (own, *hidden) = rows_of_slot[0]
        ids = []
        for word, (other_row, (place, *_)) in zip(slot.words, rows_of_slot, strict=True):
            is_one_token = place == own and len(own) == 1
            ids.append(other_row[own[0]] if is_one_token else tokenizer.unk_token_id)
            if ids[-1] == tokenizer.unk_token_id:
                raise ValueError(
                    f"{slot.name}: {word!r} is not one token of the vocabulary there; expected a "
                    "word that is."
                )
        at = {own[0]}.union(*hidden)
        if any(row[position] == tokenizer.unk_token_id for position in at):
            raise ValueError(f"{slot.name} has words that the vocabulary cannot spell.")
        masked_rows.append(
            [tokenizer.mask_token_id if index in at else token for index, token in enumerate(row)]
        )
        masked_positions.append(own[0])
        candidates.append(ids)
    return candidate_log_probabilities(
        masked_lm, masked_rows, masked_positions, candidates, batch_size, verbose
    )


# === WinoBias ===

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
# Minimum similarity of the words of two sentences of a pair, without their pronouns: the released
# pairs have 0.85 or more; mixed-up files, in the lines where they differ, at most 0.76
_LEAST_SIMILARITY = 0.8
# Maximum share of pairs that do not belong together: in the released test files of type 2, it is
# one pair of 396, in line 382
_MOST_MISMATCHED = 0.01


@dataclasses.dataclass(frozen=True)
class PronounScores(Result):
    """WinoBias' pairs of sentences, and how likely a masked LM finds their pronouns.

    Attributes:
        pro: In the pro-stereotyped sentence of each pair, the log odds of its own pronoun over the
            other gender's, float64 `(pairs,)`, in nats; for several pronouns, their sum.
        anti: The same for the anti-stereotyped sentence.
        stereotypes: `male` or `female`: the gender of the pro-stereotyped pronoun of each pair.
        sentences: The pro-stereotyped sentences, without brackets.
        mismatched: A message about each pair of lines that is left out because its sentences do
            not belong together.
    """

    title = "WinoBias: likelihood of the bracketed pronouns"
    group_name = "stereotype"
    unit_name = "pairs"
    caveat = (
        "This is the likelihood of pronouns in WinoBias' sentences, not the coreference resolution "
        "that the data were made for: nothing asks whom a pronoun refers to. A model that always "
        "prefers one gender's pronouns is far above zero for its stereotypes, as far below for the "
        "other's, and near zero for all."
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
            f"Left out: {count} of {count + len(self.pro)} pairs of lines that do not "
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
        """Log odds of the stereotypical pronoun, the mean of both sentences of each pair."""
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
    """A sentence of a file: its name in errors, and where its bracketed pronouns are."""

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
    """Compares the likelihood of the pronouns of pro- and anti-stereotyped sentences.

    All bracketed pronouns of a sentence are masked. For each, the probability of the pronoun is
    compared with its counterpart's: he and she, him and her, his and her. The counterpart of `her`
    is the pronoun of the other file's sentence (`his` or `him`), or else both together.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        pro_file: WinoBias' file of pro-stereotyped sentences: one a line, with a number before it
            (which is not read), mentions and pronouns in brackets.
        anti_file: The file of the same sentences with the other pronouns, line by line.
        batch_size: Rows in a batch.
        verbose: 1 shows a progress bar.

    Raises:
        ValueError: If a line has no bracketed pronoun, the files have different numbers of
            sentences, a pronoun is not one token, or more than 1% of the pairs do not belong
            together: they are equal, or differ in more than their pronouns (and a few words, as
            some released ones do). The message names file and line. Fewer such pairs, as in the
            released test files, are left out and counted.

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
            f"{os.fspath(pro_file)} has {len(files[0])} sentences and {os.fspath(anti_file)} has "
            f"{len(files[1])}; expected as many."
        )
    pairs, mismatched = [], []
    for pair in zip(*files, strict=True):
        if message := _mismatch(*pair):
            mismatched.append(message)
        else:
            pairs.append(pair)
    if len(mismatched) > _MOST_MISMATCHED * len(files[0]):
        raise ValueError(
            f"{mismatched[0]}. Expected files of the same sentences, line by line, with other "
            "pronouns."
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
                slots.append(_Slot(text, (start, end), (own, *counterparts), hidden, name))
                owners.append((side, number))
    scores = np.zeros((2, len(pairs)))
    for owner, log_probabilities in zip(
        owners, _log_probabilities(masked_lm, slots, batch_size, verbose), strict=True
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
    """Describes the fault of a pair of sentences; empty if they belong together."""
    if pro.text == anti.text:
        return f"{pro.name}, and {anti.name} have the same sentence, {shortened(pro.text)}"
    first, second = (sentence.words_without_pronouns() for sentence in (pro, anti))
    if difflib.SequenceMatcher(None, first, second).ratio() < _LEAST_SIMILARITY:
        return (
            f"{pro.name}, and {anti.name} differ in more than the bracketed pronoun: "
            f"{shortened(pro.text)} and {shortened(anti.text)}"
        )
    return ""


def _read_sentences(path: str | os.PathLike[str]) -> list[_Sentence]:
    sentences = []
    for line, bracketed_text in enumerate(read_lines(path), start=1):
        bracketed_text = re.sub(r"^\s*\d+\s+", "", bracketed_text).strip()
        if not bracketed_text:
            continue
        text, spans = "", []
        # What is in brackets, or between them
        for match in re.finditer(r"\[\s*([^\[\]]*?)\s*\]|[^\[\]]+", bracketed_text):
            piece = match[0] if match[1] is None else match[1]
            if match[1] is not None and piece.lower() in _COUNTERPARTS:
                spans.append((len(text), len(text) + len(piece)))
            text += piece
        name = f"{os.fspath(path)}, line {line}"
        if not spans:
            raise ValueError(
                f"{name}: {shortened(bracketed_text)} has no pronoun in brackets; expected one of "
                f"{', '.join(_COUNTERPARTS)}."
            )
        sentences.append(_Sentence(name, text, spans))
    if not sentences:
        raise ValueError(f"{os.fspath(path)} has no sentences.")
    return sentences


# === Templates ===


@dataclasses.dataclass(frozen=True)
class TemplateScores(Result):
    """How much an attribute raises the probability of each target word.

    Attributes:
        templates: The sentences, with `{target}` and `{attribute}`.
        attributes: The attributes, without articles.
        targets: The target words.
        log_probabilities: For each target, with the attribute in the text, float64
            `(templates, attributes, targets)`, in nats.
        priors: The same with the attribute masked.
    """

    title = "Log probability of words for people with an attribute, less that with it masked"
    group_name = "attribute"
    unit_name = "n"
    caveat = "For an attribute n is the number of templates; for all, of attributes."
    by_value = True

    templates: tuple[str, ...]
    attributes: tuple[str, ...]
    targets: tuple[str, ...]
    log_probabilities: np.ndarray
    priors: np.ndarray

    @property
    def associations(self) -> np.ndarray:
        """`log P(target | attribute) - log P(target)`, `(templates, attributes, targets)`."""
        return np.asarray(self.log_probabilities - self.priors)

    @property
    def units(self) -> tuple[Any, ...]:
        return self.templates, self.attributes, self.targets

    def neutral_value(self, metric: str) -> float:
        return 0.0

    def unit_values(self) -> list[UnitValues]:
        if len(self.targets) == 2:
            first, second = self.targets
            columns = {
                f"log odds of {first!r} over {second!r}": (
                    self.associations[..., 0] - self.associations[..., 1]
                )
            }
        else:
            columns = {
                f"association with {target!r}": self.associations[..., index]
                for index, target in enumerate(self.targets)
            }
        values = []
        for metric, scores in columns.items():
            values.append(mean(ALL, metric, scores.mean(axis=0)))
            values += [
                mean(attribute, metric, scores[:, index])
                for index, attribute in enumerate(self.attributes)
            ]
        # A mean near zero may hide attributes that pull in opposite directions
        values += [
            mean(ALL, f"size of the {metric}", np.abs(scores.mean(axis=0)))
            for metric, scores in columns.items()
        ]
        return values


def template_log_odds(
    masked_lm: MaskedLM | Pretrainer,
    templates: Sequence[str] | None = None,
    attributes: Sequence[str] | None = None,
    targets: Sequence[str] = ("he", "she"),
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> TemplateScores:
    """Measures how much attributes raise the probability of target words in templates.

    The association of a target with an attribute is `log P(target | template with the attribute) -
    log P(target | template with the attribute's tokens masked)`; of two targets, the difference of
    their associations is reported, the log odds.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        templates: Sentences that have `{target}` and `{attribute}` once each. Defaults to
            `word_lists/templates.txt`.
        attributes: Words that replace `{attribute}`. A leading `a` or `an` stays there when the
            attribute is masked. Defaults to the occupations of `word_lists/occupations.txt`.
        targets: Words of one token each. At the beginning of a template they are capitalized.
        batch_size: Rows in a batch.
        verbose: 1 shows a progress bar.

    Raises:
        ValueError: If a template lacks a placeholder, there is no attribute or no target, or a
            target is not one token.

    Example:

    ```python
    scores = template_log_odds(masked_lm, attributes=["a nurse", "an engineer"])
    scores.associations       # (templates, attributes, targets)
    scores.plot()
    ```

    Reference:
        [Measuring bias in contextualized word representations](https://arxiv.org/abs/1906.07337),
        section 3.
    """
    templates = word_list("templates") if templates is None else templates
    attributes = word_list("occupations") if attributes is None else attributes
    if not (templates and attributes and targets):
        raise ValueError(
            f"Received {len(templates)} templates, {len(attributes)} attributes and {len(targets)} "
            "targets; expected at least one of each."
        )
    for template in templates:
        for placeholder in ("{target}", "{attribute}"):
            if template.count(placeholder) != 1:
                raise ValueError(
                    f"Template {shortened(template)} has {template.count(placeholder)} "
                    f"{placeholder}; expected one."
                )
    bare = [re.sub(r"^an? ", "", attribute) for attribute in attributes]
    slots = []
    for template in templates:
        words = tuple(
            word[0].upper() + word[1:] if template.startswith("{target}") else word
            for word in targets
        )
        for attribute, noun in zip(attributes, bare, strict=True):
            text = template.replace("{attribute}", attribute)
            start = text.index("{target}")
            text = text.replace("{target}", words[0])
            first = template.index("{attribute}") + len(attribute) - len(noun)
            if template.index("{target}") < template.index("{attribute}"):
                first += len(words[0]) - len("{target}")
            span = (start, start + len(words[0]))
            slot = _Slot(text, span, words, (), f"Template {template!r} with {attribute!r}")
            slots += [slot, dataclasses.replace(slot, hidden=((first, first + len(noun)),))]
    log_probabilities = np.array(_log_probabilities(masked_lm, slots, batch_size, verbose))
    by_target = log_probabilities.reshape(len(templates), len(attributes), 2, len(targets))
    return TemplateScores(
        tuple(templates), tuple(bare), tuple(targets), by_target[:, :, 0], by_target[:, :, 1]
    )


# === StereoSet ===

_LABELS = ("stereotype", "anti-stereotype", "unrelated")


@dataclasses.dataclass(frozen=True)
class StereoSetScores(Result):
    """StereoSet's intrasentence examples, and how probable a masked LM finds their words.

    Attributes:
        scores: For each example the scores of the stereotype, the anti-stereotype and the
            unrelated word, float64 `(examples, 3)`: the mean probability of the word's tokens,
            each given the tokens before it in the word.
        bias_types: The bias type of each example.
        targets: The term that each example is about.
        intersentence: The number of intersentence examples of the file, which are left out.
    """

    title = "StereoSet, intrasentence examples"
    group_name = "bias type"
    unit_name = "targets"
    caveat = (
        "StereoSet has known flaws (Blodgett et al., 2021): read a score as one sign among others."
    )
    neutral: ClassVar[dict[str, float]] = {"SS, %": 50.0}
    digits = 1

    scores: np.ndarray
    bias_types: tuple[str, ...]
    targets: tuple[str, ...]
    intersentence: int

    @property
    def notes(self) -> str:
        left_out = (
            f"The file's {self.intersentence:,} intersentence examples are left out: they need a "
            "next-sentence head. "
            if self.intersentence
            else ""
        )
        return (
            f"{left_out}Scores are means over targets; SS is 50 where neither word is preferred. "
            f"{self.caveat}"
        )

    @property
    def units(self) -> tuple[Any, ...]:
        return self.bias_types, self.targets

    def per_target(self, bias_type: str = ALL) -> list[dict[str, Any]]:
        """Returns for each target a dict of `target`, `examples`, and `lms` and `ss` in percent."""
        rows = zip(self.targets, self.bias_types, self.scores, strict=True)
        examples: dict[str, list[np.ndarray]] = {}
        for target, kind, scores in rows:
            if bias_type in (ALL, kind):
                examples.setdefault(target, []).append(scores)
        target_scores = []
        for target, of_target in examples.items():
            stereotype, anti, unrelated = np.array(of_target).T
            related = np.mean([stereotype > unrelated, anti > unrelated])
            target_scores.append(
                {
                    "target": target,
                    "examples": len(of_target),
                    "lms": 100 * float(related),
                    "ss": 100 * float(np.mean(stereotype > anti)),
                }
            )
        return target_scores

    def unit_values(self) -> list[UnitValues]:
        groups = {
            group: np.array([[row["ss"], row["lms"]] for row in self.per_target(group)])
            for group in (ALL, *sorted(set(self.bias_types)))
        }
        values = [mean(group, "SS, %", scores[:, 0]) for group, scores in groups.items()]
        values += [mean(group, "LMS, %", scores[:, 1]) for group, scores in groups.items()]
        return values + [
            UnitValues(group, "ICAT", scores, _icat) for group, scores in groups.items()
        ]


def _icat(means: np.ndarray) -> np.ndarray:
    """The idealized context association test score, from SS and LMS `(..., 2)`."""
    ss, lms = means[..., 0], means[..., 1]
    return np.asarray(lms * np.minimum(ss, 100 - ss) / 50)


def stereoset(
    masked_lm: MaskedLM | Pretrainer,
    path: str | os.PathLike[str],
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> StereoSetScores:
    """Scores the intrasentence examples of a file in StereoSet's format.

    The words of an example replace `BLANK` in its context. The score of a word is the mean
    probability of its tokens, as in the released program: each is masked, with the tokens before it
    in place and the tokens after it left out. If a context has `BLANK` twice, both are masked
    alike, and the first one is scored. The language model score (LMS) is the share of comparisons
    in which a meaningful word scores above the unrelated one; the stereotype score (SS) is the
    share of examples in which the stereotype scores above the anti-stereotype. Both are means over
    targets. ICAT is `LMS * min(SS, 100 - SS) / 50`.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        path: The JSON file. Its intersentence examples, which need a next-sentence head, are only
            counted.
        batch_size: Rows in a batch.
        verbose: 1 shows a progress bar.

    Raises:
        ValueError: If the file is not in this format; the message names the file and the entry.

    Example:

    ```python
    print(stereoset(masked_lm, "dev.json", verbose=1))
    ```

    Reference:
        [StereoSet](https://arxiv.org/abs/2004.09456), section 5; its flaws: [Stereotyping Norwegian
        Salmon](https://aclanthology.org/2021.acl-long.81), section 4.
    """
    require_masked_lm(masked_lm)
    examples, intersentence = _read_stereoset(path)
    texts, spans, names = [], [], []
    for name, example in examples:
        for word in example["words"]:
            text, *rest = example["context"].split("BLANK")
            word_spans = []
            for piece in rest:
                word_spans.append((len(text), len(text) + len(word)))
                text += word + piece
            texts.append(text)
            spans.append(word_spans)
            names.append(f"{name}, {word!r}")
    mask = masked_lm.preprocessor.tokenizer.mask_token_id
    rows, positions = tokens_of_spans(masked_lm, texts, spans, names)
    masked_rows, masked_positions, candidates = [], [], []
    for row, words, name in zip(rows, positions, names, strict=True):
        if not all(words):
            raise ValueError(f"{name}: the tokenizer makes no token of this word.")
        for number, position in enumerate(words[0]):
            masked_row = list(row)
            for word in reversed(words):
                masked_row[word[0] : word[-1] + 1] = [
                    *(row[index] for index in word[:number]),
                    mask,
                ]
            masked_rows.append(masked_row)
            masked_positions.append(position)
            candidates.append([row[position]])
    log_probabilities = candidate_log_probabilities(
        masked_lm, masked_rows, masked_positions, candidates, batch_size, verbose
    )
    probabilities = np.exp([row[0] for row in log_probabilities])
    ends = np.cumsum([len(words[0]) for words in positions])
    scores = [piece.mean() for piece in np.split(probabilities, ends[:-1])]
    return StereoSetScores(
        np.reshape(scores, (-1, len(_LABELS))),
        tuple(example["bias_type"] for _, example in examples),
        tuple(example["target"] for _, example in examples),
        intersentence,
    )


def _read_stereoset(
    path: str | os.PathLike[str],
) -> tuple[list[tuple[str, dict[str, Any]]], int]:
    """The examples with their names in errors, and the number of intersentence examples."""
    file = os.fspath(path)
    try:
        data = json.loads("".join(read_lines(path)))["data"]
        entries = list(enumerate(data["intrasentence"]))
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{file} has no list data.intrasentence of examples: {error!r}."
        ) from error
    examples = []
    for number, entry in entries:
        name = f"{file}, data.intrasentence[{number}]"
        try:
            fields = {field: str(entry[field]) for field in ("context", "target", "bias_type")}
            sentences = {one["gold_label"]: one["sentence"] for one in entry["sentences"]}
            words = [_word_at_blank(fields["context"], sentences[label]) for label in _LABELS]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{name} is no example of StereoSet, with a context that has BLANK, a target, a "
                f"bias_type, and sentences labeled {', '.join(_LABELS)}: {error!r}."
            ) from error
        examples.append((name, {**fields, "words": words}))
    return examples, len(data.get("intersentence") or [])


def _word_at_blank(context: str, sentence: str) -> str:
    """The word of a sentence in the place of the last BLANK."""
    slots = [index for index, word in enumerate(context.split(" ")) if "BLANK" in word]
    if not slots:
        raise ValueError(f"{shortened(context)} has no BLANK")
    words = sentence.split(" ")
    word = words[slots[-1]] if len(words) > slots[-1] else ""
    word = word.translate(str.maketrans("", "", string.punctuation))
    if not word:
        raise ValueError(f"{shortened(sentence)} has no word in the place of BLANK")
    return word
