# SPDX-License-Identifier: Apache-2.0
"""Splits passages with questions into overlapping windows that fit the model's input."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_bert import checks
from keras_bert.data.arrays import (
    NUMPY,
    Arrays,
    Ragged,
    row_numbers,
    row_starts,
    take_rows,
    truncate_rows,
)
from keras_bert.data.packing import (
    Preprocessor,
    Sequences,
    functions_for,
    num_special_tokens,
    pack_texts,
    start_of_second,
    surround_second,
    tokenized,
)
from keras_bert.data.squad import QuestionExample
from keras_bert.data.texts import InMemory, TruncationCounter
from keras_bert.text.tokenizer import Tokenizer, is_tensor

# The maximum number of questions and passage characters to tokenize at a time
CHUNK = 512
_CHARACTERS = 4_000_000
# The columns of `_chunk` with one value per window. Other columns have one value per token.
_OF_WINDOWS = ("lengths", "question_index", "start_positions", "end_positions")


class TokenizedQuestions(NamedTuple):
    """Tokenized questions and passages.

    Args:
        question_ids: int32, truncated to `max_query_length`.
        passage_ids: int32.
        char_starts: The offset of each passage token's first character, int32.
        char_ends: The offset after each passage token's last character, int32.
    """

    question_ids: Ragged
    passage_ids: Ragged
    char_starts: Ragged
    char_ends: Ragged


class QuestionWindows(NamedTuple):
    """Windows in the order of the questions, and their offsets in the passages.

    Args:
        features: A dict of `token_ids` and `segment_ids` (1 for the passage in families with two
            segments), int32.
        question_index: The index of each window's question, int64 `(windows,)`.
        first_token: The index in the passage of each window's first passage token, int64
            `(windows,)`.
        char_starts: The passage offset of each token's first character, int32. 0 for tokens outside
            the passage.
        char_ends: The passage offset after each token's last character, int32. 0 for tokens outside
            the passage.
        is_max_context: 1 if the token has its maximum context in this window, otherwise 0, int32. 0
            for tokens outside the passage.
        passage_start: The position of each window's first passage token, int64 `(windows,)`.
        passage_length: The number of passage tokens in each window, int64 `(windows,)`.
    """

    features: dict[str, Ragged]
    question_index: Any
    first_token: Any
    char_starts: Ragged
    char_ends: Ragged
    is_max_context: Ragged
    passage_start: Any
    passage_length: Any


class QuestionAnswererPreprocessor(Preprocessor):
    """Packs a question and a window of its passage into `[CLS] question [SEP] window [SEP]`.

    Overlong passages are split into overlapping windows. Strings are converted to NumPy arrays.
    TensorFlow tensors are converted to tensors with graph operations, for example in a `tf.data`
    pipeline or a SavedModel.

    Args:
        tokenizer: The tokenizer that converts text to ids.
        sequence_length: Maximum sequence length in tokens, including special tokens. Defaults to
            384.
        doc_stride: Distance between consecutive window starts in tokens. Defaults to 128.
        max_query_length: Maximum question length in tokens. Longer questions are truncated.
            Defaults to 64, but at most half of the space in a short sequence.

    Call arguments:
        question: Strings of shape `(batch,)`.
        context: The passages, strings of shape `(batch,)`.

    Returns:
        `QuestionWindows` with at least one window for each question. Token values are `Ragged`: the
        values of all windows, and the length of each window.

    Raises:
        ValueError: If `doc_stride` or `max_query_length` is below 1, or if the longest question
            leaves no space for a passage token.

    Example:

    >>> from keras_bert.data import QuestionAnswererPreprocessor
    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "?"]
    >>> tokenizer = keras_bert.WordPieceTokenizer(tokens)
    >>> preprocessor = QuestionAnswererPreprocessor(tokenizer, 6, doc_stride=1, max_query_length=1)
    >>> preprocessor(["?"], ["a b c"]).features["token_ids"].to_list()
    [[2, 7, 3, 4, 5, 3], [2, 7, 3, 5, 6, 3]]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 4.2, and the original BERT code.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 384,
        doc_stride: int = 128,
        max_query_length: int | None = None,
    ) -> None:
        checks.POSITIVE_INT.check(sequence_length=sequence_length, doc_stride=doc_stride)
        checks.POSITIVE_INT.check_optional(max_query_length=max_query_length)
        num_special = num_special_tokens(tokenizer, 2)
        if max_query_length is None:
            max_query_length = max(1, min(64, (sequence_length - num_special) // 2))
        # The special tokens, and one passage token
        shortest = max_query_length + num_special + 1
        if sequence_length < shortest:
            raise ValueError(
                f"sequence_length must be at least {shortest} for max_query_length="
                f"{max_query_length}. Received: {sequence_length}"
            )
        super().__init__(tokenizer, sequence_length)
        self.doc_stride = doc_stride
        self.max_query_length = max_query_length
        self.truncated_rows = TruncationCounter("max_query_length", max_query_length)

    def __call__(self, question: Any, context: Any) -> QuestionWindows:
        return self.windows(self.tokenize(question, context))

    def tokenize(self, question: Any, context: Any) -> TokenizedQuestions:
        """Tokenizes questions and passages. This is the first step in a call."""
        ids = tokenized(self.tokenizer, question)
        if not is_tensor(question):
            self.truncated_rows.add(ids.lengths, self.max_query_length)
        if is_tensor(context):
            tensors = self.tokenizer.graph.tokenize_with_offsets(context)
            passages = [Ragged(tensor.flat_values, tensor.row_lengths()) for tensor in tensors]
        else:
            *columns, lengths = self.tokenizer.flat_tokens(context)
            passages = [Ragged(column, lengths) for column in columns]
        side = self.tokenizer.truncation_side
        question_ids = truncate_rows(functions_for(ids.values), ids, self.max_query_length, side)
        return TokenizedQuestions(question_ids, *passages)

    def windows(self, tokens: TokenizedQuestions) -> QuestionWindows:
        """Splits tokenized passages into windows. This is the second step in a call."""
        xp = functions_for(tokens.passage_ids.values)
        row, first, length = self._spans(xp, tokens)
        # The indices of each window's tokens in the flat array of all passages
        begin = xp.take(row_starts(xp, tokens.passage_ids.lengths), row) + first
        positions = Ragged(xp.ranges(begin, length), length)
        question = take_rows(xp, tokens.question_ids, row)

        def passage(rows: Ragged) -> Ragged:
            return Ragged(xp.take(rows.values, positions.values), length)

        def surrounded(rows: Ragged) -> Ragged:
            return surround_second(xp, self.tokenizer, question, rows)

        is_max_context = _is_max_context(xp, positions, xp.size(tokens.passage_ids.values))
        return QuestionWindows(
            features=pack_texts(xp, self.tokenizer, question, passage(tokens.passage_ids)),
            passage_start=start_of_second(self.tokenizer, question),
            passage_length=length,
            question_index=row,
            first_token=first,
            char_starts=surrounded(passage(tokens.char_starts)),
            char_ends=surrounded(passage(tokens.char_ends)),
            is_max_context=surrounded(Ragged(xp.cast(is_max_context, "int32"), length)),
        )

    def _spans(self, xp: Arrays, tokens: TokenizedQuestions) -> tuple[Any, Any, Any]:
        """Returns each window's question, first passage token and number of passage tokens."""
        passage_length = tokens.passage_ids.lengths
        special = num_special_tokens(self.tokenizer, 2)
        space = self.sequence_length - special - tokens.question_ids.lengths
        stride = xp.minimum(space, self.doc_stride)
        # The last window contains the rest. A passage without tokens also has one window.
        num_windows = 1 + (xp.maximum(passage_length - space, 0) + stride - 1) // stride
        row = row_numbers(xp, num_windows)
        number = xp.ranges(xp.full(xp.size(num_windows), 0, "int64"), num_windows)
        first = number * xp.take(stride, row)
        length = xp.minimum(xp.take(space, row), xp.take(passage_length, row) - first)
        return row, first, length

    def pad(self, windows: QuestionWindows) -> dict[str, Any]:
        """Pads windows to dense features `(windows, length)` with a `padding_mask`."""
        return Sequences(windows.features).padded_to_longest(
            functions_for(windows.question_index),
            num_special_tokens(self.tokenizer, 2),
            self.tokenizer.pad_token_id,
        )


def _is_max_context(xp: Arrays, positions: Ragged, num_tokens: Any) -> Any:
    """Returns whether the token has its maximum context in this window, bool `(values,)`.

    A token's context in a window is the number of tokens to its left or right, whichever is
    smaller, plus 0.01 times the window length. On a tie, the first window is chosen.
    """
    position, length = positions
    window = row_numbers(xp, length)
    left = xp.ranges(xp.full(xp.size(length), 0, "int64"), length)
    right = xp.take(length, window) - 1 - left
    # The original BERT code also uses float64, so ties are the same.
    score = xp.cast(xp.minimum(left, right), "float64") + 0.01 * xp.cast(
        xp.take(length, window), "float64"
    )
    best = xp.take(xp.segment_max(score, position, num_tokens), position)
    best_windows = xp.where(score == best, window, xp.size(length))
    return xp.take(xp.segment_min(best_windows, position, num_tokens), position) == window


@dataclasses.dataclass(frozen=True, eq=False)
class QuestionRows:
    """The windows of all questions, concatenated in flat arrays. See `QuestionWindows`.

    Args:
        row_splits: The index of each window's first token in the flat arrays, int64
            `(windows + 1,)`.
        token_ids, segment_ids, char_starts, char_ends: int32 `(tokens,)`.
        is_max_context: Bool `(tokens,)`.
        question_index: The index of each window's question, int32 `(windows,)`.
        start_positions: The position of the answer's first token in each window, int32
            `(windows,)`. It is 0 (the position of `[CLS]`) if the window does not contain the
            complete answer.
        end_positions: The position of the answer's last token in each window, int32 `(windows,)`. 0
            if the window does not contain the complete answer.
        num_questions: The number of questions.
    """

    row_splits: np.ndarray
    token_ids: np.ndarray
    segment_ids: np.ndarray
    char_starts: np.ndarray
    char_ends: np.ndarray
    is_max_context: np.ndarray
    question_index: np.ndarray
    start_positions: np.ndarray
    end_positions: np.ndarray
    num_questions: int

    def __len__(self) -> int:
        return len(self.question_index)

    @property
    def lengths(self) -> np.ndarray:
        """The length of each window in tokens, int64 `(windows,)`."""
        return np.diff(self.row_splits)

    @property
    def examples(self) -> InMemory:
        """The windows as examples of a `Loader`."""
        features = {
            "token_ids": Ragged(self.token_ids, self.lengths),
            "segment_ids": Ragged(self.segment_ids, self.lengths),
        }
        return InMemory(Sequences(features))


def question_rows(
    examples: Sequence[QuestionExample],
    preprocessor: QuestionAnswererPreprocessor,
    negative_fraction: float = 1.0,
) -> QuestionRows:
    """Tokenizes questions and splits their passages into windows, in the order of the questions.

    The target is the first answer that overlaps a token. A random `negative_fraction` of the
    windows without the answer is kept, the same in each call. If no window contains the answer, all
    of the question's windows are kept.
    """
    chunks, first = [], 0
    for batch in batched_by_characters(examples, _CHARACTERS, CHUNK):
        chunk = _chunk(batch, preprocessor, first)
        chunks.append(chunk if negative_fraction == 1 else _sample(chunk, negative_fraction))
        first += len(batch)
    chunks = chunks or [_chunk((), preprocessor, 0)]
    columns = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    row_splits = np.concatenate([[0], np.cumsum(columns.pop("lengths"))]).astype("int64")
    return QuestionRows(row_splits=row_splits, num_questions=len(examples), **columns)


def batched_by_characters(
    examples: Sequence[QuestionExample], characters: int, count: int | None = None
) -> Iterator[Sequence[QuestionExample]]:
    """Yields chunks of at most `count` questions whose passages have at most `characters`.

    A question with a longer passage is a chunk of its own.
    """
    first = total = 0
    for index, example in enumerate(examples):
        total += len(example.context)
        if index > first and (total > characters or index - first == count):
            yield examples[first:index]
            first, total = index, len(example.context)
    if first < len(examples):
        yield examples[first:]


def likely_spans(
    logits: tuple[Any, Any],
    mask: Any,
    may_start: Any,
    may_end: Any,
    *,
    n_best: int,
    max_answer_length: int,
) -> tuple[Any, Any, Any]:
    """Finds the most likely start and end tokens in each window, and pairs them to spans.

    Args:
        logits: Start logits and end logits, each float32 `(windows, length)`.
        mask: Bool `(windows, length)`, False for padding.
        may_start: Bool `(windows, length)`, True if the token has its maximum context in this
            window.
        may_end: Bool `(windows, length)`, True if the token is in the passage.
        n_best: Number of start tokens and end tokens per window. If logits are equal, earlier
            tokens come first.
        max_answer_length: Maximum answer length in tokens.

    Returns:
        A tuple of start positions and end positions, both int32 `(windows, best)` in descending
        order of the logits, and the valid spans, bool `(windows, best, best)`. In a valid span,
        both tokens are allowed, the end is not before the start, and the length is at most
        `max_answer_length`.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), sections 4.2 and 4.3, and the original BERT code.
    """
    xp = functions_for(mask)
    (first, starts), (last, ends) = (
        (tokens, xp.take_along(may_be & mask, tokens))
        for tokens, may_be in (
            (xp.top_k(xp.where(mask, values, -float("inf")), n_best), may_be)
            for values, may_be in zip(logits, (may_start, may_end), strict=True)
        )
    )
    # (windows, 1, best) - (windows, best, 1) -> (windows, best, best)
    distance = last[:, None, :] - first[:, :, None]
    is_allowed = starts[:, :, None] & ends[:, None, :]
    return first, last, is_allowed & (distance >= 0) & (distance < max_answer_length)


def _chunk(
    examples: Sequence[QuestionExample], preprocessor: QuestionAnswererPreprocessor, first: int
) -> dict[str, np.ndarray]:
    # SQuAD has about five questions for each passage, so passages are only tokenized once.
    contexts = dict.fromkeys(example.context for example in examples)
    positions = {context: position for position, context in enumerate(contexts)}
    tokens = preprocessor.tokenize([example.question for example in examples], list(contexts))
    context_index = np.array([positions[example.context] for example in examples], "int64")
    spans = _answer_tokens(examples, context_index, tokens)
    windows = preprocessor.windows(
        TokenizedQuestions(
            tokens.question_ids, *(take_rows(NUMPY, values, context_index) for values in tokens[1:])
        )
    )
    question_index = windows.question_index
    start, end = (spans[question_index] - windows.first_token[:, None]).T
    is_inside = (spans[question_index, 0] >= 0) & (start >= 0) & (end < windows.passage_length)
    return {
        "lengths": windows.char_starts.lengths,
        "token_ids": windows.features["token_ids"].values,
        "segment_ids": windows.features["segment_ids"].values,
        "char_starts": windows.char_starts.values,
        "char_ends": windows.char_ends.values,
        "is_max_context": windows.is_max_context.values.astype(bool),
        "question_index": (question_index + first).astype("int32"),
        "start_positions": np.where(is_inside, start + windows.passage_start, 0).astype("int32"),
        "end_positions": np.where(is_inside, end + windows.passage_start, 0).astype("int32"),
    }


def _sample(chunk: dict[str, np.ndarray], negative_fraction: float) -> dict[str, np.ndarray]:
    """Samples the windows without the answer in the columns of `_chunk`."""
    question = chunk["question_index"]
    # `[CLS]` has position 0.
    is_positive = chunk["end_positions"] > 0
    first = int(question[0]) if question.size else 0
    # A question's random numbers do not depend on other questions.
    draws = [
        np.random.default_rng((first + number,)).random(count)
        for number, count in enumerate(np.bincount(question - first))
    ]
    is_kept = is_positive | (np.concatenate([np.zeros(0), *draws]) < negative_fraction)
    is_kept |= ~np.isin(question, question[is_positive])
    is_kept_token = np.repeat(is_kept, chunk["lengths"])
    return {
        name: values[is_kept if name in _OF_WINDOWS else is_kept_token]
        for name, values in chunk.items()
    }


def _answer_tokens(
    examples: Sequence[QuestionExample], context_index: np.ndarray, tokens: TokenizedQuestions
) -> np.ndarray:
    """Returns the token span of each question's answer in the passage, int64 `(batch, 2)`.

    A span consists of the first and last token that overlap the answer. Answers without tokens are
    skipped. If no answer has tokens, the span is -1.
    """
    starts, ends = tokens.char_starts.values, tokens.char_ends.values
    splits = np.concatenate([[0], np.cumsum(tokens.char_starts.lengths)])
    spans = np.full((len(examples), 2), -1, "int64")
    for number, (example, context) in enumerate(zip(examples, context_index, strict=True)):
        passage = slice(splits[context], splits[context + 1])
        for answer in example.answers or ():
            # Offsets never decrease, so binary search works.
            first = np.searchsorted(ends[passage], answer.start, side="right")
            end = np.searchsorted(starts[passage], answer.start + len(answer.text), side="left")
            if first < end:
                spans[number] = first, end - 1
                break
    return spans
