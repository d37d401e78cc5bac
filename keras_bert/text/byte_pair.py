# SPDX-License-Identifier: Apache-2.0
"""RoBERTa's byte-level byte-pair tokenizer, in graph, exact, with character offsets.

Texts are split into words, each with the space before it, and the words' bytes merged to tokens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

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
# Endings that are words of their own after an apostrophe that begins a word
_ONE_LETTER_ENDINGS = ("s", "t", "m", "d")
_TWO_LETTER_ENDINGS = ("re", "ve", "ll")
_NO_RANK = 2**62


class BytePairTokenizer(Tokenizer):
    """Text to the ids of byte-level pieces and back, with the same ids as RoBERTa's.

    Graph operations alone: it runs in `tf.data.Dataset.map`, a `tf.function` and a SavedModel,
    which then contains the vocabulary (and has to track `resources`). No special tokens are added
    around a text; bytes that are no UTF-8 are dropped. Of characters that are newer than Unicode
    15, TensorFlow does not know whether they are letters.

    Args:
        vocabulary: The tokens, a token's id being its index, or the path of a `vocab.json`. Their
            characters stand for bytes, `Ġ` for the space. `<s>`, `</s>`, `<pad>` and `<unk>` must
            be among them, and `<mask>` where tokens are masked.
        merges: The pairs that become one token, as `"Ġ t"`, the first learned first; or the path of
            a `merges.txt`.
        add_prefix_space: Whether a text's first word is tokenized as if a space preceded it.
        special_tokens_in_text: Whether `<mask>` (and the white space before it), `</s>` and the
            other special tokens, typed in a text, are one token each. If not, they are text.

    Call arguments:
        text: A string or `bytes`, or a batch of them: a list, an array, a string tensor or a ragged
            one.

    Input shape:
        `()`, `(batch,)`, or more dimensions.

    Output shape:
        `(tokens,)` for a string, else ragged `(batch, tokens)`; int32.

    Raises:
        FileNotFoundError: If there is no such file.
        TypeError: If a token or a merge is no string.
        ValueError: If the vocabulary lacks a special token or has one twice, or a merge is not of
            two tokens that make a third.

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
            # An unknown piece is a byte that the vocabulary lacks.
            self._widths = tf.tensor_scatter_nd_update(
                tf.strings.length(self._texts), [[self.unk_token_id]], [1]
            )
            self._leading = tf.constant([_count(piece, bytes.lstrip) for piece in pieces])
            self._trailing = tf.constant([_count(piece, bytes.rstrip) for piece in pieces])

    @property
    def continuation_token_ids(self) -> list[int]:
        """Ids of tokens that do not begin with a space."""
        special = set(self.special_token_ids)
        return [
            index
            for index, token in enumerate(self.vocabulary)
            if index not in special and not token.startswith(SPACE)
        ]

    @property
    def resources(self) -> tuple[Any, ...]:
        """The tables that a SavedModel with this tokenizer has to track."""
        return self._merge.resources

    def tokenize_words(self, words: Any) -> tf.Tensor | tf.RaggedTensor:
        """The ids of words, each a string of its own, as if a space preceded each."""
        (ids,) = on_any_shape(words, lambda texts: (self._tokenize(_prefixed(texts)),))
        return ids

    def token_text(self, token_id: int) -> str:
        """What a token is in a text; a part of a character is U+FFFD."""
        token = self.id_to_token(token_id)
        if token_id in self.special_token_ids:
            return token
        return (token_bytes(token) or token.encode("utf-8")).decode("utf-8", "replace")

    def save_vocabulary(self, folder: str | os.PathLike[str]) -> None:
        """Writes the tokens and the merges to `vocab.json` and `merges.txt` in a folder."""
        save_tokens_and_merges(self.vocabulary, self.merges, folder)

    def get_config(self) -> dict[str, Any]:
        """Plain values, tokens included, from which `from_config` makes the same tokenizer."""
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
        """Pieces of texts `(texts,)`, valid UTF-8, with offsets in characters."""
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
        """The offsets of pieces in the characters of all texts, without the space around them."""
        byte_ends = tf.cumsum(tf.gather(self._widths, ids.flat_values))
        byte_starts = tf.concat([[0], byte_ends[:-1]], axis=0)[: tf.size(byte_ends)]
        num_characters = tf.size(split.character_bytes)
        character = tf.repeat(tf.range(num_characters), split.character_bytes)
        ends = tf.gather(character, byte_ends - 1) + 1
        starts = tf.gather(character, byte_starts) + tf.gather(self._leading, ids.flat_values)
        starts = tf.minimum(starts, ends)
        return starts, tf.maximum(ends - tf.gather(self._trailing, ids.flat_values), starts)

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """The bytes of tokens in a row; what is no UTF-8 becomes U+FFFD."""
        tokens = ids.with_flat_values(tf.gather(self._texts, ids.flat_values))
        text = tf.strings.reduce_join(tokens, axis=1)
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


def _merged_ids(merges: Sequence[str], ids: Mapping[str, int]) -> dict[tuple[int, int], int]:
    """Which pairs of ids become which id, the first learned first."""
    merged: dict[tuple[int, int], int] = {}
    for index, merge in enumerate(merges):
        left, right = check_merge(merge, ids.keys(), f"Merge {index}")
        merged.setdefault((ids[left], ids[right]), ids[left + right])
    return merged


def _prefixed(texts: tf.Tensor) -> tf.Tensor:
    """Texts that begin with a space; empty ones stay so."""
    return tf.strings.regex_replace(texts, r"\A([^ ])", r" \1", replace_global=False)


def _joined(words: tf.RaggedTensor, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
    """Pieces of words, ragged `(words, pieces)`, as those of texts."""
    row_splits = tf.gather(pieces.row_splits, words.row_splits)
    return tf.RaggedTensor.from_row_splits(pieces.values, row_splits, validate=False)


def _count(piece: bytes | None, strip: Callable[[bytes, bytes], bytes]) -> int:
    """How many spaces stripping takes away."""
    return 0 if piece is None else len(piece) - len(strip(piece, b" "))


class ByteWords(NamedTuple):
    """The words of texts, and the characters that they are made of.

    Args:
        words: Ragged strings `(texts, words)`; joined, they are the text.
        character_bytes: int32 `(characters,)`, how many bytes each character of all texts has.
        character_splits: int64 `(texts + 1,)`, where each text's characters begin.
    """

    words: tf.RaggedTensor
    character_bytes: tf.Tensor
    character_splits: tf.Tensor


def split_byte_words(text: tf.Tensor) -> ByteWords:
    """Splits texts into words of letters, of numbers, of white space and of anything else.

    The space before a word is its first character. More white space than one space is a word
    too, without the space that the next word takes. Endings like `'s` are words.

    Args:
        text: String tensor `(texts,)`, valid UTF-8.

    Reference:
        [Radford et al., 2019](https://github.com/openai/gpt-2), released code: a regular
        expression with a lookahead, which TensorFlow's expressions do not have.
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
    """What each character is; int32 of the strings' shape."""
    kinds = tf.zeros_like(letters, tf.int32)
    for kind, pattern in (
        (LETTER, r"\p{L}"),
        (NUMBER, r"\p{N}"),
        (SPACES, f"[{WHITE_SPACE}]"),
    ):
        kinds += kind * tf.cast(tf.strings.regex_full_match(letters, pattern), tf.int32)
    return kinds


def _word_starts(points: tf.Tensor, kinds: tf.Tensor, text_starts: tf.Tensor) -> tf.Tensor:
    """Where words begin; bool `(characters,)`.

    Args:
        points: int32 `(characters,)` of all texts.
        kinds: Their kinds.
        text_starts: int64 `(texts,)`, where each text begins; a text without characters begins
            where the next one does.
    """
    size = tf.size(points, tf.int64)
    begins = tf.scatter_nd(text_starts[:, tf.newaxis], tf.ones_like(text_starts), [size + 1]) > 0
    begins = begins[:-1]
    before = tf.concat([[OTHER], kinds[:-1]], axis=0)
    ends = _ahead(begins, 1, True)
    is_space = kinds == SPACES
    changes = begins | (kinds != before)
    # The last white space in front of a word belongs to no run
    is_last = is_space & ~ends & (_ahead(kinds, 1, SPACES) != SPACES)
    joins_next = is_last & (points == _BLANK)
    joined = _behind(joins_next, False)
    starts = (changes & ~joined) | is_last
    # === Endings ===
    ending = starts & (points == _APOSTROPHE)
    one = ending & _spells(points, ends, _ONE_LETTER_ENDINGS)
    two = ending & _spells(points, ends, _TWO_LETTER_ENDINGS)
    inside = _behind(one, False) | _behind(two, False) | _behind(two, False, 2)
    after = _behind(one, False, 2) | _behind(two, False, 3)
    return (starts & ~inside) | after


def _spells(points: tf.Tensor, ends: tf.Tensor, endings: tuple[str, ...]) -> tf.Tensor:
    """Whether the characters after each one, in the same text, are one of the endings."""
    found = tf.zeros_like(ends)
    for ending in endings:
        same = tf.ones_like(ends)
        for distance, letter in enumerate(ending, 1):
            same &= ~_ahead(ends, distance - 1, True)
            same &= _ahead(points, distance, 0) == ord(letter)
        found |= same
    return found


def _ahead(values: tf.Tensor, distance: int, filler: object) -> tf.Tensor:
    """The values shifted: each position gets the value `distance` positions after it."""
    return tf.concat([values[distance:], tf.fill([distance], filler)], axis=0)[: tf.size(values)]


def _behind(values: tf.Tensor, filler: object, distance: int = 1) -> tf.Tensor:
    """The values shifted: each position gets the value `distance` positions before it."""
    return tf.concat([tf.fill([distance], filler), values], axis=0)[: tf.size(values)]


class PieceMerger:
    """Merges the bytes of words into pieces, in the order in which the merges were learned.

    Words that are one piece are looked up. In the others, step by step and all words together,
    every pair of the lowest rank in its word becomes one piece, from left to right.

    Args:
        pieces: The bytes of each token; `None` for special tokens.
        merges: Pairs of ids and the id that each makes, in the order of their ranks.
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
        pairs = [left * self._size + right for left, right in merges]
        # Outside of graphs the loop would be one of Python's.
        self._merge = tf.function(
            self._merge_bytes, [tf.TensorSpec([None], tf.string)], autograph=False
        )
        # Constants made while a graph is being built would belong to that graph alone.
        with tf.init_scope(), tf.device("CPU:0"):
            self._byte_ids = tf.constant(byte_ids, tf.int64)
            self._merged = tf.constant([*merges.values(), 0], tf.int64)
            ranks = tf.range(len(pairs), dtype=tf.int64)
            self._ranks = _table(tf.constant(pairs, tf.int64), ranks, _NO_RANK)
            # A token is one piece as a word only if the merges lead to it.
            words = tf.constant([b"" if piece is None else piece for piece in pieces])
            made = self._merge(words)
            is_one = (made.row_lengths() == 1) & (
                made.to_tensor(shape=[None, 1])[:, 0] == tf.range(self._size, dtype=tf.int64)
            )
            whole = tf.where(is_one)[:, 0]
            self._whole = _table(tf.gather(words, whole), whole, -1)

    @property
    def resources(self) -> tuple[Any, ...]:
        """The tables."""
        return (self._ranks, self._whole)

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        """The pieces of words.

        Args:
            words: String tensor `(words,)`.

        Returns:
            Ragged int32 `(words, pieces)`.
        """
        distinct, which = tf.unique(words)
        ids = self._whole.lookup(distinct)
        rest = tf.where(ids < 0)[:, 0]
        merged = self._merge(tf.gather(distinct, rest))
        # The pieces of all distinct words: those looked up first, then those made by merges
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
        """Ids of merged bytes, ragged int64 `(words, pieces)`."""
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
    """The first, third, … of each run of chosen pairs: of `aaa`, the first two are merged."""
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
