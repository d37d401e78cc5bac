# SPDX-License-Identifier: Apache-2.0
"""From the text of a task to the features of its model, in graph."""

from __future__ import annotations

from typing import Any, Self

import tensorflow as tf

from keras_bert.data.batching import pad_to_length
from keras_bert.text.wordpiece import WordPieceTokenizer


class TextClassifierPreprocessor:
    """Packs one text or a pair: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    Args:
        tokenizer: Text to ids.
        sequence_length: The longest row in tokens, special ones counted. A pair that is too
            long loses tokens from the end of its longer text, one at a time.

    Call arguments:
        text: A string, or a batch of them `(batch,)`.
        text_pair: The second texts, of the same shape; `None` for single texts.

    Returns:
        A dict of `token_ids` int32, `segment_ids` int32 (1 for the second text) and
        `padding_mask` bool, each `(batch, length)` with the length of the batch's longest row;
        `(length,)` for a single string.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sat"]
    >>> preprocessor = TextClassifierPreprocessor(WordPieceTokenizer(tokens))
    >>> preprocessor("A cat", "sat")["token_ids"].numpy().tolist()
    [2, 4, 5, 3, 6, 3]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3, "Input/Output Representations";
        truncation as in the released code.
    """

    def __init__(self, tokenizer: WordPieceTokenizer, sequence_length: int = 512) -> None:
        # Three special tokens of a pair, and one token of each text
        if sequence_length < 5:
            raise ValueError(f"sequence_length is {sequence_length}; it must be at least 5.")
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length

    def __call__(self, text: Any, text_pair: Any = None) -> dict[str, tf.Tensor]:
        text = tf.convert_to_tensor(text, tf.string)
        if text.shape.rank == 0:
            pair = None if text_pair is None else tf.convert_to_tensor(text_pair)[None]
            return {name: value[0] for name, value in self(text[None], pair).items()}
        features = self.ragged(text, text_pair)
        # Never narrower than [CLS] [SEP]: the model of an empty batch still looks at column 0.
        longest = tf.reduce_max(tf.concat([features["token_ids"].row_lengths(), [2]], axis=0))
        return pad_to_length(features, longest)

    def ragged(self, text: Any, text_pair: Any = None) -> dict[str, tf.RaggedTensor]:
        """Packed rows without padding.

        Args:
            text: Strings `(batch,)`.
            text_pair: Strings `(batch,)` or `None`.

        Returns:
            Ragged `token_ids` and `segment_ids`, int32 `(batch, None)`.
        """
        first = self.tokenizer(text)
        start, end = (
            tf.fill([first.nrows(), 1], tf.constant(token_id, tf.int32))
            for token_id in (self.tokenizer.cls_token_id, self.tokenizer.sep_token_id)
        )
        if text_pair is None:
            first = cut_rows(first, tf.constant(self.sequence_length - 2, tf.int64))
            token_ids = tf.concat([start, first, end], axis=1)
            return {"token_ids": token_ids, "segment_ids": tf.zeros_like(token_ids)}
        first, second = truncate_pair(first, self.tokenizer(text_pair), self.sequence_length - 3)
        segment_a = tf.concat([start, first, end], axis=1)
        segment_b = tf.concat([second, end], axis=1)
        return {
            "token_ids": tf.concat([segment_a, segment_b], axis=1),
            "segment_ids": tf.concat([tf.zeros_like(segment_a), tf.ones_like(segment_b)], axis=1),
        }

    def get_config(self) -> dict[str, Any]:
        """Plain values from which `from_config` makes the same preprocessor."""
        return {
            "tokenizer": self.tokenizer.get_config(),
            "sequence_length": self.sequence_length,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The inverse of `get_config`."""
        tokenizer = WordPieceTokenizer.from_config(config["tokenizer"])
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
