# SPDX-License-Identifier: Apache-2.0
"""Tuples of texts: a query, a relevant text and hard negatives, each in a separate sequence."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert.data.arrays import NUMPY, Ragged, row_numbers, row_starts, take_rows
from keras_bert.data.columns import as_string
from keras_bert.data.late_interaction import LateInteractionPreprocessor
from keras_bert.data.loader import Batch, add_row_mask
from keras_bert.data.packing import Sequences
from keras_bert.data.prompts import num_prompt_tokens
from keras_bert.data.texts import TextClassifierPreprocessor, TokenizedTexts

# The feature with the index of each text's sequence in batches that contain each text once, int32
# `(rows, texts)`. It is `keras_bert.models.inputs.ROWS_OF_TUPLES`.
_ROWS_OF_TUPLES = "rows_of_tuples"


@dataclasses.dataclass(frozen=True)
class TupleOptions:
    """How tuples of texts are packed and batched.

    Args:
        query_prompt: The text to add in front of each first text.
        document_prompt: The text to add in front of all other texts.
        pools_prompts: Whether the prompts' tokens are pooled.
        multiple_of: The number of texts is rounded up to a multiple of this, in batches that
            contain each text once. Use it if operations are compiled for each number of tokens.
    """

    query_prompt: str = ""
    document_prompt: str = ""
    pools_prompts: bool = True
    multiple_of: int = 1


TUPLE_DEFAULTS = TupleOptions()
"""Options without prompts."""


class TextTupleExamples:
    """Tuples of texts in memory, as examples of a `Loader`. Each text has its own sequence.

    Texts that occur in multiple tuples are tokenized once.

    Args:
        columns: `text`, `text_pair` and optionally `negatives`, a list of texts for each row.
        preprocessor: The preprocessor of single texts.
        options: The prompts to add.
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[Any]],
        preprocessor: TextClassifierPreprocessor | LateInteractionPreprocessor,
        options: TupleOptions,
    ) -> None:
        prompts = options.query_prompt, options.document_prompt
        negatives = columns.get("negatives") or [()] * len(columns["text"])
        rows = list(zip(columns["text"], columns["text_pair"], negatives, strict=True))
        counts = np.array([2 + len(texts) for _, _, texts in rows], "int64")
        self._preprocessor = preprocessor
        index: dict[tuple[str, Any], int] = {}
        numbers = [
            index.setdefault((prompt, text), len(index))
            for query, document, others in rows
            for prompt, text in (
                (prompts[0], query),
                *((prompts[1], text) for text in (document, *others)),
            )
        ]
        # The index of each tuple's texts among the unique texts
        self._numbers = Ragged(np.array(numbers, "int64"), counts)
        texts = [f"{prompt}{as_string(text)}" if prompt else text for prompt, text in index]
        self._texts = TokenizedTexts(texts, preprocessor)
        self._num_unpooled = None
        if not options.pools_prompts and any(prompts):
            lengths = {prompt: num_prompt_tokens(preprocessor, prompt) for prompt in prompts}
            self._num_unpooled = np.array([lengths[prompt] for prompt, _ in index])
        self._is_counted = np.zeros(len(counts), bool)

    def __len__(self) -> int:
        return len(self._numbers.lengths)

    @property
    def pairs(self) -> np.ndarray:
        """Numbers that identify each tuple's query and relevant text, int64 `(rows, 2)`."""
        starts = row_starts(NUMPY, self._numbers.lengths)
        pairs: np.ndarray = self._numbers.values[np.stack([starts, starts + 1], axis=1)]
        return pairs

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs tuples by index. Each tuple has a sequence for each text."""
        numbers, counts = take_rows(NUMPY, self._numbers, index)
        tokens = self._texts.take(numbers)
        is_query = NUMPY.ranges(0 * counts, counts) == 0
        excess = tokens.lengths - self._preprocessor.limits_of_texts(is_query)
        excess = NUMPY.segment_max(excess, row_numbers(NUMPY, counts), len(counts))
        self._preprocessor.truncated_rows.add_once(self._is_counted, index, excess, 0)
        features = self._preprocessor.pack_texts(tokens, is_query).features
        if self._num_unpooled is not None:
            lengths = features["token_ids"].lengths
            is_pooled = NUMPY.ranges(0 * lengths, lengths) >= np.repeat(
                self._num_unpooled[numbers], lengths
            )
            features = {**features, "pooling_mask": Ragged(is_pooled, lengths)}
        return Sequences(features, counts)


def separate_texts(batch: Batch) -> tuple[Any, ...]:
    """Converts a batch of tuples, with a sequence for each text of each tuple.

    Returns:
        Features `(rows, texts, length)`, targets and sample weights float32 `(rows,)`, 0 for
        padding rows. The targets are the labels, or numbers that identify the texts, int32 `(rows,
        texts)`, -1 for missing texts and padding rows.
    """
    features, is_missing = _fill_missing_texts(batch.features)
    targets = batch.columns.get("labels")
    weights = batch.columns.get("weights")
    weights = np.ones(len(batch.rows), "float32") if weights is None else weights
    if targets is None:
        targets = np.where(is_missing, -1, _text_numbers(features["token_ids"]))
    if batch.row_mask is not None:
        if "labels" not in batch.columns:
            targets = np.where(batch.row_mask[:, None] > 0, targets, -1)
        weights = weights * batch.row_mask
        features = add_row_mask(features, batch.row_mask)
    return features, targets, weights


def distinct_texts(batch: Batch, multiple_of: int = 1) -> tuple[Any, ...]:
    """Converts a batch like `separate_texts`, but with the features of each text only once.

    The features have the shape `(texts, length)`, in the order of their lengths, and
    `rows_of_tuples`, int32 `(rows, texts)`, contains the index of each text. The loss of each tuple
    has the same distribution over dropout as with separate copies. Two copies of a text in the same
    tuple are encoded separately.
    """
    features, targets, weights = separate_texts(batch)
    shape = features["token_ids"].shape
    numbers = _sequence_numbers(features["token_ids"])
    # Texts of a tuple that are the same as an earlier text, and have a different prompt or not
    is_copy = np.zeros(shape[:2], "int64")
    for text in range(1, shape[1]):
        is_copy[:, text] = (numbers[:, :text] == numbers[:, text : text + 1]).sum(axis=1)
    lengths = features["padding_mask"].sum(axis=-1).astype("int64")
    # The same tokens may be pooled differently in a query and in a document.
    pooled = features.get("pooling_mask", features["padding_mask"]).sum(axis=-1).astype("int64")
    # The copies of missing texts are the same in all tuples, and not used.
    is_missing = ~batch.features["padding_mask"].any(axis=-1)
    is_copy[is_missing] = 0
    keys = np.stack([lengths, numbers, is_copy, pooled], axis=-1).reshape(-1, 4)
    _, first, rows = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    first = np.resize(first, -(-len(first) // multiple_of) * multiple_of)
    flat = {name: x.reshape(-1, shape[2])[first] for name, x in features.items()}
    index = rows.reshape(shape[:2]).astype("int32")
    return {**flat, _ROWS_OF_TUPLES: index}, targets, weights


def _fill_missing_texts(features: Mapping[str, Any]) -> tuple[dict[str, Any], np.ndarray]:
    """Replaces missing texts by copies of the queries, because empty texts have no embedding.

    Returns the features, and which texts are missing, bool `(rows, texts)`.
    """
    is_missing = ~features["padding_mask"].any(axis=-1)
    if not is_missing.any():
        return dict(features), is_missing
    filled = {name: np.where(is_missing[..., None], x[:, :1], x) for name, x in features.items()}
    return filled, is_missing


def _text_numbers(token_ids: np.ndarray) -> np.ndarray:
    """Returns a number for each text, int32 `(rows, texts)`.

    It only depends on the text and the length of the batch, because other processes may have the
    same text. Two texts have the same number with a probability of 2^-31. Then they are not
    negatives of each other.
    """
    rows = np.ascontiguousarray(token_ids.reshape(-1, token_ids.shape[-1]))
    numbers = np.array([zlib.crc32(row) >> 1 for row in rows], "int32")
    return numbers.reshape(token_ids.shape[:2])


def _sequence_numbers(token_ids: np.ndarray) -> np.ndarray:
    """Returns the same number only for equal sequences in a batch, int64 `(rows, texts)`."""
    index: dict[bytes, int] = {}
    rows = token_ids.reshape(-1, token_ids.shape[-1])
    numbers = [index.setdefault(row.tobytes(), len(index)) for row in rows]
    return np.array(numbers, "int64").reshape(token_ids.shape[:2])
