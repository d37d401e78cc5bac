# SPDX-License-Identifier: Apache-2.0
"""Tokenizes texts, packs them into sequences with special tokens, and pads the sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from keras_bert import checks
from keras_bert.data.arrays import (
    NUMPY,
    Arrays,
    Ragged,
    join_rows,
    row_numbers,
    row_starts,
    same_in_rows,
    take_rows,
    truncate_rows,
)
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer, is_tensor, pair_limits


class Preprocessor:
    """Base class of preprocessors. Every argument is stored in an attribute of the same name."""

    options: ClassVar[tuple[str, ...]] = ("sequence_length",)
    """The arguments to save in files, without the tokenizer."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "options" not in vars(cls):
            cls.options = checks.option_names(cls, "tokenizer")

    def __init__(self, tokenizer: Tokenizer, sequence_length: int) -> None:
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length

    @property
    def splits_texts(self) -> bool:
        """Whether `long_texts` splits long texts into windows."""
        return getattr(self, "long_texts", "truncate") != "truncate"

    def get_config(self) -> dict[str, Any]:
        """Returns a config. `from_config` creates a copy from it."""
        options = {name: checks.plain(getattr(self, name)) for name in self.options}
        return {"tokenizer": self.tokenizer.get_config(), **options}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a preprocessor from the config that `get_config` returned."""
        options = {name: config[name] for name in cls.options if name in config}
        return cls(tokenizer_from_config(config["tokenizer"]), **options)


class Sequences(NamedTuple):
    """Token sequences without padding.

    Args:
        features: `token_ids` and other features of the tokens, as `Ragged` of the same lengths.
        counts: The number of sequences per example, int64 `(rows,)`. For example, multiple choice
            has one sequence per choice. `None` means one sequence per example.
    """

    features: dict[str, Ragged]
    counts: Any = None

    @property
    def lengths(self) -> Any:
        """The length of each sequence in tokens, int64 `(sequences,)`."""
        return self.features["token_ids"].lengths

    def longest(self, xp: Arrays) -> Any:
        """Returns the length of each example's longest sequence, int64 `(rows,)`."""
        if self.counts is None:
            return self.lengths
        rows = row_numbers(xp, self.counts)
        return xp.segment_max(self.lengths, rows, xp.size(self.counts))

    def take(self, xp: Arrays, index: Any) -> Sequences:
        """Selects the sequences of examples by index."""
        counts = None
        if self.counts is not None:
            numbers = Ragged(xp.arange(xp.size(self.lengths)), self.counts)
            index, counts = take_rows(xp, numbers, index)
        features = {name: take_rows(xp, rows, index) for name, rows in self.features.items()}
        return Sequences(features, counts)

    def pad(
        self, xp: Arrays, length: Any, pad_token_id: int, max_count: Any = None
    ) -> dict[str, Any]:
        """Pads the sequences to a length and adds the `padding_mask`.

        `token_ids` are padded with `pad_token_id`, and other features with 0. A feature
        `padding_mask`, which is 0 for tokens that count as padding, is kept. The shape is
        `(rows, length)`, or `(rows, max_count, length)` with `counts`. Then examples are padded
        with empty sequences to `max_count` sequences, by default the maximum count.
        """
        lengths, shape = self.lengths, None
        if self.counts is not None:
            max_count = xp.highest(self.counts, 0) if max_count is None else max_count
            rows = xp.size(self.counts)
            number = xp.arange(xp.size(lengths)) - xp.repeat(
                row_starts(xp, self.counts), self.counts
            )
            index = row_numbers(xp, self.counts) * max_count + number
            lengths = xp.scatter(index, lengths, rows * max_count)
            shape = (rows, max_count, length)
        dense = {
            name: xp.to_dense(
                Ragged(rows.values, lengths), length, pad_token_id if name == "token_ids" else 0
            )
            for name, rows in self.features.items()
        }
        if "padding_mask" in dense:
            dense["padding_mask"] = xp.cast(dense["padding_mask"], "bool")
        else:
            dense["padding_mask"] = xp.mask(lengths, length)
        if shape is None:
            return dense
        return {name: xp.reshape(value, shape) for name, value in dense.items()}

    def padded_to_longest(self, xp: Arrays, shortest: int, pad_token_id: int) -> dict[str, Any]:
        """Pads the sequences to the longest length, but at least to `shortest` tokens.

        If `shortest` is the number of special tokens, even an empty batch has columns.
        """
        return self.pad(xp, xp.highest(self.lengths, shortest), pad_token_id)


def functions_for(values: Any) -> Arrays:
    """Returns TensorFlow's array functions for its tensors, and NumPy's for anything else."""
    if not is_tensor(values):
        return NUMPY
    from keras_bert.data.tfdata.arrays import TENSORFLOW

    return TENSORFLOW


def tokenized(tokenizer: Tokenizer, texts: Any) -> Ragged:
    """Tokenizes a list of strings, or a TensorFlow string tensor `(texts,)`."""
    if not is_tensor(texts):
        return Ragged(*tokenizer.flat_ids(texts))
    ids = tokenizer.graph(texts)
    return Ragged(ids.flat_values, ids.row_lengths())


def num_special_tokens(tokenizer: Tokenizer, num_texts: int = 1) -> int:
    """Returns the number of special tokens in a sequence of one or two texts."""
    return len(tokenizer.row_format(num_texts)) - num_texts


def truncate(
    xp: Arrays, tokenizer: Tokenizer, first: Ragged, second: Ragged | None, max_tokens: int
) -> list[Ragged]:
    """Truncates texts or pairs to a maximum number of tokens. Pairs lose tokens of the longer text.

    The tokenizer determines the side to truncate. Returns a list with the truncated texts, and for
    pairs also the truncated second texts.
    """
    side = tokenizer.truncation_side
    if second is None:
        return [truncate_rows(xp, first, max_tokens, side)]
    limits = pair_limits(first.lengths, second.lengths, max_tokens, xp.maximum)
    limited_rows = zip((first, second), limits, strict=True)
    return [truncate_rows(xp, rows, limit, side) for rows, limit in limited_rows]


def truncate_tokens(
    tokenizer: Tokenizer, columns: Sequence[Sequence[Sequence[int]]], max_tokens: int
) -> list[list[list[int]]]:
    """Truncates the ids and offsets of single texts in the same way as `truncate`.

    `columns` contains the values that `tokenize_with_offsets` returns for a list of texts.
    """
    side = tokenizer.truncation_side
    return [
        truncate_rows(NUMPY, Ragged.from_rows(rows), max_tokens, side).to_list() for rows in columns
    ]


def pack_texts(
    xp: Arrays, tokenizer: Tokenizer, first: Ragged, second: Ragged | None = None
) -> dict[str, Ragged]:
    """Packs ids into `[CLS] A [SEP]` or, with the family's separators, `[CLS] A [SEP] B [SEP]`.

    Returns `token_ids` and `segment_ids`, both int32. In families with two segments, the segment
    ids of the second text and its separator are 1.
    """
    ones = xp.full(xp.size(first.lengths), 1, "int64")
    special = {
        token_id: same_in_rows(xp, token_id, ones)
        for token_id in (tokenizer.cls_token_id, tokenizer.sep_token_id)
    }
    texts = iter([first] if second is None else [first, second])
    row_format = tokenizer.row_format(1 if second is None else 2)
    token_ids = join_rows(
        xp, [next(texts) if token_id is None else special[token_id] for token_id in row_format]
    )
    if second is None:
        return {"token_ids": token_ids, "segment_ids": same_in_rows(xp, 0, token_ids.lengths)}
    second_segment_ids = same_in_rows(xp, int(tokenizer.num_segments > 1), second.lengths + 1)
    before = same_in_rows(xp, 0, start_of_second(tokenizer, first))
    return {"token_ids": token_ids, "segment_ids": join_rows(xp, [before, second_segment_ids])}


def start_of_second(tokenizer: Tokenizer, first: Ragged) -> Any:
    """Returns the position of each second text's first token in the sequences of `pack_texts`.

    In families with a single segment, segment ids do not contain this information.
    """
    return 1 + first.lengths + tokenizer.pair_separators


def surround_second(xp: Arrays, tokenizer: Tokenizer, first: Ragged, values: Ragged) -> Ragged:
    """Extends values for second texts to the sequences of `pack_texts`, with 0 elsewhere."""
    starts = start_of_second(tokenizer, first)
    lengths = starts + values.lengths + 1
    index = row_starts(xp, lengths) + starts - row_starts(xp, values.lengths)
    index = xp.repeat(index, values.lengths) + xp.arange(xp.size(values.values))
    return Ragged(xp.scatter(index, values.values, xp.sum(lengths)), lengths)


def single_or_batch(texts: Any) -> tuple[Any, bool]:
    """Returns a batch of texts, and whether the input was a single text.

    The input is a string, a batch of strings, or a TensorFlow string tensor `()` or `(batch,)`.
    """
    if is_tensor(texts):
        is_single = texts.shape.rank == 0
        return (texts[None] if is_single else texts), is_single
    if isinstance(texts, (str, bytes)):
        return [texts], True
    if getattr(texts, "ndim", 1) == 0:
        return [texts.item()], True
    return list(texts), False


def first_row(features: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the first example's features."""
    return {name: value[0] for name, value in features.items()}
