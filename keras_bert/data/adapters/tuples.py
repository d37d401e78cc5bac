# SPDX-License-Identifier: Apache-2.0
"""Reads tuples of texts: a query, a relevant text and hard negatives."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from keras_bert.data.adapters.base import Restore
from keras_bert.data.adapters.choices import choice_scores
from keras_bert.data.adapters.text_batches import (
    PrebatchedText,
    TextDatasetAdapter,
    naming_batch,
    split_batch,
)
from keras_bert.data.adapters.texts import TextAdapter, is_text, text_columns
from keras_bert.data.arrays import NUMPY
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.bucketing import bucket_for, bucket_lengths
from keras_bert.data.columns import (
    as_list,
    check_lengths,
    column_names,
    given_columns,
    is_dataset,
    is_missing,
    one_for_each,
    validate_weights,
)
from keras_bert.data.labels import LabelRules
from keras_bert.data.loader import Batch, Loader, RowsInMemory
from keras_bert.data.tuples import (
    TUPLE_DEFAULTS,
    TextTupleExamples,
    TupleOptions,
    distinct_texts,
    separate_texts,
)
from keras_bert.text.characters import check_characters

TUPLE_FORMS = (
    "a list of (query, relevant text, hard negative, …) tuples, a tuple with a list for each of "
    'these columns, or a dict or table with "text", "text_pair" and optionally "negatives" (a text '
    "or a list of texts for each row)"
)


@dataclasses.dataclass(frozen=True, eq=False)
class TextTupleAdapter(TextAdapter):
    """Tuples of two or more texts in memory. Each text is encoded separately.

    The labels are the scores of pairs, `(rows,)`, or with `LabelRules.may_be_numbers` the scores of
    all texts except the query, `(rows, candidates)`. Otherwise there are none.

    Args:
        columns: `text`, `text_pair` and, if any tuple has more texts, `negatives`, a list of texts
            for each row.
        options: The prompts to add to the texts, and how batches are made.
    """

    forms = TUPLE_FORMS

    options: TupleOptions = TUPLE_DEFAULTS

    @classmethod
    def matches(cls, x: object) -> bool:
        return is_tuples(x)

    @classmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        columns = tuple_columns(x)
        texts = columns["text"]
        weights = None
        if sample_weight is not None:
            weights = one_for_each(validate_weights(sample_weight), texts)
        rules = rules or LabelRules()
        if (y is None) == _needs_labels(rules):
            raise ValueError(_label_rule(rules, is_missing=y is None))
        if y is None:
            return cls(columns, None, weights)
        if rules.may_be_numbers:
            negatives = columns.get("negatives") or [()] * len(texts)
            rows = zip(columns["text_pair"], negatives, strict=True)
            labels = choice_scores(y, [(text, *others) for text, others in rows])
        else:
            labels = one_for_each(rules.read(y), texts)
        return cls(columns, labels, weights)

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        examples = self.examples(preprocessor)
        columns = given_columns(labels=self.labels, weights=self.weights)
        if self.labels is None:  # Other tuples in a batch are negatives.
            columns["texts"] = examples.pairs
        return Loader(
            RowsInMemory(examples, columns),
            preprocessor,
            options,
            _finish(options, self.options),
            targets_have_length=True,
        )

    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        raise ValueError("x must be single texts. Received: pairs of texts")

    def examples(self, preprocessor: Any) -> TextTupleExamples:
        """Returns the tuples in the form for packing."""
        return TextTupleExamples(self.columns, preprocessor, self.options)


class PrebatchedTuples(PrebatchedText):
    """Features of batches of tuples from a generator, `PyDataset`, `DataLoader` or dataset.

    Args:
        rows: The batches, as read by `TextDatasetAdapter`.
        tuple_options: The prompts to add to the texts, and how batches are made.
        check_columns: Raises `ValueError` if the columns of a batch do not fit the loss. Its second
            argument is whether this is the first batch.
    """

    # The tuples with most texts determine the length of the targets.
    targets_have_length = True

    def __init__(
        self,
        rows: TextDatasetAdapter,
        preprocessor: Any,
        options: BatchOptions,
        tuple_options: TupleOptions,
        check_columns: Callable[[dict[str, Any], bool], None],
    ) -> None:
        super().__init__(rows.batched_text(), preprocessor, options, None)
        self._rules = rows.rules or LabelRules()
        self._check_columns = check_columns
        self._tuple_options = tuple_options

    def _converted(self, number: int, batch: Any, first_row: int | None = None) -> Any:
        x, labels, weights = split_batch(batch, labels_may_be_texts=False)
        if x is batch and not _needs_labels(self._rules):
            labels = None  # They are the `label` column of a table, which is not read.
        with naming_batch(number):
            rows = TextTupleAdapter.read(x, labels, weights, self._rules)
            # The example of a `DataLoader` has a single row, and has no `first_row`.
            self._check_columns(rows.columns, number == 0 and first_row is not None)
            examples = TextTupleExamples(rows.columns, self._preprocessor, self._tuple_options)
        index = np.arange(len(rows))
        sequences = examples.pack(index)
        length = sequences.lengths.max(initial=1)
        if self._options.compiles:
            longest = self._preprocessor.sequence_length
            is_shared = self._options.shard[1] > 1
            buckets = (longest,) if is_shared else bucket_lengths(longest, coarse=True)
            length = bucket_for(length, buckets)
        pad_token_id = self._preprocessor.tokenizer.pad_token_id
        features = sequences.pad(NUMPY, length, pad_token_id)
        columns = given_columns(labels=rows.labels, weights=rows.weights)
        return _finish(self._options, self._tuple_options)(Batch(features, index, None, columns))


def _finish(
    options: BatchOptions, tuple_options: TupleOptions
) -> Callable[[Batch], tuple[Any, ...]]:
    """Returns the function that converts batches of tuples to batches for Keras."""
    if options.compiles or options.pads_last_batch:
        return separate_texts  # The shapes must not vary.
    return functools.partial(distinct_texts, multiple_of=tuple_options.multiple_of)


def _needs_labels(rules: LabelRules) -> bool:
    return rules.may_be_numbers or rules.is_score


def _label_rule(rules: LabelRules, *, is_missing: bool) -> str:
    """Returns the error message for missing or superfluous labels."""
    if not is_missing:
        return (
            "y must be None, because the loss compares tuples of texts without labels. Received: "
            "labels. For scores, compile with the loss CosineSimilarityLoss, MarginMSELoss or "
            "ListNetLoss."
        )
    if rules.may_be_numbers:
        return (
            "y must be a list with the score of each text except the query, for each tuple. "
            "Received: None"
        )
    return "y must be the similarities of the pairs of texts. Received: None"


def is_tuples(x: Any) -> bool:
    """Returns whether `x` contains tuples of two or more texts in memory."""
    if is_dataset(x) or not is_text(x):
        return False
    columns = column_names(x)
    if columns is not None:
        return "text_pair" in columns
    if isinstance(x, (str, bytes)) or not len(x):
        return False
    first = next(iter(x))
    if isinstance(x, tuple):  # A tuple of columns, or of rows
        return not isinstance(first, (str, bytes))
    return isinstance(first, (list, tuple, np.ndarray)) and getattr(first, "ndim", 1) > 0


def tuple_columns(x: Any) -> dict[str, Any]:
    """Converts tuples of texts to the columns `text`, `text_pair` and `negatives`.

    Raises:
        ValueError: If an example is invalid. The message contains its index.

    Example:

    >>> tuple_columns([("what", "this", "that"), ("who", "him")])["negatives"]
    [['that'], []]
    """
    names = column_names(x)
    if names is not None:
        columns = text_columns(x)
        negatives = as_list(x["negatives"]) if "negatives" in names else None
    elif isinstance(x, tuple) and not isinstance(x[0], (str, bytes)):
        first, second, *others = (as_list(column) for column in x)
        columns = text_columns((first, second))
        check_lengths({f"column {index}": column for index, column in enumerate((first, *others))})
        negatives = [list(row) for row in zip(*others, strict=True)] if others else None
    else:
        rows = as_list(x)
        for index, row in enumerate(rows):
            is_row = not isinstance(row, (str, bytes)) and hasattr(row, "__len__")
            if not is_row or len(row) < 2:
                received = f"{len(row)} texts" if is_row else repr(row)
                raise ValueError(f"Row {index} must be a pair of texts. Received: {received}")
        columns = text_columns([(row[0], row[1]) for row in rows])
        negatives = [list(row[2:]) for row in rows] if any(len(row) > 2 for row in rows) else None
    if "text_pair" not in columns:
        raise ValueError(f"x must be {TUPLE_FORMS}. Received: no column 'text_pair'")
    if negatives is None:
        return columns
    check_lengths({"text": columns["text"], "negatives": negatives})
    return {**columns, "negatives": _negatives(negatives)}


def _negatives(rows: Sequence[Any]) -> list[list[Any]]:
    """Converts each row's hard negatives, a text or a list of texts, to a checked list."""
    lists = []
    for index, row in enumerate(rows):
        is_text_or_missing = isinstance(row, (str, bytes)) or is_missing(row)
        if not is_text_or_missing and not hasattr(row, "__iter__"):
            raise ValueError(
                f"The negatives of row {index} must be a text or a list of texts. Received: {row!r}"
            )
        texts = as_list(row) if not is_text_or_missing else [] if is_missing(row) else [row]
        lists.append(texts)
        for text in texts:
            if not isinstance(text, (str, bytes)):
                raise ValueError(
                    f"The negatives of row {index} must be texts. Received: {text!r} of type "
                    f"{type(text).__name__}"
                )
            check_characters(text, f"The negatives of row {index}")
    return lists
