# SPDX-License-Identifier: Apache-2.0
"""Packs a text with each of its choices, for multiple choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bert.data.arrays import NUMPY, Ragged, row_numbers, take_rows
from keras_bert.data.labels import softmax
from keras_bert.data.packing import (
    Preprocessor,
    Sequences,
    first_row,
    functions_for,
    num_special_tokens,
    single_or_batch,
    tokenized,
)
from keras_bert.data.texts import TextClassifierPreprocessor, TokenizedTexts
from keras_bert.text.tokenizer import Tokenizer


class MultipleChoicePreprocessor(Preprocessor):
    """Packs a text with each of its choices into `[CLS] text [SEP] choice [SEP]`.

    Args:
        tokenizer: The tokenizer that converts text to ids.
        sequence_length: Maximum sequence length in tokens, including special tokens. Longer pairs
            are truncated one token at a time, at the end of the longer text. Defaults to 512.

    Call arguments:
        text: A string, or strings of shape `(batch,)`.
        choices: For a single string, strings of shape `(choices,)`. For a batch, a list of lists of
            any lengths, or a ragged or dense tensor `(batch, None)`.

    Returns:
        A dict of `token_ids` (int32), `segment_ids` (int32, 1 for the choice in families with two
        segments) and `padding_mask` (bool). The shapes are `(batch, choices, length)`, where
        `choices` and `length` are the maximum in the batch, or `(choices, length)` for a single
        string. The values are TensorFlow tensors if the text is a tensor, and NumPy arrays
        otherwise.

    Raises:
        ValueError: If `sequence_length` is too small for a pair's special tokens and one token from
            each text.

    Example:

    >>> from keras_bert.data import MultipleChoicePreprocessor
    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sat", "sang"]
    >>> preprocessor = MultipleChoicePreprocessor(keras_bert.WordPieceTokenizer(tokens))
    >>> preprocessor("A cat", ["sat", "sang"])["token_ids"].tolist()
    [[2, 4, 5, 3, 6, 3], [2, 4, 5, 3, 7, 3]]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 4.4.
    """

    def __init__(self, tokenizer: Tokenizer, sequence_length: int = 512) -> None:
        self.pairs = TextClassifierPreprocessor(tokenizer, sequence_length)
        super().__init__(tokenizer, sequence_length)
        self.truncated_rows = self.pairs.truncated_rows

    def __call__(self, text: Any, choices: Any) -> dict[str, Any]:
        text, is_single = single_or_batch(text)
        xp = functions_for(text)
        flat, counts = _flat_choices(
            choices[None] if is_single and xp is not NUMPY else [choices] if is_single else choices
        )
        first = tokenized(self.tokenizer, text)
        features = self.pack_tokens(first, tokenized(self.tokenizer, flat), counts)
        shortest = num_special_tokens(self.tokenizer, 2)
        dense = features.padded_to_longest(xp, shortest, self.tokenizer.pad_token_id)
        return first_row(dense) if is_single else dense

    def pack_tokens(self, texts: Ragged, choices: Ragged, counts: Any) -> Sequences:
        """Packs tokenized texts, each with its choices.

        Args:
            texts: Token ids of the texts.
            choices: Token ids of all choices, in the order of the texts.
            counts: The number of choices per text, int64 `(batch,)`.
        """
        xp = functions_for(texts.values)
        first = take_rows(xp, texts, xp.repeat(xp.arange(xp.size(counts)), counts))
        return Sequences(self.pairs.pack_tokens(first, choices).features, counts)


def own_choices(choices: Sequence[str]) -> Sequence[str]:
    """Removes padding, so that the last choice is not empty.

    Example:

    >>> own_choices(["sat", "", "sang", ""])
    ['sat', '', 'sang']
    """
    return choices[: max((number for number, text in enumerate(choices, 1) if text), default=1)]


def choice_outputs(choices: Sequence[str], logits: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Returns an exported model's outputs for one example.

    Args:
        choices: The choices, including padding.
        logits: The logits of the choices, without padding.
    """
    scores = np.zeros(len(choices), "float32")
    scores[: len(logits)] = softmax(logits)
    ranking = np.argsort(-logits, kind="stable").tolist()
    ranking += range(len(logits), len(choices))
    return {
        "choice": ranking[0],
        "probabilities": scores.tolist(),
        "ranked_choices": [choices[index] for index in ranking],
        "ranked_scores": scores[ranking].tolist(),
        "ranking": ranking,
        "score": float(scores[ranking[0]]),
    }


def _flat_choices(choices: Any) -> tuple[Any, Any]:
    """Returns all choices in a flat list, and the number of choices per example."""
    if hasattr(choices, "row_lengths"):  # a ragged tensor
        return choices.flat_values, choices.row_lengths()
    xp = functions_for(choices)
    if xp is NUMPY:
        rows = [list(row) for row in choices]
        counts = np.fromiter(map(len, rows), "int64", len(rows))
        return [choice for row in rows for choice in row], counts
    counts = xp.full(xp.size(choices), xp.size(choices, 1), "int64")
    return xp.reshape(choices, [-1]), counts


class ChoiceExamples:
    """Texts with their choices in memory, as the examples of a `Loader`."""

    def __init__(
        self,
        texts: Sequence[str],
        choices: Sequence[Sequence[str]],
        preprocessor: MultipleChoicePreprocessor,
    ) -> None:
        flat, counts = _flat_choices(choices)
        self._preprocessor = preprocessor
        self._texts = TokenizedTexts(texts, preprocessor)
        self._choices = TokenizedTexts(flat, preprocessor)
        # The index of each text's choices in the flat list
        self._numbers = Ragged(np.arange(len(flat)), counts)
        self._is_counted = np.zeros(len(counts), bool)

    def __len__(self) -> int:
        return len(self._texts)

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs examples by index. Each example has one sequence per choice."""
        numbers, counts = take_rows(NUMPY, self._numbers, index)
        texts, choices = self._texts.take(index), self._choices.take(numbers)
        longest = NUMPY.segment_max(choices.lengths, row_numbers(NUMPY, counts), len(counts))
        self._preprocessor.truncated_rows.add_once(
            *(self._is_counted, index, texts.lengths + longest),
            self._preprocessor.pairs.max_tokens(2),
        )
        return self._preprocessor.pack_tokens(texts, choices, counts)
