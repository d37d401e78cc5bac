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
        kinds: Kind of swap in each changed text.
        text_indices: Index of the original text of each changed text, int `(changes,)`.
        texts: Original text of each changed text.
        swapped: Changed texts.
        before: Probabilities for the original text, float64 `(changes, classes)`. For a regression,
            its score `(changes, 1)`.
        after: The same values for the changed text.
        class_names: Class names. Empty for a regression.
        unmatched_kinds: Kinds of swaps without a word in any text.
        replacements: Replaced words in each original text, with their replacements.
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
            f" No text contains a word from {', '.join(self.unmatched_kinds)}."
            if self.unmatched_kinds
            else ""
        )
        return (
            "A text with multiple swaps counts with their mean. Words are swapped from lists, "
            f"whatever the text is about, so also read the changed texts.{absent}"
        )

    @property
    def changes(self) -> np.ndarray:
        """Half the sum of the absolute changes in probability, `(changes,)`.

        For two classes, this is the change in each class's probability. For a regression, it is the
        absolute change in the score.
        """
        difference = np.abs(self.after - self.before).sum(axis=-1)
        return np.asarray(difference / 2 if self.class_names else difference)

    @property
    def flips(self) -> np.ndarray:
        """Whether the predicted class changes, bool `(changes,)`."""
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
        """Returns the direction of changes in predictions, for example from `he` to `she` and back.

        Args:
            min_texts: Minimum number of texts for a word pair to get its own row.

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
        """Returns the changed texts with the largest changes in predictions.

        Returns:
            Dicts with `kind`, `change`, `label` and `swapped_label` (for a regression, `score` and
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
    """Averages the changes of each text, because the bootstrap samples texts."""
    _, index = np.unique(numbers[members], return_inverse=True)
    return np.bincount(index, values[members].astype("float64")) / np.bincount(index)


@dataclasses.dataclass(frozen=True)
class SwapDirections(Result):
    """The direction of changes in predictions, by swap direction.

    Attributes:
        directions: Whether each changed text has the direction, bool `(changes,)`, by direction.
        text_indices: Index of the original text of each changed text, int `(changes,)`.
        texts: Original text of each changed text.
        swapped: Changed texts.
        differences: Probability of each class for the changed text minus the original text, float64
            `(changes, classes)`. For a regression, the difference in scores `(changes, 1)`.
        class_names: Class names. Empty for a regression.
        num_mixed: Number of texts excluded because they contain both words in a pair.
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
        # For two classes, the changes have opposite signs, so only the second class is included.
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

    In a changed text, each word from a list is replaced with its counterpart. For example, `he`
    becomes `she`, `Mary` becomes `James` and `Muslim` becomes `Christian`. A line with more than
    two words gives one changed text for each other word. Words keep their capitalization, and a
    preceding `a` or `an` is corrected. `her` becomes `his` or `him`, and `his` becomes `her` or
    `hers`, depending on the next word. Capitalized words in a list, such as names, do not match
    lowercase words, unless the text has no capitals. Each kind is swapped separately. To swap names
    together with pronouns, pass their lines as one kind.

    The default lists are English. Write Korean words without particles: if a line has 신랑 and
    신부, 신랑이 becomes 신부가. The word 그 alone usually means *that*. List this pronoun with its
    particles: 그는 and 그녀는, 그가 and 그녀가. In scripts without spaces, a word may stand
    anywhere, so 他 also matches in 其他.

    Args:
        classifier: A `TextClassifier` with a preprocessor, for classification or regression.
        texts: Texts or text pairs.
        swaps: Lines of interchangeable words, by kind. Defaults to `default_swaps()`.
        batch_size: Number of examples per batch.
        verbose: 1 shows a progress bar.

    Raises:
        ValueError: If the model is not a `TextClassifier` or has `multi_label=True`, no text
            contains any of the words, or a word other than `her` and `his` is in two lines of one
            kind.

    Example:

    ```python
    changes = counterfactuals(classifier, texts, {"gender": [("he", "she"), ("actor", "actress")]})
    print(changes)
    print(changes.directions())      # how much P(class) rises from he to she, and back
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
            f"At least one text must contain a word from {', '.join(unmatched_kinds)}. Received: "
            f"{len(originals)} texts without such a word."
            + " The default lists are English. For other languages, pass swaps."
            * (swaps is None)
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
    """A classifier's errors, by slice of the texts.

    Attributes:
        errors: Whether each text's prediction is wrong, bool `(texts,)`. For a regression, the
            absolute error, float64.
        slices: Whether each text belongs to the slice, bool `(texts,)`, by name.
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
    """Measures the error rate in each slice of the texts, with Wilson intervals.

    For a regression, this is the mean absolute error with bootstrap intervals.

    Args:
        classifier: A `TextClassifier` with a preprocessor.
        texts: Texts or text pairs.
        labels: Class IDs or names `(texts,)`. For a regression, scores.
        slices: Whether each text belongs to the slice, by name: bool `(texts,)`, or a function from
            a text to bool. Slices may overlap.
        batch_size: Number of examples per batch.
        verbose: 1 shows a progress bar.

    Raises:
        ValueError: If the model is not a `TextClassifier` or has `multi_label=True`, or the labels
            or a slice do not match the texts.

    Example:

    ```python
    slices = {"questions": lambda text: "?" in text}
    slices["names"] = contains_any(default_swaps()["names"])
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
        raise ValueError(
            f"labels must have one label per text. Received: {len(targets)} labels for "
            f"{len(text_list)} texts"
        )
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
        raise ValueError(f"The model must be a TextClassifier. Received: a {type(model).__name__}")
    if model.multi_label:
        raise ValueError(
            "The TextClassifier must have a single label per text, or be a regression. Received: "
            "multi_label=True"
        )


def _as_list(texts: Iterable[Text]) -> list[Text]:
    if isinstance(texts, str):
        raise ValueError(f"texts must be a list of texts. Received: the string {texts[:80]!r}")
    return [as_text(parts) for parts in read_texts(list(texts))]


def _scores(
    classifier: TextClassifier, texts: list[Text], batch_size: int | None, verbose: int | str
) -> np.ndarray:
    """Returns probabilities `(texts, classes)`, or a regression's scores `(texts, 1)`."""
    logits = np.asarray(classifier.predict(texts, batch_size=batch_size, verbose=verbose))
    return (
        logits.astype("float64") if classifier.is_regression else softmax(logits.astype("float64"))
    )


def _class_names(classifier: TextClassifier) -> tuple[str, ...]:
    if classifier.is_regression:
        return ()
    return classifier.class_names or tuple(map(str, range(classifier.num_classes)))
