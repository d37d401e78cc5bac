# SPDX-License-Identifier: Apache-2.0
"""BERT's WordPiece tokenizer, exact and with character offsets."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keras_bert.text import special_tokens
from keras_bert.text.characters import category
from keras_bert.text.normalization import (
    MAX_WORD_LENGTH,
    Word,
    is_extending,
    over_dropped_marks,
    raw_words,
    raw_words_with_starts,
    words_of,
)
from keras_bert.text.special_tokens import TokenMarks
from keras_bert.text.tokenizer import KnownWords, Tokenizer, Tokens
from keras_bert.vocabularies.vocab_txt import check_vocabulary, load_vocabulary, save_vocabulary

if TYPE_CHECKING:
    from keras_bert.text.graph.tokenizer import GraphTokenizer

SUFFIX = "##"
"""The prefix of tokens that continue a word."""

# TF Text stores the length of a token in a byte.
_MAX_PIECE_BYTES = 256


class WordPieceTokenizer(Tokenizer):
    """A WordPiece tokenizer, with the same ids as BERT's released code.

    Strings are tokenized in Python, with a cache of words. Tensors of TensorFlow are tokenized with
    graph operations, so in `tf.data.Dataset.map`, a `tf.function` and a SavedModel, which then
    contains the vocabulary. No special tokens are added around a text. The ids are those of the
    original for every character assigned in Unicode 15; bytes that are not valid UTF-8 are
    dropped, as in the original.

    Args:
        vocabulary: The tokens in the order of their ids, or the path of a `vocab.txt`.
        lowercase: Whether to lowercase text and strip accents, as uncased models expect.
        special_tokens_in_text: Whether `[MASK]`, `[SEP]` and the other special tokens are one token
            each where they occur in a text. If not, they are split like other text: `[`, `mask`,
            `]`.
        added_tokens: Other tokens of the vocabulary, such as entity markers, that are one token
            each where they occur in a text, also inside a word.
        uncased_tokens: Those of `added_tokens` that are recognized in any case and with any
            accents.

    Call arguments:
        text: A string or `bytes`, or a batch of them: a list, an array, or a string tensor of
            TensorFlow, which may be ragged.

    Input shape:
        `()`, `(batch,)`, or more dimensions.

    Output shape:
        For a string, a list of its ids, and for a batch, a list of such lists. For a tensor, an
        int32 tensor `(tokens,)`, or a ragged one `(batch, tokens)`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the vocabulary lacks `[PAD]`, `[UNK]`, `[CLS]` or `[SEP]`, has an empty,
            duplicate or too long token (more than 256 bytes), or does not have an added token.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "caf", "##e", "##s", "!"]
    >>> tokenizer = keras_bert.WordPieceTokenizer(tokens)
    >>> tokenizer("Cafés!")
    [5, 6, 7, 8]
    >>> tokenizer(["Café", "Bar!"])
    [[5, 6], [1, 8]]
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
        uncased_tokens: Sequence[str] = (),
    ) -> None:
        tokens = (
            load_vocabulary(vocabulary)
            if isinstance(vocabulary, str | os.PathLike)
            else check_vocabulary(vocabulary)
        )
        super().__init__(tokens, special_tokens_in_text)
        self.lowercase = lowercase
        self.added_tokens = tuple(added_tokens)
        self.uncased_tokens = tuple(uncased_tokens)
        missing = [token for token in self.added_tokens if token not in self._ids]
        if missing:
            raise ValueError(f"added_tokens has {missing[0]!r}, which is not in the vocabulary.")
        unknown = sorted({*self.uncased_tokens} - {*self.added_tokens})
        if unknown:
            raise ValueError(f"uncased_tokens has {unknown[0]!r}, which is not in added_tokens.")
        present = [token for token in self.special_tokens() if token in self._ids]
        in_text = [*(present if special_tokens_in_text else ()), *self.added_tokens]
        in_text = list(dict.fromkeys(in_text))
        self.token_marks = TokenMarks(in_text, self.uncased_tokens) if in_text else None
        """The recognition of special and added tokens in texts; `None` if there are none."""
        self._matched = {token: index for index, token in enumerate(self.matched_vocabulary)}
        self._known = KnownWords(self._tokens_of_word)

    @property
    def matched_vocabulary(self) -> list[str]:
        """The tokens as strings that match, in marked texts, where the original matches them.

        Special and added tokens are the characters that `token_marks` replaces them with. Tokens
        that the original never matches are strings that no text contains.
        """
        marks = self.token_marks.marks if self.token_marks else {}
        return [
            marks.get(token, _matched(token, index)) for index, token in enumerate(self.vocabulary)
        ]

    @property
    def continuation_token_ids(self) -> list[int]:
        """The ids of tokens such as `##ing`, which continue a word."""
        return [index for index, token in enumerate(self.vocabulary) if token.startswith(SUFFIX)]

    def save_vocabulary(self, path: str | os.PathLike[str]) -> None:
        """Writes the vocabulary to a file, one token per line."""
        save_vocabulary(self.vocabulary, path)

    def get_config(self) -> dict[str, Any]:
        """Returns the config, including the vocabulary, from which `from_config` creates a copy."""
        return {
            "vocabulary": list(self.vocabulary),
            "lowercase": self.lowercase,
            "special_tokens_in_text": self.special_tokens_in_text,
            **({"added_tokens": list(self.added_tokens)} if self.added_tokens else {}),
            **({"uncased_tokens": list(self.uncased_tokens)} if self.uncased_tokens else {}),
        }

    def _ids_of(self, text: str) -> list[int]:
        marked = self.token_marks.mark(text) if self.token_marks else text
        tokens = map(self._known.__getitem__, raw_words(marked))
        return list(itertools.chain.from_iterable([ids for ids, _, _ in tokens]))

    def _tokens_of(self, text: str) -> Tokens:
        marked = self.token_marks.mark(text) if self.token_marks else text
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        for raw, begin in raw_words_with_starts(marked):
            tokens = self._known[raw]
            ids += tokens.ids
            starts += [begin + start for start in tokens.starts]
            ends += [begin + end for end in tokens.ends]
        if self.token_marks:
            offsets = self.token_marks.offsets(marked)
            starts, ends = ([offsets[index] for index in part] for part in (starts, ends))
        return Tokens(ids, starts, ends)

    def _text_of(self, ids: Sequence[int]) -> str:
        """Joins words and punctuation with spaces, and subwords without."""
        return " ".join([self.vocabulary[index] for index in ids]).replace(f" {SUFFIX}", "")

    def _make_graph(self) -> GraphTokenizer:
        from keras_bert.text.graph.wordpiece import WordPieceGraph

        return WordPieceGraph(
            self.vocabulary,
            self.special_token_ids,
            self.unk_token_id,
            self.matched_vocabulary,
            self.lowercase,
            self.token_marks,
        )

    def _tokens_of_word(self, raw: str) -> Tokens:
        """Converts a raw word, without whitespace, to tokens with offsets in it."""

        def is_dropped(index: int) -> bool:
            is_accent = category(raw[index]) == "Mn"
            return is_extending(raw[index]) and (self.lowercase or not is_accent)

        pieces = [
            (index, *over_dropped_marks(raw, start, end, is_dropped))
            for word in words_of(raw, self.lowercase)
            for index, start, end in self._match(word)
        ]
        ids, starts, ends = zip(*pieces, strict=True) if pieces else ((), (), ())
        return Tokens(ids, starts, ends)

    def _match(self, word: Word) -> list[tuple[int, int, int]]:
        """Splits a word into subwords, longest match first: the id and the span of each."""
        letters, firsts, lasts = word
        length = len(letters)
        unknown = [(self.unk_token_id, min(firsts), max(lasts) + 1)]
        if length > MAX_WORD_LENGTH:
            return unknown
        pieces = []
        start = 0
        while start < length:
            prefix = SUFFIX if start else ""
            for end in range(length, start, -1):
                index = self._matched.get(prefix + letters[start:end])
                if index is not None:
                    break
            else:
                return unknown
            pieces.append((index, firsts[start], lasts[end - 1] + 1))
            start = end
        return pieces


def _matched(token: str, index: int) -> str:
    """Returns the token, or a string that no text contains if the original never matches the token.

    TF Text matches tokens before it splits at whitespace, so that a token with a space inside would
    match two words; and it rejects the token "##".
    """
    if len(token.encode("utf-8")) > _MAX_PIECE_BYTES:
        raise ValueError(
            f"Token {index} of the vocabulary has {len(token.encode('utf-8'))} bytes: {token!r}; "
            f"at most {_MAX_PIECE_BYTES} are supported."
        )
    unmatched = token == SUFFIX or any(
        character.isspace() or category(character) in ("Cc", "Cf") for character in token
    )
    # Punctuation is always a word of its own, so this is never matched.
    return f"[unmatched {index}]" if unmatched else token
