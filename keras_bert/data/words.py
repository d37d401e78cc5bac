# SPDX-License-Identifier: Apache-2.0
"""Splits sentences of words into windows. Each word is tagged at its first subword."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from keras_bert import checks
from keras_bert.data.arrays import (
    Arrays,
    Ragged,
    join_rows,
    row_numbers,
    row_starts,
    same_in_rows,
    truncate_rows,
)
from keras_bert.data.columns import as_string
from keras_bert.data.packing import (
    Preprocessor,
    Sequences,
    functions_for,
    num_special_tokens,
    pack_texts,
)
from keras_bert.text.tokenizer import Tokenizer, is_tensor
from keras_bert.text.words import (
    WORD_UNITS,
    WordUnit,
    find_unspaced_words,
    infer_word_unit,
    split_words,
)


class NestedWords(NamedTuple):
    """The words in sentences or documents.

    Args:
        words: All words in order: a list, or a TensorFlow string tensor.
        words_per_sentence: int64 `(sentences,)`.
        sentences_per_document: int64 `(documents,)`, or `None` without documents.
    """

    words: Any
    words_per_sentence: Any
    sentences_per_document: Any = None


class Spans(NamedTuple):
    """Words, sentences, documents or windows, as spans in the tokens of all words.

    Args:
        start: The index of each span's first token, int64 `(spans,)`.
        stop: The index after each span's last token, int64 `(spans,)`.
    """

    start: Any
    stop: Any

    @classmethod
    def between(cls, bounds: Any) -> Self:
        """Creates adjacent spans from their bounds, int64 `(spans + 1,)`."""
        return cls(bounds[:-1], bounds[1:])

    @property
    def lengths(self) -> Any:
        """The length of each span in tokens."""
        return self.stop - self.start

    def take(self, xp: Arrays, index: Any) -> Spans:
        """Selects spans by index."""
        return Spans(xp.take(self.start, index), xp.take(self.stop, index))


class WordWindows(NamedTuple):
    """Windows of sentences, and each word's window and position for tagging.

    Args:
        token_ids: int32, including `[CLS]` and `[SEP]`.
        word_window: The index of the window that tags each word, int64 `(words,)`.
        word_position: The position of the word's first subword in that window, int64 `(words,)`.
    """

    token_ids: Ragged
    word_window: Any
    word_position: Any

    @property
    def sequences(self) -> Sequences:
        """The windows as sequences. All `segment_ids` are 0."""
        xp = functions_for(self.word_window)
        segment_ids = same_in_rows(xp, 0, self.token_ids.lengths)
        return Sequences({"token_ids": self.token_ids, "segment_ids": segment_ids})

    def first_subwords(self) -> Any:
        """Returns the index of each word's first subword in the flat array of all windows."""
        xp = functions_for(self.word_window)
        starts = row_starts(xp, self.token_ids.lengths)
        return xp.take(starts, self.word_window) + self.word_position

    def scatter(self, values: Any) -> Ragged:
        """Scatters values of words, `(words,)`, to their first subwords. Other tokens get 0."""
        xp = functions_for(self.word_window)
        size = xp.size(self.token_ids.values)
        return Ragged(xp.scatter(self.first_subwords(), values, size), self.token_ids.lengths)


class TokenClassifierPreprocessor(Preprocessor):
    """Packs sentences of words into `[CLS] subwords [SEP]`, and tags words at the first subword.

    Overlong sentences are split into overlapping windows at word boundaries. A word is tagged in
    the window with its maximum context. A word without tokens, such as a control character, is
    replaced with `[UNK]`, so that it also has a tag. In a sentence with multiple windows, words are
    truncated to `overlap` subwords.

    Args:
        tokenizer: The tokenizer that converts words to ids.
        sequence_length: Maximum sequence length in tokens, including special tokens. Defaults to
            512.
        overlap: Number of shared tokens between consecutive windows in a sentence. Defaults to a
            quarter of the window.
        word_unit: What a word is when a text is split into words: `"words"` (also splits
            punctuation marks and Chinese characters), `"words_or_characters"` (also splits
            characters in Japanese, Thai, Lao, Tibetan, Burmese and Khmer), `"whitespace"`,
            `"characters"`, `"characters_and_spaces"` (spaces are words), or `"segmented"` (as
            `"words"`, with a warning, because the training words come from a segmenter). By
            default, `fit` infers it from the training words, and until then it is `"words"`.

    Call arguments:
        words: Sentences of words (nested lists), documents of such sentences (with one more nesting
            level), or a ragged TensorFlow tensor, `(sentences, None)` or `(documents, None, None)`.
            In a document, the rest of each window is filled with the surrounding sentences, on the
            left and right in equal parts if possible.

    Returns:
        A dict of `token_ids` (int32), `segment_ids` (int32, all 0) and `padding_mask` (bool), each
        of shape `(windows, length)`, where `length` is the length of the longest window. The values
        are TensorFlow tensors if the words are, and NumPy arrays otherwise. The method `windows`
        also returns the window and position of each word.

    Raises:
        ValueError: If `sequence_length` or `overlap` is out of range, or if words are not nested as
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
        word_unit: WordUnit | None = None,
    ) -> None:
        checks.NumberRange(at_least=4, integer=True).check(sequence_length=sequence_length)
        max_tokens = sequence_length - num_special_tokens(tokenizer)
        checks.NumberRange(at_least=1, below=max_tokens, integer=True).check_optional(
            overlap=overlap
        )
        if word_unit is not None:
            checks.check_choice(WORD_UNITS, word_unit=word_unit)
        super().__init__(tokenizer, sequence_length)
        self.word_unit = word_unit
        self._warned_of_unit = False
        self.overlap = max(1, max_tokens // 4) if overlap is None else overlap
        self._max_tokens = max_tokens

    def __call__(self, words: Any) -> dict[str, Any]:
        return self.pad(self.windows(words))

    @property
    def text_unit(self) -> WordUnit:
        """The unit for texts: `word_unit`, or `"words"` if it is unknown."""
        return self.word_unit or "words"

    def learn_word_unit(self, sentences: Sequence[Sequence[Any]]) -> None:
        """Sets `word_unit` to the unit of training words, if it is `None`.

        Args:
            sentences: The training words.

        Warns:
            UserWarning: If the unit is not `"words"`, or if it differs from `word_unit`.
        """
        unit = infer_word_unit([as_string(word) for word in words] for words in sentences)
        if unit is None or unit == self.word_unit:
            return
        if self.word_unit is not None:
            if "segmented" not in (unit, self.word_unit):
                checks.warn(
                    f"word_unit is {self.word_unit!r}, but the training words look like {unit!r}. "
                    f"Texts are split by {self.word_unit!r}. To change this, pass word_unit to "
                    "`from_preset` (--word_unit in commands)."
                )
            return
        self.word_unit = unit
        if unit == "segmented":
            self.warn_of_segments("The training words come from a segmenter")
        elif unit != "words":
            checks.warn(
                f"Texts will be split by word_unit={unit!r}, like the training words. To change "
                "this, pass word_unit to `from_preset` (--word_unit in commands)."
            )

    def split_texts(self, texts: Sequence[str]) -> list[tuple[list[str], list[int], list[int]]]:
        """Splits texts by `word_unit`, see `keras_bert.text.words.split_words`.

        Warns:
            UserWarning: Once, if texts cannot be split like the training words.
        """
        split = [split_words(text, self.text_unit) for text in texts]
        if self.text_unit == "segmented" and texts:
            self.warn_of_segments("The training words came from a segmenter")
        elif self.text_unit in ("words", "whitespace") and not self._warned_of_unit:
            for words, _, _ in split:
                if word := find_unspaced_words(words):
                    self.warn_of_segments(f"{word!r} is in a script without spaces between words")
                    break
        return split

    def warn_of_segments(self, reason: str) -> None:
        """Warns once that texts cannot be split like the training words."""
        if not self._warned_of_unit:
            self._warned_of_unit = True
            checks.warn(
                f"{reason}, so texts may be split differently from the training words. Pass lists "
                "of words, in exports to the signature serve_words."
            )

    def pad(self, windows: WordWindows) -> dict[str, Any]:
        """Pads windows to dense features `(windows, length)`, the length of the longest window."""
        return windows.sequences.padded_to_longest(
            functions_for(windows.word_window),
            num_special_tokens(self.tokenizer),
            self.tokenizer.pad_token_id,
        )

    def windows(self, words: Any) -> WordWindows:
        """Splits sentences or documents into windows.

        Args:
            words: See the call arguments, or `NestedWords`.

        Returns:
            `WordWindows` in the order of the sentences. Empty sentences have no window.
        """
        nested = words if isinstance(words, NestedWords) else nested_words(words)
        max_tokens, step = self._max_tokens, self._max_tokens - self.overlap
        xp = functions_for(nested.words_per_sentence)
        pieces = self._pieces(xp, nested)
        word_bounds = _bounds(xp, pieces.lengths)
        sentence_bounds = xp.take(word_bounds, _bounds(xp, nested.words_per_sentence))
        words, sentences = Spans.between(word_bounds), Spans.between(sentence_bounds)

        windows, num_windows = _split_sentences(xp, sentences, max_tokens, step)
        windows = _whole_words(xp, windows, word_bounds)
        if nested.sentences_per_document is not None:
            bounds = xp.take(sentence_bounds, _bounds(xp, nested.sentences_per_document))
            document_of_sentence = row_numbers(xp, nested.sentences_per_document)
            document_of_window = xp.take(document_of_sentence, row_numbers(xp, num_windows))
            documents = Spans.between(bounds).take(xp, document_of_window)
            windows = _extend(xp, windows, documents, max_tokens)
            windows = _whole_words(xp, windows, word_bounds)

        sentence_of_word = row_numbers(xp, nested.words_per_sentence)
        offset = xp.take(sentences.start, sentence_of_word)
        in_sentence = Spans(words.start - offset, words.stop - offset)
        count = xp.take(num_windows, sentence_of_word)
        nearest = _nearest_window(xp, in_sentence, count, max_tokens, step)
        word_window = xp.take(row_starts(xp, num_windows), sentence_of_word) + nearest
        lengths = windows.lengths
        token_ids = Ragged(xp.take(pieces.values, xp.ranges(windows.start, lengths)), lengths)
        return WordWindows(
            pack_texts(xp, self.tokenizer, token_ids)["token_ids"],
            word_window,
            words.start - xp.take(windows.start, word_window) + 1,
        )

    def _pieces(self, xp: Arrays, nested: NestedWords) -> Ragged:
        """Tokenizes words. Truncates them to `overlap` in sentences with multiple windows."""
        is_first = _first_words(xp, nested)
        if is_tensor(nested.words):
            ids = self.tokenizer.graph.tokenize_words(nested.words, is_first)
            pieces = Ragged(ids.flat_values, ids.row_lengths())
        else:
            pieces = Ragged(*self.tokenizer.flat_words(nested.words, is_first))
        is_empty = xp.cast(pieces.lengths == 0, "int64")
        unknown = same_in_rows(xp, self.tokenizer.unk_token_id, is_empty)
        pieces = join_rows(xp, [pieces, unknown])
        sentence_bounds = _bounds(xp, nested.words_per_sentence)
        lengths = Spans.between(xp.take(_bounds(xp, pieces.lengths), sentence_bounds)).lengths
        overlap = xp.full(xp.size(lengths), self.overlap, "int64")
        limits = xp.where(lengths > self._max_tokens, overlap, lengths)
        return truncate_rows(xp, pieces, xp.repeat(limits, nested.words_per_sentence))


def nested_words(words: Any) -> NestedWords:
    """Flattens sentences or documents of words, given as nested lists or a ragged tensor."""
    if is_tensor(words):
        xp, counts = functions_for(words), words.nested_row_lengths()
        *per_document, per_sentence = (xp.cast(count, "int64") for count in counts)
        return NestedWords(words.flat_values, per_sentence, *per_document)
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
    *per_document, per_sentence = (np.array(level_lengths, "int64") for level_lengths in lengths)
    return NestedWords(items, per_sentence, *per_document)


def _badly_nested(items: Sequence[Any]) -> ValueError:
    return ValueError(
        "Words must be strings in a list for each sentence, or in a list of such lists for each "
        f"document. Received: {items[0]!r} instead of a list, or too many levels"
    )


def _first_words(xp: Arrays, nested: NestedWords) -> Any:
    """Returns whether each word is the first in its sentence or, with documents, its document."""
    bounds = _bounds(xp, nested.words_per_sentence)
    if nested.sentences_per_document is not None:
        bounds = xp.take(bounds, _bounds(xp, nested.sentences_per_document))
    return xp.count(bounds[:-1], bounds[-1] + 1)[:-1] > 0


def _bounds(xp: Arrays, lengths: Any) -> Any:
    """Returns the index of each row's first value, followed by the number of values.

    >>> _bounds(Arrays(), np.array([2, 1, 4])).tolist()
    [0, 2, 3, 7]
    """
    return xp.concat([xp.full(1, 0, "int64"), xp.cumsum(lengths)])


def _split_sentences(xp: Arrays, sentences: Spans, max_tokens: int, step: int) -> tuple[Spans, Any]:
    """Splits sentences into windows of at most `max_tokens`, starting every `step` tokens.

    Also returns the number of windows in each sentence, 0 for empty sentences. For example, a
    sentence of 11 tokens has three windows, and a sentence of 5 tokens is a single window:

    >>> sentences = Spans.between(np.array([0, 11, 16]))
    >>> windows, num_windows = _split_sentences(Arrays(), sentences, max_tokens=6, step=3)
    >>> windows.start.tolist(), windows.stop.tolist(), num_windows.tolist()
    ([0, 3, 6, 11], [6, 9, 11, 16], [3, 1])
    """
    lengths = sentences.lengths
    num_windows = 1 + xp.maximum((lengths - max_tokens + step - 1) // step, 0)
    num_windows = xp.minimum(num_windows, lengths)
    sentences = sentences.take(xp, row_numbers(xp, num_windows))
    start = sentences.start + xp.ranges(0 * num_windows, num_windows) * step
    return Spans(start, xp.minimum(start + max_tokens, sentences.stop)), num_windows


def _whole_words(xp: Arrays, spans: Spans, word_bounds: Any) -> Spans:
    """Shortens spans to the complete words that they contain.

    >>> _whole_words(Arrays(), Spans(np.array([3]), np.array([9])), np.array([0, 2, 4, 7, 10]))
    Spans(start=array([4]), stop=array([7]))
    """
    first = xp.searchsorted(word_bounds, spans.start, "left")
    last = xp.searchsorted(word_bounds, spans.stop, "right") - 1
    return Spans(xp.take(word_bounds, first), xp.take(word_bounds, last))


def _extend(xp: Arrays, windows: Spans, documents: Spans, max_tokens: int) -> Spans:
    """Extends windows into their documents on both sides, in equal parts if possible.

    For example, a window of 2 tokens is extended to 6. If its document starts one token before the
    window, the window gets the next 3 tokens:

    >>> windows = Spans(np.array([1, 12]), np.array([3, 14]))
    >>> _extend(Arrays(), windows, Spans.between(np.array([0, 8, 20])), max_tokens=6)
    Spans(start=array([ 0, 10]), stop=array([ 6, 16]))
    """
    spare = max_tokens - windows.lengths
    before, after = windows.start - documents.start, documents.stop - windows.stop
    left = xp.minimum(before, xp.maximum(spare // 2, spare - after))
    return Spans(windows.start - left, windows.stop + xp.minimum(after, spare - left))


def _nearest_window(xp: Arrays, words: Spans, num_windows: Any, max_tokens: int, step: int) -> Any:
    """Returns the index of each word's window with the maximum context in the sentence.

    Words are spans in the tokens of their sentences. The `num_windows` windows in a sentence are
    `[0, max_tokens)`, `[step, step + max_tokens)` and so on. In sentences with multiple windows,
    words have at most `max_tokens - step` tokens, so at least one window contains the complete
    word.

    For example, the word `[4, 6)` is at the edge of the window `[0, 6)`, but inside `[3, 9)`:

    >>> words, num_windows = Spans(np.array([2, 4]), np.array([4, 6])), np.array([2, 2])
    >>> _nearest_window(Arrays(), words, num_windows, max_tokens=6, step=3).tolist()
    [0, 1]
    """
    # Windows have their middle at `step * number + max_tokens / 2`.
    nearest = (words.start + words.stop - max_tokens + step) // (2 * step)
    # The first and last window that contain the complete word
    first = xp.maximum(-((max_tokens - words.stop) // step), 0)
    last = xp.minimum(words.start // step, num_windows - 1)
    return xp.minimum(xp.maximum(nearest, first), last)
