# SPDX-License-Identifier: Apache-2.0
"""From a text and the sentences that may follow it to the features of a multiple-choice model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, Unpack

import numpy as np
import tensorflow as tf

from keras_bert.data.batching import BatchOptions, row_batches
from keras_bert.data.text_batches import TextClassifierPreprocessor, num_special_tokens, padded
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer


class MultipleChoicePreprocessor:
    """Packs a text with each of its choices: `[CLS] text [SEP] choice [SEP]`.

    Args:
        tokenizer: Text to ids.
        sequence_length: The longest sequence in tokens, special ones counted. A pair that is too
            long loses tokens from the end of its longer text, one at a time.

    Call arguments:
        text: A string, or a batch of them `(batch,)`.
        choices: Of a string, strings `(choices,)`; of a batch, a list of such lists, which may
            differ in length, a ragged tensor `(batch, None)` or a dense one.

    Returns:
        A dict of `token_ids` int32, `segment_ids` int32 (1 for the choice) and `padding_mask`
        bool, each `(batch, choices, length)`, of the batch's most choices and longest sequence;
        `(choices, length)` for a single string.

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
        """Packed sequences without padding.

        Args:
            text: Strings `(batch,)`.
            choices: Ragged, nested or dense strings `(batch, None)`.

        Returns:
            Ragged `token_ids` and `segment_ids`, int32 `(batch, None, None)`.
        """
        choices = ragged_strings(choices)
        rows = self._pairs.ragged(tf.repeat(text, choices.row_lengths()), choices.values)
        return {name: choices.with_values(value) for name, value in rows.items()}

    def get_config(self) -> dict[str, Any]:
        """Plain values from which `from_config` makes the same preprocessor."""
        return self._pairs.get_config()

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The inverse of `get_config`."""
        tokenizer = tokenizer_from_config(config["tokenizer"])
        return cls(tokenizer, sequence_length=config["sequence_length"])


def choice_batches(
    texts: Sequence[str],
    choices: Sequence[Sequence[str]],
    preprocessor: MultipleChoicePreprocessor,
    rest: Sequence[np.ndarray[Any, Any]] = (),
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Batches of rows whose longest sequences are of similar lengths.

    Args:
        texts: `(rows,)`.
        choices: Those of each text.
        preprocessor: Text to features.
        rest: The other columns: labels, weights.
        **options: `BatchOptions`; of a batch, the encoder sees as many times the choices.

    Returns:
        A dataset of `(features, rest)`: features dense `(batch, choices, length)`, and a tuple of
        the other columns; with `pad_last_batch` its last element is the weight of the rows.
    """
    text, ragged = tf.constant(list(texts), tf.string), ragged_strings(choices)
    columns = tuple(tf.constant(column) for column in rest)

    def featurize(index: tf.Tensor) -> Any:
        features = preprocessor.ragged(tf.gather(text, index), tf.gather(ragged, index))
        return features, tuple(tf.gather(column, index) for column in columns)

    return row_batches(len(texts), featurize, preprocessor, **options)


def ragged_strings(rows: Any) -> tf.RaggedTensor:
    """Ragged strings `(batch, None)` of lists of them, or of a tensor."""
    if isinstance(rows, tf.RaggedTensor):
        return rows
    if isinstance(rows, tf.Tensor):
        return tf.RaggedTensor.from_tensor(rows)
    flat = [choice for row in rows for choice in row]
    lengths = tf.constant([len(row) for row in rows], tf.int64)
    return tf.RaggedTensor.from_row_lengths(tf.constant(flat, tf.string), lengths)
