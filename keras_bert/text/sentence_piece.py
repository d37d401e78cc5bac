# SPDX-License-Identifier: Apache-2.0
"""SentencePiece tokenizers, for example for ALBERT and XLM-RoBERTa, with character offsets."""

from __future__ import annotations

import base64
import bisect
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import sentencepiece

from keras_bert.atomic import write_bytes
from keras_bert.text.characters import character_class_of
from keras_bert.text.composition import compose_text
from keras_bert.text.flat_tokens import FlatTokens
from keras_bert.text.normalization import extend_over_dropped_marks, is_extending
from keras_bert.text.sentence_piece_cleaning import TextCleaner
from keras_bert.text.special_tokens import TokenSplitter, segments
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.vocabularies.files import read_bytes
from keras_bert.vocabularies.sentence_piece_model import (
    Piece,
    PieceType,
    read_pieces,
    replace_pieces,
    without_characters_map,
)
from keras_bert.vocabularies.tokenizer_config import check_tokenizer_config, decode_model
from keras_bert.vocabularies.vocab_txt import check_vocabulary

if TYPE_CHECKING:
    from keras_bert.text.graph.tokenizer import GraphTokenizer

SPACE = "▁"
"""The character that represents the space before a word."""

_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~£€')


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece tokenizer for ALBERT, XLM-RoBERTa, DeBERTa or KoBERT.

    For ALBERT, text is normalized before the model is applied:

    1. Runs of whitespace are replaced with one space, and texts are stripped.
    2. Pairs of backticks or apostrophes are replaced with `"`.
    3. Unless accents are kept, characters are decomposed (NFKD) and combining marks are dropped.
    4. Text is lowercased.

    After the model, pieces that end with a digit and a comma are split. For example, `1990,` is
    split into `1990` and `,`. For XLM-RoBERTa and KoBERT, these steps are disabled by
    `lowercase=False`, `keep_accents=True` and `albert_rules=False`. For DeBERTa (v2 and v3), they
    are also disabled, and `compose=True`.

    Strings are tokenized by the `sentencepiece` library. TensorFlow tensors are tokenized with TF
    Text operations, for example in a `tf.data` pipeline, a `tf.function` or a SavedModel. The
    SavedModel then contains the model. The ids may differ if segmentations have equal scores, such
    as `9` `99` and `99` `9`, because TF Text contains an older library version with a different
    preference. No special tokens are added around texts. Invalid UTF-8 bytes are dropped.

    Args:
        model: A serialized SentencePiece model as bytes, or the path to a model (`spiece.model`).
            Its pieces are the vocabulary. All special tokens are required, except for the mask
            token if the model does not mask.
        lowercase: Whether to lowercase text, as the released ALBERT models expect. Defaults to
            `True`.
        keep_accents: Whether to keep accents instead of decomposing characters. If the model itself
            decomposes a character, such as a ligature, a piece that ends inside the character does
            not include it in its span. Defaults to `False`.
        albert_rules: Whether to apply the rules above for whitespace, quotes, and numbers with
            commas. Defaults to `True`.
        special_tokens_in_text: Whether `[MASK]` (including the preceding whitespace), `[SEP]` and
            other special tokens and control pieces in a text become a single token each. Otherwise,
            they are split like other text. Defaults to `False`.
        special_tokens: The special tokens by role: `"pad"`, `"unk"`, `"cls"`, `"sep"` and `"mask"`.
            For example, `{"cls": "<s>"}`. Defaults to ALBERT's special tokens: `<pad>`, `<unk>`,
            `[CLS]`, `[SEP]` and `[MASK]`.
        pair_separators: Number of separators between paired texts: 1 in ALBERT, 2 in XLM-RoBERTa.
            Defaults to 1.
        num_segments: Number of encoder segments: 2 in ALBERT. With 1, all segment ids are 0.
            Defaults to 2.
        truncation_side: Side where overlong texts are truncated: `"right"` or `"left"`. Defaults to
            `"right"`.
        compose: Whether to compose characters (NFC) and replace runs of whitespace with one space,
            instead of applying the model's own normalization, as the DeBERTa tokenizer in
            `transformers` 5 does. With `compose=False`, text is normalized as in DeBERTa's
            pre-training. For example, a no-break space becomes a space, not an unknown character.
            Text without such characters gets the same ids. Defaults to `False`.
        added_tokens: Control pieces in the model that become a single token each wherever they
            occur in a text, such as entity markers. A word starts after each of them, as in
            `transformers`.
        special_added_tokens: The `added_tokens` that `decode` omits like special tokens.

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
        ValueError: If the model is not a SentencePiece model or lacks a special token, or if
            `compose` is used with `lowercase` or `albert_rules`, or without `keep_accents`.

    Example:

    ```python
    tokenizer = SentencePieceTokenizer("albert-base-v2/spiece.model")
    tokenizer(["Répétez, s'il vous plaît"])    # [["▁repe", "tez", ",", "▁s", ...]] as ids
    ```

    Reference:
        [ALBERT](https://arxiv.org/abs/1909.11942), section 4.1;
        [XLM-R](https://arxiv.org/abs/1911.02116), section 3;
        [Kudo, 2018](https://arxiv.org/abs/1804.10959), the search algorithm.
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
        special_tokens: Mapping[str, str] | None = None,
        pair_separators: int = 1,
        num_segments: int = 2,
        truncation_side: str = "right",
        compose: bool = False,
        added_tokens: Sequence[str] = (),
        special_added_tokens: Sequence[str] = (),
    ) -> None:
        if compose and (lowercase or albert_rules or not keep_accents):
            raise ValueError(
                f"compose requires lowercase=False, keep_accents=True and albert_rules=False. "
                f"Received: {lowercase}, {keep_accents} and {albert_rules}"
            )
        self._rename_special_tokens(special_tokens)
        self.model = model if isinstance(model, bytes) else _read(Path(model))
        self.compose = compose
        self._processor = _processor(self.model)
        if compose:
            self._processor = _processor(without_characters_map(self.model))
        vocabulary = [
            self._processor.id_to_piece(index) for index in range(self._processor.get_piece_size())
        ]
        required = (self.pad_token, self.unk_token, self.cls_token, self.sep_token)
        tokens = check_vocabulary(vocabulary, required)
        super().__init__(tokens, special_tokens_in_text, truncation_side)
        self.lowercase = lowercase
        self.keep_accents = keep_accents
        self.albert_rules = albert_rules
        self.pair_separators = pair_separators
        self.num_segments = num_segments
        self.added_tokens = tuple(added_tokens)
        self.special_added_tokens = tuple(special_added_tokens)
        self._check_added_tokens()
        self.cleaner = TextCleaner(
            lowercase, keep_accents, collapse=albert_rules, join_spaces=compose
        )
        self.parts = self._parts_of_pieces() if albert_rules else {}
        """The pieces that replace each piece that ends with a digit and a comma, by its id."""
        indices = range(len(self.vocabulary))
        self._control_ids = tuple(filter(self._processor.is_control, indices))
        for token in self.added_tokens:
            if self._ids[token] not in self._control_ids:
                raise ValueError(
                    f"added_tokens must be control pieces of the model. Received: {token!r}"
                )
        skipped = self.skipped_token_ids if special_tokens_in_text else ()
        in_text = dict.fromkeys([*map(self.id_to_token, skipped), *self.added_tokens])
        spelled: Callable[[str], str] = compose_text if compose else str
        token_ids = {spelled(token): self._ids[token] for token in in_text}
        self._splitter = TokenSplitter(token_ids, {self.mask_token}) if token_ids else None

    @property
    def skipped_token_ids(self) -> list[int]:
        """The ids of special tokens and control pieces, except for ordinary added tokens."""
        control_ids = (
            index
            for index in self._control_ids
            if self.vocabulary[index] not in self.added_tokens
            or self.vocabulary[index] in self.special_added_tokens
        )
        return [*self.special_token_ids, *control_ids]

    @property
    def continuation_token_ids(self) -> list[int]:
        """The ids of pieces without a preceding space.

        With `albert_rules`, they must consist of English letters and punctuation, but must not be a
        single punctuation mark.
        """
        special = {*self.special_token_ids, *self._control_ids}
        return [
            index
            for index, piece in enumerate(self.vocabulary)
            if index not in special
            and (_continues(piece) if self.albert_rules else not piece.startswith(SPACE))
        ]

    def token_text(self, token_id: int) -> str:
        """Returns a piece's text, including the preceding space."""
        return self.id_to_token(token_id).replace(SPACE, " ")

    def save_vocabulary(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file atomically."""
        write_bytes(Path(path), self.model)

    def _config_values(self) -> dict[str, Any]:
        model = base64.b64encode(self.model).decode("ascii")
        return {**super()._config_values(), "model": model}

    def _occurs_in_text(self, token: str) -> bool:
        return self._ids[token] not in self._control_ids

    def _extend_vocabulary(self, tokens: Sequence[str]) -> dict[str, Any]:
        pieces = [Piece(token, 0.0, PieceType.CONTROL) for token in tokens]
        model = replace_pieces(self.model, [*read_pieces(self.model), *pieces])
        return {"model": base64.b64encode(model).decode("ascii")}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a tokenizer from a config that `get_config` returned.

        Raises:
            ValueError: If a field is missing or unknown or has the wrong type, or if `model` is not
                base64.
        """
        check_tokenizer_config({**config, "kind": cls.kind})
        arguments = {name: value for name, value in config.items() if name != "kind"}
        return cls(**{**arguments, "model": decode_model(config)})

    def _texts_to_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids: list[int] = []
        ends = []
        for text in map(_valid, texts):
            for start, end, token_id in segments(text, self._splitter):
                if token_id is not None:
                    ids.append(token_id)
                else:
                    piece_ids = self._processor.encode(self.cleaner(text[start:end]), out_type=int)
                    ids += (
                        piece_ids
                        if self.parts.keys().isdisjoint(piece_ids)
                        else self._split_ids(piece_ids)
                    )
            ends.append(len(ids))
        return np.array(ids, np.int32), np.diff(ends, prepend=0)

    def _texts_to_tokens(self, texts: Sequence[str]) -> FlatTokens:
        tokens: list[tuple[int, int, int]] = []
        ends = []
        for text in map(_valid, texts):
            for start, end, token_id in segments(text, self._splitter):
                if token_id is not None:
                    tokens.append((token_id, start, end))
                else:
                    tokens += self._tokens_of_segment(text[start:end], start)
            ends.append(len(tokens))
        ids, starts, ends_of = np.array(tokens, np.int32).reshape(-1, 3).T
        return FlatTokens(ids, starts, ends_of, np.diff(ends, prepend=0))

    def _ids_to_text(self, ids: Sequence[int]) -> str:
        """Concatenates pieces and converts their space characters to spaces."""
        text = "".join([self.vocabulary[index] for index in ids])
        return text.replace(SPACE, " ").removeprefix(" ")

    def _make_graph(self) -> GraphTokenizer:
        from keras_bert.text.graph.sentence_piece import SentencePieceGraph
        from keras_bert.text.graph.sentence_piece_cleaning import SentenceCleaner

        return SentencePieceGraph(
            self.vocabulary,
            self.skipped_token_ids,
            without_characters_map(self.model) if self.compose else self.model,
            SentenceCleaner(self.cleaner),
            self.ids_of_parts,
            [[_width(part) for part in row] for row in self._parts_of_all()],
            self._splitter,
            None if self.albert_rules else self.blank_characters,
            self.compose,
        )

    @property
    def ids_of_parts(self) -> list[list[int]]:
        """The ids that replace each id. Most ids replace themselves."""
        return [
            [self._ids.get(part, self.unk_token_id) for part in row] for row in self._parts_of_all()
        ]

    @functools.cached_property
    def blank_characters(self) -> str:
        """The characters that the model drops or replaces with a space, as a character class.

        They are not part of any span. ALBERT's rules process whitespace before the model does, so
        only the space remains.
        """
        if self.albert_rules:
            return " "
        points = [*range(1, 0xD800), *range(0xE000, 0x10000)]
        results = self._processor.normalize([f"a{chr(point)}a" for point in points])
        blank = self._processor.normalize(["aa", "a a"])
        return character_class_of(
            point for point, text in zip(points, results, strict=True) if text in blank
        )

    @functools.cached_property
    def _blanks(self) -> re.Pattern[str]:
        return re.compile(f"[{self.blank_characters}]*")

    def _parts_of_all(self) -> list[list[str]]:
        return [self.parts.get(index, [piece]) for index, piece in enumerate(self.vocabulary)]

    def _parts_of_pieces(self) -> dict[int, list[str]]:
        return {
            index: self._split_number(piece)
            for index, piece in enumerate(self.vocabulary)
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
        }

    def _split_number(self, piece: str) -> list[str]:
        """Returns the pieces that replace a piece with a trailing comma."""
        number = piece[:-1].replace(SPACE, "")
        parts = self._processor.encode(number, out_type=str)
        if not piece.startswith(SPACE) and parts[0].startswith(SPACE):
            # The model puts a space before every text, but this number does not follow a space.
            parts = [part for part in (parts[0].removeprefix(SPACE), *parts[1:]) if part]
        return [*parts, ","]

    def _split_ids(self, ids: Sequence[int]) -> Iterator[int]:
        for index in ids:
            for part in self.parts.get(index, [self.vocabulary[index]]):
                yield self._ids.get(part, self.unk_token_id)

    def _tokens_of_segment(self, text: str, begin: int) -> Iterator[tuple[int, int, int]]:
        """Yields a segment's tokens with character offsets in the whole text."""
        widths, is_merged = self.cleaner.traces(text)
        byte_ends = list(itertools.accumulate(widths))

        def is_dropped(index: int) -> bool:
            return not widths[index] and is_extending(text[index])

        for index, first, last in self._pieces(self.cleaner(text).encode("utf-8")):
            if self.vocabulary[index].strip(SPACE):
                # If the model itself splits a character into multiple pieces, only the last piece
                # has bytes.
                last = max(last, first + 1)
            # Skip characters without bytes.
            start = min(bisect.bisect(byte_ends, first), len(text))
            end = min(bisect.bisect(byte_ends, last - 1) + 1, len(text))
            end += end < len(text) and is_merged[end]
            is_empty = first >= last or start >= end
            if start < len(text):
                start, end = extend_over_dropped_marks(text, start, max(end, start + 1), is_dropped)
            yield index, begin + start, begin + (start if is_empty else end)

    def _pieces(self, clean_text: bytes) -> Iterator[tuple[int, int, int]]:
        """Yields the id and byte span of each piece in a normalized text, without spaces."""
        encoding = self._processor.encode(clean_text, return_type="offset_mapping")
        for index, (begin, last) in zip(encoding["ids"], encoding["offsets"], strict=True):
            first, last = self._drop_blanks(clean_text, begin, last)
            parts = self.parts.get(index)
            if parts is None:
                yield index, first, last
                continue
            for part in parts:
                end = min(first + _width(part), last) if part is not parts[-1] else last
                yield self._ids.get(part, self.unk_token_id), first, end
                first = end

    def _drop_blanks(self, clean_text: bytes, begin: int, last: int) -> tuple[int, int]:
        """Strips blank characters from both ends of a byte span."""
        text = clean_text[begin:last].decode("utf-8")
        if self.albert_rules:
            return begin + len(text) - len(text.lstrip(" ")), last
        match = self._blanks.match(text)
        first = begin + len(match[0].encode("utf-8")) if match else begin
        match = self._blanks.match(text[::-1])
        return first, max(first, last - len(match[0].encode("utf-8"))) if match else last


def _read(path: Path) -> bytes:
    if not path.is_file():
        problem = "is a directory" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {problem}. Pass the path to a SentencePiece model.")
    return read_bytes(path)


def _processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ValueError(
            f"model must be a SentencePiece model. Received: {len(model)} bytes ({error})"
        ) from error


def _valid(text: str) -> str:
    """Replaces NUL with a different unknown character, because TF Text would stop at it."""
    return text.replace("\0", "\ue000")


def _width(part: str) -> int:
    """Returns a piece's size in bytes, without the preceding space."""
    return len(part.replace(SPACE, "").encode("utf-8"))


def _continues(piece: str) -> bool:
    """Returns whether a piece continues a word, as in ALBERT (English letters and punctuation)."""
    if piece.startswith((SPACE, "<")) or piece in _PUNCTUATION:
        return False
    return all(
        (letter.isascii() and letter.isalpha()) or letter in _PUNCTUATION for letter in piece
    )
