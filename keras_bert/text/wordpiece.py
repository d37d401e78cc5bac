# SPDX-License-Identifier: Apache-2.0
"""BERT's WordPiece tokenizer, in graph, exact, with character offsets."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import tensorflow as tf

from keras_bert.text import special_tokens
from keras_bert.text.normalization import drop_invalid, normalize
from keras_bert.text.offsets import to_source_characters
from keras_bert.text.pieces import SUFFIX, PieceFinder, Pieces
from keras_bert.text.special_tokens import SPECIAL_TOKENS, TypedTokens
from keras_bert.text.vocabulary import check_vocabulary, load_vocabulary, save_vocabulary


class WordPieceTokenizer:
    """Text to the ids of word pieces and back, with the same ids as BERT's released code.

    Graph operations alone: it runs in `tf.data.Dataset.map`, a `tf.function` and a SavedModel,
    which then contains the vocabulary. No special tokens are added around a text. For every
    character assigned in Unicode 14 (Python 3.11) the ids are those of the original; bytes that are
    no UTF-8 are dropped, as there.

    Args:
        vocabulary: The tokens, a token's id being its index; or the path of a `vocab.txt`.
        lowercase: Whether to lower-case the text and strip its accents, as the uncased models
            expect.
        special_tokens_in_text: Whether `[MASK]`, `[SEP]` and the other special tokens, typed in a
            text, are one token each. If not, they are text like any other: `[`, `mask`, `]`.

    Call arguments:
        text: A string or `bytes`, or a batch of them: a list, an array, a string tensor or a ragged
            one.

    Input shape:
        `()`, `(batch,)`, or more dimensions.

    Output shape:
        `(tokens,)` for a string, else ragged `(batch, tokens)`; int32.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the vocabulary lacks `[PAD]`, `[UNK]`, `[CLS]` or `[SEP]`, or has a token
            twice, or an empty one.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "caf", "##e", "##s", "!"]
    >>> tokenizer = keras_bert.WordPieceTokenizer(tokens)
    >>> tokenizer("Cafés!").numpy().tolist()
    [5, 6, 7, 8]
    >>> tokenizer(["Café", "Bar!"]).to_list()
    [[5, 6], [1, 8]]
    >>> tokenizer.detokenize([5, 6, 7, 8]).numpy().decode()
    'cafes !'
    >>> ids, starts, ends = tokenizer.tokenize_with_offsets("Cafés!")
    >>> list(zip(starts.numpy().tolist(), ends.numpy().tolist()))
    [(0, 3), (3, 4), (4, 5), (5, 6)]

    Reference:
        [Devlin et al., 2019](https://arxiv.org/abs/1810.04805), section 3;
        [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 4.1.
    """

    def __init__(
        self,
        vocabulary: Sequence[str] | str | os.PathLike[str],
        lowercase: bool = True,
        special_tokens_in_text: bool = False,
    ) -> None:
        if isinstance(vocabulary, str | os.PathLike):
            self.vocabulary = load_vocabulary(vocabulary)
        else:
            self.vocabulary = check_vocabulary(vocabulary)
        self.lowercase = lowercase
        self.special_tokens_in_text = special_tokens_in_text
        self._ids = {token: index for index, token in enumerate(self.vocabulary)}
        present = [token for token in SPECIAL_TOKENS if token in self._ids]
        self._typed = TypedTokens(present) if special_tokens_in_text else None
        marks = self._typed.marks if self._typed else {}
        typed_as = {self._ids[token]: mark for token, mark in marks.items()}
        self._find_pieces = PieceFinder(self.vocabulary, self.unk_token_id, typed_as)
        # A constant made while a graph is being built would belong to that graph alone.
        with tf.init_scope(), tf.device("CPU:0"):
            self._tokens = tf.constant(self.vocabulary)
            self._special_ids = tf.constant([self._ids[token] for token in present])

    def __call__(self, text: Any) -> tf.Tensor | tf.RaggedTensor:
        """The ids of a text or of a batch of texts."""
        (ids,) = _on_any_shape(text, self._tokenize)
        return ids

    def tokenize_with_offsets(
        self, text: Any
    ) -> tuple[
        tf.Tensor | tf.RaggedTensor, tf.Tensor | tf.RaggedTensor, tf.Tensor | tf.RaggedTensor
    ]:
        """The ids of texts, and where in the text each token lies.

        A token's place is the smallest span of characters that contains all of which it has a part;
        `[UNK]` covers its word. Places are Unicode code points of the text as it was given, invalid
        bytes left out, and never go backwards. A character that became several pieces is the place
        of each; characters of which nothing is left, like a combining accent, lie in no place, or
        in the middle of one.

        Args:
            text: As for a call.

        Returns:
            The ids, the first character of each token, and one past its last; int32, each of the
            shape that a call returns.
        """
        ids, starts, ends = _on_any_shape(text, self._tokenize_with_offsets)
        return ids, starts, ends

    def detokenize(self, token_ids: Any, skip_special_tokens: bool = False) -> tf.Tensor:
        """The text of tokens: words and punctuation with a space between, word pieces joined.

        Args:
            token_ids: Ids, `(tokens,)` or `(batch, tokens)`: a list, a tensor or a ragged tensor.
            skip_special_tokens: Whether to leave out `[PAD]`, `[CLS]` and the like.

        Returns:
            A string tensor `()` or `(batch,)`.

        Raises:
            tf.errors.InvalidArgumentError: If an id is not of the vocabulary.
        """
        ids = _to_tensor(token_ids, tf.int32)
        if ids.shape.rank == 1:
            return self.detokenize(ids[tf.newaxis], skip_special_tokens)[0]
        if ids.shape.rank != 2:
            raise ValueError(
                f"token_ids has shape {ids.shape}; expected (tokens,) or (batch, tokens)."
            )
        with tf.device("CPU:0"):
            if not isinstance(ids, tf.RaggedTensor):
                ids = tf.RaggedTensor.from_tensor(ids)
            if skip_special_tokens:
                is_special = tf.reduce_any(ids.flat_values[:, None] == self._special_ids, axis=1)
                ids = tf.ragged.boolean_mask(ids, ids.with_flat_values(~is_special))
            tokens = ids.with_flat_values(tf.gather(self._tokens, ids.flat_values))
            text = tf.strings.reduce_join(tokens, axis=1, separator=" ")
            return tf.strings.regex_replace(text, f" {SUFFIX}", "")

    @property
    def vocabulary_size(self) -> int:
        """How many tokens there are."""
        return len(self.vocabulary)

    @property
    def pad_token_id(self) -> int:
        """Id of `[PAD]`."""
        return self.token_to_id(special_tokens.PADDING)

    @property
    def unk_token_id(self) -> int:
        """Id of `[UNK]`."""
        return self.token_to_id(special_tokens.UNKNOWN)

    @property
    def cls_token_id(self) -> int:
        """Id of `[CLS]`."""
        return self.token_to_id(special_tokens.CLASSIFY)

    @property
    def sep_token_id(self) -> int:
        """Id of `[SEP]`."""
        return self.token_to_id(special_tokens.SEPARATE)

    @property
    def mask_token_id(self) -> int:
        """Id of `[MASK]`; a ValueError where the vocabulary has none."""
        return self.token_to_id(special_tokens.MASK)

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

    def save_vocabulary(self, path: str | os.PathLike[str]) -> None:
        """Writes the tokens to a file, one a line."""
        save_vocabulary(self.vocabulary, path)

    def get_config(self) -> dict[str, Any]:
        """Plain values, tokens included, from which `from_config` makes the same tokenizer."""
        return {
            "vocabulary": list(self.vocabulary),
            "lowercase": self.lowercase,
            "special_tokens_in_text": self.special_tokens_in_text,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The inverse of `get_config`."""
        return cls(**config)

    def _tokenize(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor]:
        marked = self._typed.mark(texts) if self._typed else texts
        return (self._find_pieces(*normalize(marked, self.lowercase)).ids,)

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        marked = drop_invalid(self._typed.mark(texts) if self._typed else texts)
        pieces = self._find_pieces(*normalize(marked, self.lowercase))
        pieces = to_source_characters(marked, self.lowercase, pieces)
        return self._typed.to_typed_characters(marked, pieces) if self._typed else pieces


def _to_tensor(values: Any, dtype: tf.DType) -> tf.Tensor | tf.RaggedTensor:
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


def _on_any_shape(
    text: Any, function: Callable[[tf.Tensor], tuple[tf.RaggedTensor, ...]]
) -> tuple[tf.Tensor | tf.RaggedTensor, ...]:
    """Calls a function of `(texts,)` with texts of any shape, and gives its results that shape."""
    texts = _to_tensor(text, tf.string)
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
            texts.with_flat_values(part) for part in _on_any_shape(texts.flat_values, function)
        )
