# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE as TensorFlow operations.

Text is split into words, each including the space before it, whose bytes are merged to tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.text.characters import WHITE_SPACE
from keras_bert.text.graph.functions import traced_once
from keras_bert.text.graph.normalization import drop_invalid
from keras_bert.text.graph.offsets import Pieces
from keras_bert.text.graph.special_tokens import SplitTexts
from keras_bert.text.graph.tokenizer import GraphTokenizer, on_any_shape
from keras_bert.text.special_tokens import TokenSplitter

OTHER, LETTER, NUMBER, SPACES = range(4)
"""The kinds of characters that words are made of."""

_BLANK, _APOSTROPHE = ord(" "), ord("'")
# Contractions after an apostrophe, which are words of their own
_ONE_LETTER_ENDINGS = ("s", "t", "m", "d")
_TWO_LETTER_ENDINGS = ("re", "ve", "ll")
_NO_RANK = 2**62


class BytePairGraph(GraphTokenizer):
    """The graph operations of a `BytePairTokenizer`. A SavedModel must track its `resources`.

    Args:
        special_token_ids: The ids of the special tokens.
        unknown_id: The id of the unknown token.
        texts: The bytes of each token.
        pieces: The bytes of each token that merging may result in; `None` for special tokens.
        merges: The id of the merged token for each pair of ids, in the order of their ranks.
        byte_ids: The ids of the 256 bytes.
        add_prefix_space: Whether to tokenize the first word of a text as if it followed a space.
        splitter: The special tokens to recognize in texts; `None` for none.
    """

    def __init__(
        self,
        special_token_ids: Sequence[int],
        unknown_id: int,
        texts: Sequence[bytes],
        pieces: Sequence[bytes | None],
        merges: Mapping[tuple[int, int], int],
        byte_ids: Sequence[int],
        add_prefix_space: bool,
        splitter: TokenSplitter | None,
    ) -> None:
        super().__init__(special_token_ids)
        self._add_prefix_space = add_prefix_space
        self._merge = PieceMerger(pieces, merges, byte_ids)
        self._split = SplitTexts(splitter) if splitter else None
        with tf.init_scope(), tf.device("CPU:0"):
            self._texts = tf.constant(list(texts))
            # An unknown token is a byte that is not in the vocabulary.
            self._widths = tf.tensor_scatter_nd_update(
                tf.strings.length(self._texts), [[unknown_id]], [1]
            )
            bare = [piece or b"" for piece in pieces]
            self._leading = tf.constant([len(piece) - len(piece.lstrip(b" ")) for piece in bare])
            self._trailing = tf.constant([len(piece) - len(piece.rstrip(b" ")) for piece in bare])

    @property
    def resources(self) -> tuple[Any, ...]:
        """The lookup tables that a SavedModel with this tokenizer must track."""
        return self._merge.resources

    def tokenize_words(self, words: Any) -> tf.Tensor | tf.RaggedTensor:
        """Converts words, each a separate string, to ids, as if each followed a space."""
        (ids,) = on_any_shape(words, lambda texts: (self._tokenize(_prefixed(texts)),))
        return ids

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if self._split:
            return self._tokenize_with_offsets(texts).ids
        texts = drop_invalid(texts)
        words = split_byte_words(_prefixed(texts) if self._add_prefix_space else texts).words
        return _joined(words, self._merge(words.flat_values))

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        texts = drop_invalid(texts)
        return self._split(texts, self._pieces) if self._split else self._pieces(texts)

    def _pieces(self, texts: tf.Tensor) -> Pieces:
        """Splits texts `(texts,)`, valid UTF-8, into tokens with offsets in characters."""
        prefixed = _prefixed(texts) if self._add_prefix_space else texts
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


def _prefixed(texts: tf.Tensor) -> tf.Tensor:
    """Adds a space before texts that do not begin with one and are not empty."""
    return tf.strings.regex_replace(texts, r"\A([^ ])", r" \1", replace_global=False)


def _joined(words: tf.RaggedTensor, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
    """Concatenates the tokens of words, ragged `(words, None)`, to those of texts."""
    row_splits = tf.gather(pieces.row_splits, words.row_splits)
    return tf.RaggedTensor.from_row_splits(pieces.values, row_splits, validate=False)


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
