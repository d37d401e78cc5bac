# SPDX-License-Identifier: Apache-2.0
"""Texts and pairs of texts: packing with special tokens, and batching."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import numpy as np
import tensorflow as tf

from keras_bert import checks
from keras_bert.data.batching import (
    BatchOptions,
    RowPreprocessor,
    pad_to_length,
    row_batches,
    without_autograph,
    without_tuning,
)
from keras_bert.data.input_forms import without_labels
from keras_bert.data.pretraining.masking import MaskedLMMasker
from keras_bert.data.pretraining.next_tokens import NextTokenTargets
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer

# The features that a masker adds, of shape `(batch, slots)`
_SLOTS = {"mask_positions": tf.int32, "mask_ids": tf.int32, "mask_weights": tf.float32}


class TextClassifierPreprocessor:
    """Packs a text or a pair of texts into `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    RoBERTa's rows are `<s> A </s>` and `<s> A </s></s> B </s>`, with segment id 0 everywhere.

    Args:
        tokenizer: The tokenizer that converts text to ids.
        sequence_length: Maximum length of a row in tokens, including the special tokens. A pair
            that is longer is truncated from the end of its longer text, one token at a time.

    Call arguments:
        text: A string, or a batch of strings of shape `(batch,)`.
        text_pair: The second texts, of the same shape; `None` for single texts.

    Returns:
        A dict of `token_ids` (int32), `segment_ids` (int32, 1 for the second text in families
        with two segments) and `padding_mask` (bool), each of shape `(batch, length)`, where
        `length` is that of the longest row in the batch; `(length,)` for a single string.

    Raises:
        ValueError: If `sequence_length` is too small for the special tokens of a pair and one
            token of each text.

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
        checks.Numbers(at_least=shortest, integer=True).check(sequence_length=sequence_length)
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
        """Packs a batch of texts or pairs without padding.

        Args:
            text: Strings of shape `(batch,)`.
            text_pair: Strings of shape `(batch,)`, or `None`.

        Returns:
            A dict of ragged `token_ids` and `segment_ids`, int32 `(batch, None)`.
        """
        text, text_pair = (
            None if part is None else tf.convert_to_tensor(part, tf.string)
            for part in (text, text_pair)
        )
        num_texts = 1 if text_pair is None else 2
        room = self.sequence_length - num_special_tokens(self.tokenizer, num_texts)
        with tf.device("CPU:0"):
            pack = self.tokenizer.graph_of(_pack_within)
            packed: dict[str, tf.RaggedTensor] = pack(text, text_pair, tf.constant(room, tf.int64))
        return packed

    def get_config(self) -> dict[str, Any]:
        """Returns the config from which `from_config` creates the same preprocessor."""
        return {
            "tokenizer": self.tokenizer.get_config(),
            "sequence_length": self.sequence_length,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a preprocessor from the config that `get_config` returned."""
        tokenizer = tokenizer_from_config(config["tokenizer"])
        return cls(tokenizer, sequence_length=config["sequence_length"])


def _pack_within(
    tokenizer: Tokenizer, text: tf.Tensor, text_pair: tf.Tensor | None, room: tf.Tensor
) -> dict[str, tf.RaggedTensor]:
    """Packs texts or pairs, of which at most `room` tokens are kept."""
    first = tokenizer(text)
    if text_pair is None:
        return pack_texts(tokenizer, cut_rows(first, room))
    return pack_texts(tokenizer, *truncate_pair(first, tokenizer(text_pair), room))


def truncate_pair(
    first: tf.RaggedTensor, second: tf.RaggedTensor, max_tokens: int | tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Truncates pairs to a maximum total length, from the end of the longer text.

    The result is the same as if the longer text (the second one on a tie) lost one token at a
    time, but it is computed without a loop: each text may keep up to half of the tokens, and the
    longer one also gets what the shorter one does not need.

    Args:
        first: Ragged ids of shape `(batch, None)`.
        second: Ragged ids of shape `(batch, None)`.
        max_tokens: Maximum number of tokens of a pair, an int or an int64 scalar.

    Returns:
        A tuple of both, truncated.
    """
    first_length, second_length = first.row_lengths(), second.row_lengths()
    half = max_tokens // 2
    keep_first = tf.minimum(first_length, tf.maximum(max_tokens - second_length, max_tokens - half))
    keep_second = tf.minimum(second_length, tf.maximum(max_tokens - first_length, half))
    return cut_rows(first, keep_first), cut_rows(second, keep_second)


def cut_rows(ragged: tf.RaggedTensor, limits: tf.Tensor) -> tf.RaggedTensor:
    """Truncates each row to its first `limits` values; `limits` is int64, scalar or `(batch,)`."""
    lengths = ragged.row_lengths()
    kept_lengths = tf.minimum(lengths, limits)
    positions = tf.ragged.range(lengths).flat_values
    kept = tf.boolean_mask(ragged.flat_values, positions < tf.repeat(kept_lengths, lengths))
    return tf.RaggedTensor.from_row_lengths(kept, kept_lengths, validate=False)


def num_special_tokens(tokenizer: Tokenizer, num_texts: int = 1) -> int:
    """Returns the number of special tokens in a row of one text or of two."""
    return 2 + (num_texts - 1) * tokenizer.pair_separators


def pack_texts(
    tokenizer: Tokenizer, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None
) -> dict[str, tf.RaggedTensor]:
    """Packs ids into `[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]` with the family's separators.

    Args:
        tokenizer: The tokenizer, which determines the special tokens and the segment ids.
        first: Ids of the first texts, ragged int32 `(batch, None)`.
        second: Ids of the second texts, of the same shape; `None` for single texts.

    Returns:
        A dict of ragged `token_ids` and `segment_ids` (1 for the second text and its separator in
        families with two segments), int32 `(batch, None)`.
    """
    start, end = (
        tf.fill([first.nrows(), 1], tf.constant(token_id, tf.int32))
        for token_id in (tokenizer.cls_token_id, tokenizer.sep_token_id)
    )
    segment_a = tf.concat([start, first, end], axis=1)
    if second is None:
        return {"token_ids": segment_a, "segment_ids": tf.zeros_like(segment_a)}
    segment_b = tf.concat([second, end], axis=1)
    between = [end] * (tokenizer.pair_separators - 1)
    segment_a = tf.concat([segment_a, *between], axis=1)
    of_b = tf.ones_like(segment_b) if tokenizer.num_segments > 1 else tf.zeros_like(segment_b)
    return {
        "token_ids": tf.concat([segment_a, segment_b], axis=1),
        "segment_ids": tf.concat([tf.zeros_like(segment_a), of_b], axis=1),
    }


def start_of_second(tokenizer: Tokenizer, first: tf.RaggedTensor) -> tf.Tensor:
    """Returns the position of the first token of each second text in rows of `pack_texts`.

    Segment ids do not show it in families with a single segment.

    Args:
        tokenizer: The tokenizer that was passed to `pack_texts`.
        first: Ids of the first texts, ragged `(batch, None)`.

    Returns:
        An int64 tensor of shape `(batch,)`.
    """
    return 1 + first.row_lengths() + tokenizer.pair_separators


def surround_second(
    tokenizer: Tokenizer, first: tf.RaggedTensor, values: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Extends values of the second texts to whole rows of `pack_texts`, with 0 elsewhere.

    Args:
        tokenizer: The tokenizer that was passed to `pack_texts`.
        first: Ids of the first texts, ragged `(batch, None)`.
        values: A value for each token of the second texts, ragged `(batch, None)`.

    Returns:
        A ragged tensor `(batch, None)` with the row lengths of `pack_texts`.
    """
    lengths = start_of_second(tokenizer, first)
    zeros = tf.zeros([tf.reduce_sum(lengths)], values.dtype)
    before = tf.RaggedTensor.from_row_lengths(zeros, lengths, validate=False)
    return tf.concat([before, values, tf.zeros([values.nrows(), 1], values.dtype)], axis=1)


def padded(
    tokenizer: Tokenizer, features: dict[str, tf.RaggedTensor], shortest: int
) -> dict[str, tf.Tensor]:
    """Pads ragged features to the length of the longest row, and adds the `padding_mask`.

    Args:
        tokenizer: The tokenizer, whose padding token is used.
        features: Ragged features `(batch, None)` or `(batch, None, None)`, including `token_ids`.
        shortest: Minimum length, so that an empty batch still has the column of `[CLS]`.

    Returns:
        A dict of dense features.
    """
    token_ids = features["token_ids"]
    lengths = token_ids if token_ids.ragged_rank == 1 else token_ids.values
    longest = tf.reduce_max(tf.concat([lengths.row_lengths(), [shortest]], axis=0))
    return pad_to_length(features, longest, tokenizer.pad_token_id)


def rows_from_columns(columns: Mapping[str, np.ndarray]) -> tf.data.Dataset:
    """Creates a dataset from text in memory.

    Args:
        columns: `text` and, for pairs, `text_pair`: strings of shape `(rows,)`.

    Returns:
        A dataset of unbatched `(x,)`, where `x` is a dict of the columns.
    """
    return tf.data.Dataset.from_tensor_slices((_strings(columns),))


def _strings(columns: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
    # The explicit dtype makes an empty column one of strings too.
    return {name: tf.constant(list(column), tf.string) for name, column in columns.items()}


def batches_from_rows(
    rows: tf.data.Dataset,
    preprocessor: TextClassifierPreprocessor,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Tokenizes the rows of a dataset and groups them into length-bucketed batches.

    Args:
        rows: A dataset of unbatched `x` or `(x, *rest)`, where `x` is a string, a pair of strings,
            or a dict of `text` and `text_pair`.
        preprocessor: The preprocessor that converts text to features.
        **options: `BatchOptions`.

    Returns:
        A dataset of `(features, *rest)`. With `pad_last_batch`, rows without a sample weight get
        one.
    """

    def featurize(*row: Any) -> Any:
        text, text_pair = split_pair(row[0])
        return preprocessor.ragged(text, text_pair), tuple(row[1:])

    return in_one_tuple(row_batches(_as_tuples(rows), featurize, preprocessor, **options), options)


@without_autograph
def numbered_batches(
    rows: tf.data.Dataset,
    preprocessor: TextClassifierPreprocessor,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Groups the rows of a dataset into length-bucketed batches for prediction.

    Args:
        rows: A dataset of text, with or without labels, which are dropped; of single rows or
            batches.
        preprocessor: The preprocessor that converts text to features.
        **options: `BatchOptions`.

    Returns:
        A dataset of `(features, index)`, where `index` holds the indices of the rows in a batch.
    """
    if is_batched(rows):
        rows = rows.unbatch()
    # (index, row), where the row is a tuple only if the dataset's elements are
    rows = rows.enumerate().map(lambda index, row: (without_labels(row), index))
    return batches_from_rows(rows, preprocessor, **options)


@without_autograph
def batches_from_columns(
    columns: Mapping[str, np.ndarray],
    rest: Sequence[np.ndarray],
    preprocessor: TextClassifierPreprocessor,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Groups text in memory into length-bucketed batches, as `batches_from_rows` does.

    Args:
        columns: `text` and, for pairs, `text_pair`: strings of shape `(rows,)`.
        rest: The other columns, such as labels and sample weights.
        preprocessor: The preprocessor that converts text to features.
        **options: `BatchOptions`.
    """
    given = (_strings(columns), *map(tf.constant, rest))

    def featurize(index: tf.Tensor) -> Any:
        rows, *others = tf.nest.map_structure(lambda values: tf.gather(values, index), given)
        return preprocessor.ragged(*split_pair(rows)), tuple(others)

    num_rows = len(columns["text"])
    return in_one_tuple(row_batches(num_rows, featurize, preprocessor, **options), options)


@without_autograph
def in_one_tuple(batches: tf.data.Dataset, options: BatchOptions) -> tf.data.Dataset:
    """Converts batches `(features, rest)` of `row_batches` to `(features, *rest)`.

    With `pad_last_batch`, sample weights are multiplied by those that are 0 for filler rows.
    """
    if options.get("pad_last_batch"):
        return batches.map(_weigh_filler_rows)
    return batches.map(lambda features, rest: (features, *rest))


@without_autograph
def with_checked_weights(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Checks the sample weights of a dataset of `(x, y, weights)`; others are returned unchanged.

    Args:
        dataset: A dataset of single rows or batches of text or features.

    Returns:
        A dataset of the same elements. Iterating over it raises `tf.errors.InvalidArgumentError` at
        a weight that is not a finite number of at least 0; the message gives its element's index.
    """
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) != 3 or spec[2] is None:
        return dataset

    expected = f"; each must be {checks.NON_NEGATIVE}"

    def check(index: tf.Tensor, element: Any) -> Any:
        checked = []
        for weights in tf.nest.flatten(element[2], expand_composites=True):
            numbers = tf.cast(weights, tf.float32)
            is_weight = tf.math.is_finite(numbers) & (numbers >= 0)
            message = ["The sample weights of element", index, "are", weights, expected]
            with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_weight), message)]):
                checked.append(tf.identity(weights))
        weights = tf.nest.pack_sequence_as(element[2], checked, expand_composites=True)
        return (*element[:2], weights)

    return dataset.enumerate().map(check)


@without_autograph
def with_checked_labels(
    rows: tf.data.Dataset,
    num_labels: int | None,
    allow_unlabelled: bool = False,
) -> tf.data.Dataset:
    """Checks that the labels of a dataset of text are class ids.

    Args:
        rows: A dataset of `(x, label, ...)`, single rows or batches; a dataset without labels is
            returned unchanged.
        num_labels: Number of class ids; `None` returns the rows unchanged.
        allow_unlabelled: Whether a label may be -1, which means that the row has none.

    Returns:
        A dataset of the same rows. Iterating over it raises `tf.errors.InvalidArgumentError` at a
        label that is not a class id; the message gives the index of the row or batch.

    Raises:
        ValueError: If the labels are strings.
    """
    spec = rows.element_spec
    if not isinstance(spec, tuple) or len(spec) < 2 or num_labels is None:
        return rows
    if spec[1].dtype == tf.string:
        raise ValueError(
            f"The labels of a dataset must be class ids, 0 to {num_labels - 1}; received strings."
        )
    lowest = -1 if allow_unlabelled else 0
    element = "batch" if is_batched(rows) else "row"
    expected = f"; expected an id from {lowest} to {num_labels - 1}"

    def check(index: tf.Tensor, row: Any) -> Any:
        text, label, *rest = row
        ids = tf.cast(label, tf.int64)
        is_id = (ids >= lowest) & (ids < num_labels) & (tf.cast(ids, label.dtype) == label)
        message = [f"The label in {element}", index, "is", label, expected]
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_id), message)]):
            label = tf.identity(label)
        return (text, label, *rest)

    return rows.enumerate().map(check)


@without_autograph
def batches_from_batched_rows(
    batches: tf.data.Dataset, preprocessor: TextClassifierPreprocessor
) -> tf.data.Dataset:
    """Tokenizes a dataset that is already batched; each batch is padded to its longest row."""

    def featurize(*batch: Any) -> Any:
        return (preprocessor(*split_pair(batch[0])), *batch[1:])

    batches = _as_tuples(batches).map(featurize, num_parallel_calls=tf.data.AUTOTUNE)
    return without_tuning(batches.prefetch(1))


@without_autograph
def token_batches(
    token_ids: Sequence[Sequence[int]],
    preprocessor: RowPreprocessor,
    mask_positions: Sequence[Sequence[int]] | None = None,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Groups rows that are already tokenized into length-bucketed batches.

    Args:
        token_ids: Ids `(rows, None)`, including the special tokens.
        preprocessor: The preprocessor that made the rows.
        mask_positions: The positions to predict in each row, `(rows, None)`; in a batch, they are
            padded with 0 to a power of two.
        **options: `BatchOptions`.

    Returns:
        A dataset of `(features, (index,))`, where `index` (int64 `(batch,)`) holds the indices of
        the batch's rows.
    """
    rows = _ragged(token_ids)
    positions = None if mask_positions is None else _ragged(mask_positions)

    def featurize(index: tf.Tensor) -> Any:
        return {"token_ids": tf.gather(rows, index)}, (index,)

    def add_positions(features: Any, rest: Any) -> Any:
        asked = tf.gather(positions, rest[0])
        longest = tf.reduce_max(asked.row_lengths())
        # Powers of two, so that a compiler sees few shapes
        widths = tf.constant([1 << power for power in range(31)], tf.int64)
        width = widths[tf.searchsorted(widths, longest[tf.newaxis])[0]]
        shape = tf.stack([tf.constant(-1, tf.int64), width])
        return {**features, "mask_positions": asked.to_tensor(shape=shape)}, rest

    batches = row_batches(len(token_ids), featurize, preprocessor, **options)
    return batches if positions is None else batches.map(add_positions)


def _ragged(rows: Sequence[Sequence[int]]) -> tf.RaggedTensor:
    """Returns rows as ragged int32 `(rows, None)`."""
    # `tf.ragged.constant` takes time in the square of the number of rows.
    values = np.fromiter(itertools.chain.from_iterable(rows), "int32")
    return tf.RaggedTensor.from_row_lengths(values, np.array(list(map(len, rows)), "int64"))


@without_autograph
def masked_batches(
    batches: tf.data.Dataset, masker: MaskedLMMasker | NextTokenTargets, seed: int | None = None
) -> tf.data.Dataset:
    """Masks batches of token ids, and adds the masked tokens as targets.

    Args:
        batches: A dataset of `(features,)`, or of `(features, weight)` with sample weights of
            shape `(batch,)`.
        masker: The masker that selects the tokens.
        seed: Seed of masks that differ in each iteration. With `None`, the masks of a row depend
            on its ids alone: they are always the same, whatever batch it is in.

    Returns:
        A dataset of `(features, mask_ids, mask_weights)`.
    """

    def with_targets(masked: Any, row_weights: Any = None) -> Any:
        ids, weights = masked.pop("mask_ids"), masked.pop("mask_weights")
        if row_weights is not None:
            weights *= tf.cast(row_weights, weights.dtype)[:, tf.newaxis]
        return masked, ids, weights

    if seed is None:
        return batches.map(
            lambda features, *rest: with_targets(_masked_by_rows(masker, features), *rest),
            tf.data.AUTOTUNE,
        )
    steps = tf.data.Dataset.random(seed, rerandomize_each_iteration=True)
    return tf.data.Dataset.zip(steps, batches).map(
        lambda step, batch: with_targets(masker(batch[0], step), *batch[1:]), tf.data.AUTOTUNE
    )


def _masked_by_rows(
    masker: MaskedLMMasker | NextTokenTargets, features: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Masks each row on its own, so that its masks depend on its tokens and not on padding."""
    if isinstance(masker, NextTokenTargets):
        return masker(features, None)
    slots = masker.num_slots_in_graph(features["token_ids"])
    lengths = tf.math.count_nonzero(features["padding_mask"], axis=1)

    def mask(row: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids, length = row
        masked = masker({"token_ids": ids[:length]}, None)
        masked["token_ids"] = tf.concat([masked["token_ids"], ids[length:]], axis=0)
        for name in _SLOTS:
            masked[name] = tf.pad(masked[name], [[0, slots - tf.shape(masked[name])[0]]])
        return masked

    ids = features["token_ids"]
    specs = {"token_ids": tf.TensorSpec(ids.shape[1:], tf.int32)}
    num_slots = slots if isinstance(slots, int) else None
    for name, dtype in _SLOTS.items():
        specs[name] = tf.TensorSpec([num_slots], dtype)
    masked = tf.map_fn(mask, (ids, lengths), fn_output_signature=specs)
    return {**features, **masked}


def split_pair(x: Any) -> tuple[Any, Any]:
    """Returns `(text, text_pair)` of a string, pair or dict; `text_pair` is `None` for one text."""
    if isinstance(x, Mapping):
        return x["text"], x.get("text_pair")
    if isinstance(x, tuple):
        return x[0], (x[1] if len(x) > 1 else None)
    return x, None


def is_batched(rows: tf.data.Dataset) -> bool:
    """Returns whether the elements of a dataset of text are batches rather than rows."""
    spec = rows.element_spec
    text, _ = split_pair(spec[0] if isinstance(spec, tuple) else spec)
    return bool(text.shape.rank)


def _as_tuples(rows: tf.data.Dataset) -> tf.data.Dataset:
    return rows if isinstance(rows.element_spec, tuple) else rows.map(lambda x: (x,))


def _weigh_filler_rows(features: Any, rest: Any) -> Any:
    *targets, is_real = rest
    if len(targets) < 2:
        return (features, *targets, is_real)
    weight = targets[-1]
    return (features, *targets[:-1], tf.cast(weight, tf.float32) * is_real)


@without_autograph
def paired_batches(
    texts: Sequence[str],
    partners: Sequence[str],
    preprocessor: TextClassifierPreprocessor,
    weights: np.ndarray[Any, Any] | None = None,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Creates batches in which the two texts of a pair are consecutive rows.

    Args:
        texts: The first text of each pair, `(pairs,)`.
        partners: The second text of each pair, `(pairs,)`.
        preprocessor: The preprocessor that converts text to features.
        weights: Sample weights of the pairs, float32 `(pairs,)`.
        **options: `BatchOptions`; `batch_size` counts pairs.

    Returns:
        A dataset of `(features, numbers, weights)`: features `(2 * pairs, length)`; the index in
        the batch of the pair that each row belongs to, int32 `(2 * pairs,)`, -1 for filler pairs
        that complete the last batch; and sample weights, float32 `(2 * pairs,)`, 0 for filler
        pairs.
    """
    # (pairs, 2)
    columns = tf.stack([tf.constant(list(column), tf.string) for column in (texts, partners)], 1)
    given = tf.constant(np.ones(len(texts)) if weights is None else weights, tf.float32)

    def featurize(index: tf.Tensor) -> Any:
        pairs = tf.gather(columns, index)
        rows = preprocessor.ragged(tf.reshape(pairs, [-1]))
        # (2 * pairs, None) -> (pairs, 2, None)
        starts = 2 * tf.range(tf.shape(pairs, tf.int64)[0] + 1)
        ragged = {
            name: tf.RaggedTensor.from_row_splits(value, starts, validate=False)
            for name, value in rows.items()
        }
        return ragged, (tf.gather(given, index),)

    batches = row_batches(len(texts), featurize, preprocessor, **options)
    return batches.map(_as_rows)


def _as_rows(features: dict[str, tf.Tensor], rest: tuple[tf.Tensor, ...]) -> Any:
    weights, *filler = rest
    is_real = filler[0] if filler else tf.ones_like(weights)
    numbers = tf.where(is_real > 0, tf.range(tf.size(is_real)), -1)
    # (pairs, 2, length) -> (2 * pairs, length)
    rows = {name: _stacked(value) for name, value in features.items()}
    return rows, tf.repeat(numbers, 2), tf.repeat(weights * is_real, 2)


def _stacked(value: tf.Tensor) -> tf.Tensor:
    pairs = value.shape[0]
    rows = tf.reshape(value, [-1, tf.shape(value)[2]])
    return tf.ensure_shape(rows, [None if pairs is None else 2 * pairs, value.shape[2]])
