# SPDX-License-Identifier: Apache-2.0
"""Packs texts and pairs of texts with special tokens, and serves them as rows of a `Loader`."""

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

# The largest number of token ids in memory, some 500 MB
MAX_TOKENS_IN_MEMORY = 1 << 28


class TruncationCounter:
    """Counts the rows that are cut since they have more tokens than an option allows."""

    def __init__(self, option: str, limit: int) -> None:
        self.option = option
        self.limit = limit
        self.reset()

    def reset(self) -> None:
        """Sets the counts to 0."""
        self.is_reported = False
        self.num_rows = self.num_cut = 0

    def add(self, lengths: np.ndarray, max_tokens: int) -> None:
        """Counts the rows that are cut, by their numbers of tokens."""
        self.num_rows += len(lengths)
        self.num_cut += int(np.count_nonzero(lengths > max_tokens))

    def add_once(
        self, is_counted: np.ndarray, index: np.ndarray, lengths: np.ndarray, max_tokens: int
    ) -> None:
        """Counts the rows at some indices that were not counted before, and marks them."""
        is_new = ~is_counted[index]
        is_counted[index] = True
        self.add(lengths[is_new], max_tokens)

    def message(self, rows_before: int = 0, cut_before: int = 0) -> str:
        """Returns a message about the rows cut since the counts before; empty if there are none."""
        num_cut = self.num_cut - cut_before
        if not num_cut:
            return ""
        are_cut = "is cut: it has" if num_cut == 1 else "are cut: they have"
        return (
            f"{num_cut:,} of {self.num_rows - rows_before:,} rows {are_cut} more tokens than "
            f"{self.option}={self.limit} has space for. To read more of them, pass another "
            f"{self.option} to from_preset, or fine-tune with another --{self.option}."
        )


class TextClassifierPreprocessor(Preprocessor):
    """Packs a text or a pair of texts into `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    RoBERTa's rows are `<s> A </s>` and `<s> A </s></s> B </s>`, with segment id 0 everywhere.
    Strings become NumPy arrays. Tensors of TensorFlow become tensors, by graph operations that can
    be part of a `tf.data` pipeline or a SavedModel.

    Args:
        tokenizer: The tokenizer that converts text to ids.
        sequence_length: Maximum length of a row in tokens, including the special tokens. A pair
            that is longer is truncated from the end of its longer text, one token at a time; from
            its beginning if the `truncation_side` of the tokenizer is `"left"`.

    Call arguments:
        text: A string, or a batch of strings of shape `(batch,)`.
        text_pair: The second texts, of the same shape; `None` for single texts.

    Returns:
        A dict of `token_ids` (int32), `segment_ids` (int32, 1 for the second text in families
        with two segments) and `padding_mask` (bool), each of shape `(batch, length)`, where
        `length` is the length of the longest row; `(length,)` for a single string.

    Raises:
        ValueError: If `sequence_length` is too small for the special tokens of a pair and one
            token of each text.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sat"]
    >>> preprocessor = TextClassifierPreprocessor(keras_bert.WordPieceTokenizer(tokens))
    >>> preprocessor("A cat", "sat")["token_ids"].tolist()
    [2, 4, 5, 3, 6, 3]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3, "Input/Output Representations";
        truncation as in the released code.
    """

    def __init__(self, tokenizer: Tokenizer, sequence_length: int = 512) -> None:
        # The special tokens of a pair, and one token of each text
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
        """Packs a batch of texts or pairs without padding.

        Args:
            text: Strings, a list or a tensor of TensorFlow `(batch,)`.
            text_pair: Strings likewise, or `None`.

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
        """Packs tokenized texts or pairs, the second step of `pack`."""
        xp = functions_for(first.values)
        max_tokens = self.max_tokens(1 if second is None else 2)
        texts = truncate(xp, self.tokenizer, first, second, max_tokens)
        return Sequences(pack_texts(xp, self.tokenizer, *texts))

    def max_tokens(self, num_texts: int) -> int:
        """Returns the number of tokens of one text, or of two, that a row has space for."""
        return self.sequence_length - num_special_tokens(self.tokenizer, num_texts)


class TokenizedTexts:
    """Texts in memory, which are tokenized when they are first read, and a cache of their tokens.

    Of each text up to `sequence_length` tokens are kept, in two bytes each if the vocabulary allows
    it. Once the cache has `max_tokens` tokens, the texts that it lacks are tokenized each time.
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
        # The index of each text's first token in the flat array, -1 for texts that are not in it
        self._starts = np.full(len(texts), -1, "int64")
        self._lengths = np.zeros(len(texts), "int32")

    def __len__(self) -> int:
        return len(self._texts)

    def take(self, index: np.ndarray) -> Ragged:
        """Returns the tokens of the texts at some indices."""
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
            # Space for all texts, if they are like these; memory counts only once it is written to.
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
    """Texts or pairs of texts in memory, the columns of `text_columns`, as rows of a `Loader`."""

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], preprocessor: TextClassifierPreprocessor
    ) -> None:
        self._preprocessor = preprocessor
        self._columns = [TokenizedTexts(texts, preprocessor) for texts in columns.values()]
        self._is_counted = np.zeros(len(self), bool)

    def __len__(self) -> int:
        return len(self._columns[0])

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs the rows at some indices."""
        columns = [column.take(index) for column in self._columns]
        self._count(index, sum(column.lengths for column in columns), len(columns))
        return self._preprocessor.pack_tokens(*columns)

    def _count(self, index: np.ndarray, lengths: Any, num_texts: int) -> None:
        """Counts the rows that are cut, each once."""
        max_tokens = self._preprocessor.max_tokens(num_texts)
        self._preprocessor.truncated_rows.add_once(self._is_counted, index, lengths, max_tokens)


class TextPairExamples(TextExamples):
    """Pairs of texts in memory, each text a sequence of its own."""

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs the pairs at some indices; each has two sequences."""
        first, second = (column.take(index) for column in self._columns)
        self._count(index, np.maximum(first.lengths, second.lengths), 1)
        # The texts of a pair follow each other.
        lengths = np.stack([first.lengths, second.lengths], axis=1).reshape(-1)
        starts = np.cumsum(lengths) - lengths
        values = np.empty(lengths.sum(), "int32")
        for side, rows in enumerate((first, second)):
            values[NUMPY.ranges(starts[side::2], rows.lengths)] = rows.values
        features, _ = self._preprocessor.pack_tokens(Ragged(values, lengths))
        return Sequences(features, np.full(len(index), 2))


class ProductExamples:
    """Each of some texts with each of some second texts; only the first texts are truncated.

    Raises:
        ValueError: If a second text leaves no space for a token of the first.
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
                f"A second text has {self._second.lengths.max()} tokens, and a row has space for "
                f"{self._max_tokens} with the first text. Shorten it."
            )
        lengths = self._first.lengths[:, np.newaxis] + self._second.lengths
        preprocessor.truncated_rows.add(lengths.reshape(-1), self._max_tokens)

    def __len__(self) -> int:
        return len(self._first.lengths) * len(self._second.lengths)

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs the rows at some indices, by which the second texts of a text are consecutive."""
        first_index, second_index = np.divmod(index, len(self._second.lengths))
        first = take_rows(NUMPY, self._first, first_index)
        second = take_rows(NUMPY, self._second, second_index)
        limits = self._max_tokens - second.lengths
        first = truncate_rows(NUMPY, first, limits, self._tokenizer.truncation_side)
        return Sequences(pack_texts(NUMPY, self._tokenizer, first, second))


class InMemory:
    """Sequences in memory, as rows of a `Loader`."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences

    def __len__(self) -> int:
        counts = self._sequences.counts
        return len(self._sequences.lengths if counts is None else counts)

    def pack(self, index: np.ndarray) -> Sequences:
        """Returns the rows at some indices."""
        return self._sequences.take(NUMPY, index)


def rows_of_ids(token_ids: Sequence[Sequence[int]]) -> InMemory:
    """Returns ids that include the special tokens, `(rows, None)`, as rows of a `Loader`."""
    return InMemory(Sequences({"token_ids": Ragged.from_rows(token_ids)}))


def split_pair(x: Any) -> tuple[Any, Any]:
    """Returns `(text, text_pair)` of a string, pair or dict; `text_pair` is `None` for one text."""
    if isinstance(x, Mapping):
        return x["text"], x.get("text_pair")
    if isinstance(x, tuple):
        return x[0], (x[1] if len(x) > 1 else None)
    return x, None
