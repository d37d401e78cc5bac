# SPDX-License-Identifier: Apache-2.0
"""ALBERT's SentencePiece tokenizer with graph operations, exact and with character offsets."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.atomic import write_bytes
from keras_bert.text.graph_functions import traced_once
from keras_bert.text.normalization import drop_invalid
from keras_bert.text.offsets import Characters, Pieces, over_dropped_marks
from keras_bert.text.sentence_piece_cleaning import SentenceCleaner
from keras_bert.text.special_tokens import TypedSegments
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.vocabularies.files import read_bytes
from keras_bert.vocabularies.tokenizer_config import check_tokenizer_config, model_of
from keras_bert.vocabularies.vocab_txt import check_vocabulary

SPACE = "▁"
"""The character that represents the space before a word."""

_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~£€')


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece tokenizer, with the same ids as ALBERT's released code.

    Before the model is applied, text is normalized in these steps: runs of whitespace are replaced
    with one space, and texts stripped; pairs of backticks or apostrophes are replaced with `"`;
    unless accents are kept, characters are decomposed (NFKD) and combining marks dropped; and text
    is lowercased. After it, pieces that end with a digit and a comma are split: `1990,` becomes
    `1990` and `,`.

    It uses graph operations only, including those of TF Text, and so runs in
    `tf.data.Dataset.map`, a `tf.function` and a SavedModel, which then contains the model. It does
    not add special tokens around a text. Bytes that are not valid UTF-8 are dropped.

    Args:
        model: A serialized SentencePiece model as bytes, or the path of one (`spiece.model`). Its
            pieces are the vocabulary; `[CLS]`, `[SEP]`, `<pad>` and `<unk>` are required, and
            `[MASK]` for masking.
        lowercase: Whether to lowercase text, as the released models expect.
        keep_accents: Whether to keep accents, without decomposing characters. (If the model itself
            then decomposes a character, such as a ligature, the span of a piece that ends inside
            it does not include it.)
        albert_rules: Whether to apply the rules above for whitespace, quotes, and numbers with
            commas.
        special_tokens_in_text: Whether `[MASK]` (including the whitespace before it), `[SEP]` and
            the other special tokens are one token each where they occur in a text. If not, they
            are split like other text.

    Call arguments:
        text: A string or `bytes`, or a batch of them: a list, an array, a string tensor or a ragged
            tensor.

    Input shape:
        `()`, `(batch,)`, or more dimensions.

    Output shape:
        int32 `(tokens,)` for a single string, otherwise ragged `(batch, tokens)`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the model is not a SentencePiece model, or lacks the special tokens.

    Example:

    ```python
    tokenizer = SentencePieceTokenizer("albert-base-v2/spiece.model")
    tokenizer(["Répétez, s'il vous plaît"])    # [["▁repe", "tez", ",", "▁s", ...]] as ids
    ```

    Reference:
        [ALBERT](https://arxiv.org/abs/1909.11942), section 4.1;
        [Kudo, 2018](https://arxiv.org/abs/1804.10959), the search.
    """

    kind = "sentence_piece"
    pad_token, unk_token, mask_token = "<pad>", "<unk>", "[MASK]"
    cls_token, sep_token = "[CLS]", "[SEP]"
    mask_takes_space = True
    masks_with_special_tokens = False

    def __init__(
        self,
        model: bytes | str | os.PathLike[str],
        lowercase: bool = True,
        keep_accents: bool = False,
        albert_rules: bool = True,
        special_tokens_in_text: bool = False,
    ) -> None:
        self.model = model if isinstance(model, bytes) else _read(Path(model))
        with tf.init_scope(), tf.device("CPU:0"):
            processor = _processor(self.model)
            self._tokens = processor.id_to_string(tf.range(processor.vocab_size()))
            self._is_space = tf.strings.regex_full_match(self._tokens, f"{SPACE}+")
            vocabulary = [piece.decode("utf-8") for piece in self._tokens.numpy()]
        required = (self.pad_token, self.unk_token, self.cls_token, self.sep_token)
        super().__init__(check_vocabulary(vocabulary, required), special_tokens_in_text)
        self.lowercase = lowercase
        self.keep_accents = keep_accents
        self.albert_rules = albert_rules
        self.cleaner = SentenceCleaner(lowercase, keep_accents, collapse=albert_rules)
        self.commas = (
            _NumberCommas(self.vocabulary, processor, self.unk_token_id) if albert_rules else None
        )
        # TF Text's tokenizer must be created inside the graph that uses it: one created outside is
        # lost when TensorFlow's operation cache is cleared, as `tf.random.set_seed` does.
        self._search = traced_once(
            lambda texts: _processor(self.model).tokenize_with_offsets(texts)
        )
        present = {self.vocabulary[index]: index for index in self.special_token_ids}
        self._typed = TypedSegments(present, self.mask_token) if special_tokens_in_text else None

    @property
    def continuation_token_ids(self) -> list[int]:
        """The ids of pieces of letters without a space before them; others begin a word."""
        special = set(self.special_token_ids)
        return [
            index
            for index, piece in enumerate(self.vocabulary)
            if index not in special and _continues(piece)
        ]

    def token_text(self, token_id: int) -> str:
        """Returns the text of a piece, including the space before it."""
        return self.id_to_token(token_id).replace(SPACE, " ")

    def save_vocabulary(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file, atomically."""
        write_bytes(Path(path), self.model)

    def get_config(self) -> dict[str, Any]:
        """Returns the config, with the model in base64, from which `from_config` creates a copy."""
        return {
            "kind": self.kind,
            "model": base64.b64encode(self.model).decode("ascii"),
            "lowercase": self.lowercase,
            "keep_accents": self.keep_accents,
            "albert_rules": self.albert_rules,
            "special_tokens_in_text": self.special_tokens_in_text,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a tokenizer from the config that `get_config` returned.

        Raises:
            ValueError: If a field is missing, unknown or not of its type, or `model` not base64.
        """
        check_tokenizer_config({**config, "kind": cls.kind})
        arguments = {name: value for name, value in config.items() if name != "kind"}
        return cls(**{**arguments, "model": model_of(config)})

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = _valid(texts)
        if self._typed:
            return self._typed(texts, self._pieces).ids
        ids, _, _ = self._search(self.cleaner(texts))
        return self.commas.split_ids(ids) if self.commas else ids

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        texts = _valid(texts)
        return self._typed(texts, self._pieces) if self._typed else self._pieces(texts)

    def _pieces(self, texts: tf.Tensor) -> Pieces:
        """Splits texts `(texts,)`, valid UTF-8, into pieces with offsets in characters."""
        cleaned = self.cleaner(texts)
        pieces = Pieces(*self._search(cleaned))
        text_starts = tf.cumsum(tf.cast(tf.strings.length(cleaned), tf.int64), exclusive=True)
        # From here on, offsets are those in the concatenation of all texts
        begin = tf.gather(text_starts, pieces.ids.value_rowids())
        pieces = _with_offsets(pieces, lambda offsets: offsets + begin)
        pieces = _without_spaces(pieces, cleaned)
        if self.commas:
            pieces = self.commas.split(pieces)
        characters = Characters.of(texts)
        is_space = tf.gather(self._is_space, pieces.ids.flat_values)
        return _to_characters(pieces, is_space, characters, *self.cleaner.traces(characters))

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Concatenates pieces, and replaces their space characters with spaces."""
        tokens = ids.with_flat_values(tf.gather(self._tokens, ids.flat_values))
        text = tf.strings.reduce_join(tokens, axis=1)
        return tf.strings.regex_replace(tf.strings.regex_replace(text, SPACE, " "), r"\A ", "")


def _read(path: Path) -> bytes:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; expected a SentencePiece model.")
    return read_bytes(path)


def _processor(model: bytes) -> tf_text.SentencepieceTokenizer:
    try:
        return tf_text.SentencepieceTokenizer(model, out_type=tf.int32)
    except tf.errors.OpError as error:
        raise ValueError(
            f"The model of {len(model)} bytes is not a SentencePiece model: {error.message}"
        ) from error


def _valid(texts: tf.Tensor) -> tf.Tensor:
    """Drops invalid bytes, and replaces NUL with another unknown character.

    Some operations of TF Text treat NUL as the end of a text.
    """
    return tf.strings.regex_replace(drop_invalid(texts), r"\x00", "\ue000")


def _continues(piece: str) -> bool:
    """Returns whether a piece continues a word: English letters and punctuation, as in ALBERT."""
    if piece.startswith((SPACE, "<")) or piece in _PUNCTUATION:
        return False
    return all(
        (letter.isascii() and letter.isalpha()) or letter in _PUNCTUATION for letter in piece
    )


class _NumberCommas:
    """Splits pieces that end with a digit and a comma.

    Args:
        vocabulary: The pieces.
        processor: The tokenizer of the text before the comma.
        unknown_id: The id of the unknown piece.

    Reference:
        [Lan et al., 2020](https://arxiv.org/abs/1909.11942), the released code, `encode_pieces`.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        processor: tf_text.SentencepieceTokenizer,
        unknown_id: int,
    ) -> None:
        ids = {piece: index for index, piece in enumerate(vocabulary)}
        with tf.init_scope(), tf.device("CPU:0"):
            split = {
                index: _parts(piece, vocabulary, processor)
                for index, piece in enumerate(vocabulary)
                if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
            }
        parts = [split.get(index, [piece]) for index, piece in enumerate(vocabulary)]
        flat = [part for row in parts for part in row]
        lengths = [len(row) for row in parts]
        with tf.init_scope(), tf.device("CPU:0"):
            self._is_split = tf.constant([index in split for index in range(len(vocabulary))])
            self._ids = tf.RaggedTensor.from_row_lengths(
                tf.constant([ids.get(part, unknown_id) for part in flat], tf.int32),
                tf.constant(lengths, tf.int64),
            )
            self._widths = self._ids.with_values(
                tf.constant([len(part.replace(SPACE, "").encode()) for part in flat], tf.int64)
            )

    @property
    def parts(self) -> list[list[int]]:
        """The ids that replace each id; most are replaced by themselves."""
        parts: list[list[int]] = self._ids.to_list()
        return parts

    def split_ids(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Splits pieces, given by their ids, ragged int32 `(texts, None)`."""
        values, row_splits = tf.cond(
            tf.reduce_any(tf.gather(self._is_split, ids.flat_values)),
            lambda: self._split_flat(ids),
            lambda: (ids.flat_values, ids.row_splits),
        )
        return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)

    def split(self, pieces: Pieces) -> Pieces:
        """Splits pieces with offsets, which are int64 in bytes."""
        parts = tf.gather(self._ids, pieces.ids.flat_values)
        widths = tf.gather(self._widths, pieces.ids.flat_values)
        first = tf.gather(pieces.starts.flat_values, parts.value_rowids())
        last = tf.gather(pieces.ends.flat_values, parts.value_rowids())
        before = tf.cumsum(widths.flat_values, exclusive=True)
        before -= tf.gather(before, tf.gather(parts.row_starts(), parts.value_rowids()))
        starts = tf.minimum(first + before, last)
        is_last = tf.range(tf.size(last, tf.int64)) + 1 == tf.gather(
            parts.row_limits(), parts.value_rowids()
        )
        ends = tf.where(is_last, last, tf.minimum(starts + widths.flat_values, last))
        row_splits = tf.gather(parts.row_splits, pieces.ids.row_splits)
        return Pieces(
            *(
                tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)
                for values in (parts.flat_values, starts, ends)
            )
        )

    def _split_flat(self, ids: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        parts = tf.gather(self._ids, ids.flat_values)
        return parts.flat_values, tf.gather(parts.row_splits, ids.row_splits)


def _parts(
    piece: str, vocabulary: Sequence[str], processor: tf_text.SentencepieceTokenizer
) -> list[str]:
    """Returns the pieces that replace a piece with a comma at its end."""
    number = piece[:-1].replace(SPACE, "")
    parts = [vocabulary[index] for index in processor.tokenize(number).numpy().tolist()]
    if not piece.startswith(SPACE) and parts[0].startswith(SPACE):
        # The model adds a space at the beginning of a text, but there is none before this number.
        parts = [part for part in (parts[0].removeprefix(SPACE), *parts[1:]) if part]
    return [*parts, ","]


def _with_offsets(pieces: Pieces, function: Callable[[tf.Tensor], tf.Tensor]) -> Pieces:
    """Applies a function to the flat offsets of pieces."""
    starts, ends = (
        part.with_flat_values(function(part.flat_values)) for part in (pieces.starts, pieces.ends)
    )
    return Pieces(pieces.ids, starts, ends)


def _without_spaces(pieces: Pieces, texts: tf.Tensor) -> Pieces:
    """Excludes the spaces at the start of pieces from their spans.

    Args:
        pieces: `Pieces` with offsets in bytes of the concatenated texts.
        texts: String tensor `(texts,)`.
    """
    all_bytes = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    is_other = all_bytes != ord(" ")
    # For each byte, the first byte at or after it that is not a space
    others_before = tf.concat([[0], tf.cumsum(tf.cast(is_other, tf.int32))], axis=0)
    others = tf.concat([tf.where(is_other)[:, 0], tf.size(is_other, tf.int64)[tf.newaxis]], axis=0)
    starts, ends = pieces.starts.flat_values, pieces.ends.flat_values
    starts = tf.minimum(tf.gather(others, tf.gather(others_before, starts)), ends)
    return Pieces(pieces.ids, pieces.starts.with_flat_values(starts), pieces.ends)


def _to_characters(
    pieces: Pieces,
    is_space: tf.Tensor,
    characters: Characters,
    widths: tf.Tensor,
    joined: tf.Tensor,
) -> Pieces:
    """Converts offsets in normalized texts to offsets in the original texts.

    Args:
        pieces: `Pieces` with offsets in bytes of the concatenated normalized texts.
        is_space: Which of them are only a space, and have an empty span, bool `(pieces,)`.
        characters: The characters of the original texts.
        widths: The number of bytes of each character in the normalized texts, int32
            `(characters,)`.
        joined: Which characters are merged with the character before them, bool `(characters,)`.

    Returns:
        `Pieces` with offsets in characters of their texts, int32. Dropped marks are in the span of
        the character that they belong to.
    """
    rows = pieces.ids.value_rowids()
    points = characters.points
    begin, end = tf.gather(points.row_starts(), rows), tf.gather(points.row_limits(), rows)
    byte_ends = tf.cumsum(tf.cast(widths, tf.int64))
    first, last = pieces.starts.flat_values, pieces.ends.flat_values
    # If the model itself splits a character into several pieces, the last one has its bytes.
    last = tf.where(is_space, last, tf.maximum(last, first + 1))
    # Characters without bytes are skipped.
    starts = tf.searchsorted(byte_ends, first, side="right", out_type=tf.int64)
    ends = tf.searchsorted(byte_ends, last - 1, side="right", out_type=tf.int64) + 1
    starts = tf.clip_by_value(starts, begin, end)
    ends += tf.cast(tf.gather(tf.concat([joined, [False]], axis=0), ends), tf.int64)
    ends = tf.minimum(ends, end)
    is_inside = starts < end
    inside = tf.where(is_inside, starts, 0)
    wide_starts, wide_last = over_dropped_marks(
        characters, widths > 0, inside, tf.where(starts < ends, ends - 1, inside)
    )
    is_empty = (first >= last) | (starts >= ends)
    starts = tf.where(is_inside, wide_starts, starts)
    ends = tf.where(is_empty, starts, wide_last + 1)
    return Pieces(
        pieces.ids,
        pieces.starts.with_flat_values(tf.cast(starts - begin, tf.int32)),
        pieces.ends.with_flat_values(tf.cast(ends - begin, tf.int32)),
    )
