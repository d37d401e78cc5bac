# SPDX-License-Identifier: Apache-2.0
"""Words in columns for training: which are held out, the scheme of their labels, documents."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from absl import logging

from keras_bert.data.conll import MissingLabelsError, Separator, TaggedText, read_conll
from keras_bert.data.tagging_schemes import (
    OUTSIDE,
    SCHEMES,
    Scheme,
    are_span_labels,
    convert_labels,
    detect_scheme,
    deviations,
    entities,
    misspelled_labels,
)

from ..engine.options import SeedsConfig, check_one_of
from .data_splits import Counts, hold_out_tenth, stratified_sample


@dataclasses.dataclass(frozen=True)
class WordColumns:
    """How a file of words in columns is read.

    Args:
        word_column: the words' column from 0, or from the end with a negative number.
        label_column: the labels' column.
        separator: what stands between columns: auto, tab or space.
        comments: whether lines that begin with # before a sentence are comments (CoNLL-U).
    """

    word_column: int = 0
    label_column: int = -1
    separator: str = "auto"
    comments: bool = False

    def __post_init__(self) -> None:
        check_one_of(self, separator=get_args(Separator))

    def read_words(self, path: str, labelled: bool = True) -> TaggedText:
        """The words of a file, with their labels or without."""
        return read_conll(
            path,
            word_column=self.word_column,
            label_column=self.label_column if labelled else None,
            separator=self.separator,
            comments=self.comments,
        )


@dataclasses.dataclass(frozen=True)
class TaggedFilesConfig(SeedsConfig, WordColumns):
    """Training on words in columns: entities, chunks, or parts of speech.

    Args:
        train_file: words and labels in columns, as the shared tasks of CoNLL have them.
        dev_file: likewise, to select the best epoch by; empty holds a tenth of train_file out, at
            random and with the share of each type.
        test_file: words to tag at the end, scored if label_column is there; empty for none.
        train_rows: trains on so many sentences only, a random sample; 0 for all.
        scheme: what labels of spans are turned into for training: IOB1, IOB2 or BIOES; keep
            leaves them as they are.
        context: whether a sentence's window is filled with its neighbours in the document; the
            files must mark documents.
        sequence_length: the longest window in tokens; longer sentences have several.
    """

    scheme: str = "IOB2"
    context: bool = False

    def __post_init__(self) -> None:
        WordColumns.__post_init__(self)
        check_one_of(self, scheme=("keep", *SCHEMES))
        super().__post_init__()


@dataclasses.dataclass(frozen=True)
class TaggingData:
    """What a run trains, selects and tags.

    Args:
        train: the training sentences.
        dev: the development sentences.
        test: the sentences to tag at the end, or None.
        class_names: the training labels, O first, then by type.
    """

    train: TaggedText
    dev: TaggedText
    test: TaggedText | None
    class_names: tuple[str, ...]

    def counts(self) -> Counts:
        """What each part consists of."""
        parts = {"train": self.train, "dev": self.dev, **({"test": self.test} if self.test else {})}
        return {name: _counts(text) for name, text in parts.items()}


def _counts(text: TaggedText) -> dict[str, int]:
    """The number of sentences and words, and of entities by type, or of words by label."""
    counts = {"sentences": len(text), "words": sum(map(len, text.words))}
    if text.labels is not None:
        by_type = Counter(name for names in _types(text.labels) for name in names)
        counts |= dict(sorted(by_type.items()))
    return counts


def _types(labels: Sequence[Sequence[str]]) -> list[list[str]]:
    """The types of each sentence's entities; where labels spell no spans, the labels."""
    if not are_span_labels(label for sentence in labels for label in sentence):
        return [list(sentence) for sentence in labels]
    return [[entity.type for entity in entities(sentence)] for sentence in labels]


def read_data(config: TaggedFilesConfig) -> TaggingData:
    """Reads and checks every file before anything is trained.

    Raises:
        FileNotFoundError: if a file is not there.
        ValueError: if a file is malformed; the message names file, line and reason.
    """
    if not config.train_file:
        raise ValueError("expected --train_file, words and labels in columns")
    train = _read(config, config.train_file)
    if config.dev_file:
        dev = _read(config, config.dev_file)
    else:
        train, dev = hold_out(train)
    test = None
    if config.test_file:
        try:
            test = _read(config, config.test_file)
        except MissingLabelsError:
            test = _read(config, config.test_file, labelled=False)
    if 0 < config.train_rows < len(train):
        kept = stratified_sample(_rarest_types(train), config.train_rows)
        train = _sentences(train, [[index] for index in kept])
    class_names = label_names(train)
    for text in (dev, *([test] if test else [])):
        _warn_of_unknown_labels(text, class_names)
    return TaggingData(train, dev, test, class_names)


def label_names(text: TaggedText) -> tuple[str, ...]:
    """The labels that occur: `O` first, then by type, and of one type by letter."""
    names = {label for sentence in text.labels or () for label in sentence}

    def order(name: str) -> tuple[bool, str, str]:
        letter, _, kind = name.partition("-")
        return name != OUTSIDE, kind, letter

    return tuple(sorted(names, key=order))


def hold_out(text: TaggedText) -> tuple[TaggedText, TaggedText]:
    """Splits a random tenth of the sentences off, or of the documents where there are enough.

    Sentences are held out with the shares of the rarest type of entity, or label, in each.

    Raises:
        ValueError: if fewer than two sentences would be held out.
    """
    units = text.by_document(range(len(text)))
    if len(units) >= 10:
        kept, held_out = hold_out_tenth([0] * len(units), text.path, "documents", least=1)
    else:
        units = [[index] for index in range(len(text))]
        kept, held_out = hold_out_tenth(_rarest_types(text), text.path, "sentences")
    train, dev = ([units[index] for index in part] for part in (kept, held_out))
    return _sentences(text, train), _sentences(text, dev)


def _rarest_types(text: TaggedText) -> list[str]:
    """The rarest type of entity, or label, in each sentence."""
    types = _types(text.labels or ())
    counts = Counter(name for names in types for name in names)
    return [min(names, key=lambda name: (counts[name], name), default="") for names in types]


def model_inputs(text: TaggedText, values: list[Any], context: bool) -> list[Any]:
    """Words or labels as `TokenClassifier` takes them: by sentence, or by document for context.

    Raises:
        ValueError: if there are no documents to give context.
    """
    if not context:
        return values
    if text.document_starts is None:
        raise ValueError(
            f"{text.path} marks no documents (-DOCSTART-, or # newdoc with --comments), which "
            "--context needs"
        )
    return text.by_document(values)


def _sentences(text: TaggedText, units: list[list[int]]) -> TaggedText:
    starts = None
    if text.document_starts is not None:
        starts = [sum(map(len, units[:index])) for index in range(len(units))]
    indices = [index for unit in units for index in unit]
    return dataclasses.replace(
        text,
        words=[text.words[index] for index in indices],
        labels=None if text.labels is None else [text.labels[index] for index in indices],
        document_starts=starts,
    )


def _read(config: TaggedFilesConfig, name: str, labelled: bool = True) -> TaggedText:
    text = config.read_words(config.path(name, "a file of words in columns"), labelled)
    return text if config.scheme == "keep" else in_scheme(text, config.scheme)


def in_scheme(text: TaggedText, scheme: Scheme) -> TaggedText:
    """A text with its labels of spans in another scheme; other labels stay as they are.

    Logs a warning if labels are not spelled as their own scheme has it.

    Raises:
        ValueError: if some labels of spans are misspelled; the message names them.
    """
    labels = text.labels
    if labels is None:
        return text
    misspelled = misspelled_labels(label for sentence in labels for label in sentence)
    if misspelled:
        raise ValueError(
            f"{text.path}: labels that spell no span among labels that do: {_listed(misspelled)}; "
            "expected O, B-TYPE, I-TYPE … (--scheme=keep takes labels as they are)"
        )
    own_scheme = detect_scheme(labels)
    if own_scheme is None:
        return text
    _warn_of_mixed_schemes(text, own_scheme)
    converted = [convert_labels(sentence, scheme) for sentence in labels]
    return dataclasses.replace(text, labels=converted)


def _warn_of_mixed_schemes(text: TaggedText, scheme: Scheme) -> None:
    others = [
        (labels[index], words[index])
        for words, labels in zip(text.words, text.labels or (), strict=True)
        for index in deviations(labels, scheme)
    ]
    if others:
        logging.warning(
            "%s: %d of %d labels are not as %s has them, the first %r of the word %r: is it a "
            "mixture of schemes? They are read as conlleval reads them",
            text.path,
            len(others),
            sum(map(len, text.words)),
            scheme,
            *others[0],
        )


def _listed(counts: Mapping[str, int]) -> str:
    shown = [f"{name!r} ({count} words)" for name, count in list(counts.items())[:5]]
    return ", ".join([*shown, *(["…"] if len(counts) > 5 else [])])


def _warn_of_unknown_labels(text: TaggedText, class_names: tuple[str, ...]) -> None:
    counts = Counter(label for sentence in text.labels or () for label in sentence)
    unknown = {name: counts[name] for name in label_names(text) if name not in class_names}
    if unknown:
        logging.warning(
            "%s has labels that the training file has not: %s", text.path, _listed(unknown)
        )
