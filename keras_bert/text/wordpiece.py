# SPDX-License-Identifier: Apache-2.0
"""WordPiece tokenizer with the same ids as the original BERT code, and character offsets."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_bert.text import special_tokens
from keras_bert.text.characters import category, ideographs_as_letters
from keras_bert.text.flat_tokens import FlatTokens
from keras_bert.text.normalization import (
    Normalization,
    drops_characters,
    extend_over_dropped_marks,
    is_extending,
    normalized_characters,
    split_word,
    splittable,
    word_starts,
)
from keras_bert.text.special_tokens import SUFFIX, TokenMarks
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.text.word_cache import END, WordCache
from keras_bert.vocabularies.tokenizer_config import MAX_WORD_LENGTH, WORD_LENGTH
from keras_bert.vocabularies.vocab_txt import check_vocabulary, load_vocabulary, save_vocabulary

if TYPE_CHECKING:
    from keras_bert.text.graph.tokenizer import GraphTokenizer

_BETWEEN = f" {END} "
# TF Text stores token lengths in one byte.
_MAX_PIECE_BYTES = 256
_ONE_LETTER = (1,)
# `decode` does not put a space before tokens with these prefixes, like the `tokenizers` library.
_WITHOUT_SPACE = (".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re")


class WordPieceTokenizer(Tokenizer):
    """A WordPiece tokenizer with the same ids as the original BERT code.

    Strings are tokenized in Python with a cache of words. TensorFlow tensors are tokenized with
    graph operations, for example in a `tf.data` pipeline, a `tf.function` or a SavedModel. The
    SavedModel then contains the vocabulary. No special tokens are added around texts. The ids match
    the original BERT code for every character in Unicode 15. Invalid UTF-8 bytes are dropped, as in
    the original BERT code.

    Args:
        vocabulary: The tokens in the order of their ids, or the path to a `vocab.txt`.
        lowercase: Whether to lowercase text and strip accents, as uncased models expect. Defaults
            to `True`.
        special_tokens_in_text: Whether `[MASK]`, `[SEP]` and other special tokens in a text become
            a single token each. Otherwise, they are split like other text. For example, `[MASK]` is
            split into `[`, `mask` and `]`. Defaults to `False`.
        added_tokens: Other tokens of the vocabulary, such as entity markers, that become a single
            token each wherever they occur in a text, even inside a word.
        normalized_tokens: The `added_tokens` to find in normalized text: in any case and with any
            accents if the tokenizer is uncased, and around dropped characters, such as zero-width
            spaces.
        special_added_tokens: The `added_tokens` that `decode` omits like special tokens.
        max_word_length: Maximum word length in characters. Longer words become the unknown token.
            It is 200 in the original BERT code, and 100 in `transformers`. Defaults to 200.
        num_segments: Number of encoder segments. With 1, all segment ids are 0. Defaults to 2.
        truncation_side: Side where overlong texts are truncated: `"right"` or `"left"`. Defaults to
            `"right"`.
        strip_accents: Whether to strip accents. By default, the same as `lowercase`. German uncased
            models keep accents.
        tokenize_chinese_chars: Whether each CJK ideograph is a separate word. Defaults to `True`.
        special_tokens: The special tokens by role: `"pad"`, `"unk"`, `"cls"`, `"sep"` and `"mask"`.
            For example, `{"cls": "<s>"}` in MPNet. Defaults to BERT's special tokens: `[PAD]`,
            `[UNK]`, `[CLS]`, `[SEP]` and `[MASK]`.
        pair_separators: Number of separators between paired texts: 1 in BERT, 2 in MPNet. Defaults
            to 1.

    Call arguments:
        text: A string or `bytes`, or a batch of them: a list, an array, or a dense or ragged
            TensorFlow string tensor.

    Input shape:
        `()`, `(batch,)`, or more dimensions.

    Output shape:
        For a string, a list of ids. For a batch, a list of such lists. For a tensor, an int32
        tensor `(tokens,)` or a ragged tensor `(batch, tokens)`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the vocabulary lacks an added token or a special token (except for the mask
            token), if it contains an empty, duplicate or overlong token (more than 256 bytes), if
            `max_word_length` is not in [1, 999], or if `truncation_side` has an unsupported value.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "caf", "##e", "##s", "!"]
    >>> tokenizer = keras_bert.WordPieceTokenizer(tokens)
    >>> tokenizer("Cafés!")
    [5, 6, 7, 8]
    >>> tokenizer(["Café", "Bar!"])
    [[5, 6], [1, 8]]
    >>> tokenizer.encode("Cafés!")
    [2, 5, 6, 7, 8, 3]
    >>> tokenizer.decode([5, 6, 7, 8])
    'cafes!'
    >>> tokenizer.detokenize([5, 6, 7, 8])
    'cafes !'
    >>> ids, starts, ends = tokenizer.tokenize_with_offsets("Cafés!")
    >>> list(zip(starts, ends))
    [(0, 3), (3, 4), (4, 5), (5, 6)]

    Reference:
        [Devlin et al., 2019](https://arxiv.org/abs/1810.04805), section 3;
        [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 4.1.
    """

    kind = "wordpiece"
    pad_token = special_tokens.PADDING
    unk_token = special_tokens.UNKNOWN
    cls_token = special_tokens.CLASSIFY
    sep_token = special_tokens.SEPARATE
    mask_token = special_tokens.MASK

    def __init__(
        self,
        vocabulary: Sequence[str] | str | os.PathLike[str],
        lowercase: bool = True,
        special_tokens_in_text: bool = False,
        added_tokens: Sequence[str] = (),
        normalized_tokens: Sequence[str] = (),
        special_added_tokens: Sequence[str] = (),
        max_word_length: int = MAX_WORD_LENGTH,
        num_segments: int = 2,
        truncation_side: str = "right",
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        special_tokens: Mapping[str, str] | None = None,
        pair_separators: int = 1,
    ) -> None:
        self._rename_special_tokens(special_tokens)
        required = (self.pad_token, self.unk_token, self.cls_token, self.sep_token)
        tokens = (
            load_vocabulary(vocabulary, required)
            if isinstance(vocabulary, str | os.PathLike)
            else check_vocabulary(vocabulary, required)
        )
        _check_sizes(tokens)
        super().__init__(tokens, special_tokens_in_text, truncation_side)
        WORD_LENGTH.check(max_word_length=max_word_length)
        self.max_word_length = max_word_length
        self.num_segments = num_segments
        self.pair_separators = pair_separators
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.tokenize_chinese_chars = tokenize_chinese_chars
        self.rules = Normalization(lowercase, self.strip_accents, tokenize_chinese_chars)
        self.added_tokens = tuple(added_tokens)
        self.normalized_tokens = tuple(normalized_tokens)
        self.special_added_tokens = tuple(special_added_tokens)
        self._check_added_tokens()
        present = [token for token in self.special_tokens() if token in self._ids]
        in_text = [*(present if special_tokens_in_text else ()), *self.added_tokens]
        in_text = list(dict.fromkeys(in_text))
        self.token_marks = (
            TokenMarks(in_text, self.normalized_tokens, self.rules) if in_text else None
        )
        """Finds special and added tokens in texts. `None` if no tokens are to be found."""
        self._subwords = _Subwords(self.matched_vocabulary, self.unk_token_id, max_word_length)
        self._word_ids = WordCache(self._ids_of_word, width=1)
        self._word_tokens = WordCache(self._tokens_of_word, width=3)

    @property
    def matched_vocabulary(self) -> list[str]:
        """The vocabulary to match against texts that `token_marks` has marked.

        Special and added tokens are replaced with their marks. Tokens that the original BERT code
        never matches are replaced with strings that no text contains.
        """
        marks = self.token_marks.marks if self.token_marks else {}
        normalize = str if self.tokenize_chinese_chars else ideographs_as_letters
        characters = set("".join(self.vocabulary))
        never = {each for each in characters if each.isspace() or category(each) in ("Cc", "Cf")}
        return [
            marks.get(token)
            # TF Text would match a token that contains a space before it splits at whitespace, and
            # it rejects the token "##". Punctuation is always a separate word.
            or (
                f"[unmatched {index}]"
                if token == SUFFIX or not never.isdisjoint(token)
                else normalize(token)
            )
            for index, token in enumerate(self.vocabulary)
        ]

    @property
    def continuation_token_ids(self) -> list[int]:
        """The ids of tokens that continue a word, such as `##ing`."""
        return [index for index, token in enumerate(self.vocabulary) if token.startswith(SUFFIX)]

    def save_vocabulary(self, path: str | os.PathLike[str]) -> None:
        """Writes the vocabulary to a file, one token per line."""
        save_vocabulary(self.vocabulary, path)

    def _config_values(self) -> dict[str, Any]:
        strip_accents = None if self.strip_accents == self.lowercase else self.strip_accents
        return {**super()._config_values(), "strip_accents": strip_accents}

    def _occurs_in_text(self, token: str) -> bool:
        return token.isalnum() or token.startswith(SUFFIX)

    def _check_new_token(self, token: Any) -> None:
        super()._check_new_token(token)
        if token.startswith(SUFFIX):
            raise ValueError(
                f"Added tokens must not start with {SUFFIX}, which continues a word. Received: "
                f"{token!r}"
            )

    def _texts_to_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self._word_ids.ids(self._mark(self._join(texts)).split())

    def _texts_to_tokens(self, texts: Sequence[str]) -> FlatTokens:
        bordered_text = self._join(texts)
        joined_text = self._mark(bordered_text)
        tokens = self._word_tokens.tokens(joined_text.split(), word_starts(joined_text))
        starts, ends = tokens.starts, tokens.ends
        if self.token_marks:
            offsets = self.token_marks.offsets(bordered_text, joined_text)
            starts, ends = offsets[starts], offsets[ends]
        sizes = np.array([len(text) + len(_BETWEEN) for text in texts], np.int64)
        begins = np.repeat(np.cumsum(sizes) - sizes, tokens.lengths)
        return FlatTokens(tokens.ids, starts - begins, ends - begins, tokens.lengths)

    def _join(self, texts: Sequence[str]) -> str:
        """Puts borders around special and added tokens or marks them, and joins the texts."""
        if self.token_marks:
            texts = [self.token_marks.border(text) for text in texts]
        return _BETWEEN.join([*splittable(texts), ""])

    def _mark(self, bordered_text: str) -> str:
        return self.token_marks.mark(bordered_text) if self.token_marks else bordered_text

    def _ids_to_text(self, ids: Sequence[int]) -> str:
        """Joins words and punctuation with spaces, and subwords without spaces."""
        return " ".join([self.vocabulary[index] for index in ids]).replace(f" {SUFFIX}", "")

    def _ids_to_readable_text(self, ids: Sequence[int]) -> str:
        """Joins words with spaces, except before the prefixes in `_WITHOUT_SPACE`."""
        tokens = [self.vocabulary[index] for index in ids]
        begin, *others = tokens or [""]
        pieces = (
            token.removeprefix(SUFFIX)
            if token.startswith((SUFFIX, *_WITHOUT_SPACE))
            else f" {token}"
            for token in others
        )
        return "".join([begin, *pieces])

    def _make_graph(self) -> GraphTokenizer:
        from keras_bert.text.graph.wordpiece import WordPieceGraph

        return WordPieceGraph(
            self.vocabulary,
            self.skipped_token_ids,
            self.unk_token_id,
            self.matched_vocabulary,
            self.rules,
            self.token_marks,
            self.max_word_length,
        )

    def _ids_of_word(self, raw: str) -> list[int]:
        """Converts a raw word without whitespace to ids."""
        ids: list[int] = []
        for letters in normalized_characters(raw, self.rules):
            ids += self._subwords.split(letters)
        return ids

    def _tokens_of_word(self, raw: str) -> list[int]:
        """Returns the id, start and end of each token in a raw word."""

        def is_dropped(index: int) -> bool:
            is_accent = category(raw[index]) == "Mn"
            return is_extending(raw[index]) and (self.strip_accents or not is_accent)

        tokens: list[int] = []
        subwords = self._subwords
        may_extend = drops_characters(raw, self.rules)
        for letters, firsts, lasts in split_word(raw, self.rules):
            end = 0
            for index in subwords.split(letters):
                if index == subwords.unknown_id:
                    start, stop = min(firsts), max(lasts) + 1
                else:
                    begin, end = end, end + subwords.widths[index]
                    start, stop = firsts[begin], lasts[end - 1] + 1
                if may_extend:
                    start, stop = extend_over_dropped_marks(raw, start, stop, is_dropped)
                tokens += (index, start, stop)
        return tokens


class _Subwords:
    """Splits words into tokens, greedily with the longest match first.

    `tokens` are the strings to match, in the order of their ids.
    """

    def __init__(self, tokens: Sequence[str], unknown_id: int, max_length: int) -> None:
        self._max_length = max_length
        self.widths = [len(token.removeprefix(SUFFIX)) for token in tokens]
        """The number of letters in each token."""
        self.unknown_id = unknown_id
        beginnings: dict[str, int] = {}
        continuations: dict[str, int] = {}
        for index, token in enumerate(tokens):
            if token.startswith(SUFFIX):
                continuations[token.removeprefix(SUFFIX)] = index
            else:
                beginnings[token] = index
        self._beginnings = beginnings, _lengths(beginnings)
        self._continuations = continuations, _lengths(continuations)

    def split(self, word: str) -> list[int]:
        """Splits a word into token ids."""
        ids: list[int] = []
        tokens, lengths = self._beginnings
        if len(word) > self._max_length:
            return [self.unknown_id]
        while word:
            index = tokens.get(word)
            if index is not None:
                ids.append(index)
                return ids
            for length in lengths.get(word[:2], _ONE_LETTER):
                index = tokens.get(word[:length])
                if index is not None:
                    break
            else:
                return [self.unknown_id]
            ids.append(index)
            word = word[length:]
            tokens, lengths = self._continuations
        return ids


def _lengths(tokens: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Maps the first two letters of tokens to the lengths of these tokens in descending order."""
    length_sets: defaultdict[str, set[int]] = defaultdict(lambda: {1})
    for token in tokens:
        length_sets[token[:2]].add(len(token))
    return {
        letters: tuple(sorted(lengths, reverse=True)) for letters, lengths in length_sets.items()
    }


def _check_sizes(vocabulary: Sequence[str]) -> None:
    """Checks the number of bytes in each token."""
    for index, token in enumerate(vocabulary):
        size = len(token.encode("utf-8"))
        if size > _MAX_PIECE_BYTES:
            raise ValueError(
                f"Tokens must have at most {_MAX_PIECE_BYTES} bytes. Received: {size} bytes (token "
                f"{index} of the vocabulary, {token!r})"
            )
