# SPDX-License-Identifier: Apache-2.0
"""Packs queries and documents for late interaction: markers, query expansion and a skip list."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_bert import checks
from keras_bert.data.arrays import NUMPY, Ragged, join_rows, same_in_rows, take_rows
from keras_bert.data.packing import (
    Preprocessor,
    Sequences,
    first_row,
    functions_for,
    num_special_tokens,
    pack_texts,
    single_or_batch,
    tokenized,
    truncate,
)
from keras_bert.data.texts import TokenizedTexts, TruncationCounter
from keras_bert.text.tokenizer import Tokenizer, is_tensor

# The markers to look for in the vocabulary: of PyLate, and of the original ColBERT
_QUERY_MARKERS = ("[Q] ", "[unused0]")
_DOCUMENT_MARKERS = ("[D] ", "[unused1]")


class LateInteractionPreprocessor(Preprocessor):
    """Packs queries into `[CLS] [Q] A [SEP] [MASK] …`, and documents into `[CLS] [D] A [SEP]`.

    Args:
        tokenizer: The tokenizer that converts text to ids.
        sequence_length: Maximum length of any sequence in tokens, including special tokens and
            markers. It limits the other two lengths. Defaults to 512.
        query_length: Length of queries in tokens. Longer queries are truncated. Defaults to 32.
        document_length: Maximum length of documents in tokens. Longer documents are truncated.
            Defaults to 180.
        query_prefix: The marker of queries, a token in the vocabulary, or `""` for no marker.
            Defaults to `"[Q] "` as in PyLate, otherwise to `"[unused0]"` as in ColBERT, and to no
            marker if the vocabulary has neither.
        document_prefix: The marker of documents. Defaults to `"[D] "`, `"[unused1]"` or no marker.
        skiplist_words: Tokens in documents whose vectors are left out. Words that are not in the
            vocabulary are ignored. Defaults to the ASCII punctuation characters.
        do_query_expansion: Whether shorter queries are extended to `query_length` by mask tokens,
            whose vectors are used.
        attend_to_expansion_tokens: Whether other tokens attend to these mask tokens. It has no
            effect without `do_query_expansion`.

    Call arguments:
        text: A string, or strings of shape `(batch,)`.
        is_query: Whether the texts are queries. Otherwise they are documents.

    Returns:
        A dict of `token_ids` and `segment_ids` (int32), `padding_mask` and `pooling_mask` (bool),
        which is true for tokens whose vectors are used. The shapes are `(batch, length)`, or
        `(length,)` for a single string.

    Raises:
        ValueError: If a length is too small for the special tokens, a marker and one token, if a
            marker is not in the vocabulary, or if the vocabulary has no mask token for
            `do_query_expansion`.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[Q] ", "[D] ", "a", "cat", "."]
    >>> preprocessor = LateInteractionPreprocessor(
    ...     keras_bert.WordPieceTokenizer(tokens), query_length=6
    ... )
    >>> preprocessor("a cat", is_query=True)["token_ids"].tolist()
    [2, 5, 7, 8, 3, 4]
    >>> features = preprocessor("A cat.")
    >>> features["token_ids"].tolist(), features["pooling_mask"].astype(int).tolist()
    ([2, 6, 7, 8, 9, 3], [1, 1, 1, 1, 0, 1])

    Reference:
        [ColBERT](https://arxiv.org/abs/2004.12832), section 3.2.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 512,
        query_length: int = 32,
        document_length: int = 180,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        skiplist_words: Sequence[str] | None = None,
        do_query_expansion: bool = True,
        attend_to_expansion_tokens: bool = False,
    ) -> None:
        super().__init__(tokenizer, sequence_length)
        # The special tokens, a marker and one token
        shortest = num_special_tokens(tokenizer) + 2
        checks.NumberRange(at_least=shortest, integer=True).check(
            sequence_length=sequence_length,
            query_length=query_length,
            document_length=document_length,
        )
        self.query_length = query_length
        self.document_length = document_length
        self.query_prefix = _marker(tokenizer, "query_prefix", query_prefix, _QUERY_MARKERS)
        self.document_prefix = _marker(
            tokenizer, "document_prefix", document_prefix, _DOCUMENT_MARKERS
        )
        words = list(string.punctuation) if skiplist_words is None else skiplist_words
        checks.check_names("skiplist_words", words)
        self.skiplist_words = list(words)
        self.do_query_expansion = bool(do_query_expansion)
        self.attend_to_expansion_tokens = bool(attend_to_expansion_tokens)
        if do_query_expansion and tokenizer.mask_token not in tokenizer.vocabulary:
            raise ValueError(
                "The vocabulary must have a mask token for do_query_expansion. Received: a "
                f"vocabulary without {tokenizer.mask_token!r}. Pass do_query_expansion=False."
            )
        skipped = token_ids(tokenizer, self.skiplist_words)
        # 0 for tokens in the skip list. The last number is for all larger ids, because the
        # tokenizer that tracks sources has a vocabulary of 2 billion ids.
        self._is_kept = np.ones(max(skipped, default=-1) + 2, "int32")
        self._is_kept[list(skipped)] = 0
        self.truncated_rows = _LateInteractionCounter(
            "document_length", min(document_length, sequence_length)
        )
        self.truncated_rows.query_length = min(query_length, sequence_length)

    @property
    def uses_padding(self) -> bool:
        """Whether vectors at padding are used, because no token attends to expansion tokens."""
        return self.do_query_expansion and not self.attend_to_expansion_tokens

    def length_limit(self, is_query: bool) -> int:
        """Returns the maximum length of queries or documents in tokens."""
        length = self.query_length if is_query else self.document_length
        return min(length, self.sequence_length)

    def max_tokens(self, is_query: bool) -> int:
        """Returns the maximum number of tokens without special tokens and the marker."""
        marker = self.query_prefix if is_query else self.document_prefix
        return self.length_limit(is_query) - num_special_tokens(self.tokenizer) - bool(marker)

    def __call__(self, text: Any, is_query: bool = False) -> dict[str, Any]:
        text, is_single = single_or_batch(text)
        features = self.pack(text, is_query).padded_to_longest(
            functions_for(text), num_special_tokens(self.tokenizer), self.tokenizer.pad_token_id
        )
        return first_row(features) if is_single else features

    def pack(self, text: Any, is_query: bool = False) -> Sequences:
        """Packs a batch of texts without padding.

        Args:
            text: A list of strings or a TensorFlow string tensor, `(batch,)`.
            is_query: Whether the texts are queries.

        Returns:
            `Sequences` with the features of a call.
        """
        tokens = tokenized(self.tokenizer, text)
        if not is_tensor(text):
            self.truncated_rows.add(tokens.lengths, self.max_tokens(is_query))
        return self.pack_tokens(tokens, is_query)

    def pack_tokens(self, tokens: Ragged, is_query: bool) -> Sequences:
        """Packs token ids without special tokens, see `pack`."""
        xp, tokenizer = functions_for(tokens.values), self.tokenizer
        (tokens,) = truncate(xp, tokenizer, tokens, None, self.max_tokens(is_query))
        marker = self.query_prefix if is_query else self.document_prefix
        if marker:
            ones = xp.full(xp.size(tokens.lengths), 1, "int64")
            tokens = join_rows(xp, [same_in_rows(xp, tokenizer.token_to_id(marker), ones), tokens])
        features = pack_texts(xp, tokenizer, tokens)
        token_ids = features["token_ids"]
        lengths = token_ids.lengths
        features["padding_mask"] = same_in_rows(xp, 1, lengths)
        if not is_query:
            row = xp.minimum(token_ids.values, len(self._is_kept) - 1)
            is_kept = xp.take(xp.asarray(self._is_kept, "int32"), row)
            return Sequences({**features, "pooling_mask": Ragged(is_kept, lengths)})
        if self.do_query_expansion:
            missing = self.length_limit(is_query) - lengths
            attends = int(self.attend_to_expansion_tokens)
            values = {"token_ids": tokenizer.mask_token_id, "padding_mask": attends}
            features = {
                name: join_rows(xp, [rows, same_in_rows(xp, values.get(name, 0), missing)])
                for name, rows in features.items()
            }
        lengths = features["token_ids"].lengths
        return Sequences({**features, "pooling_mask": same_in_rows(xp, 1, lengths)})

    def pack_texts(self, tokens: Ragged, is_query: np.ndarray) -> Sequences:
        """Packs queries and documents, each in its own sequence.

        Args:
            tokens: The token ids of each text, without special tokens.
            is_query: Whether a text is a query, bool `(texts,)`.
        """
        parts, rows = [], []
        for kind in (True, False):
            rows.append(np.flatnonzero(is_query == kind))
            parts.append(self.pack_tokens(take_rows(NUMPY, tokens, rows[-1]), kind).features)
        features = {
            name: Ragged(*map(np.concatenate, zip(*(part[name] for part in parts), strict=True)))
            for name in parts[0]
        }
        return Sequences(features).take(NUMPY, np.argsort(np.concatenate(rows)))

    def limits_of_texts(self, is_query: np.ndarray) -> Any:
        """Returns the maximum numbers of tokens of the texts in `pack_texts`, int64 `(texts,)`."""
        return np.where(is_query, self.max_tokens(True), self.max_tokens(False))


class LateInteractionExamples:
    """Queries or documents in memory, as examples of a `Loader`."""

    def __init__(
        self, texts: Sequence[Any], preprocessor: LateInteractionPreprocessor, is_query: bool
    ) -> None:
        self._preprocessor = preprocessor
        self._is_query = is_query
        self._texts = TokenizedTexts(texts, preprocessor)
        self._is_counted = np.zeros(len(texts), bool)

    def __len__(self) -> int:
        return len(self._texts)

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs examples by index."""
        tokens, preprocessor = self._texts.take(index), self._preprocessor
        max_tokens = preprocessor.max_tokens(self._is_query)
        preprocessor.truncated_rows.add_once(self._is_counted, index, tokens.lengths, max_tokens)
        return preprocessor.pack_tokens(tokens, self._is_query)


class _LateInteractionCounter(TruncationCounter):
    """Counts truncated queries and documents."""

    query_length = 0

    def message(self, rows_before: int = 0, truncated_before: int = 0) -> str:
        num_truncated = self.num_truncated - truncated_before
        if not num_truncated:
            return ""
        return (
            f"{num_truncated:,} of {self.num_rows - rows_before:,} texts are truncated: documents "
            f"to document_length={self.limit} tokens, queries to query_length={self.query_length}. "
            "To read more of them, pass a larger length to from_preset."
        )


def token_ids(tokenizer: Tokenizer, tokens: Iterable[str]) -> set[int]:
    """Returns the ids of those tokens that are in the vocabulary."""
    return {tokenizer.token_to_id(token) for token in {*tokens}.intersection(tokenizer.vocabulary)}


def _marker(
    tokenizer: Tokenizer, option: str, marker: str | None, defaults: tuple[str, ...]
) -> str:
    """Returns a marker, by default the first of `defaults` that the vocabulary has, if any."""
    vocabulary = frozenset(tokenizer.vocabulary)
    if marker is None:
        return next((token for token in defaults if token in vocabulary), "")
    if not isinstance(marker, str) or (marker and marker not in vocabulary):
        raise ValueError(
            f"{option} must be a token in the vocabulary, or '' for no marker. Received: "
            f"{marker!r}. Pass a different token, or add it to the encoder with "
            "`with_added_tokens`."
        )
    return marker
