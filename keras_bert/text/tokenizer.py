# SPDX-License-Identifier: Apache-2.0
"""The base class of the tokenizers, which packing and masking use, and texts of any shape."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import tensorflow as tf

from keras_bert.text.offsets import Pieces


class Tokenizer(abc.ABC):
    """Text to ids and back, in graph.

    Subclasses name their special tokens, and make pieces of texts and texts of pieces.

    Args:
        vocabulary: The tokens, a token's id being its index.
        special_tokens_in_text: Whether special tokens that are typed in a text are one token each.
    """

    kind: ClassVar[str]
    """The name of the class in configs."""

    pad_token: ClassVar[str]
    unk_token: ClassVar[str]
    cls_token: ClassVar[str]
    sep_token: ClassVar[str]
    mask_token: ClassVar[str]

    pair_separators: ClassVar[int] = 1
    """The number of separators between the two texts of a pair."""

    num_segments: ClassVar[int] = 2
    """The number of segment ids of the family's encoders; with 1, all of them are 0."""

    mask_takes_space: ClassVar[bool] = False
    """Whether the white space before a typed mask is a part of it."""

    masks_with_special_tokens: ClassVar[bool] = True
    """Whether the family's masking draws special tokens too where it draws any token."""

    def __init__(self, vocabulary: tuple[str, ...], special_tokens_in_text: bool) -> None:
        self.vocabulary = vocabulary
        self.special_tokens_in_text = special_tokens_in_text
        self._ids = {token: index for index, token in enumerate(vocabulary)}
        # A constant made while a graph is being built would belong to that graph alone.
        with tf.init_scope(), tf.device("CPU:0"):
            self._special_ids = tf.constant(self.special_token_ids, tf.int32)

    @classmethod
    def special_tokens(cls) -> tuple[str, ...]:
        """The special tokens that a vocabulary may have."""
        return (cls.pad_token, cls.unk_token, cls.cls_token, cls.sep_token, cls.mask_token)

    def __call__(self, text: Any) -> tf.Tensor | tf.RaggedTensor:
        """The ids of a text or of a batch of texts."""
        (ids,) = on_any_shape(text, lambda texts: (self._tokenize(texts),))
        return ids

    def tokenize_with_offsets(
        self, text: Any
    ) -> tuple[
        tf.Tensor | tf.RaggedTensor, tf.Tensor | tf.RaggedTensor, tf.Tensor | tf.RaggedTensor
    ]:
        """The ids of texts, and the offsets of each token in its text.

        A token's span is the smallest one that contains all characters of which it has a part; an
        unknown token covers what it stands for. Offsets are Unicode code points of the text as it
        was given, invalid bytes left out, and never go backwards. A character that became several
        pieces is the span of each. A combining mark that the tokenizer drops, as an uncased one
        does, belongs to the span of the character before it, or, at the beginning of a word, of
        the token after it; so do zero-width joiners. Other characters of which nothing is left,
        such as a zero-width space, lie in no span, or in the middle of one. The space before a
        word is not in its span.

        Args:
            text: As for a call.

        Returns:
            The ids, the first character of each token, and one past its last; int32, each of the
            shape that a call returns.
        """
        ids, starts, ends = on_any_shape(text, self._tokenize_with_offsets)
        return ids, starts, ends

    def tokenize_words(self, words: Any) -> tf.Tensor | tf.RaggedTensor:
        """The ids of words of a text, each word a string of its own.

        Args:
            words: As for a call.

        Returns:
            As a call.
        """
        return self(words)

    def detokenize(self, token_ids: Any, skip_special_tokens: bool = False) -> tf.Tensor:
        """The text of tokens.

        Args:
            token_ids: Ids, `(tokens,)` or `(batch, tokens)`: a list, a tensor or a ragged tensor.
            skip_special_tokens: Whether to leave out those that are no text, such as padding.

        Returns:
            A string tensor `()` or `(batch,)`.

        Raises:
            tf.errors.InvalidArgumentError: If an id is not of the vocabulary.
        """
        ids, is_batch = to_rows(token_ids)
        with tf.device("CPU:0"):
            if skip_special_tokens:
                is_special = tf.reduce_any(ids.flat_values[:, None] == self._special_ids, axis=1)
                ids = tf.ragged.boolean_mask(ids, ids.with_flat_values(~is_special))
            texts = self._join(ids)
        return texts if is_batch else texts[0]

    @property
    def vocabulary_size(self) -> int:
        """How many tokens there are."""
        return len(self.vocabulary)

    @property
    def pad_token_id(self) -> int:
        """Id of the token that fills rows up."""
        return self.token_to_id(self.pad_token)

    @property
    def unk_token_id(self) -> int:
        """Id of the token for what the vocabulary cannot spell."""
        return self.token_to_id(self.unk_token)

    @property
    def cls_token_id(self) -> int:
        """Id of the token that a row begins with."""
        return self.token_to_id(self.cls_token)

    @property
    def sep_token_id(self) -> int:
        """Id of the token that ends a text."""
        return self.token_to_id(self.sep_token)

    @property
    def mask_token_id(self) -> int:
        """Id of the token that replaces masked ones; a ValueError if there is none."""
        return self.token_to_id(self.mask_token)

    @property
    def special_token_ids(self) -> list[int]:
        """Ids of the special tokens that the vocabulary has."""
        return [self._ids[token] for token in self.special_tokens() if token in self._ids]

    @property
    @abc.abstractmethod
    def continuation_token_ids(self) -> Sequence[int]:
        """Ids of tokens that continue the word of the token before them."""

    @property
    def resources(self) -> tuple[Any, ...]:
        """What a SavedModel with this tokenizer has to track: tables and the like."""
        return ()

    def token_to_id(self, token: str) -> int:
        """The id of a token; a ValueError where the vocabulary does not have it."""
        if token not in self._ids:
            raise ValueError(f"{token!r} is none of the vocabulary's {len(self._ids)} tokens.")
        return self._ids[token]

    def id_to_token(self, token_id: int) -> str:
        """The token of an id; a ValueError where it is out of range."""
        if not 0 <= token_id < len(self.vocabulary):
            raise ValueError(f"Token id {token_id} is not in [0, {len(self.vocabulary)}).")
        return self.vocabulary[token_id]

    @abc.abstractmethod
    def get_config(self) -> dict[str, Any]:
        """Plain values, tokens included, from which `from_config` makes the same tokenizer."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The inverse of `get_config`."""
        return cls(**{name: value for name, value in config.items() if name != "kind"})

    def token_text(self, token_id: int) -> str:
        """What a token is in the middle of a text, the space before it included."""
        return self.id_to_token(token_id)

    @functools.cached_property
    def reading_special_tokens(self) -> Self:
        """This tokenizer, or an equal one that finds special tokens in a text."""
        if self.special_tokens_in_text:
            return self
        return self.from_config({**self.get_config(), "special_tokens_in_text": True})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.from_config(self.get_config())

    @abc.abstractmethod
    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of texts `(texts,)`, ragged int32."""

    @abc.abstractmethod
    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """Ids and offsets, in characters, of texts `(texts,)`."""

    @abc.abstractmethod
    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """The texts of ids, ragged int32 `(texts, tokens)`; strings `(texts,)`."""


def to_tensor(values: Any, dtype: tf.DType) -> tf.Tensor | tf.RaggedTensor:
    """A tensor of a list, an array or a tensor; a ragged one where rows differ in length."""
    if isinstance(values, tf.RaggedTensor):
        # One type of row splits throughout, that of the tokenizer's own
        return tf.cast(values, dtype).with_row_splits_dtype(tf.int64)
    if isinstance(values, tf.Tensor):
        return tf.cast(values, dtype)
    try:
        return tf.convert_to_tensor(values, dtype)
    except ValueError:
        # Rows of different lengths
        return tf.ragged.constant(values, dtype)


def on_any_shape(
    text: Any, function: Callable[[tf.Tensor], tuple[tf.RaggedTensor, ...]]
) -> tuple[tf.Tensor | tf.RaggedTensor, ...]:
    """Calls a function of `(texts,)` with texts of any shape, and gives its results that shape."""
    texts = to_tensor(text, tf.string)
    rank = texts.shape.rank
    if rank is None:
        raise ValueError("The text's number of dimensions is unknown; set it by tf.ensure_shape.")
    with tf.device("CPU:0"):
        if rank == 0:
            return tuple(part[0] for part in function(texts[tf.newaxis]))
        if rank == 1:
            return function(texts)
        if not isinstance(texts, tf.RaggedTensor):
            texts = tf.RaggedTensor.from_tensor(texts, ragged_rank=rank - 1)
        return tuple(
            texts.with_flat_values(part) for part in on_any_shape(texts.flat_values, function)
        )


def to_rows(token_ids: Any) -> tuple[tf.RaggedTensor, bool]:
    """Ids as ragged int32 `(batch, None)`, and whether they are a batch and not a single row.

    Raises:
        ValueError: If they have other dimensions than `(tokens,)` or `(batch, tokens)`.
    """
    ids = to_tensor(token_ids, tf.int32)
    if ids.shape.rank not in (1, 2):
        raise ValueError(f"token_ids has shape {ids.shape}; expected (tokens,) or (batch, tokens).")
    if isinstance(ids, tf.RaggedTensor):
        return ids, True
    is_batch = ids.shape.rank == 2
    return tf.RaggedTensor.from_tensor(ids if is_batch else ids[tf.newaxis]), is_batch
