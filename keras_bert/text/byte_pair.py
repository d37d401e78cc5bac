# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE tokenizers: RoBERTa's, ModernBERT's, EuroBERT's, with character offsets.

Text is split into words, each including the space before it, whose bytes are merged to tokens.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_bert.text.characters import WHITE_SPACE, character_class
from keras_bert.text.composition import composed, is_composed, sources_of_composed
from keras_bert.text.special_tokens import TokenSplitter, segments
from keras_bert.text.tokenizer import END, FlatTokens, KnownWords, Tokenizer
from keras_bert.vocabularies.byte_pair_files import (
    SPACE,
    byte_characters,
    check_merge,
    load_merges,
    load_tokens,
    save_tokens_and_merges,
    token_bytes,
)
from keras_bert.vocabularies.tokenizer_config import without_defaults
from keras_bert.vocabularies.vocab_txt import check_vocabulary

if TYPE_CHECKING:
    from keras_bert.text.graph.tokenizer import GraphTokenizer


# What represents the space that is added before a text, so that it is in no span: half of a
# surrogate pair, which is in no text
_ADDED_SPACE = "\udc00"
# What a token that was found in a text begins with, among words, likewise
_FOUND = "\udc01"

WORD_PATTERNS = ("gpt2", "llama3")
"""The ways to split text into words."""


class BytePairTokenizer(Tokenizer):
    """A byte-level byte-pair encoding (BPE) tokenizer: RoBERTa's, ModernBERT's or EuroBERT's.

    Strings are tokenized in Python, with a cache of words. Tensors of TensorFlow are tokenized with
    graph operations, so in `tf.data.Dataset.map`, a `tf.function` and a SavedModel, which then
    contains the vocabulary (and must track `graph.resources`). No special tokens are added around
    a text. Bytes that are not valid UTF-8 are dropped. Characters that were added after Unicode 15
    are not recognized as letters or numbers.

    Args:
        vocabulary: The tokens in the order of their ids, or the path of a `vocab.json`. Their
            characters represent bytes, `Ġ` the space. The special tokens are required, the mask
            token for masking only.
        merges: The pairs of tokens to merge, such as `"Ġ t"`, in the order in which they were
            learned; or the path of a `merges.txt`.
        add_prefix_space: Whether to tokenize the first word of a text as if it followed a space.
        special_tokens_in_text: Whether `<mask>` (including the whitespace before it), `</s>` and
            the other special tokens are one token each where they occur in a text. If not, they
            are split like other text.
        special_tokens: The special tokens by their roles, `"pad"`, `"unk"`, `"cls"`, `"sep"` and
            `"mask"`, such as `{"cls": "[CLS]"}`; several roles may have the same token. Defaults to
            RoBERTa's: `<pad>`, `<unk>`, `<s>`, `</s>` and `<mask>`.
        pair_separators: The number of separators between the texts of a pair: 2 in RoBERTa, 1 in
            ModernBERT.
        mask_takes_space: Whether the whitespace before a mask token in a text is part of it.
        added_tokens: Other tokens of the vocabulary, such as runs of spaces and entity markers,
            that are one token each where they occur in a text, before it is split into words.
        word_pattern: How text is split into words, whose bytes are merged: `"gpt2"`, as in RoBERTa
            and ModernBERT; or `"llama3"`, as in EuroBERT, where numbers have at most three digits,
            and a word may begin with a punctuation mark.
        compose: Whether to compose characters (NFC) first, as in ModernBERT.
        ignore_merges: Whether a word that is a token is that token even if merging its bytes
            results in others, as in EuroBERT.
        space_before_first_word: Whether also the first one of the words of a text that are passed
            separately, to `tokenize_words` and taggers, is tokenized as if it followed a space, as
            in RoBERTa. All others are.

    Call arguments:
        text: A string or `bytes`, or a batch of them: a list, an array, or a string tensor of
            TensorFlow, which may be ragged.

    Input shape:
        `()`, `(batch,)`, or more dimensions.

    Output shape:
        For a string, a list of its ids, and for a batch, a list of such lists. For a tensor, an
        int32 tensor `(tokens,)`, or a ragged one `(batch, tokens)`.

    Raises:
        FileNotFoundError: If a file does not exist.
        TypeError: If a token or a merge is not a string.
        ValueError: If the vocabulary lacks a special or added token or has a duplicate, a merge is
            not of two tokens whose concatenation is a token, or `word_pattern` is not one of the
            above.

    Example:

    >>> from keras_bert.text import BytePairTokenizer
    >>> tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "h", "i", "Ġ", "hi", "Ġhi"]
    >>> tokenizer = BytePairTokenizer(tokens, ["h i", "Ġ hi"])
    >>> tokenizer("hi hi  hi")
    [8, 9, 7, 9]
    >>> tokenizer.detokenize([8, 9])
    'hi hi'
    >>> ids, starts, ends = tokenizer.tokenize_with_offsets("hi hi")
    >>> list(zip(starts, ends))
    [(0, 2), (3, 5)]

    Reference:
        [RoBERTa](https://arxiv.org/abs/1907.11692), section 4.4;
        [ModernBERT](https://arxiv.org/abs/2412.13663), section 2.1.1;
        [EuroBERT](https://arxiv.org/abs/2503.05500), section 2.1;
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
        special_tokens: Mapping[str, str] | None = None,
        pair_separators: int = 2,
        mask_takes_space: bool = True,
        added_tokens: Sequence[str] = (),
        word_pattern: str = "gpt2",
        compose: bool = False,
        ignore_merges: bool = False,
        space_before_first_word: bool = True,
    ) -> None:
        self._renamed = self._rename_special_tokens(special_tokens)
        required = (self.cls_token, self.pad_token, self.sep_token, self.unk_token)
        if isinstance(vocabulary, str | os.PathLike):
            vocabulary = load_tokens(vocabulary)
        if isinstance(merges, str | os.PathLike):
            merges = load_merges(merges)
        super().__init__(check_vocabulary(vocabulary, required), special_tokens_in_text)
        self.merges = tuple(merges)
        self.add_prefix_space = add_prefix_space
        self.pair_separators = pair_separators
        self.mask_takes_space = mask_takes_space
        self.added_tokens = tuple(added_tokens)
        self.word_pattern = word_pattern
        self.compose = compose
        self.ignore_merges = ignore_merges
        self.space_before_first_word = space_before_first_word
        missing = [token for token in self.added_tokens if token not in self._ids]
        if missing:
            raise ValueError(f"added_tokens has {missing[0]!r}, which is not in the vocabulary.")
        self._split_words = byte_word_splitter(word_pattern)
        special = self.special_token_ids
        whole = {*special, *map(self.token_to_id, self.added_tokens)}
        # The bytes of each token; None for those that merging never results in
        self._pieces = [
            None if index in whole else token_bytes(token)
            for index, token in enumerate(self.vocabulary)
        ]
        self._byte_ids = [self._ids.get(letter, self.unk_token_id) for letter in byte_characters()]
        self._merged = _merged_ids(self.merges, self._ids)
        self._ranks = {pair: rank for rank, pair in enumerate(self._merged)}
        self._whole_words = (
            {piece: index for index, piece in enumerate(self._pieces) if piece is not None}
            if ignore_merges
            else {}
        )
        self._known_ids = KnownWords(self._ids_of_word, width=1)
        self._known_tokens = KnownWords(self._tokens_of_word, width=3)
        in_text = [self.vocabulary[index] for index in special if special_tokens_in_text]
        found = {token: self._ids[token] for token in (*in_text, *self.added_tokens)}
        taking_space = {self.mask_token} if mask_takes_space else set()
        self._splitter = TokenSplitter(found, taking_space) if found else None

    @property
    def continuation_token_ids(self) -> list[int]:
        """The ids of tokens that do not begin with a space."""
        return [
            index
            for index, (token, piece) in enumerate(zip(self.vocabulary, self._pieces, strict=True))
            if piece is not None and not token.startswith(SPACE)
        ]

    @functools.cached_property
    def unmerged_token_ids(self) -> list[int]:
        """The ids of tokens that merging their bytes does not result in, without special ones.

        A text has them only as whole words with `ignore_merges`, and as added tokens.
        """
        added = {*map(self.token_to_id, self.added_tokens)}
        return [
            index
            for index, piece in enumerate(self._pieces)
            if index not in added
            and piece is not None
            and self._merge([self._byte_ids[byte] for byte in piece]) != [index]
        ]

    def token_text(self, token_id: int) -> str:
        """Returns the text of a token; a part of a character is U+FFFD."""
        token = self.id_to_token(token_id)
        piece = self._pieces[token_id]
        return token if piece is None else piece.decode("utf-8", "replace")

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
            **without_defaults(self.kind, self._options()),
        }

    def _options(self) -> dict[str, Any]:
        """Returns the arguments that configs have only if they are not the defaults."""
        return {
            "special_tokens": self._renamed or None,
            "pair_separators": self.pair_separators,
            "mask_takes_space": self.mask_takes_space,
            "added_tokens": list(self.added_tokens),
            "word_pattern": self.word_pattern,
            "compose": self.compose,
            "ignore_merges": self.ignore_merges,
            "space_before_first_word": self.space_before_first_word,
        }

    def _texts_to_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        words: list[str] = []
        for text in map(composed, texts) if self.compose else texts:
            for start, end, token_id in segments(text, self._splitter):
                if token_id is not None:
                    words.append(_FOUND + self.vocabulary[token_id])
                else:
                    words += self._split_at_spaces(self._prefixed(text[start:end]))
            words.append(END)
        return self._known_ids.ids(words)

    def _texts_to_tokens(self, texts: Sequence[str]) -> FlatTokens:
        if self.compose and not all(map(is_composed, texts)):
            tokens = self._tokens_as_they_are([composed(text) for text in texts])
            return _before_composition(texts, tokens)
        return self._tokens_as_they_are(texts)

    def _tokens_as_they_are(self, texts: Sequence[str]) -> FlatTokens:
        words: list[str] = []
        begins: list[int] = []
        for text in texts:
            for start, end, token_id in segments(text, self._splitter):
                if token_id is not None:
                    words.append(_FOUND + self.vocabulary[token_id])
                    begins.append(start)
                    continue
                prefixed = self._prefixed(text[start:end])
                found = self._split_at_spaces(prefixed)
                begin = end - len(prefixed)
                begins += itertools.accumulate(map(len, found[:-1]), initial=begin)
                if begin < start:
                    found[0] = found[0].replace(" ", _ADDED_SPACE, 1)
                words += found
            words.append(END)
            begins.append(0)
        return self._known_tokens.tokens(words, np.array(begins, np.int64))

    def _prefixed(self, text: str) -> str:
        return _after_space(text) if self.add_prefix_space else text

    def _as_word(self, word: str, is_first: bool) -> str:
        """Adds a space before a word, unless it is the first one of its text and has none there."""
        return word if is_first and not self.space_before_first_word else _after_space(word)

    def _split_at_spaces(self, text: str) -> list[str]:
        """Splits a text quickly into words that `_split_words` splits further, or not at all."""
        if text.isprintable() and "  " not in text:
            # All whitespace is single spaces, each of which is the first character of a word.
            return text.replace(" ", "\n ").split("\n")[text.startswith(" ") :]
        return self._split_words(text) or [""]

    def _ids_to_text(self, ids: Sequence[int]) -> str:
        """Concatenates the bytes of tokens; invalid UTF-8 is replaced with U+FFFD."""
        texts = self._token_texts()
        return b"".join([texts[index] for index in ids]).decode("utf-8", "replace")

    def _token_texts(self) -> list[bytes]:
        return [
            token.encode("utf-8") if piece is None else piece
            for token, piece in zip(self.vocabulary, self._pieces, strict=True)
        ]

    def _make_graph(self) -> GraphTokenizer:
        from keras_bert.text.graph.byte_pair import BytePairGraph

        return BytePairGraph(
            self.special_token_ids,
            self.unk_token_id,
            self._token_texts(),
            self._pieces,
            self._merged,
            self._byte_ids,
            self._splitter,
            add_prefix_space=self.add_prefix_space,
            word_pattern=self.word_pattern,
            compose=self.compose,
            ignore_merges=self.ignore_merges,
            space_before_first_word=self.space_before_first_word,
        )

    def _ids_of_word(self, word: str) -> list[int]:
        """Converts a word of `_split_at_spaces`, or a token that was found, to ids."""
        if word.startswith(_FOUND):
            return [self._ids[word[1:]]]
        ids: list[int] = []
        for part in self._split_words(word):
            piece = part.encode("utf-8")
            whole = self._whole_words.get(piece)
            ids += (
                self._merge([self._byte_ids[byte] for byte in piece]) if whole is None else [whole]
            )
        return ids

    def _tokens_of_word(self, word: str) -> Iterator[int]:
        """Yields the id of each token of a word, its start and its end; spaces are in no span."""
        if word.startswith(_FOUND):
            yield from (self._ids[word[1:]], 0, len(word) - 1)
            return
        floor = int(word.startswith(_ADDED_SPACE))
        word = word.replace(_ADDED_SPACE, " ")
        # The index of the character of each byte
        characters = [
            index for index, letter in enumerate(word) for _ in range(len(letter.encode("utf-8")))
        ]
        begin = 0
        for index in self._ids_of_word(word):
            # An unknown token is a byte that is not in the vocabulary.
            piece = (self._pieces[index] or b"") if index != self.unk_token_id else b"\xff"
            end = begin + len(piece)
            last = characters[end - 1] + 1
            first = min(characters[begin] + _count(piece, piece.lstrip(b" ")), last)
            yield index
            yield max(first, floor)
            yield max(last - _count(piece, piece.rstrip(b" ")), first)
            begin = end

    def _merge(self, ids: list[int]) -> list[int]:
        """Merges the pair of the lowest rank, wherever it occurs, until there is none."""
        no_rank = len(self._ranks)
        while len(ids) > 1:
            ranks = [self._ranks.get(pair, no_rank) for pair in itertools.pairwise(ids)]
            rank = min(ranks)
            if rank == no_rank:
                break
            merged: list[int] = []
            begin = 0
            for index, each in enumerate(ranks):
                if each == rank and index >= begin:
                    merged += ids[begin:index]
                    merged.append(self._merged[ids[index], ids[index + 1]])
                    begin = index + 2
            ids = merged + ids[begin:]
        return ids


def split_byte_words(text: str) -> list[str]:
    """Splits a text into words as GPT-2, RoBERTa and ModernBERT do.

    They are runs of letters, of numbers, of whitespace, or of other characters. A single space
    before a word is its first character. Other whitespace is a word too, except for the last space,
    which belongs to the next word. Contractions such as `'s` are words.

    Args:
        text: A text, which is the concatenation of the words.

    Reference:
        [Radford et al., 2019](https://github.com/openai/gpt-2), the released code.
    """
    return byte_word_splitter("gpt2")(text)


@functools.cache
def byte_word_splitter(word_pattern: str) -> Callable[[str], list[str]]:
    """Returns a function that splits a text into words.

    Raises:
        ValueError: If `word_pattern` is not one of `WORD_PATTERNS`.
    """
    return re.compile(word_expression(word_pattern)).findall


def word_expression(word_pattern: str) -> str:
    """Returns the regular expression of a way to split text into words.

    Its character classes are spelled out, so that they do not depend on the version of Unicode.

    Raises:
        ValueError: If `word_pattern` is not one of `WORD_PATTERNS`.
    """
    letter, number, space = character_class("L"), character_class("N"), WHITE_SPACE
    at_end = f"[{space}]+(?![^{space}])|[{space}]+"
    other = f"[^{space}{letter}{number}]"
    if word_pattern == "gpt2":
        return f"'s|'t|'re|'ve|'m|'ll|'d| ?[{letter}]+| ?[{number}]+| ?{other}+|{at_end}"
    if word_pattern == "llama3":
        # The long s is another spelling of s without regard to case.
        endings = "[sS\u017ftTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]"
        return (
            f"'(?:{endings})|[^\r\n{letter}{number}]?[{letter}]+|[{number}]{{1,3}}"
            f"| ?{other}+[\r\n]*|[{space}]*[\r\n]+|{at_end}"
        )
    raise ValueError(f"word_pattern is {word_pattern!r}; expected {', '.join(WORD_PATTERNS)}.")


def _after_space(text: str) -> str:
    """Adds a space before a text that does not begin with one and is not empty."""
    return f" {text}" if text and not text.startswith(" ") else text


def _before_composition(texts: Sequence[str], tokens: FlatTokens) -> FlatTokens:
    """Converts offsets in composed texts to offsets in the texts before."""
    starts, ends = np.array(tokens.starts), np.array(tokens.ends)
    splits = np.cumsum([0, *tokens.lengths])
    for text, begin, end in zip(texts, splits[:-1], splits[1:], strict=True):
        if begin < end and not is_composed(text):
            rows = slice(begin, end)
            firsts, lasts = sources_of_composed(text)
            is_empty = starts[rows] >= ends[rows]
            last = lasts[np.maximum(ends[rows] - 1, 0)]
            starts[rows] = firsts[starts[rows]]
            ends[rows] = np.where(is_empty, starts[rows], last)
    return tokens._replace(starts=starts, ends=ends)


def _merged_ids(merges: Sequence[str], ids: Mapping[str, int]) -> dict[tuple[int, int], int]:
    """Maps pairs of ids to the id of their merge, in the order in which they were learned."""
    merged: dict[tuple[int, int], int] = {}
    for index, merge in enumerate(merges):
        left, right = check_merge(merge, ids.keys(), f"Merge {index}")
        merged.setdefault((ids[left], ids[right]), ids[left + right])
    return merged


def _count(piece: bytes, stripped: bytes) -> int:
    """Counts the spaces that stripping removed."""
    return len(piece) - len(stripped)
