# SPDX-License-Identifier: Apache-2.0
"""Converts between word labels and spans with the tagging schemes IOB1, IOB2 and BIOES.

Labels in four other notations can be converted to them:

- brackets: `(PER*`, `*`, `*)`, as in CoNLL-2005 and CoNLL-2012 (OntoNotes);
- IO: bare types such as `PER`, as in Few-NERD;
- suffixes: `PER-B` or `PER_B`, with `O` or `-` outside spans, as in Korean data sets;
- GROBID: `I-<title>` starts a span, `<title>` continues it, and `<other>` is outside, as in the
  training data of GROBID and DeLFT.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from keras_bert.checks import check_choice

Scheme = Literal["IOB1", "IOB2", "BIOES"]
SCHEMES: tuple[Scheme, ...] = ("IOB1", "IOB2", "BIOES")
Notation = Literal["brackets", "IO", "suffixes", "GROBID"]

OUTSIDE = "O"
# The letters of BILOU, BMES and BMEWO that correspond to I, E and S in BIOES
_LETTERS = {"M": "I", "L": "E", "U": "S", "W": "S"}
_SPAN_LABEL = re.compile(r"O|[BIESMLUW](-.+)?", re.DOTALL)
# Labels that look like misspelled span labels, such as `B-`, `b-PER`, `B:PER` and `PER-B`
_TYPED_LABEL = re.compile(r"[BIESMLUW]-.+", re.DOTALL)
_LIKE_A_SPAN_LABEL = re.compile(r"[BIESMLUW][-_:/].*|.+[-_:/](?-i:[BI])", re.DOTALL | re.IGNORECASE)
# A label with the type before the letter, and the labels outside of spans in this notation
_WITH_SUFFIX = re.compile(r"(?P<type>.+)[-_](?P<letter>[BIESMLUW])", re.DOTALL)
_OUTSIDE = {OUTSIDE, "-"}
# `*` is a word inside or outside a span, `(PER*` starts a span, `*)` ends it, and `(PER*)` does
# both. The asterisk next to a bracket may be missing.
_BRACKETS = re.compile(r"(?:\((?P<type>[^()*\s]+))?\*?(?P<end>\))?")
_GROBID_LABEL = re.compile(r"(?P<start>I-)?(?P<type><[^<>]+>)")
_GROBID_OUTSIDE = "<other>"
_OPENING_BRACKET = re.compile(r"\([^()*\s]")
_NO_TYPE = "_"


class Entity(NamedTuple):
    """A span of words.

    Args:
        type: The entity type. `_` if the labels have no types.
        start: The index of the first word.
        end: The index after the last word.
    """

    type: str
    start: int
    end: int


class _Label(NamedTuple):
    letter: str
    type: str


def are_span_labels(labels: Iterable[str]) -> bool:
    """Returns whether labels encode spans (`B-PER`, `I-PER`, `O` …), unlike parts of speech."""
    labels = set(labels)
    return labels != {OUTSIDE} and all(map(_SPAN_LABEL.fullmatch, labels))


def typed_labels(
    labels: Iterable[str], class_names: Iterable[str], outside: str = OUTSIDE
) -> list[str]:
    """Converts bare types to span labels. For example, `PER` becomes `I-PER`.

    Adjacent words with the same bare type are therefore one span, as in the IO notation.

    Args:
        labels: The labels in a sentence.
        class_names: All labels. They determine whether `B` or `M` is a bare type.
        outside: The label for words outside spans. Defaults to `"O"`.

    Example:

    >>> typed_labels(["PER", "PER", "O", "B-LOC"], ["O", "PER", "B-LOC"])
    ['I-PER', 'I-PER', 'O', 'B-LOC']
    """
    is_span_label = (_SPAN_LABEL if are_span_labels(class_names) else _TYPED_LABEL).fullmatch
    return [
        label if label == outside or (label != OUTSIDE and is_span_label(label)) else f"I-{label}"
        for label in labels
    ]


def misspelled_labels(labels: Iterable[str]) -> dict[str, int]:
    """Counts misspelled span labels, such as `B-`, `X-PER` or `b-PER`.

    Labels count as span labels if `O` is one of them, and if at least half of the other occurrences
    start like `B-PER` or end like `PER-B`, regardless of case. Otherwise, the result is empty.

    Example:

    >>> misspelled_labels(["B-PER", "O", "I-PER", "X-PER", "B-"])
    {'X-PER': 1, 'B-': 1}
    """
    counts = Counter(labels)
    outside = sum(counts[name] for name in (OUTSIDE, OUTSIDE.lower()))
    spans = sum(number for name, number in counts.items() if _LIKE_A_SPAN_LABEL.fullmatch(name))
    if not outside or not spans or 2 * spans < counts.total() - outside:
        return {}
    return {name: count for name, count in counts.items() if not _SPAN_LABEL.fullmatch(name)}


def detect_scheme(sequences: Iterable[Sequence[str]]) -> Scheme | None:
    """Detects the tagging scheme of labels.

    BILOU and BMES letters count as BIOES letters. IOB1 and IOB2 use the same letters. In IOB2, each
    span starts with `B-`. In IOB1, only a span directly after a span of the same type does. If
    labels follow neither scheme, the scheme with fewer wrong labels is returned. Labels that do not
    encode spans, such as parts of speech, return `None`.

    Example:

    >>> detect_scheme([["I-PER", "I-PER", "O", "I-LOC"]])
    'IOB1'
    """
    sequences = list(sequences)
    if not are_span_labels(label for sequence in sequences for label in sequence):
        return None
    wrong = {"IOB1": 0, "IOB2": 0}
    for sequence in sequences:
        before = _Label(OUTSIDE, "")
        for label in map(_parse, sequence):
            if label.letter in "ES":
                return "BIOES"
            follows_its_type = before.letter != OUTSIDE and before.type == label.type
            wrong["IOB1"] += label.letter == "B" and not follows_its_type
            wrong["IOB2"] += label.letter == "I" and not follows_its_type
            before = label
    return "IOB1" if wrong["IOB1"] < wrong["IOB2"] else "IOB2"


def detect_notation(sequences: Iterable[Sequence[str]]) -> Notation | None:
    """Detects the notation of span labels without a tagging scheme.

    - `"brackets"`: words are labeled `*` or in brackets.
    - `"suffixes"`: some words are labeled `O` or `-`, and all other words like `PER-B`. If `-`
      occurs, other words may also be labeled like `B-PER`.
    - `"GROBID"`: all words are labeled like `<title>` or `I-<title>`.
    - `"IO"`: `O` is the most frequent label, and the other labels do not look like span labels.

    Other labels return `None`.

    Example:

    >>> detect_notation([["(PER*", "*)", "*"]])
    'brackets'
    >>> detect_notation([["PER_B", "PER_I", "-"]])
    'suffixes'
    >>> detect_notation([["person-actor", "O", "O"]])
    'IO'
    """
    counts = Counter(label for sequence in sequences for label in sequence)
    if any(map(_OPENING_BRACKET.match, counts)) and {"*", "*)"} & counts.keys():
        return "brackets"
    if counts and _are_like(counts, _GROBID_LABEL):
        return "GROBID"
    inside = counts.keys() - _OUTSIDE
    has_both = bool(inside) and inside < counts.keys()
    if has_both and not are_span_labels(counts) and _are_like(inside, _WITH_SUFFIX, _TYPED_LABEL):
        return "suffixes"
    others = counts.keys() - {OUTSIDE}
    if not others or counts[OUTSIDE] < max(counts[label] for label in others):
        return None
    return None if misspelled_labels(counts) or any(map(_SPAN_LABEL.fullmatch, others)) else "IO"


def _are_like(labels: Iterable[str], *patterns: re.Pattern[str]) -> bool:
    """Returns whether one of the patterns matches all labels."""
    return any(all(map(pattern.fullmatch, labels)) for pattern in patterns)


def from_notation(labels: Sequence[str], notation: Notation) -> list[str]:
    """Converts a sentence's labels to IOB2.

    In IO, adjacent words of the same type are one span.

    Raises:
        ValueError: If brackets are nested or not balanced, or if a label does not follow the suffix
            or GROBID notation. The message contains the label.

    Example:

    >>> from_notation(["(PER*", "*)", "*", "(LOC)"], "brackets")
    ['B-PER', 'I-PER', 'O', 'B-LOC']
    >>> from_notation(["person-actor", "person-actor", "O"], "IO")
    ['B-person-actor', 'I-person-actor', 'O']
    >>> from_notation(["PER_B", "PER_I", "-"], "suffixes")
    ['B-PER', 'I-PER', 'O']
    >>> from_notation(["I-<title>", "<title>", "<other>"], "GROBID")
    ['B-<title>', 'I-<title>', 'O']
    """
    if notation in ("suffixes", "GROBID"):
        convert = _from_suffix if notation == "suffixes" else _from_grobid
        return convert_labels(list(map(convert, labels)), "IOB2")
    if notation == "IO":
        inside = [label if label == OUTSIDE else f"I-{label}" for label in labels]
        return convert_labels(inside, "IOB2")
    new_labels, open_type = [], ""
    for label in labels:
        match = _BRACKETS.fullmatch(label)
        if not label or match is None or (match["type"] and open_type):
            raise ValueError(
                f"Brackets must contain one span and not be nested. Received: {label!r}"
            )
        span_type = match["type"] or open_type
        if match["end"] and not span_type:
            raise ValueError(
                f"A closing bracket must follow an opening bracket. Received: {label!r}"
            )
        letter = "B" if match["type"] else "I"
        new_labels.append(f"{letter}-{span_type}" if span_type else OUTSIDE)
        open_type = "" if match["end"] else span_type
    if open_type:
        raise ValueError(f"A span must end in its sentence. Received: ({open_type}* without end")
    return new_labels


def _from_suffix(label: str) -> str:
    """Moves a label's letter before its type."""
    if label in _OUTSIDE:
        return OUTSIDE
    if match := _WITH_SUFFIX.fullmatch(label):
        return f"{match['letter']}-{match['type']}"
    return label


def _from_grobid(label: str) -> str:
    """Converts the prefix of a label in GROBID's notation."""
    match = _GROBID_LABEL.fullmatch(label)
    if match is None:
        raise ValueError(f"Labels must be like <title> and I-<title>. Received: {label!r}")
    if match["type"] == _GROBID_OUTSIDE:
        return OUTSIDE
    return f"{'B' if match['start'] else 'I'}-{match['type']}"


def entities(labels: Sequence[str], strict: Scheme | None = None) -> list[Entity]:
    """Returns the spans that a sentence's labels encode, in order.

    With `strict`, only spans that follow the scheme are returned. Otherwise, all spans are
    returned, as in `conlleval`: an `I-` or `E-` label continues the previous span if the types
    match and that span has not ended. Every other label except `O` starts a span.

    Raises:
        ValueError: If a label does not encode a span, or its letter is not in the scheme.

    Example:

    >>> entities(["B-PER", "I-PER", "O", "I-LOC"])
    [Entity(type='PER', start=0, end=2), Entity(type='LOC', start=3, end=4)]
    >>> entities(["B-PER", "I-PER", "O", "I-LOC"], strict="IOB2")
    [Entity(type='PER', start=0, end=2)]
    """
    parsed_labels = [_parse(label) for label in labels]
    spans = list(_readable(parsed_labels))
    if strict is None:
        return spans
    check_choice(SCHEMES, strict=strict)
    _check_letters(labels, strict)
    if strict == "IOB1":
        return list(_strict_iob1(parsed_labels, spans))
    if strict == "IOB2":
        return [entity for entity in spans if parsed_labels[entity.start].letter == "B"]
    return [entity for entity in spans if _is_whole(parsed_labels[entity.start : entity.end])]


def convert_labels(labels: Sequence[str], scheme: Scheme) -> list[str]:
    """Converts a sentence's labels to a different scheme.

    Labels that do not follow a scheme are read in the same way as by `entities` without `strict`.

    Example:

    >>> convert_labels(["I-PER", "I-PER", "O", "I-LOC"], "BIOES")
    ['B-PER', 'E-PER', 'O', 'S-LOC']
    """
    new_labels = [OUTSIDE] * len(labels)
    before = Entity("", 0, -1)
    for entity in entities(labels):
        inside = entity.end - entity.start
        adjoins = before.end == entity.start and before.type == entity.type
        if scheme == "BIOES":
            letters = "S" if inside == 1 else "B" + "I" * (inside - 2) + "E"
        else:
            letters = ("B" if scheme == "IOB2" or adjoins else "I") + "I" * (inside - 1)
        suffix = "" if entity.type == _NO_TYPE else f"-{entity.type}"
        new_labels[entity.start : entity.end] = [letter + suffix for letter in letters]
        before = entity
    return new_labels


def deviations(labels: Sequence[str], scheme: Scheme) -> list[int]:
    """Returns the indices of labels in a sentence that do not follow a scheme.

    BILOU and BMES letters count as BIOES letters.

    Example:

    >>> deviations(["B-PER", "I-PER", "O", "I-LOC"], "IOB2")
    [3]
    """
    pairs = zip(labels, convert_labels(labels, scheme), strict=True)
    return [index for index, pair in enumerate(pairs) if len(set(map(_parse, pair))) > 1]


class AllowedLabels(NamedTuple):
    """The label sequences that follow a scheme.

    Args:
        start: Whether each label may be the first, bool `(labels,)`.
        transitions: Whether each label (column) may follow each other label (row), bool `(labels,
            labels)`.
        end: Whether each label may be the last, bool `(labels,)`.
    """

    start: np.ndarray[Any, Any]
    transitions: np.ndarray[Any, Any]
    end: np.ndarray[Any, Any]


def allowed_labels(labels: Sequence[str], scheme: Scheme) -> AllowedLabels:
    """Returns which sequences of labels follow a scheme, those without `deviations`.

    Args:
        labels: All labels. BILOU and BMES letters count as BIOES letters.
        scheme: The tagging scheme.

    Raises:
        ValueError: If a label does not encode a span, or its letter is not in the scheme.

    Example:

    >>> allowed = allowed_labels(["O", "B-PER", "I-PER"], "IOB2")
    >>> allowed.start.tolist(), allowed.transitions.tolist()
    ([True, True, False], [[True, True, False], [True, True, True], [True, True, True]])
    """
    check_choice(SCHEMES, scheme=scheme)
    parsed_labels = [_parse(label) for label in labels]
    _check_letters(labels, scheme)
    outside = _Label(OUTSIDE, "")
    start, *transitions = (
        np.array([_may_follow(before, label, scheme) for label in parsed_labels])
        for before in (outside, *parsed_labels)
    )
    end = [_may_follow(label, outside, scheme) for label in parsed_labels]
    return AllowedLabels(start, np.array(transitions), np.array(end))


def _may_follow(before: _Label, label: _Label, scheme: Scheme) -> bool:
    """Returns whether a label may follow another. `O` stands for the sentence's edges."""
    is_same_type = before.letter != OUTSIDE and before.type == label.type
    if scheme == "IOB1":
        return label.letter != "B" or is_same_type
    if scheme == "IOB2":
        return label.letter != "I" or is_same_type
    is_open = before.letter in "BI"
    return is_open == (label.letter in "IE") and (is_same_type or not is_open)


def _check_letters(labels: Sequence[str], scheme: Scheme) -> None:
    for label in labels:
        if scheme != "BIOES" and _parse(label).letter in "ES":
            raise ValueError(f"Labels in {scheme} must start with B, I or O. Received: {label!r}")


def _parse(label: str) -> _Label:
    if not _SPAN_LABEL.fullmatch(label):
        raise ValueError(f"A span label must be O, B-TYPE, I-TYPE …. Received: {label!r}")
    return _Label(_LETTERS.get(label[0], label[0]), label[2:] or _NO_TYPE)


def _readable(labels: Sequence[_Label]) -> Iterator[Entity]:
    """Finds spans in any scheme, as in `conlleval`."""
    start, before = 0, _Label(OUTSIDE, "")
    for index, label in enumerate([*labels, _Label(OUTSIDE, "")]):
        continues = label.letter in "IE" and before.letter in "BI" and before.type == label.type
        if not continues:
            if before.letter != OUTSIDE:
                yield Entity(before.type, start, index)
            start = index
        before = label


def _is_whole(labels: Sequence[_Label]) -> bool:
    letters = "".join(label.letter for label in labels)
    return letters == "S" or (len(letters) > 1 and letters[0] == "B" and letters[-1] == "E")


def _strict_iob1(labels: Sequence[_Label], spans: Iterable[Entity]) -> Iterator[Entity]:
    """Finds IOB1 spans. In IOB1, `B-` is only valid between two spans of the same type."""
    outside = _Label(OUTSIDE, "")
    for entity in spans:
        before = labels[entity.start - 1] if entity.start else outside
        after = labels[entity.end] if entity.end < len(labels) else outside
        start = entity.start
        if labels[start].letter == "B" and before.type != entity.type:
            start += 1  # Any remaining words form a separate span.
        ends_in_b = labels[entity.end - 1].letter == "B"
        if start < entity.end and not (
            ends_in_b and after.letter == "B" and after.type != entity.type
        ):
            yield entity._replace(start=start)
