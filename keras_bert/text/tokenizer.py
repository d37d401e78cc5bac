# SPDX-License-Identifier: Apache-2.0
"""The base class of tokenizers. They use Python for strings and graph operations for tensors."""

from __future__ import annotations

import abc
import functools
import itertools
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from keras_bert import checks
from keras_bert.text.characters import category
from keras_bert.text.composition import compose_text, is_composed
from keras_bert.text.flat_tokens import FlatTokens, concatenate, decoded_chunks
from keras_bert.text.nesting import flatten, is_first_in_list, nest, split_rows
from keras_bert.vocabularies.tokenizer_config import (
    FIELDS,
    TRUNCATION_SIDES,
    WORDPIECE,
    check_tokenizer_config,
    without_defaults,
)

if TYPE_CHECKING:
    from keras_bert.text.graph.tokenizer import GraphTokenizer

SPECIAL_ROLES = ("pad", "unk", "cls", "sep", "mask")
"""The roles of special tokens."""

_CLASSES: dict[str, type[Tokenizer]] = {}
"""The class of each tokenizer type."""


class Tokenizer(abc.ABC):
    """Base class of tokenizers. They convert text to ids and back.

    `from_preset` creates the tokenizer for any checkpoint. Calling a tokenizer converts text to ids
    without special tokens, and `encode` adds the special tokens. Strings are converted in Python,
    and TensorFlow tensors with TensorFlow operations, eagerly or in a graph. Both give the same ids
    and offsets.

    Subclasses define their special tokens, and implement `_texts_to_ids`, `_texts_to_tokens`,
    `_ids_to_text` and `_make_graph`.

    Args:
        vocabulary: The tokens in the order of their ids.
        special_tokens_in_text: Whether special tokens in a text, such as `[MASK]`, become a single
            token each, instead of being split like other text.
        truncation_side: Side where overlong texts are truncated: `"right"` or `"left"`.

    Raises:
        ValueError: If `truncation_side` has an unsupported value.

    Example:

    ```python
    tokenizer = keras_bert.Tokenizer.from_preset("hf://google-bert/bert-base-uncased")
    ids = tokenizer.encode("A gripping film.")    # [101, 1037, 13940, 2143, 1012, 102]
    tokenizer.decode(ids)                         # "[CLS] a gripping film. [SEP]"
    tokenizer("A gripping film.")                 # [1037, 13940, 2143, 1012]
    ids, starts, ends = tokenizer.tokenize_with_offsets("A gripping film.")
    ```
    """

    kind: ClassVar[str]
    """The tokenizer type in configs."""

    pad_token: str
    unk_token: str
    cls_token: str
    sep_token: str
    mask_token: str

    pair_separators: int = 1
    """The number of special tokens between two paired texts."""

    repeats_cls: bool = False
    """Whether the last special token between two texts is the CLS token instead of a separator."""

    num_segments: int = 2
    """The number of segments in the family's encoders. With 1, all segment ids are 0."""

    mask_takes_space: bool = False
    """Whether a mask token in a text includes the preceding whitespace."""

    compose: bool = False
    """Whether to compose characters (NFC) first."""

    added_tokens: tuple[str, ...] = ()
    """Additional tokens that become a single token each wherever they occur in a text."""

    special_added_tokens: tuple[str, ...] = ()
    """The added tokens that `decode` omits like special tokens."""

    masks_with_special_tokens: ClassVar[bool] = True
    """Whether pre-training may replace a token with a random special token, as in BERT."""

    def __init__(
        self, vocabulary: tuple[str, ...], special_tokens_in_text: bool, truncation_side: str
    ) -> None:
        checks.check_choice(TRUNCATION_SIDES, truncation_side=truncation_side)
        self.vocabulary = vocabulary
        self.special_tokens_in_text = special_tokens_in_text
        self.truncation_side = truncation_side
        self._ids = {token: index for index, token in enumerate(vocabulary)}
        self._graph: GraphTokenizer | None = None
        self._lock = threading.RLock()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            _CLASSES.setdefault(cls.kind, cls)

    @classmethod
    def from_preset(
        cls, preset: str | os.PathLike[str], *, special_tokens_in_text: bool | None = None
    ) -> Self:
        """Creates a checkpoint's tokenizer without loading the weights.

        Args:
            preset: A directory, `"minilm"`, `"hf://organization/model"`, or a KerasHub preset name.
                The directory can contain a preset of this package or KerasHub, a Hugging Face
                checkpoint, a TF1 release, or just tokenizer files, such as `vocab.txt` or
                `tokenizer.json`. For a model in a `.keras` file, use
                `keras_bert.load_model(path).preprocessor.tokenizer` instead.
            special_tokens_in_text: See the class arguments. Defaults to the value in a preset of
                this package, and to `False` otherwise.

        Returns:
            A `WordPieceTokenizer`, `BytePairTokenizer` or `SentencePieceTokenizer`, depending on
            the files.

        Raises:
            keras_bert.checkpoints.CheckpointError: If files are missing or invalid, or if the
                tokenizer or its model is not supported.
            ValueError: If the tokenizer has a different class.
        """
        # This is imported here because tokenizers do not need Keras or its backend.
        from keras_bert.checkpoints.loading import open_tokenizer

        config = open_tokenizer(preset)
        kind = check_tokenizer_config(config)
        own_kind = getattr(cls, "kind", kind)
        if own_kind != kind:
            raise ValueError(
                f"The tokenizer of {os.fspath(preset)} must be a {cls.__name__}. Received: "
                f"{tokenizer_class(kind).__name__}. Or use keras_bert.Tokenizer.from_preset."
            )
        if special_tokens_in_text is not None:
            config = {**config, "special_tokens_in_text": special_tokens_in_text}
        tokenizer_type: Any = cls if hasattr(cls, "kind") else tokenizer_class(kind)
        tokenizer: Self = tokenizer_type.from_config(config)
        return tokenizer

    def special_tokens(self) -> tuple[str, ...]:
        """Returns the distinct special tokens. The vocabulary may lack some of them."""
        tokens = (self.pad_token, self.unk_token, self.cls_token, self.sep_token, self.mask_token)
        return tuple(dict.fromkeys(tokens))

    def _rename_special_tokens(self, names: Mapping[str, str] | None) -> None:
        """Replaces the class's special tokens, given by role."""
        self._special_tokens_by_role: dict[str, str] = {}
        for role, token in (names or {}).items():
            if role not in SPECIAL_ROLES:
                raise ValueError(
                    f"The roles in special_tokens must be {', '.join(SPECIAL_ROLES)}. Received: "
                    f"{role!r}"
                )
            if token != getattr(type(self), f"{role}_token"):
                setattr(self, f"{role}_token", token)
                self._special_tokens_by_role[role] = token

    def _check_added_tokens(self) -> None:
        """Checks that the vocabulary contains all added tokens."""
        for token in self.added_tokens:
            if token not in self._ids:
                raise ValueError(f"added_tokens must be in the vocabulary. Received: {token!r}")
        for name in ("normalized_tokens", "special_added_tokens"):
            for token in getattr(self, name, ()):
                if token not in self.added_tokens:
                    raise ValueError(f"{name} must be in added_tokens. Received: {token!r}")

    def __call__(self, text: Any) -> Any:
        """Converts a text or a batch of texts to ids."""
        if is_tensor(text):
            return self.graph(text)
        nested, texts = flatten(text)
        return nest(nested, split_rows(*self.flat_ids(texts)))

    def tokenize_with_offsets(self, text: Any) -> tuple[Any, Any, Any]:
        """Converts texts to ids with character offsets.

        Offsets count the Unicode code points of the original text, without invalid bytes, and never
        decrease. A token has the shortest span that contains all of its source characters. For an
        unknown token, this is the text that it replaces. If a character is split into multiple
        tokens, each token has the character's span.

        Combining marks that the tokenizer drops, for example because it is uncased, belong to the
        previous character's span. At the start of a word, they belong to the next token. The same
        applies to zero-width joiners. Other dropped characters, such as zero-width spaces, are not
        part of any span unless they are inside a token. The space before a word is not part of its
        span.

        Args:
            text: A text or a batch of texts, as in a call.

        Returns:
            A tuple of the ids, the start offsets (each token's first character) and the end offsets
            (after each token's last character). All are nested like the ids from a call.
        """
        if is_tensor(text):
            return self.graph.tokenize_with_offsets(text)
        nested, texts = flatten(text)
        *columns, lengths = self.flat_tokens(texts)
        ids, starts, ends = (nest(nested, split_rows(column, lengths)) for column in columns)
        return ids, starts, ends

    def tokenize_words(self, words: Any) -> Any:
        """Converts text that is split into words to ids.

        Args:
            words: Strings of any shape, as in a call. The last dimension contains one text's words.

        Returns:
            The ids of each word, as in a call.
        """
        if is_tensor(words):
            return self.graph.tokenize_words(words)
        nested, strings = flatten(words)
        return nest(nested, split_rows(*self.flat_words(strings, is_first_in_list(nested))))

    def flat_ids(self, texts: Sequence[str | bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Converts texts to ids in a flat array.

        Args:
            texts: Strings, or `bytes` in UTF-8. Invalid bytes are dropped.

        Returns:
            A tuple of all ids, int32 `(tokens,)`, and the number of tokens in each text, int64
            `(texts,)`.

        Raises:
            TypeError: If a text is neither a string nor `bytes`.
            ValueError: If UTF-8 cannot represent a text.
        """
        return self._chunks_to_ids(decoded_chunks(texts))

    def flat_words(
        self, words: Sequence[str | bytes], is_first: Iterable[bool] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Converts texts that are split into words to ids in a flat array.

        Args:
            words: See `flat_ids`.
            is_first: Whether each word is the first in its text, `(words,)`. By default, all words
                belong to a single text.

        Returns:
            See `flat_ids`. The lengths count the tokens of each word.
        """
        single = itertools.chain([True], itertools.repeat(False))
        flags = single if is_first is None else iter(is_first)
        return self._chunks_to_ids(
            [self._as_word(word, bool(next(flags))) for word in chunk]
            for chunk in decoded_chunks(words)
        )

    def _chunks_to_ids(self, chunks: Iterable[list[str]]) -> tuple[np.ndarray, np.ndarray]:
        if self.compose:
            chunks = (list(map(compose_text, chunk)) for chunk in chunks)
        ids, lengths = concatenate(map(self._texts_to_ids, chunks), np.int32, np.int64)
        return ids, lengths

    def flat_tokens(self, texts: Sequence[str | bytes]) -> FlatTokens:
        """Converts texts to ids with offsets in flat arrays.

        Args:
            texts: See `flat_ids`.

        Returns:
            A tuple of the ids, the starts and ends of the tokens in their texts (see
            `tokenize_with_offsets`), and the number of tokens in each text.
        """
        chunks = map(self._chunk_to_tokens, decoded_chunks(texts))
        return FlatTokens(*concatenate(chunks, np.int32, np.int32, np.int32, np.int64))

    def _chunk_to_tokens(self, texts: Sequence[str]) -> FlatTokens:
        if not self.compose or all(map(is_composed, texts)):
            return self._texts_to_tokens(texts)
        return self._texts_to_tokens(list(map(compose_text, texts))).to_original_offsets(texts)

    def encode(
        self,
        text: Any,
        text_pair: Any = None,
        *,
        add_special_tokens: bool = True,
        sequence_length: int | None = None,
    ) -> list[int] | list[list[int]]:
        """Converts texts or text pairs to ids, including special tokens.

        A task's preprocessor gives the same ids, with padding: `[CLS] A [SEP]` or
        `[CLS] A [SEP] B [SEP]`, and in RoBERTa `<s> A </s>` or `<s> A </s></s> B </s>`.

        Args:
            text: A string or `bytes`, or a batch of them: a list or an array `(batch,)`.
            text_pair: The second text or texts in the same form, or `None` for single texts.
            add_special_tokens: Whether to add the special tokens. Without them, paired texts are
                concatenated. Defaults to `True`.
            sequence_length: Maximum sequence length in tokens, including special tokens. Longer
                texts are truncated at the `truncation_side`. In pairs, the longer text loses one
                token at a time. Defaults to no limit.

        Returns:
            A list of ids, or for a batch a list of such lists.

        Raises:
            TypeError: If a text is neither a string nor `bytes`. For TensorFlow tensors, use a
                task's preprocessor.
            ValueError: If the numbers of texts and second texts differ, if `sequence_length` is too
                small for the special tokens, or if UTF-8 cannot represent a text.
        """
        columns = [self._single_texts(text, "text")]
        if text_pair is not None:
            columns.append(self._single_texts(text_pair, "text_pair"))
            (first, is_single), (second, second_is_single) = columns
            if is_single != second_is_single or len(first) != len(second):
                raise ValueError(
                    f"text and text_pair must have the same form and length. Received: "
                    f"{_count(first, is_single)} and {_count(second, second_is_single)}"
                )
        row_format = self.row_format(len(columns))
        if not add_special_tokens:
            row_format = [None] * len(columns)
        num_special_tokens = len(row_format) - len(columns)
        checks.NumberRange(at_least=num_special_tokens, integer=True).check_optional(
            sequence_length=sequence_length
        )
        limit = None if sequence_length is None else sequence_length - num_special_tokens
        tokens = [split_rows(*self.flat_ids(texts)) for texts, _ in columns]
        rows = [
            _row(row_format, self._truncate(parts, limit)) for parts in zip(*tokens, strict=True)
        ]
        return rows[0] if columns[0][1] else rows

    def _truncate(self, texts: tuple[list[int], ...], limit: int | None) -> Iterator[list[int]]:
        """Yields the ids of one text or two paired texts, with at most `limit` ids in total."""
        if limit is None:
            return iter(texts)
        limits = (limit,) if len(texts) == 1 else pair_limits(len(texts[0]), len(texts[1]), limit)
        firsts = (
            max(0, len(ids) - most) if self.truncation_side == "left" else 0
            for ids, most in zip(texts, limits, strict=True)
        )
        bounds = zip(texts, firsts, limits, strict=True)
        return (ids[first : first + most] for ids, first, most in bounds)

    def row_format(self, num_texts: int = 1) -> list[int | None]:
        """Returns the ids of the special tokens in order, with `None` for each text.

        Args:
            num_texts: 1, or 2 for a pair.
        """
        separators = [self.sep_token_id] * self.pair_separators
        if self.repeats_cls:
            separators[-1] = self.cls_token_id
        second = [] if num_texts == 1 else [*separators, None]
        return [self.cls_token_id, None, *second, self.sep_token_id]

    def _single_texts(self, text: Any, name: str) -> tuple[list[str], bool]:
        """Returns a batch of texts, and whether the input was a single text."""
        if is_tensor(text):
            raise TypeError(
                f"{name} must be strings. Received: a TensorFlow tensor. Use a task's preprocessor "
                "to encode tensors."
            )
        nested, texts = flatten(text)
        if isinstance(nested, str):
            return texts, True
        if not all(isinstance(each, str) for each in nested):
            raise TypeError(
                f"{name} must be a string or a list of strings. Received: lists of strings. Pass "
                "pairs as two lists: encode(texts, text_pair=second_texts)."
            )
        return texts, False

    def decode(self, token_ids: Any, skip_special_tokens: bool = False) -> str | list[str]:
        """Converts ids to readable text without spaces before punctuation.

        The result only differs from `detokenize` for WordPiece. `detokenize` puts spaces around all
        words and punctuation. `decode` omits them before `.`, `,`, `?` and `!`, and before tokens
        such as `'s`, like `decode` in `transformers` and `tokenizers`. Lowercased text stays
        lowercased, and other spaces remain: "don't (yet)" becomes "don ' t ( yet )".

        Args:
            token_ids: Ids, `(tokens,)` or `(batch, tokens)`: lists or arrays.
            skip_special_tokens: Whether to omit special tokens, such as padding. Defaults to
                `False`.

        Returns:
            A string or a list of strings.

        Raises:
            ValueError: If `token_ids` has a different number of dimensions, or if an id is not in
                the vocabulary.
        """
        return self._decode_rows(token_ids, skip_special_tokens, self._ids_to_readable_text)

    def detokenize(self, token_ids: Any, skip_special_tokens: bool = False) -> Any:
        """Converts ids to text. With WordPiece, spaces separate all words and punctuation.

        Args:
            token_ids: Ids, `(tokens,)` or `(batch, tokens)`: lists, arrays, or a dense or ragged
                TensorFlow tensor.
            skip_special_tokens: Whether to omit special tokens, such as padding. Defaults to
                `False`.

        Returns:
            A string or a list of strings. For a tensor, a string tensor of shape `()` or
            `(batch,)`.

        Raises:
            ValueError: If `token_ids` has a different number of dimensions, or if an id is not in
                the vocabulary. For a tensor, an invalid id raises `tf.errors.InvalidArgumentError`.
        """
        if is_tensor(token_ids):
            return self.graph.detokenize(token_ids, skip_special_tokens)
        return self._decode_rows(token_ids, skip_special_tokens, self._ids_to_text)

    def _decode_rows(
        self, token_ids: Any, skip_special_tokens: bool, join: Callable[[Sequence[int]], str]
    ) -> str | list[str]:
        """Converts each sequence of ids with `join`, optionally without special tokens."""
        rows = list(token_ids) if np.iterable(token_ids) else []
        special = frozenset(self.skipped_token_ids if skip_special_tokens else ())
        if rows and all(map(np.iterable, rows)):
            return [join(self._validate_ids(row, special)) for row in rows]
        return join(self._validate_ids(token_ids, special))

    def _validate_ids(self, token_ids: Any, skipped: Collection[int]) -> list[int]:
        ids = np.asarray(token_ids)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(
                "token_ids must be integers, (tokens,) or (batch, tokens). Received: sequences of "
                f"shape {ids.shape} and type {ids.dtype}"
            )
        wrong = ids[(ids < 0) | (ids >= len(self.vocabulary))]
        if wrong.size:
            raise ValueError(
                f"Token ids must be in [0, {len(self.vocabulary)}). Received: {wrong[0]}"
            )
        return [index for index in ids.tolist() if index not in skipped]

    @property
    def graph(self) -> GraphTokenizer:
        """This tokenizer as TensorFlow operations, created when it is first used."""
        with self._lock:
            if self._graph is None:
                try:
                    self._graph = self._make_graph()
                except ModuleNotFoundError as error:
                    if error.name != "tensorflow_text":
                        raise
                    raise ModuleNotFoundError(
                        "String tensors require the package tensorflow-text, but it is not "
                        "installed. It has no Windows wheels. Pass strings instead.",
                        name=error.name,
                    ) from error
            return self._graph

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
        """The id of the unknown token. It replaces text that the vocabulary cannot represent."""
        return self.token_to_id(self.unk_token)

    @property
    def cls_token_id(self) -> int:
        """The id of the token at the start of each sequence (`[CLS]`)."""
        return self.token_to_id(self.cls_token)

    @property
    def sep_token_id(self) -> int:
        """The id of the token at the end of each text (`[SEP]`)."""
        return self.token_to_id(self.sep_token)

    @property
    def mask_token_id(self) -> int:
        """The id of the mask token. Raises a `ValueError` if the vocabulary has no mask token."""
        return self.token_to_id(self.mask_token)

    @property
    def special_token_ids(self) -> list[int]:
        """The ids of the special tokens in the vocabulary."""
        return [self._ids[token] for token in self.special_tokens() if token in self._ids]

    @property
    def skipped_token_ids(self) -> list[int]:
        """The ids that `decode` omits with `skip_special_tokens`."""
        return [*self.special_token_ids, *map(self.token_to_id, self.special_added_tokens)]

    @property
    @abc.abstractmethod
    def continuation_token_ids(self) -> Sequence[int]:
        """The ids of tokens that continue the previous token's word."""

    def token_to_id(self, token: str) -> int:
        """Returns a token's id.

        Raises:
            ValueError: If the token is not in the vocabulary.
        """
        if token not in self._ids:
            raise ValueError(
                f"token must be in the vocabulary of {len(self._ids)} tokens. Received: {token!r}"
            )
        return self._ids[token]

    def id_to_token(self, token_id: int) -> str:
        """Returns the token with an id.

        Raises:
            ValueError: If the id is out of range.
        """
        if not 0 <= token_id < len(self.vocabulary):
            raise ValueError(
                f"Token ids must be in [0, {len(self.vocabulary)}). Received: {token_id}"
            )
        return self.vocabulary[token_id]

    def get_config(self) -> dict[str, Any]:
        """Returns the config, including the vocabulary. `from_config` creates a copy from it."""
        kind = {} if self.kind == WORDPIECE else {"kind": self.kind}
        return {**kind, **without_defaults(self.kind, self._config_values())}

    def _config_values(self) -> dict[str, Any]:
        """Returns the values of all config fields."""
        values = {name: checks.plain(getattr(self, name)) for name in FIELDS[self.kind]}
        values = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }
        return {**values, "special_tokens": self._special_tokens_by_role or None}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a tokenizer from a config that `get_config` returned.

        Raises:
            ValueError: If a field is missing or unknown or has the wrong type. File paths are not
                supported.
        """
        check_tokenizer_config({**config, "kind": cls.kind})
        return cls(**{name: value for name, value in config.items() if name != "kind"})

    def token_text(self, token_id: int) -> str:
        """Returns the token's text inside a longer text, including the preceding space."""
        return self.id_to_token(token_id)

    @functools.cached_property
    def with_special_tokens_in_text(self) -> Self:
        """This tokenizer if it finds special tokens in text, otherwise a copy that does."""
        if self.special_tokens_in_text:
            return self
        return self.from_config({**self.get_config(), "special_tokens_in_text": True})

    def with_added_tokens(self, tokens: Sequence[str]) -> Self:
        """Returns a copy with more tokens, such as entity markers, that text never splits.

        Each token is found literally, in the same case, wherever it occurs in a text, even inside a
        word. If multiple tokens start at the same character, the longest is found. This matches
        `AddedToken(token, normalized=False)` in the `tokenizers` library. New tokens get the next
        ids. A token in the vocabulary, such as `[unused1]`, keeps its id.

        A model for the copy needs an embedding for each new token. `Task.with_added_tokens` creates
        the tokenizer and the model together.

        Args:
            tokens: The tokens.

        Returns:
            A tokenizer of the same class. This tokenizer is not changed.

        Raises:
            TypeError: If `tokens` is a string.
            ValueError: If a token is empty, has whitespace around it, contains a control
                character, is a duplicate or a special token, or if text is already split into it,
                such as a word.

        Example:

        >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<", ">", "e", "##1", "film"]
        >>> tokenizer = keras_bert.WordPieceTokenizer(tokens)
        >>> tokenizer("<e1> film")
        [5, 7, 8, 6, 9]
        >>> tokenizer.with_added_tokens(["<e1>"])("<e1> film")
        [10, 9]
        """
        if isinstance(tokens, str):
            raise TypeError(f"tokens must be a list of strings. Received: {tokens!r}")
        tokens = list(tokens)
        for index, token in enumerate(tokens):
            self._check_new_token(token)
            if token in tokens[:index]:
                raise ValueError(f"tokens must not contain duplicates. Received: {token!r} twice")
        added = [token for token in tokens if token not in self.added_tokens]
        new = [token for token in added if token not in self._ids]
        return self.from_config(
            {
                **self.get_config(),
                **self._extend_vocabulary(new),
                "added_tokens": [*self.added_tokens, *added],
            }
        )

    def _check_new_token(self, token: Any) -> None:
        """Checks a token to add."""
        if not isinstance(token, str) or _has_control_characters(token) or token != token.strip():
            raise ValueError(
                "Added tokens must be strings without whitespace around them and without control "
                f"characters. Received: {token!r}"
            )
        if not token or token in self.special_tokens():
            raise ValueError(
                f"Added tokens must not be empty or special tokens. Received: {token!r}"
            )
        if token in self._ids and token not in self.added_tokens and self._occurs_in_text(token):
            raise ValueError(
                "Added tokens must be new tokens, or tokens in the vocabulary that no text is "
                f"split into, such as [unused1]. Received: {token!r} (token {self._ids[token]})"
            )

    @abc.abstractmethod
    def _occurs_in_text(self, token: str) -> bool:
        """Returns whether text can be split into a token of the vocabulary."""

    def _extend_vocabulary(self, tokens: Sequence[str]) -> dict[str, Any]:
        """Returns the config fields for a vocabulary with new tokens at the end."""
        return {"vocabulary": [*self.vocabulary, *tokens]}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.from_config(self.get_config())

    @abc.abstractmethod
    def _texts_to_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Converts composed texts to ids (any integer type) and the number of ids in each text."""

    @abc.abstractmethod
    def _texts_to_tokens(self, texts: Sequence[str]) -> FlatTokens:
        """Converts composed texts to ids with offsets in characters (any integer type)."""

    @abc.abstractmethod
    def _ids_to_text(self, ids: Sequence[int]) -> str:
        """Converts ids to text."""

    def _ids_to_readable_text(self, ids: Sequence[int]) -> str:
        """Converts ids to the text that `decode` returns."""
        return self._ids_to_text(ids)

    @abc.abstractmethod
    def _make_graph(self) -> GraphTokenizer:
        """Creates this tokenizer as TensorFlow operations."""

    def _as_word(self, word: str, is_first: bool) -> str:
        """Returns the text to tokenize for a word, possibly with a prefix."""
        return word


def tokenizer_class(kind: str) -> type[Tokenizer]:
    """Returns the tokenizer class for a type.

    The classes in this package are registered when `keras_bert.text` is imported.
    """
    return _CLASSES[kind]


def pair_limits(
    first: Any, second: Any, max_tokens: int, maximum: Callable[[Any, Any], Any] = max
) -> tuple[Any, Any]:
    """Returns the maximum number of tokens to keep of each of two paired texts.

    The result is the same as if the longer text (on a tie, the second) lost one token at a time,
    but without a loop. Each text may keep up to half of the tokens, and the longer text also gets
    the rest of the other half. The numbers may be arrays if `maximum` supports them.
    """
    half = max_tokens // 2
    return (
        maximum(max_tokens - second, max_tokens - half),
        maximum(max_tokens - first, half),
    )


def _has_control_characters(token: str) -> bool:
    return any(category(character) == "Cc" for character in token)


def is_tensor(value: Any) -> bool:
    """Returns whether a value is a TensorFlow tensor, ragged or not, without importing it."""
    return type(value).__module__.startswith("tensorflow.")


def _row(row_format: Iterable[int | None], texts: Iterator[list[int]]) -> list[int]:
    """Puts the ids of texts between special tokens."""
    id_lists = (next(texts) if token is None else [token] for token in row_format)
    return list(itertools.chain.from_iterable(id_lists))


def _count(texts: Sequence[str], is_single: bool) -> str:
    return "a single string" if is_single else f"{len(texts)} strings"
