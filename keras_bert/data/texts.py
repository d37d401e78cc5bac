# SPDX-License-Identifier: Apache-2.0
"""Packs texts and text pairs with special tokens, and stores them as examples of a `Loader`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert import checks
from keras_bert.data.arrays import NUMPY, Ragged, take_rows, truncate_rows
from keras_bert.data.packing import (
    Preprocessor,
    Sequences,
    first_row,
    functions_for,
    num_special_tokens,
    pack_texts,
    single_or_batch,
    tokenized,
    truncate,
)
from keras_bert.text.tokenizer import Tokenizer, is_tensor

# The maximum number of token ids kept in memory, about 500 MB
MAX_TOKENS_IN_MEMORY = 1 << 28


class TruncationCounter:
    """Counts the examples truncated to a maximum number of tokens."""

    def __init__(self, option: str, limit: int) -> None:
        self.option = option
        self.limit = limit
        self.reset()

    def reset(self) -> None:
        """Sets the counts to 0."""
        self.is_reported = False
        self.num_rows = self.num_truncated = 0

    def add(self, lengths: np.ndarray, max_tokens: int) -> None:
        """Counts all examples and truncated examples, given their lengths in tokens."""
        self.num_rows += len(lengths)
        self.num_truncated += int(np.count_nonzero(lengths > max_tokens))

    def add_once(
        self, is_counted: np.ndarray, index: np.ndarray, lengths: np.ndarray, max_tokens: int
    ) -> None:
        """Counts examples by index unless they were counted before."""
        is_new = ~is_counted[index]
        is_counted[index] = True
        self.add(lengths[is_new], max_tokens)

    def message(self, rows_before: int = 0, truncated_before: int = 0) -> str:
        """Describes the examples truncated since earlier counts, or returns an empty string."""
        num_truncated = self.num_truncated - truncated_before
        if not num_truncated:
            return ""
        are_truncated = "is truncated: it has" if num_truncated == 1 else "are truncated: they have"
        return (
            f"{num_truncated:,} of {self.num_rows - rows_before:,} rows {are_truncated} more "
            "tokens than "
            f"{self.option}={self.limit} allows. To read more of them, pass a larger "
            f"{self.option} to from_preset, or fine-tune with a larger --{self.option}."
        )


class TextClassifierPreprocessor(Preprocessor):
    """Packs texts or text pairs into `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    RoBERTa's sequences are `<s> A </s>` and `<s> A </s></s> B </s>`, and all segment ids are 0.
    Strings are converted to NumPy arrays. TensorFlow tensors are converted to tensors with graph
    operations, for example in a `tf.data` pipeline or a SavedModel.

    Args:
        tokenizer: The tokenizer that converts text to ids.
        sequence_length: Maximum sequence length in tokens, including special tokens. Longer texts
            are truncated at the end, or at the start if the tokenizer's `truncation_side` is
            `"left"`. In pairs, the longer text loses one token at a time. Defaults to 512.

    Call arguments:
        text: A string, or strings of shape `(batch,)`.
        text_pair: The second texts, of the same shape, or `None` for single texts.

    Returns:
        A dict of `token_ids` (int32), `segment_ids` (int32, 1 for the second text in families with
        two segments) and `padding_mask` (bool). The shapes are `(batch, length)`, where `length` is
        the length of the longest sequence, or `(length,)` for a single string.

    Raises:
        ValueError: If `sequence_length` is too small for a pair's special tokens and one token from
            each text.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sat"]
    >>> preprocessor = TextClassifierPreprocessor(keras_bert.WordPieceTokenizer(tokens))
    >>> preprocessor("A cat", "sat")["token_ids"].tolist()
    [2, 4, 5, 3, 6, 3]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3, "Input/Output Representations",
        and the original BERT code for truncation.
    """

    def __init__(self, tokenizer: Tokenizer, sequence_length: int = 512) -> None:
        # A pair's special tokens, and one token from each text
        shortest = num_special_tokens(tokenizer, 2) + 2
        checks.NumberRange(at_least=shortest, integer=True).check(sequence_length=sequence_length)
        super().__init__(tokenizer, sequence_length)
        self.truncated_rows = TruncationCounter("sequence_length", sequence_length)

    def __call__(self, text: Any, text_pair: Any = None) -> dict[str, Any]:
        text, is_single = single_or_batch(text)
        if text_pair is not None:
            text_pair, _ = single_or_batch(text_pair)
        features = self.pack(text, text_pair).padded_to_longest(
            functions_for(text), num_special_tokens(self.tokenizer), self.tokenizer.pad_token_id
        )
        return first_row(features) if is_single else features

    def pack(self, text: Any, text_pair: Any = None) -> Sequences:
        """Packs a batch of texts or text pairs without padding.

        Args:
            text: A list of strings or a TensorFlow string tensor, `(batch,)`.
            text_pair: The second texts in the same form, or `None`.

        Returns:
            `Sequences` with `token_ids` and `segment_ids`, int32.
        """
        texts = [text] if text_pair is None else [text, text_pair]
        tokens = [tokenized(self.tokenizer, one) for one in texts]
        if not is_tensor(text):
            lengths = sum(rows.lengths for rows in tokens)
            self.truncated_rows.add(lengths, self.max_tokens(len(tokens)))
        return self.pack_tokens(*tokens)

    def pack_tokens(self, first: Ragged, second: Ragged | None = None) -> Sequences:
        """Packs tokenized texts or pairs. This is the second step of `pack`."""
        xp = functions_for(first.values)
        max_tokens = self.max_tokens(1 if second is None else 2)
        texts = truncate(xp, self.tokenizer, first, second, max_tokens)
        return Sequences(pack_texts(xp, self.tokenizer, *texts))

    def max_tokens(self, num_texts: int) -> int:
        """Returns the number of tokens that fit into a sequence with one or two texts."""
        return self.sequence_length - num_special_tokens(self.tokenizer, num_texts)


class TextPairPreprocessor(TextClassifierPreprocessor):
    """A `TextClassifierPreprocessor` for tasks whose inputs are always text pairs.

    Raises:
        ValueError: If an input is a single text.
    """

    def pack_tokens(self, first: Ragged, second: Ragged | None = None) -> Sequences:
        if second is None:
            raise ValueError(
                "x must be text pairs, for example a list of (a, b). Received: single texts."
            )
        return super().pack_tokens(first, second)


class TokenizedTexts:
    """Texts in memory, tokenized at the first access, with a cache of their tokens.

    The cache stores up to `sequence_length` tokens per text, in two bytes each if the vocabulary is
    small enough. Once it contains `max_tokens` tokens, new texts are tokenized in each epoch.
    """

    def __init__(
        self,
        texts: Sequence[Any],
        preprocessor: Preprocessor,
        max_tokens: int = MAX_TOKENS_IN_MEMORY,
    ) -> None:
        self._texts = texts
        self._tokenizer = preprocessor.tokenizer
        self._longest = preprocessor.sequence_length
        self._max_tokens = max_tokens
        fits = self._tokenizer.vocabulary_size <= 1 << 16
        self._flat = np.empty(0, "uint16" if fits else "int32")
        self._num_used = 0
        # The index of each text's first token in the flat array, or -1 if the text is not cached
        self._starts = np.full(len(texts), -1, "int64")
        self._lengths = np.zeros(len(texts), "int32")

    def __len__(self) -> int:
        return len(self._texts)

    def take(self, index: np.ndarray) -> Ragged:
        """Returns the tokens of texts, selected by index."""
        new_rows = np.unique(index[self._starts[index] < 0])
        if len(new_rows) and self._num_used >= self._max_tokens:
            return self._tokenize(index)
        if len(new_rows):
            self._keep(new_rows)
        lengths = self._lengths[index].astype("int64")
        positions = NUMPY.ranges(self._starts[index], lengths)
        return Ragged(self._flat[positions].astype("int32"), lengths)

    def _tokenize(self, index: np.ndarray) -> Ragged:
        rows = tokenized(self._tokenizer, [self._texts[row] for row in index])
        return truncate_rows(NUMPY, rows, self._longest, self._tokenizer.truncation_side)

    def _keep(self, index: np.ndarray) -> None:
        values, lengths = self._tokenize(index)
        end = self._num_used + len(values)
        if end > len(self._flat):
            # Reserve space for all texts, based on the average length so far. Only written memory
            # is allocated.
            is_new = self._starts < 0
            estimate = self._num_used + int(1.1 * len(values) / len(index) * is_new.sum())
            larger = np.empty(max(end, estimate), self._flat.dtype)
            larger[: self._num_used] = self._flat[: self._num_used]
            self._flat = larger
        self._flat[self._num_used : end] = values
        self._starts[index] = self._num_used + np.cumsum(lengths) - lengths
        self._lengths[index] = lengths
        self._num_used = end


class TextExamples:
    """Texts or text pairs in memory (columns from `text_columns`), as examples of a `Loader`."""

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], preprocessor: TextClassifierPreprocessor
    ) -> None:
        self._preprocessor = preprocessor
        self._columns = [TokenizedTexts(texts, preprocessor) for texts in columns.values()]
        self._is_counted = np.zeros(len(self), bool)

    def __len__(self) -> int:
        return len(self._columns[0])

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs examples by index."""
        columns = [column.take(index) for column in self._columns]
        self._count(index, sum(column.lengths for column in columns), len(columns))
        return self._preprocessor.pack_tokens(*columns)

    def _count(self, index: np.ndarray, lengths: Any, num_texts: int) -> None:
        """Counts truncated examples, each only once."""
        max_tokens = self._preprocessor.max_tokens(num_texts)
        self._preprocessor.truncated_rows.add_once(self._is_counted, index, lengths, max_tokens)


class TextPairExamples(TextExamples):
    """Text pairs in memory, with each text in a separate sequence."""

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs pairs by index. Each pair has two sequences."""
        first, second = (column.take(index) for column in self._columns)
        self._count(index, np.maximum(first.lengths, second.lengths), 1)
        # Paired texts are next to each other.
        lengths = np.stack([first.lengths, second.lengths], axis=1).reshape(-1)
        starts = np.cumsum(lengths) - lengths
        values = np.empty(lengths.sum(), "int32")
        for side, rows in enumerate((first, second)):
            values[NUMPY.ranges(starts[side::2], rows.lengths)] = rows.values
        features, _ = self._preprocessor.pack_tokens(Ragged(values, lengths))
        return Sequences(features, np.full(len(index), 2))


class ProductExamples:
    """All combinations of texts and second texts. Only the first texts are truncated.

    Raises:
        ValueError: If a second text leaves no space for a token from the first text.
    """

    def __init__(
        self,
        texts: Sequence[str],
        second_texts: Sequence[str],
        preprocessor: TextClassifierPreprocessor,
    ) -> None:
        self._tokenizer = preprocessor.tokenizer
        self._first, self._second = (
            tokenized(self._tokenizer, column) for column in (texts, second_texts)
        )
        self._max_tokens = preprocessor.max_tokens(2)
        if self._second.lengths.max() >= self._max_tokens:
            raise ValueError(
                f"A second text must have fewer than {self._max_tokens} tokens, so that a "
                "sequence has space for the first text. Received: "
                f"{self._second.lengths.max()} tokens"
            )
        lengths = self._first.lengths[:, np.newaxis] + self._second.lengths
        preprocessor.truncated_rows.add(lengths.reshape(-1), self._max_tokens)

    def __len__(self) -> int:
        return len(self._first.lengths) * len(self._second.lengths)

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs combinations by index. Consecutive indices share the first text."""
        first_index, second_index = np.divmod(index, len(self._second.lengths))
        first = take_rows(NUMPY, self._first, first_index)
        second = take_rows(NUMPY, self._second, second_index)
        limits = self._max_tokens - second.lengths
        first = truncate_rows(NUMPY, first, limits, self._tokenizer.truncation_side)
        return Sequences(pack_texts(NUMPY, self._tokenizer, first, second))


class InMemory:
    """Sequences in memory, as examples of a `Loader`."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences

    def __len__(self) -> int:
        counts = self._sequences.counts
        return len(self._sequences.lengths if counts is None else counts)

    def pack(self, index: np.ndarray) -> Sequences:
        """Selects the sequences of examples by index."""
        return self._sequences.take(NUMPY, index)


def rows_of_ids(token_ids: Sequence[Sequence[int]]) -> InMemory:
    """Converts ids `(rows, None)`, including special tokens, to examples of a `Loader`."""
    return InMemory(Sequences({"token_ids": Ragged.from_rows(token_ids)}))


def split_pair(x: Any) -> tuple[Any, Any]:
    """Splits a string, pair or dict into `(text, text_pair)`. A single text has no `text_pair`."""
    if isinstance(x, Mapping):
        return x["text"], x.get("text_pair")
    if isinstance(x, tuple):
        return x[0], (x[1] if len(x) > 1 else None)
    return x, None
