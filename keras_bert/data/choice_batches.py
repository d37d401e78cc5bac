# SPDX-License-Identifier: Apache-2.0
"""Multiple choice: packing of a text with each of its choices, and batching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, Unpack

import numpy as np
import tensorflow as tf

from keras_bert.data.batching import BatchOptions, row_batches
from keras_bert.data.text_batches import (
    TextClassifierPreprocessor,
    in_one_tuple,
    num_special_tokens,
    padded,
)
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer


class MultipleChoicePreprocessor:
    """Packs a text with each of its choices into `[CLS] text [SEP] choice [SEP]`.

    Args:
        tokenizer: The tokenizer that converts text to ids.
        sequence_length: Maximum length of a sequence in tokens, including the special tokens. A
            pair that is longer is truncated from the end of its longer text, one token at a time.

    Call arguments:
        text: A string, or a batch of strings of shape `(batch,)`.
        choices: For a single string, strings of shape `(choices,)`; for a batch, a list of such
            lists, which may differ in length, or a ragged or dense tensor `(batch, None)`.

    Returns:
        A dict of `token_ids` (int32), `segment_ids` (int32, 1 for the choice in families with two
        segments) and `padding_mask` (bool), each of shape `(batch, choices, length)`, where
        `choices` and `length` are the maximum in the batch; `(choices, length)` for a single
        string.

    Raises:
        ValueError: If `sequence_length` is too small for the special tokens of a pair and one
            token of each text.

    Example:

    >>> from keras_bert.data import MultipleChoicePreprocessor
    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sat", "sang"]
    >>> preprocessor = MultipleChoicePreprocessor(keras_bert.WordPieceTokenizer(tokens))
    >>> preprocessor("A cat", ["sat", "sang"])["token_ids"].numpy().tolist()
    [[2, 4, 5, 3, 6, 3], [2, 4, 5, 3, 7, 3]]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 4.4.
    """

    def __init__(self, tokenizer: Tokenizer, sequence_length: int = 512) -> None:
        self._pairs = TextClassifierPreprocessor(tokenizer, sequence_length)
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length

    def __call__(self, text: Any, choices: Any) -> dict[str, tf.Tensor]:
        text = tf.convert_to_tensor(text, tf.string)
        if text.shape.rank == 0:
            row = tf.convert_to_tensor(choices, tf.string)[tf.newaxis]
            return {name: value[0] for name, value in self(text[tf.newaxis], row).items()}
        features = self.ragged(text, choices)
        return padded(self.tokenizer, features, num_special_tokens(self.tokenizer, 2))

    def ragged(self, text: Any, choices: Any) -> dict[str, tf.RaggedTensor]:
        """Packs a batch of texts with their choices, without padding.

        Args:
            text: Strings of shape `(batch,)`.
            choices: Strings `(batch, None)`: a list of lists, a ragged tensor or a dense one.

        Returns:
            A dict of ragged `token_ids` and `segment_ids`, int32 `(batch, None, None)`.
        """
        choices = ragged_strings(choices)
        rows = self._pairs.ragged(tf.repeat(text, choices.row_lengths()), choices.values)
        return {name: choices.with_values(value) for name, value in rows.items()}

    def get_config(self) -> dict[str, Any]:
        """Returns the config from which `from_config` creates the same preprocessor."""
        return self._pairs.get_config()

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a preprocessor from the config that `get_config` returned."""
        tokenizer = tokenizer_from_config(config["tokenizer"])
        return cls(tokenizer, sequence_length=config["sequence_length"])


def choice_batches(
    texts: Sequence[str],
    choices: Sequence[Sequence[str]],
    preprocessor: MultipleChoicePreprocessor,
    rest: Sequence[np.ndarray[Any, Any]] = (),
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Groups rows whose longest sequences have similar lengths into batches.

    Args:
        texts: Strings of shape `(rows,)`.
        choices: The choices of each text, `(rows, None)`.
        preprocessor: The preprocessor that converts text to features.
        rest: The other columns, such as labels and sample weights.
        **options: `BatchOptions`; the encoder's batch is `batch_size * choices` sequences.

    Returns:
        A dataset of `(features, *rest)`: dense features `(batch, choices, length)`, and the other
        columns. With `pad_last_batch`, rows without a sample weight get one.
    """
    text, ragged = tf.constant(list(texts), tf.string), ragged_strings(choices)
    columns = tuple(tf.constant(column) for column in rest)

    def featurize(index: tf.Tensor) -> Any:
        features = preprocessor.ragged(tf.gather(text, index), tf.gather(ragged, index))
        return features, tuple(tf.gather(column, index) for column in columns)

    return in_one_tuple(row_batches(len(texts), featurize, preprocessor, **options), options)


def ragged_strings(rows: Any) -> tf.RaggedTensor:
    """Converts lists of strings, or a dense or ragged tensor, to ragged strings `(batch, None)`."""
    if isinstance(rows, tf.RaggedTensor):
        return rows
    if isinstance(rows, tf.Tensor):
        return tf.RaggedTensor.from_tensor(rows)
    flat = [choice for row in rows for choice in row]
    lengths = tf.constant([len(row) for row in rows], tf.int64)
    return tf.RaggedTensor.from_row_lengths(tf.constant(flat, tf.string), lengths)
