# SPDX-License-Identifier: Apache-2.0
"""RoBERTa's byte-level BPE tokenizer, exact and with character offsets.

Text is split into words, each including the space before it, whose bytes are merged to tokens.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_bert.text.characters import WHITE_SPACE, character_class
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
from keras_bert.vocabularies.vocab_txt import check_vocabulary

if TYPE_CHECKING:
    from keras_bert.text.graph.tokenizer import GraphTokenizer


# What represents the space that is added before a text, so that it is in no span: half of a
# surrogate pair, which is in no text
_ADDED_SPACE = "\udc00"


class BytePairTokenizer(Tokenizer):
    """A byte-level byte-pair encoding (BPE) tokenizer, with the same ids as RoBERTa's.

    Strings are tokenized in Python, with a cache of words. Tensors of TensorFlow are tokenized with
    graph operations, so in `tf.data.Dataset.map`, a `tf.function` and a SavedModel, which then
    contains the vocabulary (and must track `graph.resources`). No special tokens are added around
    a text. Bytes that are not valid UTF-8 are dropped. Characters that were added after Unicode 15
    are not recognized as letters or numbers.

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
        ValueError: If the vocabulary lacks a special token or has a duplicate, or a merge is not of
            two tokens whose concatenation is a token.

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
        special = self.special_token_ids
        self._special = {self.vocabulary[index]: index for index in special}
        # The bytes of each token; None for special tokens
        self._pieces = [
            None if index in special else token_bytes(token)
            for index, token in enumerate(self.vocabulary)
        ]
        self._byte_ids = [self._ids.get(letter, self.unk_token_id) for letter in byte_characters()]
        self._merged = _merged_ids(self.merges, self._ids)
        self._ranks = {pair: rank for rank, pair in enumerate(self._merged)}
        self._known_ids = KnownWords(self._ids_of_word, width=1)
        self._known_tokens = KnownWords(self._tokens_of_word, width=3)
        self._splitter = (
            TokenSplitter(self._special, self.mask_token) if special_tokens_in_text else None
        )

    @property
    def continuation_token_ids(self) -> list[int]:
        """The ids of tokens that do not begin with a space."""
        special = set(self.special_token_ids)
        return [
            index
            for index, token in enumerate(self.vocabulary)
            if index not in special and not token.startswith(SPACE)
        ]

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

    def _texts_to_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        words: list[str] = []
        for text in texts:
            for start, end, token_id in segments(text, self._splitter):
                if token_id is not None:
                    words.append(self.vocabulary[token_id])
                else:
                    words += _split_at_spaces(self._prefixed(text[start:end]))
            words.append(END)
        return self._known_ids.ids(words)

    def _texts_to_tokens(self, texts: Sequence[str]) -> FlatTokens:
        words: list[str] = []
        begins: list[int] = []
        for text in texts:
            for start, end, token_id in segments(text, self._splitter):
                if token_id is not None:
                    words.append(self.vocabulary[token_id])
                    begins.append(start)
                    continue
                prefixed = self._prefixed(text[start:end])
                found = _split_at_spaces(prefixed)
                begin = end - len(prefixed)
                begins += itertools.accumulate(map(len, found[:-1]), initial=begin)
                if begin < start:
                    found[0] = found[0].replace(" ", _ADDED_SPACE, 1)
                words += found
            words.append(END)
            begins.append(0)
        return self._known_tokens.tokens(words, np.array(begins, np.int64))

    def _prefixed(self, text: str) -> str:
        return self._as_word(text) if self.add_prefix_space else text

    def _as_word(self, word: str) -> str:
        """Adds a space before a word that does not begin with one and is not empty."""
        return f" {word}" if word and not word.startswith(" ") else word

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
            self.add_prefix_space,
            self._splitter,
        )

    def _ids_of_word(self, word: str) -> list[int]:
        """Converts a word of `_split_at_spaces`, or a special token, to ids."""
        if word in self._special:
            return [self._special[word]]
        ids: list[int] = []
        for part in split_byte_words(word):
            ids += self._merge([self._byte_ids[byte] for byte in part.encode("utf-8")])
        return ids

    def _tokens_of_word(self, word: str) -> Iterator[int]:
        """Yields the id of each token of a word, its start and its end; spaces are in no span."""
        if word in self._special:
            yield from (self._special[word], 0, len(word))
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


def _split_at_spaces(text: str) -> list[str]:
    """Splits a text quickly into words that `split_byte_words` splits further, or not at all."""
    if text.isprintable() and "  " not in text:
        # All whitespace is single spaces, each of which is the first character of a word.
        return text.replace(" ", "\n ").split("\n")[text.startswith(" ") :]
    return split_byte_words(text) or [""]


def split_byte_words(text: str) -> list[str]:
    """Splits a text into words: runs of letters, of numbers, of whitespace, or of other characters.

    A single space before a word is its first character. Other whitespace is a word too, except for
    the last space, which belongs to the next word. Contractions such as `'s` are words.

    Args:
        text: A text, which is the concatenation of the words.

    Reference:
        [Radford et al., 2019](https://github.com/openai/gpt-2), the released code.
    """
    return _byte_words().findall(text)


@functools.cache
def _byte_words() -> re.Pattern[str]:
    letters, numbers = character_class("L"), character_class("N")
    return re.compile(
        f"'s|'t|'re|'ve|'m|'ll|'d| ?[{letters}]+| ?[{numbers}]+"
        f"| ?[^{WHITE_SPACE}{letters}{numbers}]+"
        f"|[{WHITE_SPACE}]+(?![^{WHITE_SPACE}])|[{WHITE_SPACE}]+"
    )


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
