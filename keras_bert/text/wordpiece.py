# SPDX-License-Identifier: Apache-2.0
"""BERT's WordPiece tokenizer with graph operations, exact and with character offsets."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text import special_tokens
from keras_bert.text.normalization import MAX_WORD_LENGTH, drop_invalid, normalize
from keras_bert.text.offsets import Pieces, to_source_characters
from keras_bert.text.special_tokens import TypedTokens
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.vocabularies.vocab_txt import check_vocabulary, load_vocabulary, save_vocabulary

SUFFIX = "##"
# TF Text limits the bytes of a word, not its characters, so its limit is disabled.
_NO_LIMIT = 2**30
# TF Text stores the length of a token in a byte.
_MAX_PIECE_BYTES = 256


class WordPieceTokenizer(Tokenizer):
    """A WordPiece tokenizer, with the same ids as BERT's released code.

    It uses graph operations only, and so runs in `tf.data.Dataset.map`, a `tf.function` and a
    SavedModel, which then contains the vocabulary. It does not add special tokens around a text.
    The ids are those of the original for every character assigned in Unicode 14 (Python 3.11);
    bytes that are not valid UTF-8 are dropped, as in the original.

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
        text: A string or `bytes`, or a batch of them: a list, an array, a string tensor or a ragged
            tensor.

    Input shape:
        `()`, `(batch,)`, or more dimensions.

    Output shape:
        int32 `(tokens,)` for a single string, otherwise ragged `(batch, tokens)`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the vocabulary lacks `[PAD]`, `[UNK]`, `[CLS]` or `[SEP]`, has an empty,
            duplicate or too long token (more than 256 bytes), or does not have an added token.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "caf", "##e", "##s", "!"]
    >>> tokenizer = keras_bert.WordPieceTokenizer(tokens)
    >>> tokenizer("Cafés!").numpy().tolist()
    [5, 6, 7, 8]
    >>> tokenizer(["Café", "Bar!"]).to_list()
    [[5, 6], [1, 8]]
    >>> tokenizer.detokenize([5, 6, 7, 8]).numpy().decode()
    'cafes !'
    >>> ids, starts, ends = tokenizer.tokenize_with_offsets("Cafés!")
    >>> list(zip(starts.numpy().tolist(), ends.numpy().tolist()))
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
        typed = [token for token in self.special_tokens() if token in self._ids]
        typed = [*(typed if special_tokens_in_text else ()), *self.added_tokens]
        typed = list(dict.fromkeys(typed))
        self.typed = TypedTokens(typed, self.uncased_tokens) if typed else None
        marks = self.typed.marks if self.typed else {}
        typed_as = {self._ids[token]: mark for token, mark in marks.items()}
        self._find_pieces = PieceFinder(self.vocabulary, self.unk_token_id, typed_as)
        with tf.init_scope(), tf.device("CPU:0"):
            self._tokens = tf.constant(self.vocabulary)

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

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        marked = self.typed.mark(texts) if self.typed else texts
        return self._find_pieces(*normalize(marked, self.lowercase)).ids

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        marked = drop_invalid(self.typed.mark(texts) if self.typed else texts)
        pieces = self._find_pieces(*normalize(marked, self.lowercase))
        pieces = to_source_characters(marked, self.lowercase, pieces)
        return self.typed.to_typed_characters(marked, pieces) if self.typed else pieces

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Joins words and punctuation with spaces, and subwords without."""
        tokens = ids.with_flat_values(tf.gather(self._tokens, ids.flat_values))
        text = tf.strings.reduce_join(tokens, axis=1, separator=" ")
        return tf.strings.regex_replace(text, f" {SUFFIX}", "")


class PieceFinder:
    """Splits normalized texts into subwords: greedily, longest match first.

    Args:
        vocabulary: The tokens in the order of their ids.
        unknown_id: The id of the unknown token.
        typed_as: The strings that represent tokens in marked texts (see `TypedTokens`), by id.

    Raises:
        ValueError: If a token has more than 256 bytes.

    Reference:
        [Song et al., 2021](https://arxiv.org/abs/2012.15524), the search.
    """

    def __init__(
        self, vocabulary: Sequence[str], unknown_id: int, typed_as: Mapping[int, str]
    ) -> None:
        tokens = self.searchable(vocabulary, typed_as)
        # Constants that are created while a graph is traced would belong to that graph alone.
        with tf.init_scope(), tf.device("CPU:0"):
            self._search = tf_text.FastWordpieceTokenizer(
                tokens,
                suffix_indicator=SUFFIX,
                max_bytes_per_word=_NO_LIMIT,
                token_out_type=tf.int32,
                unknown_token=tokens[unknown_id],
            )
            self._is_suffix = tf.constant([token.startswith(SUFFIX) for token in tokens])
        self._unknown_id = unknown_id

    @staticmethod
    def searchable(vocabulary: Sequence[str], typed_as: Mapping[int, str]) -> list[str]:
        """Returns the tokens as strings that match where the original algorithm matches them."""
        return [
            typed_as.get(index, _searchable(token, index)) for index, token in enumerate(vocabulary)
        ]

    def __call__(self, normalized: tf.Tensor, may_have_long_words: tf.Tensor) -> Pieces:
        """Splits texts.

        Args:
            normalized: String tensor `(texts,)` that `normalize` returned.
            may_have_long_words: Bool scalar, whether words may have more than 200 characters.

        Returns:
            `Pieces` with offsets in bytes of the normalized text.
        """
        pieces = Pieces(*self._search.tokenize_with_offsets(normalized))
        row_splits, ids, starts, ends = tf.cond(
            may_have_long_words,
            lambda: self._forget_long_words(normalized, pieces),
            lambda: (pieces.ids.row_splits, *(part.flat_values for part in pieces)),
        )
        return Pieces(
            *(
                tf.RaggedTensor.from_row_splits(part, row_splits, validate=False)
                for part in (ids, starts, ends)
            )
        )

    def _forget_long_words(
        self, normalized: tf.Tensor, pieces: Pieces
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Replaces each word of more than 200 characters with one unknown token."""
        ids, starts, ends = (part.flat_values for part in pieces)
        continues = tf.gather(self._is_suffix, ids)
        word = tf.cumsum(tf.cast(~continues, tf.int32)) - 1
        num_words = tf.reduce_sum(tf.cast(~continues, tf.int32))
        lengths = _lengths_in_characters(normalized, pieces)
        is_long = tf.gather(tf.math.segment_sum(lengths, word) > MAX_WORD_LENGTH, word)
        word_ends = tf.gather(tf.math.unsorted_segment_max(ends, word, num_words), word)
        kept = pieces.ids.with_flat_values(~(is_long & continues))
        return (
            tf.ragged.boolean_mask(pieces.ids, kept).row_splits,
            tf.boolean_mask(tf.where(is_long, self._unknown_id, ids), kept.flat_values),
            tf.boolean_mask(starts, kept.flat_values),
            tf.boolean_mask(tf.where(is_long, word_ends, ends), kept.flat_values),
        )


def _searchable(token: str, index: int) -> str:
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
        character.isspace() or unicodedata.category(character) in ("Cc", "Cf")
        for character in token
    )
    # Punctuation is always a word of its own, so this is never matched.
    return f"[unmatched {index}]" if unmatched else token


def _lengths_in_characters(normalized: tf.Tensor, pieces: Pieces) -> tf.Tensor:
    """Returns the number of characters in each subword, int32 `(pieces,)`."""
    text_starts = tf.cumsum(tf.cast(tf.strings.length(normalized), tf.int64), exclusive=True)
    all_bytes = tf.io.decode_raw(tf.strings.reduce_join(normalized), tf.uint8)
    # UTF-8: every character has exactly one byte that is not 10xxxxxx.
    begins = tf.bitwise.bitwise_and(all_bytes, tf.constant(0xC0, tf.uint8)) != 0x80
    before = tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int32))], axis=0)
    offset = tf.gather(text_starts, pieces.ids.value_rowids())
    starts, ends = pieces.starts.flat_values, pieces.ends.flat_values
    return tf.gather(before, offset + ends) - tf.gather(before, offset + starts)
