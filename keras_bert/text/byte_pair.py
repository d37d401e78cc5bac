# SPDX-License-Identifier: Apache-2.0
"""RoBERTa's byte-level byte-pair tokenizer, in graph, exact, with character offsets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_bert.text.byte_merges import PieceMerger
from keras_bert.text.byte_words import ByteWords, split_byte_words
from keras_bert.text.normalization import drop_invalid
from keras_bert.text.pieces import Pieces
from keras_bert.text.shapes import on_any_shape
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.text.typed_segments import TypedSegments
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
        add_prefix_space: Whether a text's first word is taken for one that a space is before.
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
        """The ids of words in strings of their own, taken for words that a space is before."""
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
        """Pieces of texts `(texts,)`, valid UTF-8, with places in characters."""
        prefixed = _prefixed(texts) if self.add_prefix_space else texts
        split = split_byte_words(prefixed)
        ids = _joined(split.words, self._merge(split.words.flat_values))
        starts, ends = self._places(ids, split)
        added = tf.strings.length(prefixed) - tf.strings.length(texts)
        begin = tf.cast(split.character_splits[:-1], tf.int32) + added
        begin = tf.gather(begin, ids.value_rowids())
        return Pieces(
            ids,
            ids.with_flat_values(tf.maximum(starts - begin, 0)),
            ids.with_flat_values(ends - begin),
        )

    def _places(self, ids: tf.RaggedTensor, split: ByteWords) -> tuple[tf.Tensor, tf.Tensor]:
        """Where pieces lie among the characters of all texts, without the space around them."""
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
