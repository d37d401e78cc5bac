# SPDX-License-Identifier: Apache-2.0
"""From the text of a task to the features of its model, in graph."""

from __future__ import annotations

from typing import Any, Self

import tensorflow as tf

from keras_bert.data.text_packing import num_special_tokens, pack_texts, padded
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer


class TextClassifierPreprocessor:
    """Packs one text or a pair: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    RoBERTa's rows are `<s> A </s>` and `<s> A </s></s> B </s>`, all of them segment 0.

    Args:
        tokenizer: Text to ids.
        sequence_length: The longest row in tokens, special ones counted. A pair that is too
            long loses tokens from the end of its longer text, one at a time.

    Call arguments:
        text: A string, or a batch of them `(batch,)`.
        text_pair: The second texts, of the same shape; `None` for single texts.

    Returns:
        A dict of `token_ids` int32, `segment_ids` int32 (1 for the second text, in families
        that tell segments apart) and `padding_mask` bool, each `(batch, length)` with the length
        of the batch's longest row; `(length,)` for a single string.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sat"]
    >>> preprocessor = TextClassifierPreprocessor(keras_bert.WordPieceTokenizer(tokens))
    >>> preprocessor("A cat", "sat")["token_ids"].numpy().tolist()
    [2, 4, 5, 3, 6, 3]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3, "Input/Output Representations";
        truncation as in the released code.
    """

    def __init__(self, tokenizer: Tokenizer, sequence_length: int = 512) -> None:
        # The special tokens of a pair, and one token of each text
        shortest = num_special_tokens(tokenizer, 2) + 2
        if sequence_length < shortest:
            raise ValueError(
                f"sequence_length is {sequence_length}; it must be at least {shortest}."
            )
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length

    def __call__(self, text: Any, text_pair: Any = None) -> dict[str, tf.Tensor]:
        text = tf.convert_to_tensor(text, tf.string)
        if text.shape.rank == 0:
            pair = None if text_pair is None else tf.convert_to_tensor(text_pair)[None]
            return {name: value[0] for name, value in self(text[None], pair).items()}
        features = self.ragged(text, text_pair)
        return padded(self.tokenizer, features, num_special_tokens(self.tokenizer))

    def ragged(self, text: Any, text_pair: Any = None) -> dict[str, tf.RaggedTensor]:
        """Packed rows without padding.

        Args:
            text: Strings `(batch,)`.
            text_pair: Strings `(batch,)` or `None`.

        Returns:
            Ragged `token_ids` and `segment_ids`, int32 `(batch, None)`.
        """
        first = self.tokenizer(text)
        room = self.sequence_length - num_special_tokens(
            self.tokenizer, 1 if text_pair is None else 2
        )
        if text_pair is None:
            return pack_texts(self.tokenizer, cut_rows(first, tf.constant(room, tf.int64)))
        return pack_texts(self.tokenizer, *truncate_pair(first, self.tokenizer(text_pair), room))

    def get_config(self) -> dict[str, Any]:
        """Plain values from which `from_config` makes the same preprocessor."""
        return {
            "tokenizer": self.tokenizer.get_config(),
            "sequence_length": self.sequence_length,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The inverse of `get_config`."""
        tokenizer = tokenizer_from_config(config["tokenizer"])
        return cls(tokenizer, sequence_length=config["sequence_length"])


def truncate_pair(
    first: tf.RaggedTensor, second: tf.RaggedTensor, max_tokens: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Shortens pairs to a total length, from the end of the longer one (on a tie, the second).

    The lengths that dropping one token at a time ends with, without the loop: the shorter text
    keeps all it has up to its half, the longer one gets the rest.

    Args:
        first: Ragged ids `(batch, None)`.
        second: Ragged ids `(batch, None)`.
        max_tokens: The longest total.

    Returns:
        Both, shortened.
    """
    first_length, second_length = first.row_lengths(), second.row_lengths()
    half = max_tokens // 2
    keep_first = tf.minimum(first_length, tf.maximum(max_tokens - second_length, max_tokens - half))
    keep_second = tf.minimum(second_length, tf.maximum(max_tokens - first_length, half))
    return cut_rows(first, keep_first), cut_rows(second, keep_second)


def cut_rows(ragged: tf.RaggedTensor, limits: tf.Tensor) -> tf.RaggedTensor:
    """The first `limits` values of each row; limits a scalar or `(batch,)`, int64."""
    lengths = ragged.row_lengths()
    kept_lengths = tf.minimum(lengths, limits)
    positions = tf.ragged.range(lengths).flat_values
    kept = tf.boolean_mask(ragged.flat_values, positions < tf.repeat(kept_lengths, lengths))
    return tf.RaggedTensor.from_row_lengths(kept, kept_lengths, validate=False)
