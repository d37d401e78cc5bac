# SPDX-License-Identifier: Apache-2.0
"""Samples masked language model targets for every batch (dynamic masking)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from keras_bert import checks
from keras_bert.data.arrays import Arrays, Ragged
from keras_bert.data.packing import functions_for
from keras_bert.data.pretraining import mask_selection
from keras_bert.data.pretraining.static_masking import UNITS
from keras_bert.text.tokenizer import Tokenizer, is_tensor

# Independent random streams in one step
_CHOICE, _KIND, _RANDOM_TOKEN, _NGRAMS = range(4)
_NUM_STREAMS = 4


class BatchShard(NamedTuple):
    """Consecutive rows in a batch with their masks, but without the random tokens.

    The random tokens depend on the number of selected tokens in the batch's previous rows, and
    these rows may be in a different process.

    Args:
        features: The features with their masks. `token_ids` are not replaced yet.
        num_selected: The number of selected tokens.
        replaced_ids: A function that accepts the number of selected tokens in previous rows, and
            returns the `token_ids` with the selected tokens replaced.
    """

    features: dict[str, Any]
    num_selected: Any
    replaced_ids: Callable[[Any], Any]

    def complete(self, selected_before: Any) -> dict[str, Any]:
        """Returns the features, given the number of selected tokens in previous rows."""
        return {**self.features, "token_ids": self.replaced_ids(selected_before)}


class MaskedLMMaskGenerator:
    """Selects tokens to predict, and replaces them with `[MASK]`, a random token or themselves.

    In each row, `max(1, round(mask_selection_rate * tokens))` tokens are selected, or fewer if the
    row has too few selectable tokens. `tokens` includes `[CLS]` and `[SEP]`. A word that would
    exceed this number is skipped, so an n-gram may become shorter. Replacements are sampled
    independently for each token, even within a word.

    The masks only depend on `seed`, the step and the batch. A run that resumes at step 1000
    therefore gets the same masks as an uninterrupted run. NumPy arrays and, in a `tf.data`
    pipeline, TensorFlow tensors get the same masks. XLA cannot compile the TensorFlow operations.

    Args:
        vocabulary_size: Number of token ids.
        mask_token_id: The id of `[MASK]`.
        unselectable_token_ids: Ids never to select: `[CLS]`, `[SEP]`, `[PAD]` and `[MASK]`.
        pad_token_id: The id of `[PAD]`. Defaults to 0.
        unit: The unit of selection: `"token"`, `"word"` (whole-word masking, all subwords
            together), or `"ngram"` (n-grams of up to `max_ngram` words, where the probability of
            length n is proportional to 1/n). Defaults to `"token"`.
        max_ngram: Maximum n-gram length in words. Defaults to 3.
        continuation_token_ids: Ids of subwords that continue the previous word, such as `##ing`.
            They are not needed if the features contain `word_starts`.
        mask_selection_rate: Fraction of tokens to select. Defaults to 0.15.
        mask_token_rate: Fraction of selected tokens to replace with `[MASK]`. Defaults to 0.8.
        random_token_rate: Fraction of selected tokens to replace with a random token. The remaining
            tokens do not change. Defaults to 0.1.
        random_token_ids: Ids to sample random tokens from, uniformly. `None` means all ids.
        max_predictions: Maximum number of tokens to select in a row, or `None` for no limit.
        seed: Integer seed of the random numbers. Defaults to 0.

    Call arguments:
        features: A dict with `token_ids`, int `(batch, length)` or `(length,)`, or just the ids.
            The values are arrays, lists or TensorFlow tensors. Optional keys are `padding_mask`,
            `word_starts` (bool, True at the first token of each word) and `sequence_ids` for packed
            rows, because words end with their sequence. Without `padding_mask`, tokens with a
            `sequence_ids` value of 0 are padding, or without `sequence_ids`, the `pad_token_id`.
        step: The index of the batch in training, an integer or an integer tensor. With `None`, the
            masks depend on `seed` and the ids, so the same batch always gets the same masks. Use
            this for evaluation.

    Returns:
        A dict with the features except for `word_starts`, and with:

        - `token_ids`: The ids with the selected tokens replaced, int32.
        - `mask_positions`: Positions of the selected tokens, ascending, int32 `(batch, slots)`.
        - `mask_ids`: The selected tokens before replacement, int32 `(batch, slots)`.
        - `mask_weights`: 1 for selected tokens, float32 `(batch, slots)`.

        There are `num_predictions(length)` slots. Unused slots are 0 and at the end. If the ids are
        a tensor, the values are tensors, with a static shape if `length` is static. Otherwise, they
        are NumPy arrays.

    Raises:
        ValueError: If an argument is out of range, a feature is ragged, or words are selected
            without `continuation_token_ids` or `word_starts`.

    Example:

    >>> from keras_bert.data import MaskedLMMaskGenerator
    >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat"]
    >>> tokenizer = keras_bert.WordPieceTokenizer(vocabulary)
    >>> masker = MaskedLMMaskGenerator.from_tokenizer(tokenizer, unit="word",
    ...     mask_selection_rate=0.5)
    >>> masked = masker({"token_ids": [[2, 5, 6, 7, 8, 3]]}, step=0)
    >>> masked["mask_positions"].shape, int(masked["mask_weights"].sum())
    ((1, 3), 3)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1 and appendix C.2;
        [RoBERTa](https://arxiv.org/abs/1907.11692), section 4.1, dynamic masking;
        [ALBERT](https://arxiv.org/abs/1909.11942), section 4.1, n-gram masking.
    """

    def __init__(
        self,
        vocabulary_size: int,
        mask_token_id: int,
        unselectable_token_ids: Sequence[int],
        *,
        pad_token_id: int = 0,
        unit: str = "token",
        max_ngram: int = 3,
        continuation_token_ids: Sequence[int] = (),
        mask_selection_rate: float = 0.15,
        mask_token_rate: float = 0.8,
        random_token_rate: float = 0.1,
        random_token_ids: Sequence[int] | None = None,
        max_predictions: int | None = None,
        seed: int = 0,
    ) -> None:
        self.vocabulary_size = vocabulary_size
        self.mask_token_id = mask_token_id
        self.unselectable_token_ids = tuple(unselectable_token_ids)
        self.pad_token_id = pad_token_id
        self.unit = unit
        self.max_ngram = max_ngram
        self.mask_selection_rate = mask_selection_rate
        self.mask_token_rate = mask_token_rate
        self.random_token_rate = random_token_rate
        self.max_predictions = max_predictions
        self.seed = seed
        self._check_arguments()
        if random_token_ids is not None and len(random_token_ids) == 0:
            raise ValueError("random_token_ids must be None or at least one id. Received: no ids")
        for name, ids in {
            "mask_token_id": [mask_token_id],
            "pad_token_id": [pad_token_id],
            "unselectable_token_ids": unselectable_token_ids,
            "continuation_token_ids": continuation_token_ids,
            "random_token_ids": () if random_token_ids is None else random_token_ids,
        }.items():
            _check_ids(name, ids, vocabulary_size)
        continuation = set(continuation_token_ids)
        self._random_ids = None if random_token_ids is None else np.array(random_token_ids, "int32")
        self._continues: np.ndarray | None = None
        if continuation:
            self._continues = np.isin(np.arange(vocabulary_size), list(continuation))

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Tokenizer, *, random_special_tokens: bool | None = None, **options: Any
    ) -> Self:
        """Creates a masker for a tokenizer's ids.

        The unknown token may be selected like any other token, as in the original BERT code.

        Args:
            tokenizer: The tokenizer of the ids.
            random_special_tokens: Whether random tokens may be special tokens. The default depends
                on the tokenizer's family.
            **options: Other arguments of the class.

        Raises:
            ValueError: If the vocabulary has no mask token.
        """
        special = set(tokenizer.special_token_ids)
        if random_special_tokens is None:
            random_special_tokens = tokenizer.masks_with_special_tokens
        if not random_special_tokens:
            ordinary = [index for index in range(tokenizer.vocabulary_size) if index not in special]
            options = {"random_token_ids": ordinary, **options}
        return cls(
            tokenizer.vocabulary_size,
            tokenizer.mask_token_id,
            sorted(special - {tokenizer.unk_token_id}),
            pad_token_id=tokenizer.pad_token_id,
            continuation_token_ids=tokenizer.continuation_token_ids,
            **options,
        )

    def __call__(self, features: Any, step: Any = None) -> dict[str, Any]:
        """Masks a batch or a single row."""
        xp, features = dense_features(features)
        ids = features["token_ids"]
        if len(ids.shape) == 1:
            rows = {name: value[None] for name, value in features.items()}
            return {name: value[0] for name, value in self(rows, step).items()}
        return self._shard(xp, features, self._seeds(xp, ids, step), 0).complete(0)

    def shard(self, features: Any, step: int, first_row: int) -> BatchShard:
        """Masks consecutive rows in a batch without the other rows.

        Args:
            features: The rows' features, as in a call.
            step: The index of the batch in training.
            first_row: The batch index of the first row.
        """
        xp, features = dense_features(features)
        seeds = self._seeds(xp, features["token_ids"], step)
        return self._shard(xp, features, seeds, first_row)

    def mask_dataset(self, dataset: Any, first_step: int = 0) -> Any:
        """Masks the batches of a `tf.data.Dataset`, each with different masks.

        Each iteration counts steps from `first_step`. Therefore, call `.repeat()` before this
        method, not after it. When training resumes, pass the number of previous batches.

        Args:
            dataset: A dataset of features or tuples. In tuples, the features are first.
            first_step: The step of the first batch. Defaults to 0.

        Returns:
            A dataset of the same structure.
        """
        from keras_bert.data.tfdata.pretraining import masked_dataset

        return masked_dataset(self, dataset, first_step)

    def num_predictions(self, length: int) -> int:
        """Returns the maximum number of masked positions in a row of `length` tokens."""
        # The tolerance is for rounding errors. For example, 0.1 * 30 is greater than 3.
        slots = max(1, math.ceil(self.mask_selection_rate * length - 1e-6))
        return slots if self.max_predictions is None else min(slots, self.max_predictions)

    def _slots(self, xp: Arrays, ids: Any) -> Any:
        """Returns `num_predictions` for ids `(batch, length)`, a tensor if length is dynamic."""
        if ids.shape[1] is not None:
            return self.num_predictions(int(ids.shape[1]))
        num_selected = self.mask_selection_rate * xp.cast(xp.size(ids, 1), "float64") - 1e-6
        slots = xp.maximum(xp.cast(-(-num_selected // 1), "int64"), 1)
        return slots if self.max_predictions is None else xp.minimum(slots, self.max_predictions)

    def _seeds(self, xp: Arrays, ids: Any, step: Any) -> list[tuple[Any, Any]]:
        """Returns a seed for each random stream."""
        if step is None:
            # This is a checksum, so integer overflow is intentional.
            flat = xp.cast(xp.reshape(ids, (-1,)), "int64")
            odd = 2 * xp.arange(xp.size(flat)) + 1
            first = xp.sum((flat + 1) * odd * (0x9E3779B97F4A7C1 * _NUM_STREAMS))
        else:
            first = xp.asarray(step, "int64") * _NUM_STREAMS
        return [(self.seed, first + stream) for stream in range(_NUM_STREAMS)]

    def _shard(
        self, xp: Arrays, features: dict[str, Any], seeds: list[tuple[Any, Any]], first_row: int
    ) -> BatchShard:
        ids = features["token_ids"]
        is_selected, slots = self._choose(xp, features, seeds, first_row)
        batch, length = xp.size(ids), mask_selection.width(xp, ids)
        # Positions of the selected tokens in the flattened rows
        flat, size = xp.reshape(ids, (-1,)), batch * length
        positions = xp.select(xp.arange(size), xp.reshape(is_selected, (-1,)))
        labels = xp.take(flat, positions)
        counts = xp.sum(xp.cast(is_selected, "int64"), axis=1)

        def to_slots(values: Any) -> Any:
            return xp.to_dense(Ragged(xp.cast(values, "int32"), counts), slots, 0)

        def replaced_ids(selected_before: Any) -> Any:
            replacements = self._replacements(xp, labels, seeds, selected_before)
            replacements = xp.reshape(xp.scatter(positions, replacements, size), (batch, length))
            return xp.where(is_selected, replacements, ids)

        features = {
            **{name: values for name, values in features.items() if name != "word_starts"},
            "mask_positions": to_slots(positions % length),
            "mask_ids": to_slots(labels),
            "mask_weights": xp.cast(xp.mask(counts, slots), "float32"),
        }
        return BatchShard(features, xp.size(labels), replaced_ids)

    def _choose(
        self,
        xp: Arrays,
        features: dict[str, Any],
        seeds: list[tuple[Any, Any]],
        first_row: int,
    ) -> tuple[Any, Any]:
        """Returns the tokens to predict, bool `(batch, length)`, and the number of slots."""
        ids = features["token_ids"]
        draws = [mask_selection.RandomRows(seed, first_row) for seed in seeds]
        is_token = non_padding_tokens(xp, features, self.pad_token_id)
        slots = self._slots(xp, ids)
        # Python's `round` also computes in float64 and rounds halves to even.
        tokens = xp.cast(xp.sum(xp.cast(is_token, "int32"), axis=1), "float64")
        budgets = xp.cast(xp.round(self.mask_selection_rate * tokens), "int32")
        budgets = xp.minimum(xp.cast(slots, "int32"), xp.maximum(budgets, 1))
        selectable = is_token
        for token_id in self.unselectable_token_ids:
            selectable = selectable & (ids != token_id)
        if self.unit == "token":
            choice = mask_selection.choose_tokens(xp, selectable, budgets, slots, draws[_CHOICE])
            return choice, slots
        starts = mask_selection.word_starts(
            xp, self._continues_word(xp, features), selectable, features.get("sequence_ids")
        )
        ngrams = None
        if self.unit == "ngram":
            ngrams = mask_selection.ngram_starts(
                xp, starts, selectable, self.max_ngram, budgets, draws[_NGRAMS]
            )
        choice = mask_selection.choose_words(
            xp, starts, selectable, budgets, draws[_CHOICE], ngrams
        )
        return choice, slots

    def _continues_word(self, xp: Arrays, features: dict[str, Any]) -> Any:
        if "word_starts" in features:
            return ~xp.cast(features["word_starts"], "bool")
        if self._continues is None:
            raise ValueError(
                f"unit={self.unit!r} requires the first token of each word. Pass "
                "continuation_token_ids, or features with word_starts."
            )
        return xp.take(xp.asarray(self._continues, "bool"), features["token_ids"])

    def _replacements(
        self, xp: Arrays, labels: Any, seeds: list[tuple[Any, Any]], first: Any
    ) -> Any:
        """Samples the replacements of selected tokens, int32 `(selected,)`.

        `first` is the number of the batch's selected tokens before these tokens.
        """
        count = xp.size(labels)
        kind = mask_selection.as_fractions(xp, xp.random_bits(seeds[_KIND], count, first))
        ids = self._random_ids
        limit = self.vocabulary_size if ids is None else len(ids)
        random_ids = xp.random_bits(seeds[_RANDOM_TOKEN], count, first) % limit
        if ids is not None:
            random_ids = xp.take(xp.asarray(ids, "int32"), random_ids)
        is_changed = kind < self.mask_token_rate + self.random_token_rate
        others = xp.where(is_changed, xp.cast(random_ids, "int32"), labels)
        return xp.where(kind < self.mask_token_rate, self.mask_token_id, others)

    def _check_arguments(self) -> None:
        checks.check_choice(UNITS, unit=self.unit)
        checks.POSITIVE_FRACTION.check(mask_selection_rate=self.mask_selection_rate)
        rates = (self.mask_token_rate, self.random_token_rate)
        checks.FRACTION.check(mask_token_rate=rates[0], random_token_rate=rates[1])
        if sum(rates) > 1 + 1e-9:
            raise ValueError(
                "mask_token_rate + random_token_rate must be at most 1. Received: "
                f"{rates[0]} + {rates[1]}"
            )
        checks.POSITIVE_INT.check(max_ngram=self.max_ngram)
        checks.POSITIVE_INT.check_optional(max_predictions=self.max_predictions)


def _check_ids(name: str, ids: Sequence[int], vocabulary_size: int) -> None:
    for token_id in ids:
        if not 0 <= token_id < vocabulary_size:
            raise ValueError(
                f"{name} must be at least 0 and below the vocabulary size {vocabulary_size}. "
                f"Received: {token_id}"
            )


def dense_features(features: Any) -> tuple[Arrays, dict[str, Any]]:
    """Converts features, or just ids, to dense arrays, with int32 `token_ids`.

    Also returns the array functions: TensorFlow's if the ids are a tensor, otherwise NumPy's.
    Features that are `None` are dropped.
    """
    if not isinstance(features, Mapping):
        features = {"token_ids": features}
    xp = functions_for(features["token_ids"])
    dense = {}
    for name, value in features.items():
        if isinstance(value, Ragged) or hasattr(value, "row_splits"):
            raise ValueError(
                f"{name} must have rows of the same length. Received: ragged rows. Pad or pack "
                "them first."
            )
        if value is not None:
            dense[name] = value if is_tensor(value) else np.asarray(value)
    dense["token_ids"] = xp.cast(dense["token_ids"], "int32")
    return xp, dense


def non_padding_tokens(xp: Arrays, features: Mapping[str, Any], pad_token_id: int) -> Any:
    """Returns whether tokens are not padding, bool `(batch, length)`."""
    for name in ("padding_mask", "sequence_ids"):
        if name in features:
            return xp.cast(features[name], "bool")
    return features["token_ids"] != pad_token_id
