# SPDX-License-Identifier: Apache-2.0
"""Inspects a data set before training: duplicates, leaks, scripts and lengths."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_bert.data.conll import TaggedText
from keras_bert.text.word_search import split_at_spaces

from .choice_files import ChoiceRows
from .data_splits import hold_out_tenth
from .labeled_text import LabeledText
from .row_values import excerpt, normalize_text
from .tagged_words import count_types, counts_of_words, hold_out, sentence_texts

if TYPE_CHECKING:
    from keras_bert.text.tokenizer import Tokenizer

_TOKENIZED_AT_ONCE = 1024
_MAX_UNKNOWN_WORDS = 15


@dataclass(frozen=True)
class Rows:
    """A split's examples, in the same form for all tasks.

    Args:
        texts: The texts of each example. For example, a text pair has two texts.
        labels: The label of each example, or `None` if examples have no labels.
        have_choices: Whether the first text is paired with each of the other texts, its choices.
        share_passages: Whether examples are questions on passages. The passage is the last text,
            and multiple examples may share it.
    """

    texts: Sequence[tuple[str, ...]]
    labels: Sequence[str] | None = None
    have_choices: bool = False
    share_passages: bool = False

    def example(self) -> dict[str, Any]:
        """Returns the shortened fields of the first example, in the format that servers accept.

        Example:

        >>> Rows([("Who?", "A passage.")], share_passages=True).example()
        {'question': 'Who?', 'context': 'A passage.'}
        """
        first, *others = (textwrap.shorten(text, 200, placeholder=" …") for text in self.texts[0])
        if self.have_choices:
            return {"text": first, "choices": others}
        names = ("question", "context") if self.share_passages else ("text", "text_pair")
        return dict(zip(names, (first, *others), strict=False))

    def keys(self) -> list[tuple[str, ...]]:
        """Returns the texts with normalized case, spaces and compatibility characters."""
        return [tuple(map(normalize_text, texts)) for texts in self.texts]

    def different_texts(self) -> list[str]:
        """Returns all texts. Shared passages occur only once."""
        texts = [text for row in self.texts for text in row]
        return list(dict.fromkeys(texts)) if self.share_passages else texts


def count_rows(part: Any) -> dict[str, int | str]:
    """Counts a split's examples, in total and by class or entity type."""
    if isinstance(part, LabeledText | ChoiceRows):
        return part.counts()
    if isinstance(part, TaggedText):
        return {**counts_of_words(part)}
    answerable = [bool(example.answers) for example in part if example.answers is not None]
    passages = len({example.context for example in part})
    counts: dict[str, int | str] = {"questions": len(part), "passages": passages}
    if answerable:
        unanswerable = len(answerable) - sum(answerable)
        counts |= {"answerable": sum(answerable), "unanswerable": unanswerable}
    return counts


def text_rows(part: Any) -> Rows:
    """Converts a split to `Rows`.

    Args:
        part: `LabeledText`, `ChoiceRows`, `TaggedText`, or a sequence of `QuestionExample`.
    """
    if isinstance(part, LabeledText):
        texts = [(text,) for text in part.texts]
        if part.text_pairs is not None:
            texts = list(zip(part.texts, part.text_pairs, strict=True))
        if part.labels is None:
            return Rows(texts)
        return Rows(texts, part.shown_labels)
    if isinstance(part, ChoiceRows):
        texts = [(text, *choices) for text, choices in zip(part.texts, part.choices, strict=True)]
        labels = None if part.labels is None else [str(label) for label in part.labels]
        return Rows(texts, labels, have_choices=True)
    if isinstance(part, TaggedText):
        labels = None if part.labels is None else list(map(" ".join, part.labels))
        return Rows([(" ".join(words),) for words in part.words], labels)
    texts = [(example.question, example.context) for example in part]
    return Rows(texts, share_passages=True)


def example_row(part: Any) -> dict[str, Any]:
    """Returns the fields of a split's first example, see `Rows.example`."""
    if isinstance(part, TaggedText):  # Characters are joined to a text without spaces.
        return Rows([(sentence_texts(part)[0],)]).example()
    return text_rows(part).example()


def findings(parts: Mapping[str, Rows]) -> list[str]:
    """Finds problems that make scores misleading: duplicates, contradictory labels, and leaks.

    A leak is an example that is also in `train`. Texts are compared without regard to case and
    spaces.
    """
    messages = []
    train_keys = set(parts["train"].keys()) if "train" in parts else set()
    seen_passages = {key[-1] for key in train_keys}
    for name, rows in parts.items():
        keys = rows.keys()
        counts = Counter(keys)
        num_repeated = len(keys) - len(counts)
        if num_repeated:
            most = counts.most_common(1)[0]
            messages.append(
                f"{name}: {_share(num_repeated, len(keys))} repeat a different row's text. "
                f"For example, {excerpt(most[0][0])} occurs {most[1]} times"
            )
        if rows.labels is not None:
            messages += _contradictions(name, keys, rows.labels)
        if name != "train" and train_keys:
            leaks = {"rows": (sum(key in train_keys for key in keys), len(keys))}
            if rows.share_passages:
                passages = {key[-1] for key in keys}
                leaks["passages"] = (len(passages & seen_passages), len(passages))
            for what, (leaked, total) in leaks.items():
                if leaked:
                    messages.append(
                        f"{name}: {_share(leaked, total, what)} are also in train, so scores on "
                        f"{name} are too high"
                    )
    return messages


def rare_classes(parts: Mapping[str, Any]) -> list[str]:
    """Finds classes with too few examples for training or for scoring."""
    messages = []
    counts = {name: _class_counts(part) for name, part in parts.items()}
    what, one = (
        ("types", "entity") if isinstance(parts["train"], TaggedText) else ("classes", "row")
    )

    def share(names: Sequence[str], verb: str) -> str:
        return f"{len(names)} of {len(counts['train'])} {what} {verb}, {excerpt(names, 300)}"

    for name, part_counts in counts.items():
        single = [label for label, count in part_counts.items() if count == 1]
        if single:
            effect = (
                "cannot be both learned and scored" if name == "train" else "have unreliable scores"
            )
            messages.append(f"{name}: {share(single, f'have a single {one}')}. They {effect}")
    dev_counts = counts.get("dev") or _held_out_counts(parts["train"])
    others = [
        name for name, count in counts["train"].items() if count > 1 and not dev_counts.get(name)
    ]
    if dev_counts and others:
        dev = "in dev" if "dev" in parts else "in the tenth held out without --dev_file"
        messages.append(f"train: {share(others, f'have no {one} {dev}')}. They are not scored")
    return messages


def _class_counts(part: Any) -> Mapping[str, int]:
    """Returns the number of examples per class, or of entities per type. Empty without labels."""
    if isinstance(part, TaggedText):
        return count_types(part)
    return part.class_counts if isinstance(part, LabeledText) else {}


def _held_out_counts(train: Any) -> Mapping[str, int]:
    """Returns the class counts in the held-out tenth, or `{}` if the file is too small for one."""
    try:
        if isinstance(train, TaggedText):
            return _class_counts(hold_out(train)[1])
        if isinstance(train, LabeledText):
            return _class_counts(train.rows(hold_out_tenth(train.strata, train.path)[1]))
    except ValueError:
        pass
    return {}


def _contradictions(
    name: str, keys: Sequence[tuple[str, ...]], labels: Sequence[str]
) -> Iterable[str]:
    labels_by_key: dict[tuple[str, ...], set[str]] = {}
    for key, label in zip(keys, labels, strict=True):
        labels_by_key.setdefault(key, set()).add(label)
    contradictory = {key for key, labels_of_key in labels_by_key.items() if len(labels_of_key) > 1}
    if contradictory:
        first = next(key for key in keys if key in contradictory)
        yield (
            f"{name}: {_share(sum(key in contradictory for key in keys), len(keys))} have a text "
            f"that occurs with different labels, such as {excerpt(first[0])} with "
            f"{excerpt(sorted(labels_by_key[first]))}"
        )


def _share(count: int, total: int, what: str = "rows") -> str:
    share = 100 * count / total
    return f"{count:,} of {total:,} {what} ({share:.1f}%)"


@dataclass(frozen=True)
class Tokens:
    """Statistics of a tokenized split.

    Args:
        lengths: The sequence lengths in tokens with special tokens, of shape `(examples,)`. For
            examples with choices, the length of the longest sequence.
        unknown: The percentage of unknown tokens.
        unknown_words: The most frequent words with an unknown token, and their counts.
    """

    lengths: np.ndarray
    unknown: float
    unknown_words: list[tuple[str, int]]


def tokenize_rows(rows: Rows, tokenizer: Tokenizer) -> Tokens:
    """Tokenizes a split's examples.

    The texts of an example form one sequence with special tokens. In examples with choices, only
    the first text and the longest choice do. Unknown tokens in shared passages count once.
    """
    num_tokens, num_unknown, words = [], [], Counter[str]()
    texts = rows.different_texts()
    for start in range(0, len(texts), _TOKENIZED_AT_ONCE):
        part = texts[start : start + _TOKENIZED_AT_ONCE]
        ids = tokenizer(part)
        num_unknown_tokens = np.array([row.count(tokenizer.unk_token_id) for row in ids])
        num_tokens.append(np.array([len(row) for row in ids]))
        num_unknown.append(num_unknown_tokens)
        for index in np.flatnonzero(num_unknown_tokens).tolist():
            words.update(split_at_spaces(part[index]))
    text_lengths, total = np.concatenate(num_tokens), int(sum(map(np.sum, num_tokens)))
    if rows.share_passages:
        positions = {text: index for index, text in enumerate(texts)}
        text_lengths = text_lengths[[positions[text] for row in rows.texts for text in row]]
    num_texts = np.array([len(row) for row in rows.texts])
    starts = np.cumsum(num_texts) - num_texts
    if rows.have_choices:
        longest = text_lengths.copy()
        longest[starts] = 0
        row_lengths = text_lengths[starts] + np.maximum.reduceat(longest, starts)
        num_texts = np.full_like(num_texts, 2)
    else:
        row_lengths = np.add.reduceat(text_lengths, starts)
    return Tokens(
        lengths=row_lengths + 2 + (num_texts - 1) * tokenizer.pair_separators,
        unknown=100 * float(np.concatenate(num_unknown).sum()) / max(1, total),
        unknown_words=_unknown_words(words, tokenizer),
    )


def _unknown_words(words: Counter[str], tokenizer: Tokenizer) -> list[tuple[str, int]]:
    ranking = words.most_common()
    if not ranking:
        return []
    ids = tokenizer([word for word, _ in ranking])
    unknown_words = [
        one
        for one, word_ids in zip(ranking, ids, strict=True)
        if tokenizer.unk_token_id in word_ids
    ]
    return unknown_words[:_MAX_UNKNOWN_WORDS]
