# SPDX-License-Identifier: Apache-2.0
"""Packs texts and text pairs with special tokens, and stores them as examples of a `Loader`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from keras_bert import checks
from keras_bert.data.arrays import (
    NUMPY,
    Arrays,
    Ragged,
    join_rows,
    row_numbers,
    row_starts,
    take_rows,
    truncate_rows,
)
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
# The number of texts to tokenize at a time if only their lengths are needed
_TEXTS_MEASURED = 256

LongTexts = Literal["truncate", "mean", "max"]
LONG_TEXTS: tuple[LongTexts, ...] = get_args(LongTexts)


class TruncationCounter:
    """Counts the examples truncated to a maximum number of tokens."""

    def __init__(self, option: str, limit: int, advice: str = "") -> None:
        self.option = option
        self.limit = limit
        self.advice = advice
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
            f"{self.advice}"
        )


class TextWindows(NamedTuple):
    """The windows of texts or text pairs.

    Args:
        row: The index of each window's text, int64 `(windows,)`.
        starts: The index of each window's first token in the text and, for pairs, in the second
            text, each int64 `(windows,)`.
        lengths: The window's number of tokens in the text and in the second text, in the same form.
        counts: The number of windows in each text, int64 `(texts,)`.
    """

    row: Any
    starts: tuple[Any, ...]
    lengths: tuple[Any, ...]
    counts: Any


def split_into_windows(
    xp: Arrays, lengths: Sequence[Any], max_tokens: int, overlap: int | None, side: str = "right"
) -> TextWindows:
    """Splits texts into overlapping windows of at most `max_tokens` tokens.

    A text that does not fit is split into the smallest number of windows. They are equally long,
    and cover the text evenly. In a pair, the longer text is split, and each window has the same
    tokens of the shorter text, which is truncated to half of the window.

    For example, a text of 11 tokens has two windows of 8 tokens:

    >>> windows = split_into_windows(NUMPY, [np.array([5, 11])], max_tokens=8, overlap=2)
    >>> windows.row.tolist(), windows.starts[0].tolist(), windows.lengths[0].tolist()
    ([0, 1, 1], [0, 0, 3], [5, 8, 8])

    Args:
        xp: The array functions.
        lengths: The number of tokens in each text and, for pairs, in each second text, each int64
            `(texts,)`.
        max_tokens: The number of tokens in a window, without special tokens.
        overlap: The minimum number of shared tokens between two neighboring windows. Defaults to a
            quarter of the window's tokens in the split text.
        side: The side on which the shorter text is truncated.
    """
    first, second = lengths if len(lengths) == 2 else (lengths[0], 0 * lengths[0])
    longer, shorter = xp.maximum(first, second), xp.minimum(first, second)
    kept = xp.minimum(shorter, max_tokens // 2)
    space = max_tokens - kept
    shared = xp.divide(space, 4) if overlap is None else xp.minimum(space - 1, overlap)
    counts = 1 + xp.divide(xp.maximum(longer - shared - 1, 0), space - shared)
    row = row_numbers(xp, counts)
    is_first_split, longer, shorter, kept, space, count = (
        xp.take(values, row)
        for values in (xp.at_least(first, second), longer, shorter, kept, space, counts)
    )
    length = xp.minimum(longer, space)
    number = xp.ranges(0 * counts, counts)
    start = xp.divide(number * (longer - length), xp.maximum(count - 1, 1))
    kept_start = shorter - kept if side == "left" else 0 * kept
    starts, sizes = (
        (xp.where(is_first_split, split, other), xp.where(is_first_split, other, split))
        for split, other in ((start, kept_start), (length, kept))
    )
    return TextWindows(row, starts[: len(lengths)], sizes[: len(lengths)], counts)


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
        long_texts: How `TextClassifier` and `TextEmbedder` read longer texts. With `"mean"` or
            `"max"`, they are split into overlapping windows instead of being truncated. Each window
            is an example in training, and a text's output is the elementwise mean or maximum over
            its windows. A call of the preprocessor itself always truncates. Defaults to
            `"truncate"`.
        overlap: Minimum number of shared tokens between neighboring windows. Defaults to a quarter
            of the window.

    Call arguments:
        text: A string, or strings of shape `(batch,)`.
        text_pair: The second texts, of the same shape, or `None` for single texts.

    Returns:
        A dict of `token_ids` (int32), `segment_ids` (int32, 1 for the second text in families with
        two segments) and `padding_mask` (bool). The shapes are `(batch, length)`, where `length` is
        the length of the longest sequence, or `(length,)` for a single string.

    Raises:
        ValueError: If `sequence_length` is too small for a pair's special tokens and one token from
            each text, or if `long_texts` or `overlap` is invalid.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sat"]
    >>> preprocessor = TextClassifierPreprocessor(keras_bert.WordPieceTokenizer(tokens))
    >>> preprocessor("A cat", "sat")["token_ids"].tolist()
    [2, 4, 5, 3, 6, 3]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3, "Input/Output Representations",
        and the original BERT code for truncation.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 512,
        long_texts: LongTexts = "truncate",
        overlap: int | None = None,
    ) -> None:
        # A pair's special tokens, and one token from each text
        shortest = num_special_tokens(tokenizer, 2) + 2
        checks.NumberRange(at_least=shortest, integer=True).check(sequence_length=sequence_length)
        checks.check_choice(LONG_TEXTS, long_texts=long_texts)
        checks.NumberRange(at_least=1, below=sequence_length, integer=True).check_optional(
            overlap=overlap
        )
        super().__init__(tokenizer, sequence_length)
        self.long_texts = long_texts
        self.overlap = overlap
        advice = " Classifiers and embedders read whole texts with long_texts='mean'."
        if self.splits_texts:
            advice = (
                f" long_texts={long_texts!r} splits single texts, and pairs in classification. "
                "Tuples for training and pairs for zero-shot classification are always truncated."
            )
        self.truncated_rows = TruncationCounter("sequence_length", sequence_length, advice)

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

    def pack_texts(self, tokens: Ragged, is_query: np.ndarray) -> Sequences:
        """Packs texts of tuples, each in its own sequence.

        Args:
            tokens: The token ids of each text, without special tokens.
            is_query: Whether a text is a query, bool `(texts,)`. It makes no difference here.
        """
        return self.pack_tokens(tokens)

    def limits_of_texts(self, is_query: np.ndarray) -> Any:
        """Returns the maximum numbers of tokens of the texts in `pack_texts`."""
        return self.max_tokens(1)

    def pack_tokens(self, first: Ragged, second: Ragged | None = None) -> Sequences:
        """Packs tokenized texts or pairs. This is the second step of `pack`."""
        xp = functions_for(first.values)
        max_tokens = self.max_tokens(1 if second is None else 2)
        texts = truncate(xp, self.tokenizer, first, second, max_tokens)
        return Sequences(pack_texts(xp, self.tokenizer, *texts))

    def max_tokens(self, num_texts: int) -> int:
        """Returns the number of tokens that fit into a sequence with one or two texts."""
        return self.sequence_length - num_special_tokens(self.tokenizer, num_texts)

    def windows(self, lengths: Sequence[Any], prompt_lengths: Any = None) -> TextWindows:
        """Splits texts of these lengths into windows. See `split_into_windows`.

        With `prompt_lengths`, the number of tokens of a prompt at the start of each text, all
        windows contain the prompt. They are the windows of pairs of the prompt and the rest.
        """
        xp, max_tokens = functions_for(lengths[0]), self.max_tokens(len(lengths))
        side = self.tokenizer.truncation_side
        if prompt_lengths is None:
            return split_into_windows(xp, lengths, max_tokens, self.overlap, side)
        (length,) = lengths
        prompt = xp.minimum(length, prompt_lengths)
        windows = split_into_windows(xp, [prompt, length - prompt], max_tokens, self.overlap)
        first, second = windows.starts
        return windows._replace(starts=(first, second + xp.take(prompt, windows.row)))

    def pack_parts(
        self, parts: Sequence[Ragged], has_prompt: bool, pools_prompt: bool = True
    ) -> Sequences:
        """Packs the parts of texts that are in a window.

        With `has_prompt`, the parts are a prompt and other tokens of the same text. If
        `pools_prompt` is false, the feature `pooling_mask`, int32, is 1 after the prompt.
        """
        xp, prompts = functions_for(parts[0].values), parts[0]
        parts = [join_rows(xp, parts)] if has_prompt else parts
        features = pack_texts(xp, self.tokenizer, *parts)
        if pools_prompt:
            return Sequences(features)
        lengths, prompt = features["token_ids"].lengths, prompts.lengths
        # Without a prompt, [CLS] is also pooled.
        num_unpooled = xp.where(prompt > 0, prompt + 1, prompt)
        is_pooled = xp.ranges(0 * lengths, lengths) >= xp.repeat(num_unpooled, lengths)
        return Sequences({**features, "pooling_mask": Ragged(xp.cast(is_pooled, "int32"), lengths)})

    def pack_windows(
        self, *texts: Any, prompt_lengths: Any = None, pools_prompt: bool = True
    ) -> tuple[Sequences, Any]:
        """Packs the windows of texts or text pairs.

        Args:
            *texts: The texts and, for pairs, the second texts. Lists of strings or TensorFlow
                string tensors, each `(batch,)`.
            prompt_lengths: See `windows`. Int64 `(batch,)`.
            pools_prompt: See `pack_parts`.

        Returns:
            The `Sequences` of all windows, and each text's number of windows, int64 `(batch,)`.
        """
        xp = functions_for(texts[0])
        tokens = [tokenized(self.tokenizer, one) for one in texts]
        windows = self.windows([rows.lengths for rows in tokens], prompt_lengths)
        has_prompt = prompt_lengths is not None
        parts = []
        sources = tokens * 2 if has_prompt else tokens
        for rows, starts, lengths in zip(sources, windows.starts, windows.lengths, strict=True):
            first = xp.take(row_starts(xp, rows.lengths), windows.row) + starts
            parts.append(Ragged(xp.take(rows.values, xp.ranges(first, lengths)), lengths))
        return self.pack_parts(parts, has_prompt, pools_prompt), windows.counts

    def merge_windows(self, outputs: Any, counts: Any) -> Any:
        """Returns each text's output, given the outputs of its windows.

        Args:
            outputs: Float32 `(windows, ...)`, a NumPy array or TensorFlow tensor.
            counts: The number of windows in each text, int64 `(texts,)`.

        Returns:
            The elementwise mean or maximum, float32 `(texts, ...)`.
        """
        xp = functions_for(outputs)
        rows, num_texts = row_numbers(xp, counts), xp.size(counts)
        if self.long_texts == "max":
            return xp.segment_max(outputs, rows, num_texts)
        return xp.segment_mean(outputs, rows, num_texts)


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
    small enough. Once it contains `max_tokens` tokens, new texts are tokenized in each epoch. If
    `truncates` is false, all tokens of a text are stored.
    """

    def __init__(
        self,
        texts: Sequence[Any],
        preprocessor: Preprocessor,
        max_tokens: int = MAX_TOKENS_IN_MEMORY,
        *,
        truncates: bool = True,
    ) -> None:
        self._texts = texts
        self._tokenizer = preprocessor.tokenizer
        self._longest = preprocessor.sequence_length if truncates else None
        self._max_tokens = max_tokens
        fits = self._tokenizer.vocabulary_size <= 1 << 16
        self._flat = np.empty(0, "uint16" if fits else "int32")
        self._num_used = 0
        # The index of each text's first token in the flat array, or -1 if the text is not cached
        self._starts = np.full(len(texts), -1, "int64")
        self._lengths = np.zeros(len(texts), "int32")

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens in each text, int64 `(texts,)`."""
        lengths = [
            self.take(np.arange(start, min(start + _TEXTS_MEASURED, len(self)))).lengths
            for start in range(0, len(self), _TEXTS_MEASURED)
        ]
        return np.concatenate([np.zeros(0, "int64"), *lengths])

    def take(
        self, index: np.ndarray, starts: np.ndarray | None = None, lengths: np.ndarray | None = None
    ) -> Ragged:
        """Returns the tokens of texts, selected by index, or parts of them.

        Args:
            index: The index of each text, int64 `(rows,)`.
            starts, lengths: The index of the first token and the number of tokens to return, both
                int64 `(rows,)`. Defaults to all tokens.
        """
        new_rows = np.unique(index[self._starts[index] < 0])
        if len(new_rows) and self._num_used >= self._max_tokens:
            texts, place = np.unique(index, return_inverse=True)
            flat, text_lengths = self._tokenize(texts)
            first = row_starts(NUMPY, text_lengths)[place]
            text_lengths = text_lengths[place]
        else:
            if len(new_rows):
                self._keep(new_rows)
            flat, first = self._flat, self._starts[index]
            text_lengths = self._lengths[index].astype("int64")
        if starts is not None and lengths is not None:
            first, text_lengths = first + starts, lengths
        return Ragged(flat[NUMPY.ranges(first, text_lengths)].astype("int32"), text_lengths)

    def _tokenize(self, index: np.ndarray) -> Ragged:
        rows = tokenized(self._tokenizer, [self._texts[row] for row in index])
        if self._longest is None:
            return rows
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
    """Texts or text pairs in memory (columns from `text_columns`), as examples of a `Loader`.

    With `num_unpooled`, the feature `pooling_mask` is false for the first tokens of each sequence.
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[Any]],
        preprocessor: TextClassifierPreprocessor,
        num_unpooled: int = 0,
    ) -> None:
        self._preprocessor = preprocessor
        self._num_unpooled = num_unpooled
        self._columns = [TokenizedTexts(texts, preprocessor) for texts in columns.values()]
        self._is_counted = np.zeros(len(self), bool)

    def __len__(self) -> int:
        return len(self._columns[0])

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs examples by index."""
        columns = [column.take(index) for column in self._columns]
        self._count(index, sum(column.lengths for column in columns), len(columns))
        sequences = self._preprocessor.pack_tokens(*columns)
        if not self._num_unpooled:
            return sequences
        positions = NUMPY.ranges(0 * sequences.lengths, sequences.lengths)
        mask = Ragged(positions >= self._num_unpooled, sequences.lengths)
        return sequences._replace(features={**sequences.features, "pooling_mask": mask})

    def _count(self, index: np.ndarray, lengths: Any, num_texts: int) -> None:
        """Counts truncated examples, each only once."""
        max_tokens = self._preprocessor.max_tokens(num_texts)
        self._preprocessor.truncated_rows.add_once(self._is_counted, index, lengths, max_tokens)


class WindowExamples:
    """The windows of texts or text pairs in memory, as examples of a `Loader`.

    All texts are tokenized at the start, because the number of windows depends on their lengths.
    With `prompt_length`, the number of tokens of a prompt at the start of each text, all windows
    contain the prompt. If `pools_prompt` is false, `pooling_mask` is 0 for its tokens and `[CLS]`.
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[Any]],
        preprocessor: TextClassifierPreprocessor,
        prompt_length: int | None = None,
        pools_prompt: bool = True,
    ) -> None:
        self._preprocessor = preprocessor
        self._pools_prompt = pools_prompt
        self._columns = [
            TokenizedTexts(texts, preprocessor, truncates=False) for texts in columns.values()
        ]
        self._has_prompt = prompt_length is not None
        lengths = [column.lengths for column in self._columns]
        self.windows = preprocessor.windows(lengths, prompt_length)

    def __len__(self) -> int:
        return len(self.windows.row)

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs windows by index."""
        row, starts, lengths, _ = self.windows
        columns = self._columns * 2 if self._has_prompt else self._columns
        parts = [
            column.take(row[index], first[index], length[index])
            for column, first, length in zip(columns, starts, lengths, strict=True)
        ]
        return self._preprocessor.pack_parts(parts, self._has_prompt, self._pools_prompt)


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
