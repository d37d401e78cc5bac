# SPDX-License-Identifier: Apache-2.0
"""Recognition of special tokens in texts with graph operations, for each kind of tokenizer."""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence

import tensorflow as tf

from keras_bert.text.normalization import WHITE_SPACE, without_case
from keras_bert.text.offsets import Pieces

PADDING, UNKNOWN, CLASSIFY, SEPARATE, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PADDING, UNKNOWN, CLASSIFY, SEPARATE, MASK)

# Unassigned code points in the range of CJK ideographs: each is a word of its own, normalization
# does not change it, and it does not occur in real text.
_FIRST_MARK = 0xFAE0
_NO_CHARACTER = 0xFAFF


class TypedTokens:
    """Replaces each special token in a text with a single character that the tokenizer recognizes.

    Args:
        tokens: The tokens to recognize.
        uncased: Those of them that are recognized in any case and with any accents.

    Raises:
        ValueError: If there are more than 31 tokens.
    """

    def __init__(self, tokens: Sequence[str], uncased: Collection[str] = ()) -> None:
        if len(tokens) > _NO_CHARACTER - _FIRST_MARK:
            raise ValueError(
                f"There are {len(tokens)} special and added tokens to find in texts; at most "
                f"{_NO_CHARACTER - _FIRST_MARK} are supported."
            )
        # Longer tokens are replaced first, since they may contain shorter ones; uncased ones last.
        self._tokens = tuple(sorted(tokens, key=lambda token: (token in uncased, -len(token))))
        spellings = [without_case(token) if token in uncased else token for token in self._tokens]
        self._widths = tuple(map(len, spellings))
        self._patterns = tuple(
            "".join(map(_any_case, spelling)) if token in uncased else re.escape(token)
            for token, spelling in zip(self._tokens, spellings, strict=True)
        )

    @property
    def marks(self) -> Mapping[str, str]:
        """The character that replaces each token."""
        return {token: chr(_FIRST_MARK + index) for index, token in enumerate(self._tokens)}

    @property
    def replacements(self) -> Sequence[tuple[str, str]]:
        """Regular expressions and the replacements of their matches, applied in this order."""
        # A mark that occurs in a text is not a special token.
        marks = "".join(self.marks.values())
        return (
            (f"[{marks}]", chr(_NO_CHARACTER)),
            *zip(self._patterns, self.marks.values(), strict=True),
        )

    def mark(self, text: tf.Tensor) -> tf.Tensor:
        """Replaces the tokens with their marks.

        Args:
            text: String tensor `(texts,)`.

        Returns:
            A string tensor `(texts,)`.
        """
        for pattern, mark in self.replacements:
            text = tf.strings.regex_replace(text, pattern, mark)
        return text

    def to_typed_characters(self, marked: tf.Tensor, pieces: Pieces) -> Pieces:
        """Converts offsets in a marked text to offsets in the original text.

        Args:
            marked: String tensor `(texts,)` that `mark` returned, valid UTF-8.
            pieces: `Pieces` with offsets in characters of `marked`.

        Returns:
            `Pieces` with offsets in characters of the text before `mark`.
        """
        points = tf.strings.unicode_decode(marked, "UTF-8")
        lengths = tf.constant(self._widths)
        index = points.flat_values - _FIRST_MARK
        is_mark = (index >= 0) & (index < len(self._tokens))
        widths = tf.where(is_mark, tf.gather(lengths, tf.where(is_mark, index, 0)), 1)
        before = tf.concat([[0], tf.cumsum(widths)], axis=0)
        text = tf.cast(tf.gather(points.row_starts(), pieces.ids.value_rowids()), tf.int32)

        def moved(offsets: tf.RaggedTensor) -> tf.RaggedTensor:
            typed = tf.gather(before, text + offsets.flat_values) - tf.gather(before, text)
            return offsets.with_flat_values(typed)

        return Pieces(pieces.ids, moved(pieces.starts), moved(pieces.ends))


@functools.cache
def _spellings() -> Mapping[str, Sequence[str]]:
    """Maps each character to all characters that become it without case and accents."""
    spellings = collections.defaultdict(list)
    for point in range(0x20000):  # ideographs follow
        if not 0xD800 <= point < 0xE000:
            spellings[without_case(chr(point))].append(chr(point))
    return spellings


def _any_case(character: str) -> str:
    """Returns a regular expression for a character in any case and with any accent."""
    return f"[{''.join(map(re.escape, _spellings().get(character, [character])))}]"


class TypedSegments:
    """Splits texts at special tokens, and tokenizes the segments between them.

    Args:
        ids: The id of each special token.
        takes_space: The token that includes the whitespace before it, if it is one of them.
    """

    def __init__(self, ids: Mapping[str, int], takes_space: str) -> None:
        self._ids = tuple(ids.values())
        self._patterns = tuple(
            (f"[{WHITE_SPACE}]*" if token == takes_space else "") + re.escape(token)
            for token in ids
        )

    def __call__(self, text: tf.Tensor, tokenize: Callable[[tf.Tensor], Pieces]) -> Pieces:
        """Tokenizes texts.

        Args:
            text: String tensor `(texts,)`, valid UTF-8.
            tokenize: A function that tokenizes strings `(segments,)`, with offsets in characters.

        Returns:
            `Pieces` with offsets in characters of `text`.
        """
        segments = self._split(text)
        flat = segments.flat_values
        which = self._which(flat)
        lengths = tf.strings.length(flat, unit="UTF8_CHAR")
        pieces = tokenize(tf.where(which < 0, flat, ""))
        is_token = tf.cast(which >= 0, tf.int64)

        def with_tokens(ragged: tf.RaggedTensor, of_tokens: tf.Tensor) -> tf.RaggedTensor:
            alone = tf.boolean_mask(tf.cast(of_tokens, tf.int32), which >= 0)
            tokens = tf.RaggedTensor.from_row_lengths(alone, is_token, validate=False)
            return tf.concat([ragged, tokens], axis=1)

        before = tf.concat([[0], tf.cumsum(lengths)], axis=0)
        of_text = tf.gather(before, tf.gather(segments.row_starts(), segments.value_rowids()))
        begin = before[:-1] - of_text
        ids = with_tokens(pieces.ids, tf.gather(self._ids, tf.maximum(which, 0)))
        without_space = tf.strings.regex_replace(flat, rf"\A[{WHITE_SPACE}]+", "")
        spaces = lengths - tf.strings.length(without_space, unit="UTF8_CHAR")
        starts = with_tokens(pieces.starts, spaces)
        ends = with_tokens(pieces.ends, lengths)
        moved = tf.gather(begin, ids.value_rowids())
        return Pieces(
            *(
                segments.with_values(part).merge_dims(1, 2)
                for part in (
                    ids,
                    starts.with_flat_values(starts.flat_values + moved),
                    ends.with_flat_values(ends.flat_values + moved),
                )
            )
        )

    def _split(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts before and after special tokens, into ragged strings `(texts, None)`."""
        # A byte that valid UTF-8 does not contain. (TF Text's `regex_split` stops at a NUL.)
        border = b"\xff"
        tokens = f"({'|'.join(self._patterns)})"
        text = tf.strings.regex_replace(text, tokens, border + rb"\1" + border)
        return tf.strings.split(text, border)

    def _which(self, segments: tf.Tensor) -> tf.Tensor:
        """Returns the index of the special token that each segment is, int32; -1 for none."""
        which = tf.fill(tf.shape(segments), -1)
        for index, pattern in enumerate(self._patterns):
            which = tf.where(tf.strings.regex_full_match(segments, pattern), index, which)
        return which
