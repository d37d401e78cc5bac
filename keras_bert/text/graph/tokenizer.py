# SPDX-License-Identifier: Apache-2.0
"""Base class of tokenizers as TensorFlow operations, and functions for tensors of any shape."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert.text.characters import check_characters
from keras_bert.text.graph.functions import function_of_texts
from keras_bert.text.graph.offsets import Pieces


class GraphTokenizer(abc.ABC):
    """Base class for the graph operations of tokenizers, with the same ids as in Python.

    They can be part of a `tf.data` pipeline, a `tf.function` or a SavedModel. The SavedModel then
    contains the vocabulary. Subclasses implement `_tokenize`, `_tokenize_with_offsets` and `_join`.
    """

    def __init__(self, special_token_ids: Sequence[int]) -> None:
        # A constant created while a graph is traced could only be used in that graph.
        with tf.init_scope(), tf.device("CPU:0"):
            self._special_ids = tf.constant(special_token_ids, tf.int32)
        self._ids_of_texts = function_of_texts(lambda texts: (self._tokenize(texts),))
        self._pieces_of_texts = function_of_texts(lambda texts: self._tokenize_with_offsets(texts))

    def __call__(self, text: Any) -> tf.Tensor | tf.RaggedTensor:
        """Converts a string tensor of any shape to ids. See `Tokenizer`."""
        (ids,) = on_any_shape(text, self._ids_of_texts)
        return ids

    def tokenize_with_offsets(
        self, text: Any
    ) -> tuple[
        tf.Tensor | tf.RaggedTensor, tf.Tensor | tf.RaggedTensor, tf.Tensor | tf.RaggedTensor
    ]:
        """Converts texts to ids with offsets. See `Tokenizer.tokenize_with_offsets`."""
        ids, starts, ends = on_any_shape(text, self._pieces_of_texts)
        return ids, starts, ends

    def tokenize_words(self, words: Any, is_first: Any = None) -> tf.Tensor | tf.RaggedTensor:
        """Converts the words of texts to ids. See `Tokenizer.tokenize_words`.

        `is_first`, bool of the flat values, marks the first word of each text. By default, these
        are the first words in the last dimension.
        """
        return self(words)

    def detokenize(self, token_ids: Any, skip_special_tokens: bool = False) -> tf.Tensor:
        """Converts ids to text. See `Tokenizer.detokenize`."""
        ids, is_batch = to_rows(token_ids)
        with tf.device("CPU:0"):
            if skip_special_tokens:
                is_special = tf.reduce_any(ids.flat_values[:, None] == self._special_ids, axis=1)
                ids = tf.ragged.boolean_mask(ids, ids.with_flat_values(~is_special))
            texts = self._join(ids)
        return texts if is_batch else texts[0]

    @property
    def resources(self) -> tuple[Any, ...]:
        """The resources, such as tables, that a SavedModel with this tokenizer must track."""
        return ()

    @abc.abstractmethod
    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Converts texts `(texts,)` to ids, ragged int32 `(texts, None)`."""

    @abc.abstractmethod
    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """Converts texts `(texts,)` to ids with offsets in characters."""

    @abc.abstractmethod
    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Converts ids, ragged int32 `(texts, None)`, to strings `(texts,)`."""


def to_tensor(values: Any, dtype: tf.DType) -> tf.Tensor | tf.RaggedTensor:
    """Converts a list or array to a dense tensor or, if lengths differ, a ragged tensor."""
    if isinstance(values, tf.RaggedTensor):
        # Tokenizers use int64 row splits.
        return tf.cast(values, dtype).with_row_splits_dtype(tf.int64)
    if isinstance(values, tf.Tensor):
        return tf.cast(values, dtype)
    try:
        return tf.convert_to_tensor(values, dtype)
    except ValueError:
        _check_characters(values, ())
        # The lengths differ.
        return tf.ragged.constant(values, dtype)


def _check_characters(rows: Any, path: tuple[int, ...]) -> None:
    check_characters(rows, f"Text {', '.join(map(str, path))}" if path else "The text")
    if isinstance(rows, (list, tuple, np.ndarray)):
        for index, row in enumerate(rows):
            _check_characters(row, (*path, index))


def on_any_shape(
    text: Any, function: Callable[[tf.Tensor], tuple[tf.RaggedTensor, ...]]
) -> tuple[tf.Tensor | tf.RaggedTensor, ...]:
    """Applies a function of texts `(texts,)` to texts of any shape. Adds a ragged axis."""
    texts = to_tensor(text, tf.string)
    rank = texts.shape.rank
    if rank is None:
        raise ValueError("The rank of the text must be known. Set it with tf.ensure_shape.")
    with tf.device("CPU:0"):
        if rank == 0:
            return tuple(values[0] for values in function(texts[tf.newaxis]))
        if rank == 1:
            return function(texts)
        if not isinstance(texts, tf.RaggedTensor):
            texts = tf.RaggedTensor.from_tensor(texts, ragged_rank=rank - 1)
        return tuple(
            texts.with_flat_values(values) for values in on_any_shape(texts.flat_values, function)
        )


def first_in_rows(strings: Any) -> tf.Tensor:
    """Returns whether each string is the first in the last dimension."""
    strings = to_tensor(strings, tf.string)
    if isinstance(strings, tf.RaggedTensor):
        *_, row_splits = strings.nested_row_splits
        starts = row_splits[:-1]
        size = tf.size(strings.flat_values, tf.int64)
    else:
        size = tf.size(strings, tf.int64)
        length = tf.cast(tf.shape(strings)[-1], tf.int64) if strings.shape.rank else size
        starts = tf.range(size // tf.maximum(length, 1)) * length
    return tf.scatter_nd(starts[:, tf.newaxis], tf.ones_like(starts), [size + 1])[:-1] > 0


def to_rows(token_ids: Any) -> tuple[tf.RaggedTensor, bool]:
    """Converts ids to ragged int32 `(batch, None)`. Also returns whether they were a batch."""
    ids = to_tensor(token_ids, tf.int32)
    if ids.shape.rank not in (1, 2):
        raise ValueError(f"token_ids must be (tokens,) or (batch, tokens). Received: {ids.shape}")
    if isinstance(ids, tf.RaggedTensor):
        return ids, True
    is_batch = ids.shape.rank == 2
    return tf.RaggedTensor.from_tensor(ids if is_batch else ids[tf.newaxis]), is_batch
