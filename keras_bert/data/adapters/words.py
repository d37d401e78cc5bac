# SPDX-License-Identifier: Apache-2.0
"""Reads sentences of words, or texts to split into words, for token classification."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence, Sized
from typing import Any, Self

import numpy as np

from keras_bert.data.adapters.base import BatchOutputs, InputAdapter, Restore, slice_rows
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.columns import as_list, as_string, column_names, validate_weights
from keras_bert.data.labels import LabelRules
from keras_bert.data.loader import Batch, Loader, RowsInMemory, to_indexed_batch
from keras_bert.data.packing import Sequences
from keras_bert.data.texts import InMemory
from keras_bert.data.words import nested_words
from keras_bert.text.characters import check_characters

# The items at each nesting depth, for error messages
_PARTS = {1: "words", 2: "sentences", 3: "documents"}


@dataclasses.dataclass(frozen=True, eq=False)
class WordsAdapter(InputAdapter):
    """Sentences of words, documents of such sentences, or texts to split into words.

    Args:
        words: The input: a text (`depth` 0), texts (1), sentences of words (2), or documents (3).
            `split_into_words` converts texts to sentences.
        labels: The class ids of all words, int32 `(words,)`.
        weights: The sample weights of all words, float32 `(words,)`. Words with a negative label
            have weight 0.
        texts: The original texts, if they were split into words.
        offsets: The start and end offsets of the words in each text.
    """

    forms = (
        "a text, a list of texts, a list of sentences, each a list of words, or a list of "
        "documents, each a list of such sentences"
    )

    words: list[Any]
    depth: int
    labels: np.ndarray[Any, Any] | None = None
    weights: np.ndarray[Any, Any] | None = None
    texts: list[str] | None = None
    offsets: tuple[list[list[int]], list[list[int]]] | None = None

    @classmethod
    def matches(cls, x: object) -> bool:
        return word_depth(x) is not None

    @classmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        depth = word_depth(x) or 0
        x = as_lists(x)
        check_words(x, depth)
        if rules is None:
            return cls([x] if depth == 0 else x, depth)
        if (depth < 2 and len(x)) or y is None:
            raise ValueError(
                f"Each word must have a label. Pass {cls.forms.split('texts, ')[-1]}, and labels "
                "in the same nesting."
            )
        word_labels = flat_labels(x, as_lists(y), max(depth, 2))
        try:
            labels = rules.read(word_labels)
        except ValueError as error:
            raise ValueError(f"{error} (Rows are words, counted over all sentences.)") from error
        if not len(labels):
            raise ValueError("Training and evaluation need at least one word. Received: 0 words")
        weights = (labels >= 0).astype("float32")
        if sample_weight is not None:
            weights *= validate_weights(flat_labels(x, as_lists(sample_weight), depth))
        return cls(x, depth, np.maximum(labels, 0), weights)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, rows: slice) -> Self:
        before, selection = (
            dataclasses.replace(self, words=self.words[some])
            for some in (slice(rows.start or 0), rows)
        )
        first = sum(map(len, before.sentences))
        words = slice(first, first + sum(map(len, selection.sentences)))
        return dataclasses.replace(
            selection,
            labels=slice_rows(self.labels, words),
            weights=slice_rows(self.weights, words),
        )

    @property
    def sentences(self) -> list[Any]:
        """The words of each sentence or text."""
        if self.depth < 3:
            return self.words
        return [sentence for document in self.words for sentence in document]

    def split_into_words(self, preprocessor: Any) -> Self:
        """Splits texts into words. Returns sentences of words unchanged.

        Args:
            preprocessor: A `TokenClassifierPreprocessor`, which has the unit of words.
        """
        if self.depth >= 2 or self.offsets is not None:
            return self
        texts = [as_string(text) for text in self.words]
        split_texts = preprocessor.split_texts(texts)
        words = [text_words for text_words, _, _ in split_texts]
        offsets = [starts for _, starts, _ in split_texts], [ends for _, _, ends in split_texts]
        return dataclasses.replace(self, words=words, texts=texts, offsets=offsets)

    def nest_like_input(self, values: Sequence[Any]) -> Any:
        """Nests values, one for each sentence, like the input."""
        if self.depth < 3:
            return values[0] if self.depth == 0 else list(values)
        remaining = iter(values)
        return [[next(remaining) for _ in document] for document in self.words]

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        if self.labels is None:  # The batches are only counted.
            return self.prediction_batches(preprocessor, options)[0]
        if options.training:
            preprocessor.learn_word_unit(self.sentences)
        windows = preprocessor.windows(self.words)
        features = windows.sequences.features
        features |= {name: windows.scatter(getattr(self, name)) for name in ("labels", "weights")}
        source = RowsInMemory(InMemory(Sequences(features)))
        targets = self.labels, self.weights
        return Loader(
            source, preprocessor, options, _add_tags, targets_have_length=True, targets=targets
        )

    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        rows = self.split_into_words(preprocessor)
        words = nested_words(rows.words)
        windows = preprocessor.windows(words)
        row_splits = np.concatenate([[0], np.cumsum(windows.token_ids.lengths)])

        def restore(outputs_of_batches: Iterable[BatchOutputs], shape: Any) -> Any:
            logits = np.zeros((row_splits[-1], shape[-1]), "float32")
            for features, index, outputs in outputs_of_batches:
                mask = features["padding_mask"]
                # (batch, 1) + (length,) -> (batch, length) positions in the flat array
                tokens = row_splits[index][:, None] + np.arange(mask.shape[1])
                logits[tokens[mask]] = outputs[mask]
            ends = np.cumsum(words.words_per_sentence)
            sentence_logits = np.split(logits[windows.first_subwords()], ends)[: len(ends)]
            return rows.nest_like_input(sentence_logits)

        source = RowsInMemory(InMemory(windows.sequences))
        return Loader(source, preprocessor, options, to_indexed_batch), restore


def _add_tags(batch: Batch) -> tuple[Any, ...]:
    """Converts a batch to features, and the labels and weights of each word's first subword."""
    features = dict(batch.features)
    labels, weights = features.pop("labels"), features.pop("weights")
    if batch.row_mask is not None:
        weights = weights * batch.row_mask[:, np.newaxis]
    return features, labels, weights


def word_depth(x: Any) -> int | None:
    """Returns the nesting depth of strings: 0 for a string, 1 for a list of strings, and so on.

    Empty lists count as lists of strings. Returns `None` for anything except nested strings.
    """
    if isinstance(x, (str, bytes)):
        return 0
    if isinstance(x, np.ndarray) and x.dtype.kind not in "OUS":
        return None
    if getattr(getattr(x, "dtype", None), "name", "") == "string":
        return len(x.shape)
    if hasattr(x, "to_pylist"):
        x = x.to_pylist()
    # Iterators are not read, because their elements would be lost, and they may be infinite.
    is_nested = isinstance(x, Sized) and isinstance(x, Iterable)
    if not is_nested or column_names(x) is not None or hasattr(x, "element_spec"):
        return None
    depths = [word_depth(item) for item in x]
    if None in depths:
        return None
    return 1 + max((depth for depth in depths if depth is not None), default=0)


def as_lists(x: Any) -> Any:
    """Converts words in any form, such as a ragged tensor, to a string or nested lists."""
    if getattr(x, "shape", None) == ():
        return np.asarray(x).item()
    return x if isinstance(x, (str, bytes, list, tuple)) else as_list(x)


def check_words(words: Any, depth: int, path: tuple[int, ...] = ()) -> None:
    """Checks that UTF-8 can represent a text (`depth` 0), texts, sentences or documents (3).

    `path` contains the indices of `words` in the input.
    """
    if depth:
        for index, item in enumerate(words):
            check_words(item, depth - 1, (*path, index))
    elif isinstance(words, str) and not words.isascii():
        check_characters(words, _where(path[:1] if len(path) < 3 else path[:2]))


def flat_labels(words: Sequence[Any], labels: Sequence[Any], depth: int) -> list[Any]:
    """Flattens the labels or weights of words in sentences (`depth` 2) or documents."""
    flat: list[Any] = []
    _flatten(words, labels, depth, (), flat)
    return flat


def _flatten(words: Any, labels: Any, depth: int, path: tuple[int, ...], flat: list[Any]) -> None:
    if isinstance(labels, (str, bytes)) or not hasattr(labels, "__len__"):
        raise ValueError(f"{_where(path)} must have a list of labels. Received: {labels!r}")
    if len(words) != len(labels):
        raise ValueError(
            f"{_where(path)} must have a label or weight for each of its {len(words)} "
            f"{_PARTS[depth]}. Received: {len(labels)}"
        )
    if depth == 1:
        flat.extend(labels)
        return
    for index, (item, its_labels) in enumerate(zip(words, labels, strict=True)):
        _flatten(item, its_labels, depth - 1, (*path, index), flat)


def _where(path: tuple[int, ...]) -> str:
    if not path:
        return "The input"
    if len(path) == 1:
        return f"Row {path[0]}"
    return f"Sentence {path[1]} of document {path[0]}"
