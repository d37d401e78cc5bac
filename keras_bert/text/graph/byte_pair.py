# SPDX-License-Identifier: Apache-2.0
"""BPE as TensorFlow operations.

Text is split into words that include the preceding space, and each word's bytes are merged to
tokens. With byte fallback, text is split into chunks that no merge crosses, and their characters
are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.text.characters import WHITE_SPACE
from keras_bert.text.graph.functions import function_of_texts
from keras_bert.text.graph.normalization import drop_invalid, encode_characters, encode_texts
from keras_bert.text.graph.offsets import Pieces
from keras_bert.text.graph.rows import is_first_in_row, repeat, row_ids, select
from keras_bert.text.graph.special_tokens import SplittingGraph
from keras_bert.text.graph.tokenizer import first_in_rows, on_any_shape
from keras_bert.text.merges import count_blanks, single_ranks
from keras_bert.text.special_tokens import TokenSplitter
from keras_bert.vocabularies.byte_pair_files import BLANK

OTHER, LETTER, NUMBER, SPACES = range(4)
"""The character types in words."""

_BLANK, _APOSTROPHE, _NEWLINE, _RETURN = map(ord, " '\n\r")
# The long s equals s without case.
_LONG_S = 0x17F
# The contractions that are separate words, without the apostrophe
_ONE_LETTER_ENDINGS = ("s", "t", "m", "d")
_TWO_LETTER_ENDINGS = ("re", "ve", "ll")
_MOST_DIGITS = 3
_NO_RANK = 2**62
# Greater than all code points
_NUM_POINTS = 2**21


class BytePairGraph(SplittingGraph):
    """The graph operations of a `BytePairTokenizer`. A SavedModel must track its `resources`.

    Args:
        texts: The bytes of each token.
        pieces: The bytes of each token that can result from merging, or `None` for special tokens.
        merges: The id of the merged token for each pair of ids, in the order of their ranks.
        byte_ids: The ids of the 256 bytes.
        characters: With byte fallback, the id of each single-character token. Otherwise `None`.
        joints: With byte fallback, the pairs of characters that merges join, as strings of two
            characters.
        runs: See `longest_runs`.
    """

    def __init__(
        self,
        special_token_ids: Sequence[int],
        unknown_id: int,
        texts: Sequence[bytes],
        pieces: Sequence[bytes | None],
        merges: Mapping[tuple[int, int], int],
        byte_ids: Sequence[int],
        splitter: TokenSplitter | None,
        *,
        characters: Mapping[str, int] | None,
        joints: Collection[str],
        runs: Mapping[str, int],
        add_prefix_space: bool,
        word_pattern: str,
        compose: bool,
        ignore_merges: bool,
        space_before_first_word: bool,
    ) -> None:
        super().__init__(special_token_ids, splitter, compose)
        self._add_prefix_space = add_prefix_space
        self._byte_fallback = characters is not None
        self._joints = None if characters is None else _Joints(joints, runs)
        self._word_starts = self._joints or _WORD_STARTS[word_pattern]
        self._space_before_first_word = space_before_first_word
        self._merge = PieceMerger(pieces, merges, byte_ids, ignore_merges, characters)
        with tf.init_scope(), tf.device("CPU:0"):
            self._texts = tf.constant(list(texts))
            # An unknown token is a byte outside the vocabulary.
            bare = [
                text if piece is None else piece for text, piece in zip(texts, pieces, strict=True)
            ]
            self._widths = tf.tensor_scatter_nd_update(
                tf.constant([len(piece) for piece in bare]), [[unknown_id]], [1]
            )
            space = BLANK if self._byte_fallback else " "
            blanks = [count_blanks(piece or b"", space) for piece in pieces]
            self._leading, self._trailing = map(tf.constant, zip(*blanks, strict=True))

    @property
    def resources(self) -> tuple[Any, ...]:
        """The lookup tables that a SavedModel with this tokenizer must track."""
        joints = self._joints.resources if self._joints else ()
        return (*self._merge.resources, *super().resources, *joints)

    def tokenize_words(self, words: Any, is_first: Any = None) -> tf.Tensor | tf.RaggedTensor:
        """Converts separate words to ids as if they followed a space."""
        with tf.device("CPU:0"):
            if self._space_before_first_word:
                is_first = None
            elif is_first is None:
                is_first = first_in_rows(words)

        def ids_of_words(texts: tf.Tensor) -> tuple[tf.RaggedTensor]:
            prefixed_texts = _add_prefix(texts)
            return (
                self(
                    prefixed_texts
                    if is_first is None
                    else tf.where(is_first, texts, prefixed_texts)
                ),
            )

        (ids,) = on_any_shape(words, ids_of_words)
        return ids

    def _valid(self, texts: tf.Tensor) -> tf.Tensor:
        return drop_invalid(texts)

    def _ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words = split_byte_words(self._as_merged(texts), self._word_starts).words
        return _concatenate(words, self._merge(words.flat_values))

    def _as_merged(self, texts: tf.Tensor) -> tf.Tensor:
        """Prepares texts for splitting into words, and adds a space before them if configured."""
        texts = _add_prefix(texts) if self._add_prefix_space else texts
        return tf.strings.regex_replace(texts, " ", BLANK) if self._byte_fallback else texts

    def _pieces(self, texts: tf.Tensor) -> Pieces:
        prefixed_texts = self._as_merged(texts)
        byte_words = split_byte_words(prefixed_texts, self._word_starts)
        ids = _concatenate(byte_words.words, self._merge(byte_words.words.flat_values))
        starts, ends = self._offsets(ids, byte_words)
        num_added = tf.strings.length(prefixed_texts, unit="UTF8_CHAR")
        num_added -= tf.strings.length(texts, unit="UTF8_CHAR")
        begin = tf.cast(byte_words.character_splits[:-1], tf.int32) + num_added
        begin = tf.gather(begin, row_ids(ids))
        return Pieces(ids, ids, ids).with_offsets(tf.maximum(starts - begin, 0), ends - begin)

    def _offsets(self, ids: tf.RaggedTensor, byte_words: ByteWords) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns token starts and ends, without spaces, in the characters of all texts."""
        byte_ends = tf.cumsum(tf.gather(self._widths, ids.flat_values))
        byte_starts = tf.concat([[0], byte_ends[:-1]], axis=0)[: tf.size(byte_ends)]
        num_characters = tf.size(byte_words.character_bytes)
        character = repeat(tf.range(num_characters), byte_words.character_bytes)
        ends = tf.gather(character, byte_ends - 1) + 1
        starts = tf.gather(character, byte_starts) + tf.gather(self._leading, ids.flat_values)
        starts = tf.minimum(starts, ends)
        return starts, tf.maximum(ends - tf.gather(self._trailing, ids.flat_values), starts)

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Concatenates the bytes of tokens. Invalid UTF-8 is replaced with U+FFFD."""
        tokens = ids.with_flat_values(tf.gather(self._texts, ids.flat_values))
        text = tf.strings.reduce_join(tokens, axis=1)
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


def _add_prefix(texts: tf.Tensor) -> tf.Tensor:
    """Adds a space before nonempty texts that do not start with a space."""
    return tf.strings.regex_replace(texts, r"\A([^ ])", r" \1", replace_global=False)


def _concatenate(words: tf.RaggedTensor, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
    """Concatenates the tokens of words, ragged `(words, None)`, for each text."""
    row_splits = tf.gather(pieces.row_splits, words.row_splits)
    return tf.RaggedTensor.from_row_splits(pieces.values, row_splits, validate=False)


class ByteWords(NamedTuple):
    """The words of texts and their characters.

    Args:
        words: Ragged strings `(texts, None)`. The words of each text add up to the text.
        character_bytes: The size of each character in bytes, int32 `(characters,)`.
        character_splits: The row splits of the characters, int64 `(texts + 1,)`.
    """

    words: tf.RaggedTensor
    character_bytes: tf.Tensor
    character_splits: tf.Tensor


WordStarts = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""Finds the first character of each word.

The arguments are the code points of all texts, int32 `(characters,)`, the type of each character,
int32 `(characters,)`, and whether it is the first in its text, bool `(characters,)`. The function
returns a bool tensor `(characters,)`.
"""


def split_byte_words(text: tf.Tensor, word_starts: WordStarts) -> ByteWords:
    """Splits texts into words. See `keras_bert.text.byte_pair.byte_word_splitter`.

    TensorFlow does not support lookahead, so that function's regular expressions cannot be used.
    """
    points = tf.strings.unicode_decode(text, "UTF-8")
    distinct, which = tf.unique(points.flat_values)
    letters = encode_characters(distinct)
    kinds = tf.gather(character_kinds(letters), which)
    starts = word_starts(points.flat_values, kinds, is_first_in_row(points))
    borders = tf.concat([tf.where(starts)[:, 0], points.row_splits[-1:]], axis=0)
    words = tf.RaggedTensor.from_row_splits(points.flat_values, borders, validate=False)
    row_splits = tf.searchsorted(borders, points.row_splits, out_type=tf.int64)
    return ByteWords(
        tf.RaggedTensor.from_row_splits(encode_texts(words), row_splits, validate=False),
        tf.gather(tf.strings.length(letters), which),
        points.row_splits,
    )


def character_kinds(letters: tf.Tensor) -> tf.Tensor:
    """Returns the type of each character, int32 with the shape of `letters`."""
    kinds = tf.zeros_like(letters, tf.int32)
    for kind, pattern in (
        (LETTER, r"\p{L}"),
        (NUMBER, r"\p{N}"),
        (SPACES, f"[{WHITE_SPACE}]"),
    ):
        kinds += kind * tf.cast(tf.strings.regex_full_match(letters, pattern), tf.int32)
    return kinds


def _gpt2_word_starts(points: tf.Tensor, kinds: tf.Tensor, begins: tf.Tensor) -> tf.Tensor:
    """Finds the words of GPT-2, RoBERTa and ModernBERT. See `WordStarts`."""
    before = tf.concat([[OTHER], kinds[:-1]], axis=0)
    ends = _ahead(begins, 1, True)
    is_space = kinds == SPACES
    changes = begins | (kinds != before)
    # The last whitespace character before a word does not belong to the run before it.
    is_last = is_space & ~ends & (_ahead(kinds, 1, SPACES) != SPACES)
    joins_next = is_last & (points == _BLANK)
    is_joined = _behind(joins_next, False)
    starts = (changes & ~is_joined) | is_last
    # === Contractions ===
    return _split_contractions(starts, starts & (points == _APOSTROPHE), points, ends)


def _llama3_word_starts(points: tf.Tensor, kinds: tf.Tensor, begins: tf.Tensor) -> tf.Tensor:
    """Finds the words of Llama 3 and EuroBERT. See `WordStarts`."""
    ends = _ahead(begins, 1, True)
    index = tf.range(tf.size(kinds))
    is_letter, is_other = kinds == LETTER, kinds == OTHER
    is_space = kinds == SPACES
    is_newline = is_space & ((points == _NEWLINE) | (points == _RETURN))
    before = tf.where(begins, -1, tf.concat([[-1], kinds[:-1]], axis=0))
    after = tf.where(ends, -1, _ahead(kinds, 1, -1))
    is_first = kinds != before
    run = tf.cumsum(tf.cast(is_first, tf.int32)) - 1
    run_begin = tf.gather(select(index, is_first), tf.maximum(run, 0))
    # A single space before other characters is the first character of their word.
    after_blank = _behind(points == _BLANK, False) & ~begins
    # === Letters: a word includes preceding whitespace or another single character ===
    is_alone = is_other & is_first & ~after_blank & (after == LETTER)
    takes_letters = is_alone | (is_space & ~is_newline & (after == LETTER))
    letter_starts = is_letter & is_first & ~(_behind(takes_letters, False) & ~begins)
    # === Numbers of at most three digits ===
    number_starts = (kinds == NUMBER) & ((index - run_begin) % _MOST_DIGITS == 0)
    other_starts = is_other & is_first & ~after_blank
    # === Whitespace: up to its last newline, then the last character before a word ===
    newlines = tf.cumsum(tf.cast(is_newline, tf.int32))
    spaces = tf.cumsum(tf.cast(is_space & ~is_newline, tf.int32))
    first_of_run = tf.gather(tf.concat([before, [-1]], axis=0), run_begin)
    spaces_before = spaces - tf.gather(tf.concat([[0], spaces], axis=0), run_begin)
    # Newlines directly after other characters belong to the word of these characters.
    is_taken = is_newline & (first_of_run == OTHER) & (spaces_before == 0)
    was_taken = _behind(is_taken, False) & ~begins
    num_runs = tf.reduce_max(tf.concat([run, [-1]], axis=0)) + 1
    newlines_in_run = tf.gather(tf.math.unsorted_segment_max(newlines, run, num_runs), run)
    after_newlines = ~is_newline & _behind(is_newline, False) & (newlines == newlines_in_run)
    is_last = ~is_newline & (after != SPACES) & ~ends
    space_starts = is_space & ~is_taken & (is_first | was_taken | after_newlines | is_last)
    starts = letter_starts | number_starts | other_starts | space_starts
    return _split_contractions(starts, is_alone & (points == _APOSTROPHE), points, ends, True)


class _Joints:
    """Starts a word at each character that no merge joins to the previous one. See `WordStarts`.

    Long runs of the same character are also split, after the lengths in `runs`, because merging
    requires one step per character in a word.
    """

    def __init__(self, pairs: Collection[str], runs: Mapping[str, int]) -> None:
        self._runs = runs
        # A table cannot be empty. Without merges, it has a key that does not match any pair.
        keys = [_NUM_POINTS * ord(pair[0]) + ord(pair[1]) for pair in pairs] or [-1]
        with tf.init_scope(), tf.device("CPU:0"):
            self._pairs = _table(tf.constant(keys, tf.int64), tf.ones_like(keys), 0)

    @property
    def resources(self) -> tuple[Any, ...]:
        """The lookup table."""
        return (self._pairs,)

    def __call__(self, points: tf.Tensor, kinds: tf.Tensor, begins: tf.Tensor) -> tf.Tensor:
        points = tf.cast(points, tf.int64)
        before = tf.concat([[0], points[:-1]], axis=0)[: tf.size(points)]
        begins |= self._pairs.lookup(_NUM_POINTS * before + points) == 0
        begins_run = begins | (points != before)
        index = tf.range(tf.size(points))
        run = tf.cumsum(tf.cast(begins_run, tf.int32)) - 1
        offset = index - tf.gather(select(index, begins_run), tf.maximum(run, 0))
        for character, length in self._runs.items():
            begins |= (points == ord(character)) & (offset > 0) & (offset % length == 0)
        return begins


_WORD_STARTS: dict[str, WordStarts] = {"gpt2": _gpt2_word_starts, "llama3": _llama3_word_starts}


def _split_contractions(
    starts: tf.Tensor,
    apostrophes: tf.Tensor,
    points: tf.Tensor,
    ends: tf.Tensor,
    any_case: bool = False,
) -> tf.Tensor:
    """Splits contractions such as `'s` into separate words. All arrays are per character."""
    one = apostrophes & _spells(points, ends, _ONE_LETTER_ENDINGS, any_case)
    two = apostrophes & _spells(points, ends, _TWO_LETTER_ENDINGS, any_case)
    inside = _behind(one, False) | _behind(two, False) | _behind(two, False, 2)
    after = _behind(one, False, 2) | _behind(two, False, 3)
    return (starts & ~inside) | after


def _spells(
    points: tf.Tensor, ends: tf.Tensor, endings: tuple[str, ...], any_case: bool
) -> tf.Tensor:
    """Returns whether each character is followed by one of the endings in the same text."""
    if any_case:
        is_capital = (points >= ord("A")) & (points <= ord("Z"))
        points = tf.where(points == _LONG_S, ord("s"), tf.where(is_capital, points + 32, points))
    is_match = tf.zeros_like(ends)
    for ending in endings:
        same = tf.ones_like(ends)
        for distance, letter in enumerate(ending, 1):
            same &= ~_ahead(ends, distance - 1, True)
            same &= _ahead(points, distance, 0) == ord(letter)
        is_match |= same
    return is_match


def _ahead(values: tf.Tensor, distance: int, fill_value: object) -> tf.Tensor:
    """Shifts values so that each position gets the value `distance` positions after it."""
    return tf.concat([values[distance:], tf.fill([distance], fill_value)], axis=0)[
        : tf.size(values)
    ]


def _behind(values: tf.Tensor, fill_value: object, distance: int = 1) -> tf.Tensor:
    """Shifts values so that each position gets the value `distance` positions before it."""
    return tf.concat([tf.fill([distance], fill_value), values], axis=0)[: tf.size(values)]


class PieceMerger:
    """Merges bytes or characters to tokens, in the order the merges were learned.

    Single-token words are looked up. All other words are merged in parallel. In each step, the
    pairs with the lowest rank in a word are merged from left to right. If their result occurs in a
    merge with a lower rank, only the first pair is merged. For the arguments see `BytePairGraph`.

    Reference:
        [Sennrich et al., 2016](https://arxiv.org/abs/1508.07909), section 3.2.
    """

    def __init__(
        self,
        pieces: Sequence[bytes | None],
        merges: Mapping[tuple[int, int], int],
        byte_ids: Sequence[int],
        ignore_merges: bool = False,
        characters: Mapping[str, int] | None = None,
    ) -> None:
        self._size = len(pieces)
        # A table cannot be empty. Without merges, it has a key that does not match any pair.
        pairs = [left * self._size + right for left, right in merges] or [-1]
        # In eager mode, Python would run the loop.
        self._merge = function_of_texts(self._merge_bytes)
        # Constants created while a graph is traced could only be used in that graph.
        with tf.init_scope(), tf.device("CPU:0"):
            self._byte_ids = tf.constant(byte_ids, tf.int64)
            self._merge_results = tf.constant([*merges.values(), 0], tf.int64)
            singles = single_ranks(merges)
            self._is_single = (
                tf.constant([rank in singles for rank in range(len(merges) + 1)])
                if singles
                else None
            )
            self._characters = None
            if characters is not None:
                keys, indices = list(characters) or [""], [*characters.values()] or [-1]
                self._characters = _table(tf.constant(keys), tf.constant(indices), -1)
            ranks = tf.range(len(pairs), dtype=tf.int64)
            self._ranks = _table(tf.constant(pairs, tf.int64), ranks, _NO_RANK)
            words = tf.constant([piece if _is_text(piece) else b"" for piece in pieces])
            if ignore_merges:
                is_one = tf.strings.length(words) > 0
            else:
                # A word that equals a token is only looked up if merging results in that token.
                merged_ids = self._merge(words)
                is_one = (merged_ids.row_lengths() == 1) & (
                    merged_ids.to_tensor(shape=[None, 1])[:, 0]
                    == tf.range(self._size, dtype=tf.int64)
                )
            whole = tf.where(is_one)[:, 0]
            self._whole = _table(tf.gather(words, whole), whole, -1)

    @property
    def resources(self) -> tuple[Any, ...]:
        """The lookup tables."""
        tables = (self._ranks, self._whole)
        return tables if self._characters is None else (*tables, self._characters)

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Converts words to ids, ragged int32 `(words, None)`."""
        distinct, which = tf.unique(words)
        ids = self._whole.lookup(distinct)
        rest = tf.where(ids < 0)[:, 0]
        merged_ids = self._merge(tf.gather(distinct, rest))
        # The tokens of all distinct words. Looked-up words precede merged words.
        whole = tf.RaggedTensor.from_tensor(select(ids, ids >= 0)[:, tf.newaxis])
        rows = tf.concat([whole, merged_ids], axis=0)
        is_rest = tf.cast(ids < 0, tf.int64)
        row = tf.where(
            ids < 0,
            whole.nrows() + tf.cumsum(is_rest, exclusive=True),
            tf.cumsum(1 - is_rest, exclusive=True),
        )
        return tf.cast(tf.gather(rows, tf.gather(row, which)), tf.int32)

    def _merge_bytes(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Merges the bytes or characters of words to ids, ragged int64 `(words, None)`."""
        num_words = tf.size(words)
        ids, word = self._symbols(words)

        def step(ids: tf.Tensor, word: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
            rank = self._ranks.lookup(ids[:-1] * self._size + ids[1:])
            pair_word = word[:-1]
            rank = tf.where(pair_word == word[1:], rank, _NO_RANK)
            best = tf.math.unsorted_segment_min(rank, pair_word, num_words)
            is_merged = (rank < _NO_RANK) & (rank == tf.gather(best, pair_word))
            if self._is_single is not None:
                # The first pair of each word, if only one pair may be merged at a time
                index = tf.range(tf.size(is_merged))
                place = tf.where(is_merged, index, tf.size(is_merged))
                first = tf.math.unsorted_segment_min(place, pair_word, num_words)
                is_single = tf.gather(self._is_single, tf.where(is_merged, rank, 0))
                is_merged &= ~is_single | (index == tf.gather(first, pair_word))
            is_merged = _every_other(is_merged)
            merged_ids = tf.gather(self._merge_results, tf.where(is_merged, rank, 0))
            ids = tf.concat([tf.where(is_merged, merged_ids, ids[:-1]), ids[-1:]], axis=0)
            is_kept = tf.concat([tf.ones_like(ids[:1], tf.bool), ~is_merged], axis=0)
            return select(ids, is_kept), select(word, is_kept), tf.reduce_any(is_merged)

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

    def _symbols(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the ids of bytes or characters, int64 `(symbols,)`, and their words, int32."""
        if self._characters is None:
            letters, character_ids = words, None
            letter_words = tf.range(tf.size(words))
        else:
            points = tf.strings.unicode_decode(words, "UTF-8")
            letters, letter_words = encode_characters(points.flat_values), row_ids(points)
            letter_words = tf.cast(letter_words, tf.int32)
            character_ids = self._characters.lookup(letters)
        widths = tf.strings.length(letters)
        letter = repeat(tf.range(tf.size(letters)), widths)
        all_bytes = tf.io.decode_raw(tf.strings.reduce_join(letters), tf.uint8)
        ids = tf.gather(self._byte_ids, tf.cast(all_bytes, tf.int32))
        word = tf.gather(letter_words, letter)
        if character_ids is None:
            return ids, word
        # A single-character token replaces its bytes.
        byte_ids = tf.gather(character_ids, letter)
        is_first = letter != tf.concat([[-1], letter[:-1]], axis=0)[: tf.size(letter)]
        is_symbol = (byte_ids < 0) | is_first
        ids = tf.where(byte_ids < 0, ids, byte_ids)
        return select(ids, is_symbol), select(word, is_symbol)


def _is_text(piece: bytes | None) -> bool:
    """Returns whether a piece can be a word rather than an incomplete character."""
    try:
        return piece is not None and bool(piece.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def _every_other(is_pair: tf.Tensor) -> tf.Tensor:
    """Selects every other pair of overlapping pairs. For example, `aaa` is merged to `aa a`."""
    first = is_pair & ~tf.concat([[False], is_pair[:-1]], axis=0)
    index = tf.range(tf.size(is_pair))
    begins = select(index, first)
    run = tf.maximum(tf.cumsum(tf.cast(first, tf.int32)) - 1, 0)
    begin = tf.gather(tf.concat([begins, [0]], axis=0), run)
    return is_pair & ((index - begin) % 2 == 0)


def _table(keys: tf.Tensor, values: tf.Tensor, default: int) -> tf.lookup.StaticHashTable:
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.cast(values, tf.int64)), default
    )
