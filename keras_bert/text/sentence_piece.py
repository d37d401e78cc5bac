# SPDX-License-Identifier: Apache-2.0
"""ALBERT's SentencePiece tokenizer, in graph, exact, with character offsets."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any, Self

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text.normalization import drop_invalid
from keras_bert.text.number_commas import NumberCommas
from keras_bert.text.offsets import Characters
from keras_bert.text.pieces import Pieces
from keras_bert.text.sentence_cleaning import SentenceCleaner
from keras_bert.text.sentence_places import moved_places, to_characters, without_spaces
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.text.typed_segments import TypedSegments
from keras_bert.vocabularies.files import write_whole
from keras_bert.vocabularies.vocab_txt import check_vocabulary

SPACE = "▁"
"""What stands for the space before a word."""

_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~£€')


class SentencePieceTokenizer(Tokenizer):
    """Text to the ids of a SentencePiece model and back, as ALBERT's released code does it.

    Before the model, in this order: white space becomes one space, and none at the ends; pairs of
    backticks and of apostrophes become `"`; characters are decomposed (NFKD) and combining ones
    dropped, unless accents are kept; text is lower-cased. Behind it, pieces that end in a digit
    and a comma are taken apart: `1990,` is `1990` and `,`.

    Graph operations alone, TF Text's among them: it runs in `tf.data.Dataset.map`, a `tf.function`
    and a SavedModel, which then contains the model. No special tokens are added around a text;
    bytes that are no UTF-8 are dropped.

    Args:
        model: A serialized SentencePiece model, or the path of one (`spiece.model`). Its pieces are
            the vocabulary; `[CLS]`, `[SEP]`, `<pad>` and `<unk>` must be among them, and `[MASK]`
            where tokens are masked.
        lowercase: Whether text is lower-cased, as the released models expect.
        keep_accents: Whether text is spared the decomposition and keeps its accents. (Where the
            model itself then takes a character apart, as it does with ligatures, the place of a
            piece that ends inside one is without it.)
        albert_rules: Whether white space, quotes and numbers with commas are treated as above;
            without, text goes to the model as it is.
        special_tokens_in_text: Whether `[MASK]` (and the white space before it), `[SEP]` and the
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
        ValueError: If it is no SentencePiece model, or one without the special tokens.

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
        self._clean = SentenceCleaner(lowercase, keep_accents, collapse=albert_rules)
        self._commas = (
            NumberCommas(self.vocabulary, processor, self.unk_token_id) if albert_rules else None
        )
        # TF Text's tokenizer, made inside the graph that it is for: one made outside would be lost
        # with TensorFlow's cache of operations, which setting a seed empties.
        self._search = tf.function(
            lambda texts: _processor(self.model).tokenize_with_offsets(texts),
            [tf.TensorSpec([None], tf.string)],
            autograph=False,
        )
        present = {self.vocabulary[index]: index for index in self.special_token_ids}
        self._typed = TypedSegments(present, self.mask_token) if special_tokens_in_text else None

    @property
    def continuation_token_ids(self) -> list[int]:
        """Ids of pieces of letters that no space is before; others are words of their own."""
        special = set(self.special_token_ids)
        return [
            index
            for index, piece in enumerate(self.vocabulary)
            if index not in special and _continues(piece)
        ]

    def token_text(self, token_id: int) -> str:
        """What a piece is in a text."""
        return self.id_to_token(token_id).replace(SPACE, " ")

    def save_vocabulary(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file."""
        write_whole(Path(path), self.model)

    def get_config(self) -> dict[str, Any]:
        """Plain values, the model in base64, from which `from_config` makes the same tokenizer."""
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
        """The inverse of `get_config`."""
        try:
            model = base64.b64decode(config["model"], validate=True)
        except (TypeError, binascii.Error) as error:
            raise ValueError(
                f"model of a tokenizer's config is no SentencePiece model in base64: {error}."
            ) from error
        return super().from_config({**config, "model": model})

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = _valid(texts)
        if self._typed:
            return self._typed(texts, self._pieces).ids
        ids, _, _ = self._search(self._clean(texts))
        return self._commas.split_ids(ids) if self._commas else ids

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        texts = _valid(texts)
        return self._typed(texts, self._pieces) if self._typed else self._pieces(texts)

    def _pieces(self, texts: tf.Tensor) -> Pieces:
        """Pieces of texts `(texts,)`, valid UTF-8, with places in characters."""
        cleaned = self._clean(texts)
        pieces = Pieces(*self._search(cleaned))
        text_starts = tf.cumsum(tf.cast(tf.strings.length(cleaned), tf.int64), exclusive=True)
        # From here on counted through all texts
        offset = tf.gather(text_starts, pieces.ids.value_rowids())
        pieces = moved_places(pieces, lambda places: places + offset)
        pieces = without_spaces(pieces, cleaned)
        if self._commas:
            pieces = self._commas.split(pieces)
        characters = Characters.of(texts)
        is_space = tf.gather(self._is_space, pieces.ids.flat_values)
        return to_characters(pieces, is_space, characters, *self._clean.traces(characters))

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Pieces in a row, with spaces where they say so."""
        tokens = ids.with_flat_values(tf.gather(self._tokens, ids.flat_values))
        text = tf.strings.reduce_join(tokens, axis=1)
        return tf.strings.regex_replace(tf.strings.regex_replace(text, SPACE, " "), r"\A ", "")


def _read(path: Path) -> bytes:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; expected a SentencePiece model.")
    return path.read_bytes()


def _processor(model: bytes) -> tf_text.SentencepieceTokenizer:
    try:
        return tf_text.SentencepieceTokenizer(model, out_type=tf.int32)
    except tf.errors.OpError as error:
        raise ValueError(
            f"The model, {len(model)} bytes, is no SentencePiece model: {error.message}"
        ) from error


def _valid(texts: tf.Tensor) -> tf.Tensor:
    """Texts without invalid bytes, and with another unknown character for NUL.

    Some of TF Text's operations take a NUL for a text's end.
    """
    return tf.strings.regex_replace(drop_invalid(texts), r"\x00", "\ue000")


def _continues(piece: str) -> bool:
    """As ALBERT's masking tells it: English letters, and punctuation behind or between them."""
    if piece.startswith((SPACE, "<")) or piece in _PUNCTUATION:
        return False
    return all(
        (letter.isascii() and letter.isalpha()) or letter in _PUNCTUATION for letter in piece
    )
