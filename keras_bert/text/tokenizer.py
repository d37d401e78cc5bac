# SPDX-License-Identifier: Apache-2.0
"""The base class of the tokenizers, and the conversion of text of any shape."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from keras_bert.text.graph_functions import traced_once
from keras_bert.text.offsets import Pieces
from keras_bert.vocabularies.tokenizer_config import check_tokenizer_config


class Tokenizer(abc.ABC):
    """Base class of tokenizers, which convert text to ids and back with graph operations.

    Subclasses define their special tokens, and implement `_tokenize`, `_tokenize_with_offsets` and
    `_join`.

    Args:
        vocabulary: The tokens in the order of their ids.
        special_tokens_in_text: Whether special tokens that occur in a text, such as `[MASK]`, are
            one token each, instead of being split like other text.
    """

    kind: ClassVar[str]
    """The name of the tokenizer in configs."""

    pad_token: ClassVar[str]
    unk_token: ClassVar[str]
    cls_token: ClassVar[str]
    sep_token: ClassVar[str]
    mask_token: ClassVar[str]

    pair_separators: ClassVar[int] = 1
    """The number of separators between the two texts of a pair."""

    num_segments: ClassVar[int] = 2
    """The number of segments of the family's encoders; with 1, all segment ids are 0."""

    mask_takes_space: ClassVar[bool] = False
    """Whether the whitespace before a mask token in a text is part of it."""

    masks_with_special_tokens: ClassVar[bool] = True
    """Whether the random tokens of the family's masking may be special tokens."""

    def __init__(self, vocabulary: tuple[str, ...], special_tokens_in_text: bool) -> None:
        self.vocabulary = vocabulary
        self.special_tokens_in_text = special_tokens_in_text
        self._ids = {token: index for index, token in enumerate(vocabulary)}
        # A constant that is created while a graph is traced would belong to that graph alone.
        with tf.init_scope(), tf.device("CPU:0"):
            self._special_ids = tf.constant(self.special_token_ids, tf.int32)
        self._ids_of_texts = traced_once(lambda texts: (self._tokenize(texts),))
        self._pieces_of_texts = traced_once(lambda texts: self._tokenize_with_offsets(texts))
        self._graphs: dict[Callable[..., Any], Callable[..., Any]] = {}

    @classmethod
    def special_tokens(cls) -> tuple[str, ...]:
        """Returns the special tokens of the class, which a vocabulary may or may not contain."""
        return (cls.pad_token, cls.unk_token, cls.cls_token, cls.sep_token, cls.mask_token)

    def __call__(self, text: Any) -> tf.Tensor | tf.RaggedTensor:
        """Converts a text, or a batch of texts, to ids."""
        (ids,) = on_any_shape(text, self._ids_of_texts)
        return ids

    def tokenize_with_offsets(
        self, text: Any
    ) -> tuple[
        tf.Tensor | tf.RaggedTensor, tf.Tensor | tf.RaggedTensor, tf.Tensor | tf.RaggedTensor
    ]:
        """Converts texts to ids, with the offsets of each token in its text.

        Offsets count the Unicode code points of the original text, without invalid bytes, and never
        decrease. The span of a token is the shortest one that contains all characters of which the
        token has a part; that of an unknown token is the text that it replaces. A character that is
        split into several tokens is the span of each of them.

        A combining mark that the tokenizer drops, as an uncased tokenizer does, belongs to the span
        of the character before it, or at the beginning of a word to that of the token after it; so
        do zero-width joiners. Other dropped characters, such as zero-width spaces, are in no span,
        or inside one. The space before a word is not part of its span.

        Args:
            text: See the call arguments.

        Returns:
            A tuple of the ids, the start of each token (the offset of its first character), and its
            end (the offset one past its last character), all int32 and of the same shape.
        """
        ids, starts, ends = on_any_shape(text, self._pieces_of_texts)
        return ids, starts, ends

    def graph_of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a graph of a function of this tokenizer, which all who use the tokenizer share.

        Args:
            function: A function of a tokenizer, and of what `traced_once` allows.

        Returns:
            A function of the other arguments.
        """
        if function not in self._graphs:
            self._graphs[function] = traced_once(functools.partial(function, self))
        return self._graphs[function]

    def tokenize_words(self, words: Any) -> tf.Tensor | tf.RaggedTensor:
        """Converts the words of a text, each a separate string, to ids.

        Args:
            words: Strings of any shape; see the call arguments.

        Returns:
            The ids of each word; see a call.
        """
        return self(words)

    def detokenize(self, token_ids: Any, skip_special_tokens: bool = False) -> tf.Tensor:
        """Converts ids to text.

        Args:
            token_ids: Ids, `(tokens,)` or `(batch, tokens)`: a list, a tensor or a ragged tensor.
            skip_special_tokens: Whether to omit special tokens, such as padding.

        Returns:
            A string tensor of shape `()` or `(batch,)`.

        Raises:
            ValueError: If `token_ids` has another number of dimensions.
            tf.errors.InvalidArgumentError: If an id is not in the vocabulary.
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
        """The number of tokens in the vocabulary."""
        return len(self.vocabulary)

    @property
    def pad_token_id(self) -> int:
        """The id of the padding token."""
        return self.token_to_id(self.pad_token)

    @property
    def unk_token_id(self) -> int:
        """The id of the unknown token, which replaces text that the vocabulary cannot represent."""
        return self.token_to_id(self.unk_token)

    @property
    def cls_token_id(self) -> int:
        """The id of the token at the beginning of each row (`[CLS]`)."""
        return self.token_to_id(self.cls_token)

    @property
    def sep_token_id(self) -> int:
        """The id of the token at the end of each text (`[SEP]`)."""
        return self.token_to_id(self.sep_token)

    @property
    def mask_token_id(self) -> int:
        """The id of the mask token. Raises a `ValueError` if the vocabulary has none."""
        return self.token_to_id(self.mask_token)

    @property
    def special_token_ids(self) -> list[int]:
        """The ids of the special tokens that are in the vocabulary."""
        return [self._ids[token] for token in self.special_tokens() if token in self._ids]

    @property
    @abc.abstractmethod
    def continuation_token_ids(self) -> Sequence[int]:
        """The ids of tokens that continue the word of the token before them."""

    @property
    def resources(self) -> tuple[Any, ...]:
        """The resources, such as tables, that a SavedModel with this tokenizer must track."""
        return ()

    def token_to_id(self, token: str) -> int:
        """Returns the id of a token.

        Raises:
            ValueError: If the token is not in the vocabulary.
        """
        if token not in self._ids:
            raise ValueError(f"{token!r} is not in the vocabulary of {len(self._ids)} tokens.")
        return self._ids[token]

    def id_to_token(self, token_id: int) -> str:
        """Returns the token of an id.

        Raises:
            ValueError: If the id is out of range.
        """
        if not 0 <= token_id < len(self.vocabulary):
            raise ValueError(f"Token id {token_id} is not in [0, {len(self.vocabulary)}).")
        return self.vocabulary[token_id]

    @abc.abstractmethod
    def get_config(self) -> dict[str, Any]:
        """Returns the config, including the vocabulary, from which `from_config` creates a copy."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a tokenizer from the config that `get_config` returned.

        Raises:
            ValueError: If a field is missing, unknown, or not of its type: a config names no files.
        """
        check_tokenizer_config({**config, "kind": cls.kind})
        return cls(**{name: value for name, value in config.items() if name != "kind"})

    def token_text(self, token_id: int) -> str:
        """Returns the text of a token in the middle of a text, including the space before it."""
        return self.id_to_token(token_id)

    @functools.cached_property
    def reading_special_tokens(self) -> Self:
        """This tokenizer if it recognizes special tokens in text, otherwise a copy that does."""
        if self.special_tokens_in_text:
            return self
        return self.from_config({**self.get_config(), "special_tokens_in_text": True})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.from_config(self.get_config())

    @abc.abstractmethod
    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Converts texts `(texts,)` to ids, ragged int32 `(texts, None)`."""

    @abc.abstractmethod
    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """Converts texts `(texts,)` to ids with offsets in characters."""

    @abc.abstractmethod
    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Converts ids, ragged int32 `(texts, None)`, to strings `(texts,)`."""


def to_tensor(values: Any, dtype: tf.DType) -> tf.Tensor | tf.RaggedTensor:
    """Converts a list or an array to a tensor, which is ragged if rows differ in length."""
    if isinstance(values, tf.RaggedTensor):
        # The dtype of row splits that tokenizers use
        return tf.cast(values, dtype).with_row_splits_dtype(tf.int64)
    if isinstance(values, tf.Tensor):
        return tf.cast(values, dtype)
    try:
        return tf.convert_to_tensor(values, dtype)
    except ValueError:
        _check_characters([values] if isinstance(values, str) else values)
        # Rows of different lengths
        return tf.ragged.constant(values, dtype)


def _check_characters(rows: Iterable[Any], path: tuple[int, ...] = ()) -> None:
    """Raises a `ValueError` if UTF-8 cannot represent a text; the message has its indices."""
    for index, row in enumerate(rows):
        here = (*path, index)
        if isinstance(row, (list, tuple, np.ndarray)):
            _check_characters(row, here)
        elif isinstance(row, str):
            try:
                row.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"Text {', '.join(map(str, here))} has the character {row[error.start]!r} at "
                    f"position {error.start}, half of a surrogate pair; expected characters that "
                    "UTF-8 can represent."
                ) from error


def on_any_shape(
    text: Any, function: Callable[[tf.Tensor], tuple[tf.RaggedTensor, ...]]
) -> tuple[tf.Tensor | tf.RaggedTensor, ...]:
    """Applies a function of texts `(texts,)` to texts of any shape.

    Args:
        text: Strings of any shape.
        function: Maps strings `(texts,)` to a tuple of ragged tensors `(texts, None)`.

    Returns:
        A tuple of the results, each of the shape of `text` with an additional ragged dimension.

    Raises:
        ValueError: If the rank of `text` is unknown.
    """
    texts = to_tensor(text, tf.string)
    rank = texts.shape.rank
    if rank is None:
        raise ValueError("The rank of the text is unknown; set it by tf.ensure_shape.")
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
    """Converts ids to ragged int32 `(batch, None)`.

    Returns:
        A tuple of the ids, and of whether they were a batch and not a single row.

    Raises:
        ValueError: If the rank of `token_ids` is not 1 or 2.
    """
    ids = to_tensor(token_ids, tf.int32)
    if ids.shape.rank not in (1, 2):
        raise ValueError(f"token_ids has shape {ids.shape}; expected (tokens,) or (batch, tokens).")
    if isinstance(ids, tf.RaggedTensor):
        return ids, True
    is_batch = ids.shape.rank == 2
    return tf.RaggedTensor.from_tensor(ids if is_batch else ids[tf.newaxis]), is_batch
