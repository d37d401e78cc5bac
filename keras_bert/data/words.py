# SPDX-License-Identifier: Apache-2.0
"""Sentences of words: windows in which each word is tagged at its first subword."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_bert import checks
from keras_bert.data.arrays import (
    Arrays,
    Ragged,
    cut_rows,
    join_rows,
    row_numbers,
    row_starts,
    same_in_rows,
)
from keras_bert.data.packing import (
    Preprocessor,
    Sequences,
    functions_for,
    num_special_tokens,
    pack_texts,
)
from keras_bert.text.tokenizer import Tokenizer, is_tensor


class NestedWords(NamedTuple):
    """Words of sentences or of documents.

    Args:
        words: All words one after another: a list, or a string tensor of TensorFlow.
        in_sentences: The number of words of each sentence, int64 `(sentences,)`.
        in_documents: The number of sentences of each document, int64 `(documents,)`; `None` if
            sentences are not in documents.
    """

    words: Any
    in_sentences: Any
    in_documents: Any = None


class WordWindows(NamedTuple):
    """Windows of sentences, and the window and position of each word's tag.

    Args:
        token_ids: int32, including `[CLS]` and `[SEP]`.
        word_window: The index of the window in which each word is tagged, int64 `(words,)`.
        word_position: The position in that window of the word's first subword, int64 `(words,)`.
    """

    token_ids: Ragged
    word_window: Any
    word_position: Any

    @property
    def sequences(self) -> Sequences:
        """The windows as sequences with `segment_ids` that are all 0."""
        xp = functions_for(self.word_window)
        segment_ids = same_in_rows(xp, 0, self.token_ids.lengths)
        return Sequences({"token_ids": self.token_ids, "segment_ids": segment_ids})

    def first_subwords(self) -> Any:
        """Returns the index of each word's first subword among the tokens of all windows."""
        xp = functions_for(self.word_window)
        starts = row_starts(xp, self.token_ids.lengths)
        return xp.take(starts, self.word_window) + self.word_position

    def scatter(self, values: Any) -> Ragged:
        """Scatters a value of each word, `(words,)`, to its first subword; 0 everywhere else."""
        xp = functions_for(self.word_window)
        size = xp.size(self.token_ids.values)
        return Ragged(xp.scatter(self.first_subwords(), values, size), self.token_ids.lengths)


class TokenClassifierPreprocessor(Preprocessor):
    """Packs sentences of words into `[CLS] subwords [SEP]`; a word's tag is at its first subword.

    A sentence that is too long for one row is split into overlapping windows at word boundaries,
    and a word is tagged in the window in which it has the maximum context. A word without tokens,
    such as a control character, becomes `[UNK]`, so that it has a tag too. In a sentence of
    several windows, words are truncated to `overlap` subwords.

    Args:
        tokenizer: The tokenizer that converts words to ids.
        sequence_length: Maximum length of a row in tokens, including the special tokens.
        overlap: Number of tokens that consecutive windows of a long sentence share. Defaults to a
            quarter of a window.

    Call arguments:
        words: Sentences of words, a list of lists; or documents of such sentences, a list of lists
            of lists. In a document, the rest of a sentence's window is filled with the sentences
            around it, to the left and to the right in equal parts where possible. Or a ragged
            tensor of TensorFlow, `(sentences, None)` or `(documents, None, None)`.

    Returns:
        A dict of `token_ids` (int32), `segment_ids` (int32, all 0) and `padding_mask` (bool), each
        of shape `(windows, length)`, where `length` is the longest window's: tensors of
        TensorFlow if the words are, and NumPy arrays otherwise. The method `windows` also returns
        the window and the position of each word.

    Raises:
        ValueError: If `sequence_length` or `overlap` is out of range, or words are not nested as
            described.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "caf", "##es", "in", "paris"]
    >>> preprocessor = TokenClassifierPreprocessor(keras_bert.WordPieceTokenizer(tokens))
    >>> windows = preprocessor.windows([["Cafes", "in", "Paris"]])
    >>> windows.token_ids.to_list(), windows.word_position.tolist()
    ([[2, 4, 5, 6, 7, 3]], [1, 3, 4])

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.3.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 512,
        overlap: int | None = None,
    ) -> None:
        checks.Numbers(at_least=4, integer=True).check(sequence_length=sequence_length)
        max_tokens = sequence_length - num_special_tokens(tokenizer)
        checks.Numbers(at_least=1, below=max_tokens, integer=True).check_given(overlap=overlap)
        super().__init__(tokenizer, sequence_length)
        self.overlap = max(1, max_tokens // 4) if overlap is None else overlap
        self._max_tokens = max_tokens

    def __call__(self, words: Any) -> dict[str, Any]:
        return self.padded(self.windows(words))

    def padded(self, windows: WordWindows) -> dict[str, Any]:
        """Pads windows to dense features `(windows, length)`, with the length of the longest."""
        return windows.sequences.padded_to_longest(
            functions_for(windows.word_window),
            num_special_tokens(self.tokenizer),
            self.tokenizer.pad_token_id,
        )

    def windows(self, words: Any) -> WordWindows:
        """Splits sentences or documents into windows.

        Args:
            words: See the call arguments; or `NestedWords`.

        Returns:
            `WordWindows` in the order of the sentences. A sentence without words has no window.
        """
        nested = words if isinstance(words, NestedWords) else nested_words(words)
        max_tokens, overlap, in_sentences = self._max_tokens, self.overlap, nested.in_sentences
        xp = functions_for(in_sentences)
        pieces = self._pieces(xp, nested)
        splits = _splits(xp, pieces.lengths)
        # === Spans of sentences among all tokens ===
        first_token = xp.take(splits, _splits(xp, in_sentences))
        begin, end = first_token[:-1], first_token[1:]
        lengths = end - begin
        step = max_tokens - overlap
        counts = 1 + xp.maximum((lengths - max_tokens + step - 1) // step, 0)
        counts = xp.minimum(counts, lengths)
        # === Spans of windows ===
        sentence = row_numbers(xp, counts)
        number = xp.ranges(0 * counts, counts)
        start = xp.take(begin, sentence) + number * step
        stop = xp.minimum(start + max_tokens, xp.take(end, sentence))
        start, stop = _between_words(xp, start, stop, splits)
        if nested.in_documents is not None:
            borders = xp.take(first_token, _splits(xp, nested.in_documents))
            document = xp.take(row_numbers(xp, nested.in_documents), sentence)
            first, last = xp.take(borders, document), xp.take(borders, document + 1)
            start, stop = _extend(xp, start, stop, first, last, max_tokens)
            start, stop = _between_words(xp, start, stop, splits)
        # === The window of each word ===
        of_sentence = row_numbers(xp, in_sentences)
        word_begin, word_end = splits[:-1], splits[1:]
        within = xp.take(begin, of_sentence)
        nearest = _nearest_window(xp, word_begin - within, word_end - within, max_tokens, step)
        nearest = _clip(xp, nearest, 0, xp.take(counts, of_sentence) - 1)
        window = xp.take(row_starts(xp, counts), of_sentence) + nearest
        positions = xp.ranges(start, stop - start)
        inner = Ragged(xp.take(pieces.values, positions), stop - start)
        return WordWindows(
            pack_texts(xp, self.tokenizer, inner)["token_ids"],
            window,
            word_begin - xp.take(start, window) + 1,
        )

    def _pieces(self, xp: Arrays, nested: NestedWords) -> Ragged:
        """Returns the ids of each word."""
        is_first = _first_words(xp, nested)
        if is_tensor(nested.words):
            ids = self.tokenizer.graph.tokenize_words(nested.words, is_first)
            pieces = Ragged(ids.flat_values, ids.row_lengths())
        else:
            pieces = Ragged(*self.tokenizer.flat_words(nested.words, is_first))
        is_empty = xp.cast(pieces.lengths == 0, "int64")
        unknown = same_in_rows(xp, self.tokenizer.unk_token_id, is_empty)
        pieces = join_rows(xp, [pieces, unknown])
        ends = xp.take(_splits(xp, pieces.lengths), _splits(xp, nested.in_sentences))
        lengths = ends[1:] - ends[:-1]
        overlap = xp.full(xp.size(lengths), self.overlap, "int64")
        limits = xp.where(lengths > self._max_tokens, overlap, lengths)
        return cut_rows(xp, pieces, xp.take(limits, row_numbers(xp, nested.in_sentences)))


def nested_words(words: Any) -> NestedWords:
    """Converts sentences, documents or a ragged tensor of words to their words and numbers."""
    if is_tensor(words):
        sentences = words.values if words.ragged_rank == 2 else words
        xp = functions_for(sentences.flat_values)
        in_documents = words.row_lengths() if words.ragged_rank == 2 else None
        return NestedWords(
            sentences.flat_values,
            xp.cast(sentences.row_lengths(), "int64"),
            in_documents if in_documents is None else xp.cast(in_documents, "int64"),
        )
    lengths: list[list[int]] = []
    items = list(words)
    while any(not isinstance(item, (str, bytes)) for item in items):
        if len(lengths) == 2 or any(isinstance(item, (str, bytes)) for item in items):
            raise _badly_nested(items)
        lengths.append([len(item) for item in items])
        items = [word for item in items for word in item]
    if not lengths:
        if items:
            raise _badly_nested(items)
        lengths.append([])
    counts = [np.array(of_level, "int64") for of_level in lengths]
    return NestedWords(items, counts[-1], counts[0] if len(counts) == 2 else None)


def _badly_nested(items: Sequence[Any]) -> ValueError:
    return ValueError(
        "Words must be strings in a list for each sentence, or in lists of such lists for each "
        f"document; received {items[0]!r} where a list was expected, or too many levels."
    )


def _first_words(xp: Arrays, nested: NestedWords) -> Any:
    """Returns which words are the first ones of a sentence, or in documents of a document."""
    starts = _splits(xp, nested.in_sentences)
    if nested.in_documents is not None:
        starts = xp.take(starts, _splits(xp, nested.in_documents))
    return xp.count(starts[:-1], starts[-1] + 1)[:-1] > 0


def _splits(xp: Arrays, lengths: Any) -> Any:
    """Returns the index of each row's first value, and at last the number of values."""
    return xp.concat([xp.full(1, 0, "int64"), xp.cumsum(lengths)])


def _clip(xp: Arrays, x: Any, lowest: Any, highest: Any) -> Any:
    return xp.minimum(xp.maximum(x, lowest), highest)


def _between_words(xp: Arrays, start: Any, stop: Any, splits: Any) -> tuple[Any, Any]:
    """Shortens spans of tokens to word boundaries."""
    first = xp.searchsorted(splits, start, "left")
    last = xp.searchsorted(splits, stop, "right") - 1
    return xp.take(splits, first), xp.take(splits, last)


def _extend(
    xp: Arrays, start: Any, stop: Any, begin: Any, end: Any, max_tokens: int
) -> tuple[Any, Any]:
    """Extends spans on both sides, in equal parts where possible, to the size of a window."""
    spare, left, right = max_tokens - (stop - start), start - begin, end - stop
    left = xp.minimum(left, xp.maximum(spare // 2, spare - right))
    return start - left, stop + xp.minimum(right, spare - left)


def _nearest_window(xp: Arrays, begin: Any, end: Any, max_tokens: int, step: int) -> Any:
    """Returns the index of the window with the maximum context of each word.

    Windows are `[k * step, k * step + max_tokens)`. In sentences of several windows, words have
    no more than `max_tokens - step` subwords, so that at least one window contains the whole word.
    """
    central = (begin + end - max_tokens + step) // (2 * step)
    return _clip(xp, central, -((max_tokens - end) // step), begin // step)
