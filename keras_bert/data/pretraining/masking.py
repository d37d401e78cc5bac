# SPDX-License-Identifier: Apache-2.0
"""Masked tokens to predict, drawn anew for every batch, in graph."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import tensorflow as tf

from keras_bert.data.batching import without_tuning
from keras_bert.data.pretraining import mask_selection
from keras_bert.text import special_tokens
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.text.wordpiece import SUFFIX

UNITS = ("token", "word", "ngram")
# Independent streams of random numbers in one step
_CHOICE, _KIND, _RANDOM_TOKEN, _RUNS = range(4)
_NUM_STREAMS = 4


class MaskedLMMasker:
    """Chooses tokens to predict and replaces them by `[MASK]`, a random token or themselves.

    Each row gets `max(1, round(0.15 * tokens))` of them, `[CLS]` and `[SEP]` counted, as far as it
    has tokens that may be chosen; a word that is larger than the rest of this number is skipped,
    which can end a run of words early. The replacement is drawn for each
    token independently, within a word too.

    The masks are a function of `seed`, of the step and of the batch, whatever was computed before:
    training that resumes at step 1000 gets the same masks as without the interruption. The work is
    meant for the CPU of a `tf.data` pipeline; XLA does not compile it.

    Args:
        vocabulary_size: Number of token ids.
        mask_token_id: The id of `[MASK]`.
        unselectable_token_ids: Ids that are never chosen: `[CLS]`, `[SEP]`, `[PAD]`, `[MASK]`.
        pad_token_id: The id of `[PAD]`.
        unit: What is chosen: `"token"`, `"word"` (all pieces of a word or none) or `"ngram"` (runs
            of up to `max_ngram` words, n of them with a probability proportional to 1/n).
        max_ngram: The longest run, in words.
        continuation_token_ids: Ids that continue the word of the token before them, like `##ing`.
            Where features have `word_starts`, these say it instead.
        mask_selection_rate: The share of the tokens that is chosen.
        mask_token_rate: The share of the chosen ones that becomes `[MASK]`.
        random_token_rate: The share of the chosen ones that becomes a random token. The rest stays.
        random_token_ids: Ids that random tokens are drawn from, each alike; `None` for all.
        max_predictions: The most tokens chosen in a row; `None` for no bound but the rate.
        seed: Any integer.

    Call arguments:
        features: A dict with `token_ids`, int `(batch, length)` or `(length,)`; or the ids alone.
            Looked at where they are there: `padding_mask` (else `sequence_ids`, 0 at padding, else
            where `pad_token_id` stands tells padding); `word_starts`, bool, where a word begins;
            `sequence_ids`, over whose borders no word reaches.
        step: Which batch of the training it is: an integer or an integer tensor. Without it the
            masks are drawn by the ids: the same ones for the same batch, as an evaluation wants.

    Returns:
        A dict of the features, without `word_starts`, with
        `token_ids`: int32, some of them replaced;
        `mask_positions`: int32 `(batch, slots)`, ascending in a row, 0 in slots left over;
        `mask_ids`: int32 `(batch, slots)`, the tokens that were there, 0 in slots left over;
        `mask_weights`: float32 `(batch, slots)`, 1, and 0 in slots left over.
        There are `num_slots(length)` slots, in a static shape where the length is static.

    Raises:
        ValueError: If an argument is out of range, or words are to be chosen and nothing says
            where they begin.

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
            raise ValueError("random_token_ids is empty, expected an id or more, or None.")
        for name, ids in {
            "mask_token_id": [mask_token_id],
            "pad_token_id": [pad_token_id],
            "unselectable_token_ids": unselectable_token_ids,
            "continuation_token_ids": continuation_token_ids,
            "random_token_ids": () if random_token_ids is None else random_token_ids,
        }.items():
            _check_ids(name, ids, vocabulary_size)
        continuation = set(continuation_token_ids)
        # A constant made while a graph is being built would belong to that graph alone.
        with tf.init_scope(), tf.device("CPU:0"):
            self._random_ids = _constant(random_token_ids, tf.int32)
            table = [token_id in continuation for token_id in range(vocabulary_size)]
            self._continues = _constant(table if continuation else None, tf.bool)

    @classmethod
    def from_vocabulary(
        cls, vocabulary: Sequence[str], *, random_special_tokens: bool = True, **options: Any
    ) -> Self:
        """A masker for the ids of a WordPiece vocabulary.

        `[UNK]` is a token like any other, as in BERT's released code.

        Args:
            vocabulary: The tokens, a token's id being its index.
            random_special_tokens: Whether a random token may be a special one, as with BERT and not
                with RoBERTa.
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
        """A masker for the ids of a tokenizer, whose words are whole words.

        The unknown token is a token like any other, as in BERT's released code.

        Args:
            tokenizer: The tokenizer of the ids.
            random_special_tokens: Whether a random token may be a special one; `None` takes what
                the tokenizer's family does.
            **options: Other arguments of the class.

        Raises:
            ValueError: If the vocabulary has no token for masks.
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
        """Masks a batch, or a single row."""
        features = dense_features(features)
        ids = features["token_ids"]
        if ids.shape.rank == 1:
            rows = {name: value[tf.newaxis] for name, value in features.items()}
            return {name: value[0] for name, value in self(rows, step).items()}
        seeds = self._seeds(ids, step)
        chosen, slots = self._choose(features, seeds)
        features.pop("word_starts", None)
        return {**features, **self._replace(ids, chosen, slots, seeds)}

    def masked(self, dataset: tf.data.Dataset, first_step: int = 0) -> tf.data.Dataset:
        """A dataset with masked features, drawn anew for each element that it gives.

        The steps are counted from `first_step` in each iteration: repeat a dataset before this and
        not after it, and give the number of the batches that a run has seen when it goes on.

        Args:
            dataset: Batches of features, or tuples of features and anything.
            first_step: The step of the first element.

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
        """The number of slots for predictions in a row of a length."""
        # Less a rounding error: 0.1 * 30 is more than 3
        slots = max(1, math.ceil(self.mask_selection_rate * length - 1e-6))
        return slots if self.max_predictions is None else min(slots, self.max_predictions)

    def num_slots_in_graph(self, ids: tf.Tensor) -> int | tf.Tensor:
        """`num_slots` of ids `(batch, length)` whose length may not be known before they are."""
        if ids.shape[1] is not None:
            return self.num_slots(ids.shape[1])
        length = tf.cast(tf.shape(ids)[1], tf.float64)
        slots = tf.maximum(1, _as_int(tf.math.ceil(self.mask_selection_rate * length - 1e-6)))
        return slots if self.max_predictions is None else tf.minimum(slots, self.max_predictions)

    def _seeds(self, ids: tf.Tensor, step: Any) -> list[tf.Tensor]:
        """A seed, int64 `(2,)`, for each stream of random numbers."""
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
        """Which tokens to predict, bool `(batch, length)`, and for how many there is room."""
        ids = features["token_ids"]
        is_real = real_tokens(features, self.pad_token_id)
        slots = self.num_slots_in_graph(ids)
        # In float64, and halves to even, as Python rounds
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
                f"unit is {self.unit!r}, and nothing says where words begin: give "
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
        """The replacements of chosen tokens; int32 `(chosen,)`."""
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
        if not 0 < self.mask_selection_rate <= 1:
            raise ValueError(
                f"mask_selection_rate is {self.mask_selection_rate}, expected above 0 and up to 1."
            )
        rates = (self.mask_token_rate, self.random_token_rate)
        if min(rates) < 0 or sum(rates) > 1 + 1e-9:
            raise ValueError(
                f"mask_token_rate and random_token_rate are {rates[0]} and {rates[1]}, expected "
                "none below 0 and a sum of at most 1."
            )
        for name in ("max_ngram", "max_predictions"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1.")


def _random_ids(
    vocabulary_size: int, special: Collection[int], with_special_tokens: bool
) -> dict[str, Any]:
    """The argument `random_token_ids`, where it is not all ids."""
    if with_special_tokens:
        return {}
    return {"random_token_ids": [index for index in range(vocabulary_size) if index not in special]}


def _check_ids(name: str, ids: Sequence[int], vocabulary_size: int) -> None:
    for token_id in ids:
        if not 0 <= token_id < vocabulary_size:
            raise ValueError(
                f"{name} has {token_id}, expected ids from 0 and below the vocabulary's "
                f"{vocabulary_size}."
            )


def dense_features(features: Any) -> dict[str, tf.Tensor]:
    """A dict of dense features, with `token_ids` in int32; those that are `None` are left out.

    Args:
        features: A dict with `token_ids`, or the ids alone.

    Raises:
        ValueError: If one is ragged.
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
    """Bool `(batch, length)`, False at padding."""
    for name in ("padding_mask", "sequence_ids"):
        if name in features:
            return tf.cast(features[name], tf.bool)
    return features["token_ids"] != pad_token_id


def _constant(values: Sequence[Any] | None, dtype: tf.DType) -> tf.Tensor | None:
    return None if values is None else tf.constant(values, dtype)


def _as_int(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.int32)
