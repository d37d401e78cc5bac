# SPDX-License-Identifier: Apache-2.0
"""Dynamic masking: masked language model targets drawn for every batch, with graph operations."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import tensorflow as tf

from keras_bert import checks
from keras_bert.data.batching import without_autograph, without_tuning
from keras_bert.data.pretraining import mask_selection
from keras_bert.data.pretraining.static_masking import UNITS
from keras_bert.text import special_tokens
from keras_bert.text.special_tokens import SUFFIX
from keras_bert.text.tokenizer import Tokenizer

# Independent streams of random numbers in one step
_CHOICE, _KIND, _RANDOM_TOKEN, _RUNS = range(4)
_NUM_STREAMS = 4


class MaskedLMMasker:
    """Selects tokens to predict, and replaces them with `[MASK]`, a random token or themselves.

    In each row, `max(1, round(mask_selection_rate * tokens))` tokens are selected, where `tokens`
    includes `[CLS]` and `[SEP]`, or fewer if fewer tokens may be selected. A word that exceeds the
    rest of this number is skipped, which may shorten an n-gram. The replacement is drawn for each
    token independently, also within a word.

    The masks depend only on `seed`, the step and the batch: training that resumes at step 1000
    gets the same masks as without the interruption. The computation is meant for the CPU in a
    `tf.data` pipeline; XLA cannot compile it.

    Args:
        vocabulary_size: Number of token ids.
        mask_token_id: The id of `[MASK]`.
        unselectable_token_ids: Ids that are never selected: `[CLS]`, `[SEP]`, `[PAD]`, `[MASK]`.
        pad_token_id: The id of `[PAD]`.
        unit: The unit of selection: `"token"`; `"word"`, all subwords of a word or none (whole-word
            masking); or `"ngram"`, n-grams of up to `max_ngram` words, with a probability of
            length n proportional to 1/n.
        max_ngram: Maximum length of an n-gram, in words.
        continuation_token_ids: Ids of subwords that continue the word before them, such as
            `##ing`. Features with `word_starts` do not need them.
        mask_selection_rate: Fraction of tokens to select.
        mask_token_rate: Fraction of selected tokens that are replaced with `[MASK]`.
        random_token_rate: Fraction of selected tokens that are replaced with a random token. The
            remaining ones are not changed.
        random_token_ids: Ids from which random tokens are drawn uniformly; `None` for all ids.
        max_predictions: Maximum number of tokens to select in a row; `None` for no maximum.
        seed: Integer seed of the random numbers.

    Call arguments:
        features: A dict with `token_ids`, int `(batch, length)` or `(length,)`; or the ids alone.
            Optional keys: `padding_mask` (without it, padding is where `sequence_ids` are 0, or
            else where `token_ids` are `pad_token_id`); `word_starts`, bool, True at the first
            token of each word; `sequence_ids` of packed rows, in which words end at the end of a
            sequence.
        step: The index of the batch in training, an integer or an integer tensor. With `None`, the
            masks depend on `seed` and the ids: the same batch always has the same masks, as is
            wanted for evaluation.

    Returns:
        A dict of the features, without `word_starts`, and of
        `token_ids`: int32, with the selected tokens replaced;
        `mask_positions`: int32 `(batch, slots)`, the positions of selected tokens, ascending;
        `mask_ids`: int32 `(batch, slots)`, the selected tokens before replacement;
        `mask_weights`: float32 `(batch, slots)`, 1 for selected tokens.
        There are `num_slots(length)` slots; unused ones are 0 at the end. The shape is static if
        `length` is.

    Raises:
        ValueError: If an argument is out of range, a feature is ragged, or words are to be selected
            and there are neither `continuation_token_ids` nor `word_starts`.

    Example:

    >>> from keras_bert.data import MaskedLMMasker
    >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat"]
    >>> masker = MaskedLMMasker.from_vocabulary(vocabulary, unit="word", mask_selection_rate=0.5)
    >>> masked = masker({"token_ids": [[2, 5, 6, 7, 8, 3]]}, step=0)
    >>> masked["mask_positions"].shape, int(masked["mask_weights"].numpy().sum())
    (TensorShape([1, 3]), 3)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1 and appendix C.2;
        [RoBERTa](https://arxiv.org/abs/1907.11692), section 4.1, masks drawn anew;
        [ALBERT](https://arxiv.org/abs/1909.11942), section 4.1, runs of words.
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
            raise ValueError("random_token_ids is empty; expected at least one id, or None.")
        for name, ids in {
            "mask_token_id": [mask_token_id],
            "pad_token_id": [pad_token_id],
            "unselectable_token_ids": unselectable_token_ids,
            "continuation_token_ids": continuation_token_ids,
            "random_token_ids": () if random_token_ids is None else random_token_ids,
        }.items():
            _check_ids(name, ids, vocabulary_size)
        continuation = set(continuation_token_ids)
        # A constant that is created while a graph is traced would belong to that graph alone.
        with tf.init_scope(), tf.device("CPU:0"):
            self._random_ids = _constant(random_token_ids, tf.int32)
            table = [token_id in continuation for token_id in range(vocabulary_size)]
            self._continues = _constant(table if continuation else None, tf.bool)

    @classmethod
    def from_vocabulary(
        cls, vocabulary: Sequence[str], *, random_special_tokens: bool = True, **options: Any
    ) -> Self:
        """Creates a masker for the ids of a WordPiece vocabulary.

        `[UNK]` may be selected like any other token, as in BERT's released code.

        Args:
            vocabulary: The tokens in the order of their ids.
            random_special_tokens: Whether random tokens may be special tokens, as for BERT but not
                for RoBERTa.
            **options: Other arguments of the class.

        Raises:
            ValueError: If the vocabulary has no `[MASK]` or no `[PAD]`.
        """
        ids = {token: index for index, token in enumerate(vocabulary)}
        for token in (special_tokens.MASK, special_tokens.PADDING):
            if token not in ids:
                raise ValueError(f"The vocabulary of {len(vocabulary)} tokens has no {token}.")
        special = {ids[token] for token in special_tokens.SPECIAL_TOKENS if token in ids}
        return cls(
            len(vocabulary),
            ids[special_tokens.MASK],
            sorted(special - {ids.get(special_tokens.UNKNOWN)}),
            pad_token_id=ids[special_tokens.PADDING],
            continuation_token_ids=[
                index for index, token in enumerate(vocabulary) if token.startswith(SUFFIX)
            ],
            **_random_ids(len(vocabulary), special, random_special_tokens),
            **options,
        )

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Tokenizer, *, random_special_tokens: bool | None = None, **options: Any
    ) -> Self:
        """Creates a masker for the ids of a tokenizer.

        The unknown token may be selected like any other token, as in BERT's released code.

        Args:
            tokenizer: The tokenizer of the ids.
            random_special_tokens: Whether random tokens may be special tokens. Defaults to the
                behavior of the tokenizer's family.
            **options: Other arguments of the class.

        Raises:
            ValueError: If the vocabulary has no mask token.
        """
        special = set(tokenizer.special_token_ids)
        if random_special_tokens is None:
            random_special_tokens = tokenizer.masks_with_special_tokens
        return cls(
            tokenizer.vocabulary_size,
            tokenizer.mask_token_id,
            sorted(special - {tokenizer.unk_token_id}),
            pad_token_id=tokenizer.pad_token_id,
            continuation_token_ids=tokenizer.continuation_token_ids,
            **_random_ids(tokenizer.vocabulary_size, special, random_special_tokens),
            **options,
        )

    def __call__(self, features: Any, step: Any = None) -> dict[str, tf.Tensor]:
        """Masks a batch or a single row."""
        features = dense_features(features)
        ids = features["token_ids"]
        if ids.shape.rank == 1:
            rows = {name: value[tf.newaxis] for name, value in features.items()}
            return {name: value[0] for name, value in self(rows, step).items()}
        seeds = self._seeds(ids, step)
        chosen, slots = self._choose(features, seeds)
        features.pop("word_starts", None)
        return {**features, **self._replace(ids, chosen, slots, seeds)}

    @without_autograph
    def masked(self, dataset: tf.data.Dataset, first_step: int = 0) -> tf.data.Dataset:
        """Masks the batches of a dataset, each batch with different masks.

        Steps are counted from `first_step` in each iteration. Therefore call `.repeat()` before
        this method and not after it; and for training that resumes, pass the number of batches
        that it has already seen.

        Args:
            dataset: A dataset of features, or of tuples that begin with features.
            first_step: The step of the first batch.

        Returns:
            A dataset of the same structure.
        """

        def mask(step: tf.Tensor, *element: Any) -> Any:
            if len(element) == 1:
                return self(element[0], step)
            return (self(element[0], step), *element[1:])

        steps = tf.data.Dataset.counter(first_step)
        zipped = tf.data.Dataset.zip(steps, dataset)
        batches = zipped.map(
            lambda step, element: mask(
                step, *(element if isinstance(element, tuple) else (element,))
            ),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return without_tuning(batches)

    def num_slots(self, length: int) -> int:
        """Returns the number of slots for predictions in a row of `length` tokens."""
        # The tolerance is for rounding errors: 0.1 * 30 is greater than 3
        slots = max(1, math.ceil(self.mask_selection_rate * length - 1e-6))
        return slots if self.max_predictions is None else min(slots, self.max_predictions)

    def num_slots_in_graph(self, ids: tf.Tensor) -> int | tf.Tensor:
        """Returns `num_slots` for ids `(batch, length)`, as a tensor if `length` is not static."""
        if ids.shape[1] is not None:
            return self.num_slots(ids.shape[1])
        length = tf.cast(tf.shape(ids)[1], tf.float64)
        slots = tf.maximum(1, _as_int(tf.math.ceil(self.mask_selection_rate * length - 1e-6)))
        return slots if self.max_predictions is None else tf.minimum(slots, self.max_predictions)

    def _seeds(self, ids: tf.Tensor, step: Any) -> list[tf.Tensor]:
        """Returns a seed, int64 `(2,)`, for each stream of random numbers."""
        if step is None:
            # A checksum, for which integer overflow is intended
            flat = tf.cast(tf.reshape(ids, [-1]), tf.int64)
            odd = 2 * tf.range(tf.size(ids, tf.int64)) + 1
            step = tf.reduce_sum((flat + 1) * odd * 0x9E3779B97F4A7C1)
        step = tf.cast(step, tf.int64) * _NUM_STREAMS
        return [tf.stack([self.seed, step + stream]) for stream in range(_NUM_STREAMS)]

    def _choose(
        self, features: dict[str, tf.Tensor], seeds: list[tf.Tensor]
    ) -> tuple[tf.Tensor, int | tf.Tensor]:
        """Returns which tokens to predict, bool `(batch, length)`, and the number of slots."""
        ids = features["token_ids"]
        is_real = real_tokens(features, self.pad_token_id)
        slots = self.num_slots_in_graph(ids)
        # In float64 and with halves rounded to even, as by Python's `round`
        share = self.mask_selection_rate * tf.cast(
            tf.math.count_nonzero(is_real, axis=1), tf.float64
        )
        budgets = tf.minimum(slots, tf.maximum(1, _as_int(tf.round(share))))
        selectable = is_real
        for token_id in self.unselectable_token_ids:
            selectable &= ids != token_id
        if self.unit == "token":
            return mask_selection.choose_tokens(selectable, budgets, slots, seeds[_CHOICE]), slots
        starts = mask_selection.word_starts(
            self._continues_word(features), selectable, features.get("sequence_ids")
        )
        runs = None
        if self.unit == "ngram":
            runs = mask_selection.run_starts(
                starts, selectable, self.max_ngram, budgets, seeds[_RUNS]
            )
        chosen = mask_selection.choose_words(starts, selectable, budgets, seeds[_CHOICE], runs)
        return chosen, slots

    def _continues_word(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        if "word_starts" in features:
            return ~tf.cast(features["word_starts"], tf.bool)
        if self._continues is None:
            raise ValueError(
                f"unit is {self.unit!r}, which needs to know where words begin: pass "
                "continuation_token_ids, or features with word_starts."
            )
        return tf.gather(self._continues, features["token_ids"])

    def _replace(
        self, ids: tf.Tensor, chosen: tf.Tensor, slots: int | tf.Tensor, seeds: list[tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        shape, flat = tf.shape(ids), tf.reshape(ids, [-1])
        # Positions of the chosen tokens in the whole batch, (chosen, 1)
        positions = _as_int(tf.where(tf.reshape(chosen, [-1])))
        labels = tf.gather(flat, positions[:, 0])
        masked = tf.tensor_scatter_nd_update(flat, positions, self._replacements(labels, seeds))
        counts = tf.reduce_sum(_as_int(chosen), axis=1)
        slots_shape = (None, slots) if isinstance(slots, int) else tf.stack([-1, slots])

        def in_slots(values: tf.Tensor) -> tf.Tensor:
            ragged = tf.RaggedTensor.from_row_lengths(values, counts, validate=False)
            return ragged.to_tensor(shape=slots_shape)

        return {
            "token_ids": tf.ensure_shape(tf.reshape(masked, shape), ids.shape),
            "mask_positions": in_slots(positions[:, 0] % shape[1]),
            "mask_ids": in_slots(labels),
            "mask_weights": tf.sequence_mask(counts, slots, tf.float32),
        }

    def _replacements(self, labels: tf.Tensor, seeds: list[tf.Tensor]) -> tf.Tensor:
        """Draws the replacements of selected tokens, int32 `(selected,)`."""
        kind = tf.random.stateless_uniform(tf.shape(labels), seeds[_KIND], alg="philox")
        ids = self._random_ids
        limit = self.vocabulary_size if ids is None else len(ids)
        drawn = tf.random.stateless_uniform(
            tf.shape(labels), seeds[_RANDOM_TOKEN], 0, limit, tf.int32, alg="philox"
        )
        changed = drawn if ids is None else tf.gather(ids, drawn)
        is_changed = kind < self.mask_token_rate + self.random_token_rate
        return tf.where(
            kind < self.mask_token_rate,
            self.mask_token_id,
            tf.where(is_changed, changed, labels),
        )

    def _check_arguments(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unit is {self.unit!r}, expected one of {', '.join(UNITS)}.")
        checks.POSITIVE_FRACTION.check(mask_selection_rate=self.mask_selection_rate)
        rates = (self.mask_token_rate, self.random_token_rate)
        checks.FRACTION.check(mask_token_rate=rates[0], random_token_rate=rates[1])
        if sum(rates) > 1 + 1e-9:
            raise ValueError(
                f"mask_token_rate and random_token_rate are {rates[0]} and {rates[1]}; their sum "
                "must be at most 1."
            )
        checks.POSITIVE_INT.check(max_ngram=self.max_ngram)
        checks.POSITIVE_INT.check_given(max_predictions=self.max_predictions)


def _random_ids(
    vocabulary_size: int, special: Collection[int], with_special_tokens: bool
) -> dict[str, Any]:
    """Returns the argument `random_token_ids`, unless random tokens are drawn from all ids."""
    if with_special_tokens:
        return {}
    return {"random_token_ids": [index for index in range(vocabulary_size) if index not in special]}


def _check_ids(name: str, ids: Sequence[int], vocabulary_size: int) -> None:
    for token_id in ids:
        if not 0 <= token_id < vocabulary_size:
            raise ValueError(
                f"{name} has {token_id}, expected ids from 0 and below the vocabulary size "
                f"{vocabulary_size}."
            )


def dense_features(features: Any) -> dict[str, tf.Tensor]:
    """Converts features to a dict of dense tensors, with int32 `token_ids`.

    Args:
        features: A dict with `token_ids`, or the ids alone. Features that are `None` are dropped.

    Raises:
        ValueError: If a feature is ragged.
    """
    if not isinstance(features, Mapping):
        features = {"token_ids": features}
    dense = {}
    for name, value in features.items():
        if isinstance(value, tf.RaggedTensor):
            raise ValueError(
                f"{name} is ragged, expected rows of one length: pad or pack them first."
            )
        if value is not None:
            dense[name] = tf.convert_to_tensor(value)
    dense["token_ids"] = tf.cast(dense["token_ids"], tf.int32)
    return dense


def real_tokens(features: Mapping[str, tf.Tensor], pad_token_id: int) -> tf.Tensor:
    """Returns a bool tensor `(batch, length)` that is False at padding."""
    for name in ("padding_mask", "sequence_ids"):
        if name in features:
            return tf.cast(features[name], tf.bool)
    return features["token_ids"] != pad_token_id


def _constant(values: Sequence[Any] | None, dtype: tf.DType) -> tf.Tensor | None:
    return None if values is None else tf.constant(values, dtype)


def _as_int(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.int32)
