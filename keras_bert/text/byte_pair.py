# SPDX-License-Identifier: Apache-2.0
"""BPE tokenizers for RoBERTa, ModernBERT, EuroBERT and mmBERT, with character offsets.

Text is split into words that include the preceding space, and each word's bytes are merged to
tokens. mmBERT merges characters instead. A character outside its vocabulary is replaced with one
token per byte.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_bert.text.characters import WHITE_SPACE, character_class
from keras_bert.text.composition import compose_text
from keras_bert.text.flat_tokens import FlatTokens
from keras_bert.text.merges import count_blanks, longest_runs, merge_with_heap, single_ranks
from keras_bert.text.special_tokens import TokenSplitter, segments
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.text.word_cache import END, WordCache
from keras_bert.vocabularies.byte_pair_files import (
    BLANK,
    SPACE,
    byte_characters,
    byte_tokens,
    check_merge,
    load_merges,
    load_tokens,
    save_tokens_and_merges,
    token_bytes,
)
from keras_bert.vocabularies.vocab_txt import check_vocabulary

if TYPE_CHECKING:
    from keras_bert.text.graph.tokenizer import GraphTokenizer


# Represents the space added before a text, so that spans can exclude it. It is a lone surrogate, so
# it does not occur in valid text.
_ADDED_SPACE = "\udc00"
# Marks a special or added token in a list of words. It is also a lone surrogate.
_FOUND = "\udc01"

WORD_PATTERNS = ("gpt2", "llama3")
"""The methods for splitting text into words."""

_BLANK_WORDS = re.compile(f"{BLANK}*[^{BLANK}]+|{BLANK}+")
# Up to this number of symbols, comparing all pairs before each merge is faster than a heap.
_FEW_SYMBOLS = 32


class BytePairTokenizer(Tokenizer):
    """A byte-pair encoding (BPE) tokenizer for RoBERTa, ModernBERT, EuroBERT or mmBERT.

    Strings are tokenized in Python with a cache of words. TensorFlow tensors are tokenized with
    graph operations, for example in a `tf.data` pipeline, a `tf.function` or a SavedModel. The
    SavedModel then contains the vocabulary and must track `graph.resources`. No special tokens are
    added around texts. Invalid UTF-8 bytes are dropped. Characters added after Unicode 15 are not
    recognized as letters or numbers.

    Args:
        vocabulary: The tokens in the order of their ids, or the path to a `vocab.json`. Each
            character in a token represents a byte. For example, `Ġ` represents the space. See also
            `byte_fallback`. All special tokens are required, except for the mask token if the model
            does not mask.
        merges: The token pairs to merge in the order they were learned, such as `"Ġ t"`, or the
            path to a `merges.txt`.
        add_prefix_space: Whether to tokenize a text's first word as if it followed a space.
            Defaults to `False`.
        special_tokens_in_text: Whether `<mask>` (including the preceding whitespace), `</s>` and
            other special tokens in a text become a single token each. Otherwise, they are split
            like other text. Defaults to `False`.
        special_tokens: The special tokens by role: `"pad"`, `"unk"`, `"cls"`, `"sep"` and `"mask"`.
            For example, `{"cls": "[CLS]"}`. Multiple roles may have the same token. Defaults to
            RoBERTa's special tokens: `<pad>`, `<unk>`, `<s>`, `</s>` and `<mask>`.
        pair_separators: Number of special tokens between paired texts: 2 in RoBERTa, 1 in
            ModernBERT. Defaults to 2.
        mask_takes_space: Whether a mask token in a text includes the preceding whitespace. Defaults
            to `True`.
        added_tokens: Other tokens of the vocabulary that become a single token each wherever they
            occur in a text, such as runs of spaces and entity markers. They are found before the
            text is split into words.
        special_added_tokens: The `added_tokens` that `decode` omits like special tokens.
        word_pattern: How text is split into words before bytes are merged: `"gpt2"`, as in RoBERTa
            and ModernBERT, or `"llama3"`, as in EuroBERT, where numbers have at most three digits
            and a word may start with a punctuation mark. With `byte_fallback`, text is not split.
            Defaults to `"gpt2"`.
        compose: Whether to compose characters (NFC) first, as in ModernBERT. Defaults to `False`.
        ignore_merges: Whether words in the vocabulary are always a single token, even if merging
            their bytes gives other tokens, as in EuroBERT. Defaults to `False`.
        space_before_first_word: Whether the first word in a list of words, for example in
            `tokenize_words` or a tagger, is tokenized as if it followed a space, as in RoBERTa. The
            other words always are. Defaults to `True`.
        byte_fallback: Whether tokens consist of characters instead of bytes, as in Gemma and
            mmBERT. `▁` represents both the space and itself. A character outside the vocabulary is
            replaced with one token per byte, such as `<0xC3>`. These tokens are not merged. Text is
            not split into words, so merges may cross spaces. Defaults to `False`.
        repeats_cls: Whether the last special token between paired texts is the CLS token instead of
            a separator. Defaults to `False`.
        truncation_side: Side where overlong texts are truncated: `"right"` or `"left"`. Defaults to
            `"right"`.

    Call arguments:
        text: A string or `bytes`, or a batch of them: a list, an array, or a dense or ragged
            TensorFlow string tensor.

    Input shape:
        `()`, `(batch,)`, or more dimensions.

    Output shape:
        For a string, a list of ids. For a batch, a list of such lists. For a tensor, an int32
        tensor `(tokens,)` or a ragged tensor `(batch, tokens)`.

    Raises:
        FileNotFoundError: If a file does not exist.
        TypeError: If a token is not a string.
        ValueError: If the vocabulary lacks a special or added token or contains a duplicate, if a
            merge does not consist of two tokens that form a token together, or if `word_pattern` or
            `truncation_side` has an unsupported value. `byte_fallback` also requires that the
            vocabulary contains the bytes and that no merge contains a byte.

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
        [mmBERT](https://arxiv.org/abs/2509.06888), section 3;
        [Gemma 2](https://arxiv.org/abs/2408.00118), the source of mmBERT's tokenizer;
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
        special_added_tokens: Sequence[str] = (),
        word_pattern: str = "gpt2",
        compose: bool = False,
        ignore_merges: bool = False,
        space_before_first_word: bool = True,
        byte_fallback: bool = False,
        repeats_cls: bool = False,
        truncation_side: str = "right",
    ) -> None:
        self._rename_special_tokens(special_tokens)
        required = (self.cls_token, self.pad_token, self.sep_token, self.unk_token)
        if isinstance(vocabulary, str | os.PathLike):
            vocabulary = load_tokens(vocabulary)
        if isinstance(merges, str | os.PathLike):
            merges = load_merges(merges)
        tokens = check_vocabulary(vocabulary, required)
        super().__init__(tokens, special_tokens_in_text, truncation_side)
        self.merges = tuple(merges)
        self.add_prefix_space = add_prefix_space
        self.pair_separators = pair_separators
        self.mask_takes_space = mask_takes_space
        self.added_tokens = tuple(added_tokens)
        self.word_pattern = word_pattern
        self.compose = compose
        self.ignore_merges = ignore_merges
        self.space_before_first_word = space_before_first_word
        self.byte_fallback = byte_fallback
        self.repeats_cls = repeats_cls
        self.special_added_tokens = tuple(special_added_tokens)
        self._check_added_tokens()
        self._word_space, self._space = (BLANK, BLANK) if byte_fallback else (SPACE, " ")
        special = self.special_token_ids
        whole = {*special, *map(self.token_to_id, self.added_tokens)}
        # The bytes of each token. Special and added tokens are never merged, so they have None.
        bytes_of = _fallback_bytes if byte_fallback else token_bytes
        self._pieces = [
            None if index in whole else bytes_of(token)
            for index, token in enumerate(self.vocabulary)
        ]
        letters = byte_tokens() if byte_fallback else byte_characters()
        self._byte_ids = [self._ids.get(letter, self.unk_token_id) for letter in letters]
        self._merge_results = _merged_ids(self.merges, self._ids)
        self._ranks = {pair: rank for rank, pair in enumerate(self._merge_results)}
        self._single_ranks = single_ranks(self._merge_results)
        self._character_ids: dict[str, int] = {}
        self._joints: frozenset[str] = frozenset()
        if byte_fallback:
            self._character_ids = {
                token: index for token, index in self._ids.items() if len(token) == 1
            }
            self._joints = _joints(self.merges)
            _check_bytes(self._ids, self.merges)
        self._crosses_spaces = any(pair[1] == BLANK and pair[0] != BLANK for pair in self._joints)
        self._split_words = (
            self._split_at_joints if byte_fallback else byte_word_splitter(word_pattern)
        )
        self._whole_words = (
            {piece: index for index, piece in enumerate(self._pieces) if piece is not None}
            if ignore_merges
            else {}
        )
        self._word_ids = WordCache(self._ids_of_word, width=1)
        self._word_tokens = WordCache(self._tokens_of_word, width=3)
        in_text = [self.vocabulary[index] for index in special if special_tokens_in_text]
        spelled: Callable[[str], str] = compose_text if compose else str
        token_ids = {spelled(token): self._ids[token] for token in (*in_text, *self.added_tokens)}
        taking_space = {self.mask_token} if mask_takes_space else set()
        self._splitter = TokenSplitter(token_ids, taking_space) if token_ids else None

    @property
    def continuation_token_ids(self) -> list[int]:
        """The ids of tokens that do not start with a space."""
        return [
            index
            for index, (token, piece) in enumerate(zip(self.vocabulary, self._pieces, strict=True))
            if piece is not None and not token.startswith(self._word_space)
        ]

    @functools.cached_property
    def unmerged_token_ids(self) -> list[int]:
        """The ids of tokens that cannot result from merging their own bytes.

        They only occur as whole words with `ignore_merges`. Special and added tokens are excluded.
        """
        added_ids = {*map(self.token_to_id, self.added_tokens)}
        return [
            index
            for index, piece in enumerate(self._pieces)
            if index not in added_ids
            and piece is not None
            and self._merge(self._symbols(piece)) != [index]
        ]

    def token_text(self, token_id: int) -> str:
        """Returns a token's text. An incomplete character is replaced with U+FFFD."""
        return self._text_of(self.id_to_token(token_id), token_id).decode("utf-8", "replace")

    def save_vocabulary(self, path: str | os.PathLike[str]) -> None:
        """Writes the vocabulary and merges to `vocab.json` and `merges.txt` in a directory.

        Raises:
            ValueError: With `byte_fallback`, because merges may then contain line breaks. A preset
                saves such a tokenizer in a `tokenizer.json`.
        """
        if self.byte_fallback:
            raise ValueError(
                "The tokenizer must not have byte_fallback, because a merges.txt cannot represent "
                "merges of line breaks. Received: byte_fallback=True. Use save_to_preset, which "
                "writes a tokenizer.json."
            )
        save_tokens_and_merges(self.vocabulary, self.merges, path)

    def _occurs_in_text(self, token: str) -> bool:
        index = self._ids[token]
        piece = self._pieces[index]
        return piece is not None and self._merge(self._symbols(piece)) == [index]

    def _texts_to_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        words: list[str] = []
        for text in texts:
            for start, end, token_id in segments(text, self._splitter):
                if token_id is not None:
                    words.append(_FOUND + text[start:end])
                else:
                    words += self._split_at_spaces(self._add_prefix(text[start:end]))
            words.append(END)
        return self._word_ids.ids(words)

    def _texts_to_tokens(self, texts: Sequence[str]) -> FlatTokens:
        words: list[str] = []
        begins: list[int] = []
        for text in texts:
            for start, end, token_id in segments(text, self._splitter):
                if token_id is not None:
                    words.append(_FOUND + text[start:end])
                    begins.append(start)
                    continue
                prefixed_text = self._add_prefix(text[start:end])
                segment_words = self._split_at_spaces(prefixed_text)
                begin = end - len(prefixed_text)
                begins += itertools.accumulate(map(len, segment_words[:-1]), initial=begin)
                if begin < start:
                    segment_words[0] = segment_words[0].replace(self._space, _ADDED_SPACE, 1)
                words += segment_words
            words.append(END)
            begins.append(0)
        return self._word_tokens.tokens(words, np.array(begins, np.int64))

    def _add_prefix(self, text: str) -> str:
        return _prepend_space(text) if self.add_prefix_space else text

    def _as_word(self, word: str, is_first: bool) -> str:
        """Adds a space before a word, except before the first word if the tokenizer does not."""
        return word if is_first and not self.space_before_first_word else _prepend_space(word)

    def _split_at_spaces(self, text: str) -> list[str]:
        """Splits a text into words quickly. `_split_words` may split them further."""
        if self.byte_fallback:
            text = text.replace(" ", BLANK)
            return [text] if self._crosses_spaces else _BLANK_WORDS.findall(text) or [""]
        if text.isprintable() and "  " not in text:
            # The only whitespace is single spaces, and each space starts a word.
            return text.replace(" ", "\n ").split("\n")[text.startswith(" ") :]
        return self._split_words(text) or [""]

    def _split_at_joints(self, text: str) -> list[str]:
        """Splits a text only between characters that no merge joins, so tokens stay whole."""
        if not text:
            return []
        pairs = map(str.__add__, text, text[1:])
        cuts = [index for index, pair in enumerate(pairs, 1) if pair not in self._joints]
        return [text[i:j] for i, j in itertools.pairwise((0, *cuts, len(text)))]

    def _ids_to_text(self, ids: Sequence[int]) -> str:
        """Concatenates the bytes of tokens. Invalid UTF-8 is replaced with U+FFFD."""
        texts = self._token_texts()
        return b"".join([texts[index] for index in ids]).decode("utf-8", "replace")

    def _token_texts(self) -> list[bytes]:
        return [self._text_of(token, index) for index, token in enumerate(self.vocabulary)]

    def _text_of(self, token: str, index: int) -> bytes:
        piece = self._pieces[index]
        if piece is None:
            return token.encode("utf-8")
        return piece.replace(BLANK.encode("utf-8"), b" ") if self.byte_fallback else piece

    def _make_graph(self) -> GraphTokenizer:
        from keras_bert.text.graph.byte_pair import BytePairGraph

        return BytePairGraph(
            self.skipped_token_ids,
            self.unk_token_id,
            self._token_texts(),
            self._pieces,
            self._merge_results,
            self._byte_ids,
            self._splitter,
            characters=self._character_ids if self.byte_fallback else None,
            joints=self._joints,
            runs=longest_runs(self.vocabulary, self._merge_results) if self.byte_fallback else {},
            add_prefix_space=self.add_prefix_space,
            word_pattern=self.word_pattern,
            compose=self.compose,
            ignore_merges=self.ignore_merges,
            space_before_first_word=self.space_before_first_word,
        )

    def _ids_of_word(self, word: str) -> list[int]:
        """Converts a word from `_split_at_spaces`, or a token marked with `_FOUND`, to ids."""
        if word.startswith(_FOUND):
            return [self._splitter.ids[word[1:]]] if self._splitter else []
        ids: list[int] = []
        for split_word in self._split_words(word):
            piece = split_word.encode("utf-8")
            whole = self._whole_words.get(piece)
            ids += self._merge(self._symbols(piece)) if whole is None else [whole]
        return ids

    def _symbols(self, piece: bytes) -> list[int]:
        """Returns the ids of the bytes or characters in a word before merging."""
        if not self.byte_fallback:
            return [self._byte_ids[byte] for byte in piece]
        ids: list[int] = []
        for character in piece.decode("utf-8", "surrogateescape"):
            index = self._character_ids.get(character)
            if index is None:
                utf8 = character.encode("utf-8", "surrogateescape")
                ids += [self._byte_ids[byte] for byte in utf8]
            else:
                ids.append(index)
        return ids

    def _tokens_of_word(self, word: str) -> Iterator[int]:
        """Yields `id, start, end` of each token in a word. Spaces are not part of any span."""
        if word.startswith(_FOUND):
            yield from (*self._ids_of_word(word), 0, len(word) - 1)
            return
        floor = int(word.startswith(_ADDED_SPACE))
        word = word.replace(_ADDED_SPACE, self._space)
        # The character index of each byte
        characters = [
            index for index, letter in enumerate(word) for _ in range(len(letter.encode("utf-8")))
        ]
        begin = 0
        for index in self._ids_of_word(word):
            # An unknown token is a byte outside the vocabulary.
            piece = b"\xff" if index == self.unk_token_id else self._pieces[index]
            if piece is None:
                piece = self.vocabulary[index].encode("utf-8")
            end = begin + len(piece)
            leading, trailing = count_blanks(piece, self._space)
            last = characters[end - 1] + 1
            first = min(characters[begin] + leading, last)
            yield index
            yield max(first, floor)
            yield max(last - trailing, first)
            begin = end

    def _merge(self, ids: list[int]) -> list[int]:
        """Merges the pairs with the lowest rank, and repeats this until no pair has a rank.

        For the ranks in `_single_ranks`, only the first pair is merged at a time.
        """
        if len(ids) > _FEW_SYMBOLS:
            return merge_with_heap(ids, self._ranks, self._merge_results)
        no_rank = len(self._ranks)
        while len(ids) > 1:
            ranks = [self._ranks.get(pair, no_rank) for pair in itertools.pairwise(ids)]
            rank = min(ranks)
            if rank == no_rank:
                break
            if rank in self._single_ranks:
                index = ranks.index(rank)
                ids = [
                    *ids[:index],
                    self._merge_results[ids[index], ids[index + 1]],
                    *ids[index + 2 :],
                ]
                continue
            result: list[int] = []
            begin = 0
            for index, each in enumerate(ranks):
                if each == rank and index >= begin:
                    result += ids[begin:index]
                    result.append(self._merge_results[ids[index], ids[index + 1]])
                    begin = index + 2
            ids = result + ids[begin:]
        return ids


@functools.cache
def byte_word_splitter(word_pattern: str) -> Callable[[str], list[str]]:
    """Returns a function that splits a text into words without losing characters.

    `"gpt2"` splits text into runs of letters, numbers, whitespace or other characters. A word
    includes a single preceding space. Other whitespace is a separate word, but its last space
    belongs to the next word. Contractions such as `'s` are words. For `"llama3"`, see
    `BytePairTokenizer`.

    Reference:
        [Radford et al., 2019](https://github.com/openai/gpt-2), the original GPT-2 code.
    """
    return re.compile(word_expression(word_pattern)).findall


def word_expression(word_pattern: str) -> str:
    """Returns the regular expression for a word pattern.

    Its character classes are spelled out, so they do not depend on the Unicode version.
    """
    letter, number, space = character_class("L"), character_class("N"), WHITE_SPACE
    at_end = f"[{space}]+(?![^{space}])|[{space}]+"
    other = f"[^{space}{letter}{number}]"
    if word_pattern == "gpt2":
        return f"'s|'t|'re|'ve|'m|'ll|'d| ?[{letter}]+| ?[{number}]+| ?{other}+|{at_end}"
    if word_pattern == "llama3":
        # Without case, the long s also matches s.
        endings = "[sS\u017ftTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]"
        return (
            f"'(?:{endings})|[^\r\n{letter}{number}]?[{letter}]+|[{number}]{{1,3}}"
            f"| ?{other}+[\r\n]*|[{space}]*[\r\n]+|{at_end}"
        )
    raise ValueError(f"word_pattern must be {', '.join(WORD_PATTERNS)}. Received: {word_pattern!r}")


def _prepend_space(text: str) -> str:
    """Adds a space before a nonempty text that does not start with a space."""
    return f" {text}" if text and not text.startswith(" ") else text


def _merged_ids(merges: Sequence[str], ids: Mapping[str, int]) -> dict[tuple[int, int], int]:
    """Maps pairs of token ids to merged token ids, in merge order."""
    results: dict[tuple[int, int], int] = {}
    for index, merge in enumerate(merges):
        left, right = check_merge(merge, ids.keys(), f"Merge {index}")
        pair = ids[left], ids[right]
        # If a pair is repeated, the last merge counts, as in the `tokenizers` library.
        results.pop(pair, None)
        results[pair] = ids[left + right]
    return results


def _fallback_bytes(token: str) -> bytes:
    """Returns a token's bytes in BPE with byte fallback."""
    byte = _bytes_of_tokens().get(token)
    return token.encode("utf-8") if byte is None else bytes([byte])


@functools.cache
def _bytes_of_tokens() -> Mapping[str, int]:
    return {token: byte for byte, token in enumerate(byte_tokens())}


def _joints(merges: Sequence[str]) -> frozenset[str]:
    """Returns the pairs of characters that merges join, as strings of two characters."""
    pairs = (merge.split(" ") for merge in merges)
    return frozenset(left[-1] + right[0] for left, right in pairs)


def _check_bytes(tokens: Collection[str], merges: Sequence[str]) -> None:
    """Checks that all required bytes have a token, and that no merge contains such a token."""
    for byte, token in enumerate(byte_tokens()):
        if token not in tokens and not (byte < 0x80 and chr(byte) in tokens) and byte != ord(" "):
            raise ValueError(
                "With byte_fallback, the vocabulary must have a token for each byte that is not a "
                f"character in the vocabulary. Received: a vocabulary without {token}"
            )
    for merge in merges:
        if not _bytes_of_tokens().keys().isdisjoint(merge.split(" ")):
            raise ValueError(
                "With byte_fallback, merges must consist of characters, not bytes. Received: "
                f"{merge!r}"
            )
