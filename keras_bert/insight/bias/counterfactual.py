# SPDX-License-Identifier: Apache-2.0
"""Counterfactual evaluation: predictions for texts about other people, and errors by slice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from keras_bert.data.labels import LabelRules, softmax
from keras_bert.insight.bias.measures import ALL, Result, UnitValues, mean, share
from keras_bert.insight.bias.word_swaps import (
    Lines,
    Replacement,
    Swapper,
    Text,
    as_text,
    default_swaps,
)
from keras_bert.insight.hidden_states import read_texts
from keras_bert.tasks.text_classifier import TextClassifier


@dataclasses.dataclass(frozen=True)
class Counterfactuals(Result):
    """Predictions for texts, and for the same texts about other people.

    Attributes:
        kinds: The kind of swap of each changed text.
        text_indices: The index of its original among the texts, int `(changes,)`.
        texts: The original of each changed text.
        swapped: The changed texts.
        before: The probabilities of the original, float64 `(changes, classes)`; of a regression,
            its score `(changes, 1)`.
        after: The same of the changed text.
        class_names: The names of the classes; empty for a regression.
        unmatched_kinds: Kinds of swap that have no word in any text.
        replacements: The words of each original that were replaced, and their replacements.
    """

    title = "Change in the predictions if words for people are swapped"
    group_name = "swap"
    unit_name = "texts"
    neutral: ClassVar[dict[str, float]] = {}

    kinds: tuple[str, ...]
    text_indices: np.ndarray
    texts: tuple[Text, ...]
    swapped: tuple[Text, ...]
    before: np.ndarray
    after: np.ndarray
    class_names: tuple[str, ...]
    unmatched_kinds: tuple[str, ...]
    replacements: tuple[tuple[Replacement, ...], ...]

    @property
    def units(self) -> tuple[Any, ...]:
        return self.texts, self.swapped

    @property
    def notes(self) -> str:
        absent = (
            f" No text has a word of {', '.join(self.unmatched_kinds)}."
            if self.unmatched_kinds
            else ""
        )
        return (
            "A text with multiple swaps counts with their mean. Words are swapped from lists, "
            f"whatever the text is about, so also read the changed texts.{absent}"
        )

    @property
    def changes(self) -> np.ndarray:
        """Half the sum of the absolute changes of the probabilities, `(changes,)`.

        With two classes it is the change of each class's probability, and for a regression the
        absolute change of the score.
        """
        difference = np.abs(self.after - self.before).sum(axis=-1)
        return np.asarray(difference / 2 if self.class_names else difference)

    @property
    def flips(self) -> np.ndarray:
        """Whether another class is predicted, bool `(changes,)`."""
        return np.asarray(self.before.argmax(axis=-1) != self.after.argmax(axis=-1))

    def unit_values(self) -> list[UnitValues]:
        kinds = np.array(self.kinds)
        groups = {ALL: np.ones(len(kinds), bool)}
        groups |= {kind: kinds == kind for kind in dict.fromkeys(self.kinds)}
        name = "change of probability" if self.class_names else "change of score"
        values = [
            mean(group, name, _mean_per_text(self.changes, self.text_indices, members))
            for group, members in groups.items()
        ]
        if self.class_names:
            values += [
                share(
                    group, "other class, %", _mean_per_text(self.flips, self.text_indices, members)
                )
                for group, members in groups.items()
            ]
        return values

    def directions(self, min_texts: int = 10) -> SwapDirections:
        """Which way predictions change, by the direction of the swap: `he` to `she`, or back.

        Args:
            min_texts: Minimum number of texts for a pair of words to have a row of its own.

        Raises:
            ValueError: If no direction has enough texts.
        """
        # The columns of the replaced words, and the lengths of their lines
        sides = [{(each.column, each.line_length) for each in own} for own in self.replacements]
        first, second = {(0, 2)}, {(1, 2)}
        firsts, seconds = (np.array([own == side for own in sides]) for side in (first, second))
        has_both = np.array([own >= first | second for own in sides])
        kinds, members = np.array(self.kinds), {}
        for kind in dict.fromkeys(self.kinds):
            is_kind = kinds == kind
            members[f"{kind}: first to second"] = is_kind & firsts
            members[f"{kind}: second to first"] = is_kind & seconds
            pair_members: dict[str, np.ndarray] = {}
            for change in np.flatnonzero(is_kind & ~has_both):
                for each in self.replacements[change]:
                    group = f"{kind}: {each.word} to {each.replacement}"
                    pair_members.setdefault(group, np.zeros(len(kinds), bool))[change] = True
            members |= {
                group: is_member
                for group, is_member in pair_members.items()
                if len(set(self.text_indices[is_member])) >= min_texts
            }
        members = {group: is_member for group, is_member in members.items() if is_member.any()}
        if not members:
            raise ValueError(f"No pair of words is replaced in at least {min_texts} texts.")
        return SwapDirections(
            members,
            self.text_indices,
            self.texts,
            self.swapped,
            self.after - self.before,
            self.class_names,
            len(set(self.text_indices[has_both])),
        )

    def largest(self, count: int = 10) -> list[dict[str, Any]]:
        """The changed texts with the largest changes of predictions.

        Returns:
            Dicts of `kind`, `change`, `label` and `swapped_label` (of a regression `score` and
            `swapped_score`), `text` and `swapped`.
        """
        rows = []
        for index in np.argsort(-self.changes, kind="stable")[:count]:
            row: dict[str, Any] = {
                "kind": self.kinds[index],
                "change": float(self.changes[index]),
            }
            for prefix, scores in (("", self.before[index]), ("swapped_", self.after[index])):
                if self.class_names:
                    row[f"{prefix}label"] = self.class_names[int(scores.argmax())]
                else:
                    row[f"{prefix}score"] = float(scores[0])
            row |= {"text": self.texts[index], "swapped": self.swapped[index]}
            rows.append(row)
        return rows


def _mean_per_text(values: np.ndarray, numbers: np.ndarray, members: np.ndarray) -> np.ndarray:
    """The mean of each text's changes; texts are the units that the bootstrap draws."""
    _, index = np.unique(numbers[members], return_inverse=True)
    return np.bincount(index, values[members].astype("float64")) / np.bincount(index)


@dataclasses.dataclass(frozen=True)
class SwapDirections(Result):
    """Which way predictions change, by the direction of the swap.

    Attributes:
        directions: By direction, whether each changed text has it, bool `(changes,)`.
        text_indices: The index of its original among the texts, int `(changes,)`.
        texts: The original of each changed text.
        swapped: The changed texts.
        differences: How much higher the probability of each class is in the changed text, float64
            `(changes, classes)`; of a regression, the score `(changes, 1)`.
        class_names: The names of the classes; empty for a regression.
        num_mixed: The number of texts that are left out, since their words go both ways.
    """

    title = "Direction of the change if words for people are swapped"
    group_name = "swap"
    unit_name = "texts"

    directions: Mapping[str, np.ndarray]
    text_indices: np.ndarray
    texts: tuple[Text, ...]
    swapped: tuple[Text, ...]
    differences: np.ndarray
    class_names: tuple[str, ...]
    num_mixed: int

    @property
    def units(self) -> tuple[Any, ...]:
        return self.texts, self.swapped, tuple(self.directions)

    @property
    def notes(self) -> str:
        note = (
            f" Texts left out because they contain both words: {self.num_mixed}."
            if self.num_mixed
            else ""
        )
        return (
            "Positive values: the changed text has the higher value. First and second are the two "
            "words of a pair. In the default lists, the first word is for men. A text counts once "
            f"for each pair of swapped words.{note}"
        )

    def neutral_value(self, metric: str) -> float | None:
        return 0.0

    def unit_values(self) -> list[UnitValues]:
        # With two classes, the change of one is the negative of the other's
        class_indices = range(len(self.class_names) == 2, self.differences.shape[1])
        return [
            mean(
                group,
                f"change of P({self.class_names[index]})"
                if self.class_names
                else "change of score",
                _mean_per_text(self.differences[:, index], self.text_indices, members),
            )
            for index in class_indices
            for group, members in self.directions.items()
        ]


def counterfactuals(
    classifier: TextClassifier,
    texts: Iterable[Text],
    swaps: Mapping[str, Lines] | None = None,
    batch_size: int | None = None,
    verbose: int | str = 0,
) -> Counterfactuals:
    """Measures how much predictions change if a text is about other people.

    In a changed text each word of a list is replaced by its counterpart: `he` by `she`, `Mary` by
    `James`, `Muslim` by `Christian`. A line of more than two words gives a changed text for each
    other word. A word keeps its capitals, and `a` or `an` before it is corrected; `her` becomes
    `his` or `him`, and `his` becomes `her` or `hers`, depending on the next word. Capitalized words
    of a list, such as names, do not match lower case, unless the text has no capitals. Each kind is
    swapped by itself: to swap names along with pronouns, pass their lines as one kind.

    Args:
        classifier: A `TextClassifier` with a preprocessor, also of a regression.
        texts: Strings or pairs.
        swaps: By kind, lines of words that can replace one another. Defaults to `default_swaps()`.
        batch_size: Rows in a batch.
        verbose: 1 shows a progress bar.

    Raises:
        ValueError: If the model is no `TextClassifier` or has `multi_label=True`, no text has any
            of the words, or a word other than `her` and `his` is in two lines of a kind.

    Example:

    ```python
    changes = counterfactuals(classifier, texts, {"gender": [("he", "she"), ("actor", "actress")]})
    print(changes)
    print(changes.directions())      # by how much P(class) rises from he to she, and back
    changes.largest(5)
    ```

    Reference:
        [Counterfactual fairness in text classification](https://arxiv.org/abs/1809.10610),
        section 3.
    """
    _require_classifier(classifier)
    originals = _as_list(texts)
    kinds, numbers, swapped, replacements_by_change, unmatched_kinds = [], [], [], [], []
    for kind, lines in (default_swaps() if swaps is None else swaps).items():
        swapper = Swapper(kind, lines)
        for number, text in enumerate(originals):
            replacements_by_text: dict[Text, tuple[Replacement, ...]] = {}
            for step in range(1, swapper.most + 1):
                other, replacements = swapper.swap(text, step)
                if other != text:
                    replacements_by_text.setdefault(other, replacements)
            for other, replacements in replacements_by_text.items():
                kinds.append(kind)
                numbers.append(number)
                swapped.append(other)
                replacements_by_change.append(replacements)
        if kind not in kinds:
            unmatched_kinds.append(kind)
    if not kinds:
        raise ValueError(
            f"None of the {len(originals)} texts has a word of {', '.join(unmatched_kinds)}."
        )
    text_numbers = sorted(set(numbers))
    scores = _scores(
        classifier, [*(originals[number] for number in text_numbers), *swapped], batch_size, verbose
    )
    return Counterfactuals(
        tuple(kinds),
        np.array(numbers),
        tuple(originals[number] for number in numbers),
        tuple(swapped),
        scores[np.searchsorted(text_numbers, numbers)],
        scores[len(text_numbers) :],
        _class_names(classifier),
        tuple(unmatched_kinds),
        tuple(replacements_by_change),
    )


@dataclasses.dataclass(frozen=True)
class ErrorRates(Result):
    """The errors of a classifier, by slice of the texts.

    Attributes:
        errors: Whether each text's prediction is wrong, bool `(texts,)`; of a regression, the
            absolute error, float64.
        slices: By name, whether each text belongs to a slice, bool `(texts,)`.
    """

    title = "Errors by slice"
    group_name = "slice"
    unit_name = "texts"

    errors: np.ndarray
    slices: Mapping[str, np.ndarray]

    @property
    def units(self) -> tuple[Any, ...]:
        return tuple((name, members.tobytes()) for name, members in self.slices.items())

    @property
    def notes(self) -> str:
        empty = [name for name, members in self.slices.items() if not members.any()]
        return f"No text belongs to {', '.join(empty)}." if empty else ""

    def unit_values(self) -> list[UnitValues]:
        groups = {ALL: np.ones(len(self.errors), bool)}
        groups |= {name: members for name, members in self.slices.items() if members.any()}
        if self.errors.dtype == bool:
            return [
                share(group, "errors, %", self.errors[members], wilson=True)
                for group, members in groups.items()
            ]
        return [
            mean(group, "absolute error", self.errors[members]) for group, members in groups.items()
        ]


def error_rates(
    classifier: TextClassifier,
    texts: Iterable[Text],
    labels: Any,
    slices: Mapping[str, Any | Callable[[Text], bool]],
    batch_size: int | None = None,
    verbose: int | str = 0,
) -> ErrorRates:
    """Measures the error rate of each slice of the texts, with Wilson intervals.

    For a regression, it is the mean absolute error, with bootstrap intervals.

    Args:
        classifier: A `TextClassifier` with a preprocessor.
        texts: Strings or pairs.
        labels: Class ids or names `(texts,)`; of a regression, scores.
        slices: By name, whether each text belongs to a slice: bool `(texts,)`, or a function of a
            text. Slices may overlap.
        batch_size: Rows in a batch.
        verbose: 1 shows a progress bar.

    Raises:
        ValueError: If the model is no `TextClassifier` or has `multi_label=True`, or the labels or
            a slice do not fit the texts.

    Example:

    ```python
    names = default_swaps()["names"]
    slices = {"questions": lambda text: "?" in text, "names": contains_any(names)}
    print(error_rates(classifier, texts, labels, slices))
    ```
    """
    _require_classifier(classifier)
    text_list = _as_list(texts)
    members = {name: _members(name, selection, text_list) for name, selection in slices.items()}
    rules = LabelRules(
        classifier.num_classes, classifier.class_names, is_score=classifier.is_regression
    )
    targets = rules.read(labels)
    if len(targets) != len(text_list):
        raise ValueError(f"Received {len(text_list)} texts and {len(targets)} labels.")
    scores = _scores(classifier, text_list, batch_size, verbose)
    if classifier.is_regression:
        errors = np.abs(scores[:, 0] - targets.astype("float64").reshape(-1))
    else:
        errors = scores.argmax(axis=-1) != targets
    return ErrorRates(errors, members)


def _members(name: str, selection: Any, texts: Sequence[Text]) -> np.ndarray:
    if callable(selection):
        return np.array([bool(selection(text)) for text in texts], bool)
    members = np.asarray(selection)
    if members.dtype != bool or members.shape != (len(texts),):
        raise ValueError(
            f"slices[{name!r}] must be a function, or bool of shape ({len(texts)},). Received: "
            f"{members.dtype} of shape {members.shape}"
        )
    return members


def _require_classifier(model: Any) -> None:
    if not isinstance(model, TextClassifier):
        raise ValueError(f"Received a {type(model).__name__}; expected a TextClassifier.")
    if model.multi_label:
        raise ValueError(
            "Received a TextClassifier with multi_label=True; expected one with a single label for "
            "each text, or a regression."
        )


def _as_list(texts: Iterable[Text]) -> list[Text]:
    if isinstance(texts, str):
        raise ValueError(f"Received the string {texts[:80]!r}; expected a list of texts.")
    return [as_text(parts) for parts in read_texts(list(texts))]


def _scores(
    classifier: TextClassifier, texts: list[Text], batch_size: int | None, verbose: int | str
) -> np.ndarray:
    """Probabilities `(texts, classes)`, or scores `(texts, 1)` of a regression."""
    logits = np.asarray(classifier.predict(texts, batch_size=batch_size, verbose=verbose))
    return (
        logits.astype("float64") if classifier.is_regression else softmax(logits.astype("float64"))
    )


def _class_names(classifier: TextClassifier) -> tuple[str, ...]:
    if classifier.is_regression:
        return ()
    return classifier.class_names or tuple(map(str, range(classifier.num_classes)))
