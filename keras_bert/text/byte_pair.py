# SPDX-License-Identifier: Apache-2.0
"""RoBERTa's byte-level BPE tokenizer with graph operations, exact and with character offsets.

Text is split into words, each including the space before it, whose bytes are merged to tokens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.text.graph_functions import traced_once
from keras_bert.text.normalization import WHITE_SPACE, drop_invalid
from keras_bert.text.offsets import Pieces
from keras_bert.text.special_tokens import TypedSegments
from keras_bert.text.tokenizer import Tokenizer, on_any_shape
from keras_bert.vocabularies.byte_pair_files import (
    SPACE,
    byte_characters,
    check_merge,
    load_merges,
    load_tokens,
    save_tokens_and_merges,
    token_bytes,
)
from keras_bert.vocabularies.vocab_txt import check_vocabulary

OTHER, LETTER, NUMBER, SPACES = range(4)
"""The kinds of characters that words are made of."""

_BLANK, _APOSTROPHE = ord(" "), ord("'")
# Contractions after an apostrophe, which are words of their own
_ONE_LETTER_ENDINGS = ("s", "t", "m", "d")
_TWO_LETTER_ENDINGS = ("re", "ve", "ll")
_NO_RANK = 2**62


class BytePairTokenizer(Tokenizer):
    """A byte-level byte-pair encoding (BPE) tokenizer, with the same ids as RoBERTa's.

    It uses graph operations only, and so runs in `tf.data.Dataset.map`, a `tf.function` and a
    SavedModel, which then contains the vocabulary (and must track `resources`). It does not add
    special tokens around a text. Bytes that are not valid UTF-8 are dropped. Characters that were
    added after Unicode 15 are not recognized as letters or numbers by TensorFlow.

    Args:
        vocabulary: The tokens in the order of their ids, or the path of a `vocab.json`. Their
            characters represent bytes, `Ġ` the space. `<s>`, `</s>`, `<pad>` and `<unk>` are
            required, and `<mask>` for masking.
        merges: The pairs of tokens to merge, such as `"Ġ t"`, in the order in which they were
            learned; or the path of a `merges.txt`.
        add_prefix_space: Whether to tokenize the first word of a text as if it followed a space.
        special_tokens_in_text: Whether `<mask>` (including the whitespace before it), `</s>` and
            the other special tokens are one token each where they occur in a text. If not, they
            are split like other text.

    Call arguments:
        text: A string or `bytes`, or a batch of them: a list, an array, a string tensor or a ragged
            tensor.

    Input shape:
        `()`, `(batch,)`, or more dimensions.

    Output shape:
        int32 `(tokens,)` for a single string, otherwise ragged `(batch, tokens)`.

    Raises:
        FileNotFoundError: If a file does not exist.
        TypeError: If a token or a merge is not a string.
        ValueError: If the vocabulary lacks a special token or has a duplicate, or a merge is not of
            two tokens whose concatenation is a token.

    Example:

    >>> from keras_bert.text import BytePairTokenizer
    >>> tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "h", "i", "Ġ", "hi", "Ġhi"]
    >>> tokenizer = BytePairTokenizer(tokens, ["h i", "Ġ hi"])
    >>> tokenizer("hi hi  hi").numpy().tolist()
    [8, 9, 7, 9]
    >>> tokenizer.detokenize([8, 9]).numpy().decode()
    'hi hi'
    >>> ids, starts, ends = tokenizer.tokenize_with_offsets("hi hi")
    >>> list(zip(starts.numpy().tolist(), ends.numpy().tolist()))
    [(0, 2), (3, 5)]

    Reference:
        [RoBERTa](https://arxiv.org/abs/1907.11692), section 4.4;
        [Sennrich et al., 2016](https://arxiv.org/abs/1508.07909).
    """

    kind = "byte_pair"
    pad_token, unk_token, mask_token = "<pad>", "<unk>", "<mask>"
    cls_token, sep_token = "<s>", "</s>"
    pair_separators = 2
    num_segments = 1
    mask_takes_space = True
    masks_with_special_tokens = False

    def __init__(
        self,
        vocabulary: Sequence[str] | str | os.PathLike[str],
        merges: Sequence[str] | str | os.PathLike[str],
        add_prefix_space: bool = False,
        special_tokens_in_text: bool = False,
    ) -> None:
        required = (self.cls_token, self.pad_token, self.sep_token, self.unk_token)
        if isinstance(vocabulary, str | os.PathLike):
            vocabulary = load_tokens(vocabulary)
        if isinstance(merges, str | os.PathLike):
            merges = load_merges(merges)
        super().__init__(check_vocabulary(vocabulary, required), special_tokens_in_text)
        self.merges = tuple(merges)
        self.add_prefix_space = add_prefix_space
        special = set(self.special_token_ids)
        pieces = [
            None if index in special else token_bytes(token)
            for index, token in enumerate(self.vocabulary)
        ]
        byte_ids = [self._ids.get(letter, self.unk_token_id) for letter in byte_characters()]
        self._merge = PieceMerger(pieces, _merged_ids(self.merges, self._ids), byte_ids)
        present = {self.vocabulary[index]: index for index in self.special_token_ids}
        self._typed = TypedSegments(present, self.mask_token) if special_tokens_in_text else None
        with tf.init_scope(), tf.device("CPU:0"):
            self._texts = tf.constant(
                [
                    token.encode("utf-8") if piece is None else piece
                    for token, piece in zip(self.vocabulary, pieces, strict=True)
                ]
            )
            # An unknown token is a byte that is not in the vocabulary.
            self._widths = tf.tensor_scatter_nd_update(
                tf.strings.length(self._texts), [[self.unk_token_id]], [1]
            )
            self._leading = tf.constant([_count(piece, bytes.lstrip) for piece in pieces])
            self._trailing = tf.constant([_count(piece, bytes.rstrip) for piece in pieces])

    @property
    def continuation_token_ids(self) -> list[int]:
        """The ids of tokens that do not begin with a space."""
        special = set(self.special_token_ids)
        return [
            index
            for index, token in enumerate(self.vocabulary)
            if index not in special and not token.startswith(SPACE)
        ]

    @property
    def resources(self) -> tuple[Any, ...]:
        """The lookup tables that a SavedModel with this tokenizer must track."""
        return self._merge.resources

    def tokenize_words(self, words: Any) -> tf.Tensor | tf.RaggedTensor:
        """Converts words, each a separate string, to ids, as if each followed a space."""
        (ids,) = on_any_shape(words, lambda texts: (self._tokenize(_prefixed(texts)),))
        return ids

    def token_text(self, token_id: int) -> str:
        """Returns the text of a token; a part of a character is U+FFFD."""
        token = self.id_to_token(token_id)
        if token_id in self.special_token_ids:
            return token
        return (token_bytes(token) or token.encode("utf-8")).decode("utf-8", "replace")

    def save_vocabulary(self, folder: str | os.PathLike[str]) -> None:
        """Writes the vocabulary and the merges to `vocab.json` and `merges.txt` in a folder."""
        save_tokens_and_merges(self.vocabulary, self.merges, folder)

    def get_config(self) -> dict[str, Any]:
        """Returns the config, including the vocabulary, from which `from_config` creates a copy."""
        return {
            "kind": self.kind,
            "vocabulary": list(self.vocabulary),
            "merges": list(self.merges),
            "add_prefix_space": self.add_prefix_space,
            "special_tokens_in_text": self.special_tokens_in_text,
        }

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if self._typed:
            return self._tokenize_with_offsets(texts).ids
        texts = drop_invalid(texts)
        words = split_byte_words(_prefixed(texts) if self.add_prefix_space else texts).words
        return _joined(words, self._merge(words.flat_values))

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        texts = drop_invalid(texts)
        return self._typed(texts, self._pieces) if self._typed else self._pieces(texts)

    def _pieces(self, texts: tf.Tensor) -> Pieces:
        """Splits texts `(texts,)`, valid UTF-8, into tokens with offsets in characters."""
        prefixed = _prefixed(texts) if self.add_prefix_space else texts
        split = split_byte_words(prefixed)
        ids = _joined(split.words, self._merge(split.words.flat_values))
        starts, ends = self._offsets(ids, split)
        added = tf.strings.length(prefixed) - tf.strings.length(texts)
        begin = tf.cast(split.character_splits[:-1], tf.int32) + added
        begin = tf.gather(begin, ids.value_rowids())
        return Pieces(
            ids,
            ids.with_flat_values(tf.maximum(starts - begin, 0)),
            ids.with_flat_values(ends - begin),
        )

    def _offsets(self, ids: tf.RaggedTensor, split: ByteWords) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the start and end of tokens in the characters of all texts, without spaces."""
        byte_ends = tf.cumsum(tf.gather(self._widths, ids.flat_values))
        byte_starts = tf.concat([[0], byte_ends[:-1]], axis=0)[: tf.size(byte_ends)]
        num_characters = tf.size(split.character_bytes)
        character = tf.repeat(tf.range(num_characters), split.character_bytes)
        ends = tf.gather(character, byte_ends - 1) + 1
        starts = tf.gather(character, byte_starts) + tf.gather(self._leading, ids.flat_values)
        starts = tf.minimum(starts, ends)
        return starts, tf.maximum(ends - tf.gather(self._trailing, ids.flat_values), starts)

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Concatenates the bytes of tokens; invalid UTF-8 is replaced with U+FFFD."""
        tokens = ids.with_flat_values(tf.gather(self._texts, ids.flat_values))
        text = tf.strings.reduce_join(tokens, axis=1)
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


def _merged_ids(merges: Sequence[str], ids: Mapping[str, int]) -> dict[tuple[int, int], int]:
    """Maps pairs of ids to the id of their merge, in the order in which they were learned."""
    merged: dict[tuple[int, int], int] = {}
    for index, merge in enumerate(merges):
        left, right = check_merge(merge, ids.keys(), f"Merge {index}")
        merged.setdefault((ids[left], ids[right]), ids[left + right])
    return merged


def _prefixed(texts: tf.Tensor) -> tf.Tensor:
    """Adds a space before texts that do not begin with one and are not empty."""
    return tf.strings.regex_replace(texts, r"\A([^ ])", r" \1", replace_global=False)


def _joined(words: tf.RaggedTensor, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
    """Concatenates the tokens of words, ragged `(words, None)`, to those of texts."""
    row_splits = tf.gather(pieces.row_splits, words.row_splits)
    return tf.RaggedTensor.from_row_splits(pieces.values, row_splits, validate=False)


def _count(piece: bytes | None, strip: Callable[[bytes, bytes], bytes]) -> int:
    """Counts the spaces that stripping removes."""
    return 0 if piece is None else len(piece) - len(strip(piece, b" "))


class ByteWords(NamedTuple):
    """The words of texts, and their characters.

    Args:
        words: Ragged strings `(texts, None)`, whose concatenation is the text.
        character_bytes: int32 `(characters,)`, the number of bytes of each character of all texts.
        character_splits: int64 `(texts + 1,)`, the row splits of the characters.
    """

    words: tf.RaggedTensor
    character_bytes: tf.Tensor
    character_splits: tf.Tensor


def split_byte_words(text: tf.Tensor) -> ByteWords:
    """Splits texts into words: runs of letters, of numbers, of whitespace, or of other characters.

    A single space before a word is its first character. Other whitespace is a word too, except for
    the last space, which belongs to the next word. Contractions such as `'s` are words.

    Args:
        text: String tensor `(texts,)`, valid UTF-8.

    Returns:
        `ByteWords`.

    Reference:
        [Radford et al., 2019](https://github.com/openai/gpt-2), the released code, which uses a
        regular expression with a lookahead; TensorFlow's regular expressions do not support it.
    """
    points = tf.strings.unicode_decode(text, "UTF-8")
    distinct, which = tf.unique(points.flat_values)
    letters = tf.strings.unicode_encode(distinct[:, tf.newaxis], "UTF-8")
    kinds = tf.gather(character_kinds(letters), which)
    starts = _word_starts(points.flat_values, kinds, points.row_starts())
    word_starts = tf.concat([tf.where(starts)[:, 0], points.row_splits[-1:]], axis=0)
    words = tf.RaggedTensor.from_row_splits(points.flat_values, word_starts, validate=False)
    row_splits = tf.searchsorted(word_starts, points.row_splits, out_type=tf.int64)
    return ByteWords(
        tf.RaggedTensor.from_row_splits(
            tf.strings.unicode_encode(words, "UTF-8"), row_splits, validate=False
        ),
        tf.gather(tf.strings.length(letters), which),
        points.row_splits,
    )


def character_kinds(letters: tf.Tensor) -> tf.Tensor:
    """Returns the kind of each character, int32 of the shape of `letters`."""
    kinds = tf.zeros_like(letters, tf.int32)
    for kind, pattern in (
        (LETTER, r"\p{L}"),
        (NUMBER, r"\p{N}"),
        (SPACES, f"[{WHITE_SPACE}]"),
    ):
        kinds += kind * tf.cast(tf.strings.regex_full_match(letters, pattern), tf.int32)
    return kinds


def _word_starts(points: tf.Tensor, kinds: tf.Tensor, text_starts: tf.Tensor) -> tf.Tensor:
    """Finds the first character of each word.

    Args:
        points: Code points of all texts, int32 `(characters,)`.
        kinds: The kind of each character, int32 `(characters,)`.
        text_starts: int64 `(texts,)`, the index of each text's first character; for an empty text,
            that of the next text.

    Returns:
        A bool tensor `(characters,)`.
    """
    size = tf.size(points, tf.int64)
    begins = tf.scatter_nd(text_starts[:, tf.newaxis], tf.ones_like(text_starts), [size + 1]) > 0
    begins = begins[:-1]
    before = tf.concat([[OTHER], kinds[:-1]], axis=0)
    ends = _ahead(begins, 1, True)
    is_space = kinds == SPACES
    changes = begins | (kinds != before)
    # The last whitespace character before a word is not part of the run before it
    is_last = is_space & ~ends & (_ahead(kinds, 1, SPACES) != SPACES)
    joins_next = is_last & (points == _BLANK)
    joined = _behind(joins_next, False)
    starts = (changes & ~joined) | is_last
    # === Contractions ===
    ending = starts & (points == _APOSTROPHE)
    one = ending & _spells(points, ends, _ONE_LETTER_ENDINGS)
    two = ending & _spells(points, ends, _TWO_LETTER_ENDINGS)
    inside = _behind(one, False) | _behind(two, False) | _behind(two, False, 2)
    after = _behind(one, False, 2) | _behind(two, False, 3)
    return (starts & ~inside) | after


def _spells(points: tf.Tensor, ends: tf.Tensor, endings: tuple[str, ...]) -> tf.Tensor:
    """Returns whether each character is followed by one of the endings in the same text."""
    found = tf.zeros_like(ends)
    for ending in endings:
        same = tf.ones_like(ends)
        for distance, letter in enumerate(ending, 1):
            same &= ~_ahead(ends, distance - 1, True)
            same &= _ahead(points, distance, 0) == ord(letter)
        found |= same
    return found


def _ahead(values: tf.Tensor, distance: int, filler: object) -> tf.Tensor:
    """Shifts values, so that each position has the value `distance` positions after it."""
    return tf.concat([values[distance:], tf.fill([distance], filler)], axis=0)[: tf.size(values)]


def _behind(values: tf.Tensor, filler: object, distance: int = 1) -> tf.Tensor:
    """Shifts values, so that each position has the value `distance` positions before it."""
    return tf.concat([tf.fill([distance], filler), values], axis=0)[: tf.size(values)]


class PieceMerger:
    """Merges the bytes of words to tokens, in the order in which the merges were learned.

    Words that are a single token are looked up. In all other words, in parallel, each step merges
    the pairs of the lowest rank in the word, from left to right.

    Args:
        pieces: The bytes of each token; `None` for special tokens.
        merges: The id of the merged token for each pair of ids, in the order of their ranks.
        byte_ids: The ids of the 256 bytes.

    Reference:
        [Sennrich et al., 2016](https://arxiv.org/abs/1508.07909), section 3.2.
    """

    def __init__(
        self,
        pieces: Sequence[bytes | None],
        merges: Mapping[tuple[int, int], int],
        byte_ids: Sequence[int],
    ) -> None:
        self._size = len(pieces)
        # A table cannot be empty; without merges, it has a key that no pair has.
        pairs = [left * self._size + right for left, right in merges] or [-1]
        # In eager mode, the loop would be executed by Python.
        self._merge = traced_once(self._merge_bytes)
        # Constants that are created while a graph is traced would belong to that graph alone.
        with tf.init_scope(), tf.device("CPU:0"):
            self._byte_ids = tf.constant(byte_ids, tf.int64)
            self._merged = tf.constant([*merges.values(), 0], tf.int64)
            ranks = tf.range(len(pairs), dtype=tf.int64)
            self._ranks = _table(tf.constant(pairs, tf.int64), ranks, _NO_RANK)
            # A word that is equal to a token is looked up only if merging results in that token.
            words = tf.constant([b"" if piece is None else piece for piece in pieces])
            made = self._merge(words)
            is_one = (made.row_lengths() == 1) & (
                made.to_tensor(shape=[None, 1])[:, 0] == tf.range(self._size, dtype=tf.int64)
            )
            whole = tf.where(is_one)[:, 0]
            self._whole = _table(tf.gather(words, whole), whole, -1)

    @property
    def resources(self) -> tuple[Any, ...]:
        """The lookup tables."""
        return (self._ranks, self._whole)

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Converts words to ids.

        Args:
            words: String tensor `(words,)`.

        Returns:
            Ragged int32 `(words, None)`.
        """
        distinct, which = tf.unique(words)
        ids = self._whole.lookup(distinct)
        rest = tf.where(ids < 0)[:, 0]
        merged = self._merge(tf.gather(distinct, rest))
        # The tokens of all distinct words: those looked up first, then those of merged bytes
        whole = tf.RaggedTensor.from_tensor(tf.boolean_mask(ids, ids >= 0)[:, tf.newaxis])
        rows = tf.concat([whole, merged], axis=0)
        is_rest = tf.cast(ids < 0, tf.int64)
        row = tf.where(
            ids < 0,
            whole.nrows() + tf.cumsum(is_rest, exclusive=True),
            tf.cumsum(1 - is_rest, exclusive=True),
        )
        return tf.cast(tf.gather(rows, tf.gather(row, which)), tf.int32)

    def _merge_bytes(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Merges the bytes of words to ids, ragged int64 `(words, None)`."""
        lengths = tf.strings.length(words)
        num_words = tf.size(words)
        all_bytes = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        ids = tf.gather(self._byte_ids, tf.cast(all_bytes, tf.int32))
        word = tf.repeat(tf.range(num_words), lengths)

        def step(ids: tf.Tensor, word: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
            rank = self._ranks.lookup(ids[:-1] * self._size + ids[1:])
            of_word = word[:-1]
            rank = tf.where(of_word == word[1:], rank, _NO_RANK)
            best = tf.math.unsorted_segment_min(rank, of_word, num_words)
            chosen = (rank < _NO_RANK) & (rank == tf.gather(best, of_word))
            chosen = _every_other(chosen)
            merged = tf.gather(self._merged, tf.where(chosen, rank, 0))
            ids = tf.concat([tf.where(chosen, merged, ids[:-1]), ids[-1:]], axis=0)
            kept = tf.concat([tf.ones_like(ids[:1], tf.bool), ~chosen], axis=0)
            return tf.boolean_mask(ids, kept), tf.boolean_mask(word, kept), tf.reduce_any(chosen)

        unknown_length = tf.TensorShape([None])
        ids, word, _ = tf.while_loop(
            lambda ids, word, go_on: go_on,
            step,
            (ids, word, tf.size(ids) > 1),
            shape_invariants=(unknown_length, unknown_length, tf.TensorShape([])),
        )
        return tf.RaggedTensor.from_value_rowids(
            ids, tf.cast(word, tf.int64), tf.cast(num_words, tf.int64), validate=False
        )


def _every_other(chosen: tf.Tensor) -> tf.Tensor:
    """Selects the first, third, … of each run of overlapping pairs: `aaa` is merged to `aa a`."""
    first = chosen & ~tf.concat([[False], chosen[:-1]], axis=0)
    index = tf.range(tf.size(chosen))
    begins = tf.boolean_mask(index, first)
    run = tf.maximum(tf.cumsum(tf.cast(first, tf.int32)) - 1, 0)
    begin = tf.gather(tf.concat([begins, [0]], axis=0), run)
    return chosen & ((index - begin) % 2 == 0)


def _table(keys: tf.Tensor, values: tf.Tensor, default: int) -> tf.lookup.StaticHashTable:
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.cast(values, tf.int64)), default
    )
