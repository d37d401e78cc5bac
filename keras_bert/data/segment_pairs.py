# SPDX-License-Identifier: Apache-2.0
"""Pairs of segments from documents: next sentences, the order of sentences, single sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from keras_bert.data.token_store import Documents, Ids, Sentences


class SegmentPair(NamedTuple):
    """Two segments, neither of them empty, and whether they stand as in the corpus.

    Attributes:
        first: int32 ids `(length,)`.
        second: int32 ids `(length,)`.
        label: 0 where `second` follows `first`; 1 where it is from elsewhere or they are swapped.
    """

    first: Ids
    second: Ids
    label: int


PairMaker = Callable[[Documents, int, np.random.Generator, int, float], Iterator[SegmentPair]]


def next_sentence_pairs(
    documents: Documents,
    index: int,
    rng: np.random.Generator,
    max_tokens: int,
    short_seq_probability: float = 0.1,
) -> Iterator[SegmentPair]:
    """BERT's pairs of segments of one document, in half of which the second is from another one.

    Sentences are gathered up to a target length and cut in two at random. Where the second part is
    replaced by sentences of another document, from a random one on, it is put back to open the
    next pair: no sentence is lost. A lone sentence always gets a foreign partner. The partner's
    document is any other with the same probability; the released code may, after ten draws, take
    the document itself.

    Args:
        documents: The corpus; no document and no sentence is empty.
        index: The document's number.
        rng: What is drawn from.
        max_tokens: The longest pair, without special tokens; longer ones are truncated.
        short_seq_probability: How often the target for this pass is uniform in
            `[2, max_tokens]` instead of `max_tokens`.

    Yields:
        Pairs; label 1 says that the second segment is from another document.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 2, and appendix A.1.
    """
    return _pairs(documents, index, rng, max_tokens, short_seq_probability, swap=False)


def sentence_order_pairs(
    documents: Documents,
    index: int,
    rng: np.random.Generator,
    max_tokens: int,
    short_seq_probability: float = 0.1,
) -> Iterator[SegmentPair]:
    """ALBERT's pairs: two consecutive segments, swapped in half of the cases.

    Arguments as for `next_sentence_pairs`. Where a lone sentence is left, its partner is from
    another document.

    Yields:
        Pairs; label 1 says that they are swapped, or that the second is from another document.

    Reference:
        [ALBERT](https://arxiv.org/abs/1909.11942), section 3.1.
    """
    return _pairs(documents, index, rng, max_tokens, short_seq_probability, swap=True)


def single_sentence_pairs(
    documents: Documents,
    index: int,
    rng: np.random.Generator,
    max_tokens: int,
    short_seq_probability: float = 0.0,
) -> Iterator[SegmentPair]:
    """Pairs of single sentences, the second one the next, or with probability 0.5 a foreign one.

    A second sentence that a foreign one took the place of opens the next pair. Arguments as for
    `next_sentence_pairs`, but the pairs are short whatever `short_seq_probability` says.

    Yields:
        Pairs; label 1 says that the second sentence is from another document.

    Reference:
        [RoBERTa](https://arxiv.org/abs/1907.11692), section 4.2, SENTENCE-PAIR+NSP.
    """
    sentences = list(documents[index])
    position = 0
    while position < len(sentences):
        first = sentences[position]
        is_foreign = position + 1 == len(sentences) or rng.random() < 0.5
        if is_foreign:
            second = _foreign_segment(documents, index, rng, min_tokens=1)
        else:
            second = sentences[position + 1]
        yield SegmentPair(*truncate_pair_randomly(first, second, max_tokens, rng), int(is_foreign))
        position += 1 if is_foreign else 2


def truncate_pair_randomly(
    first: Ids, second: Ids, max_tokens: int, rng: np.random.Generator
) -> tuple[Ids, Ids]:
    """Shortens a pair to a total length, a token at a time off the longer one, at either end.

    On a tie the second one is shortened. Front or back is drawn for each token; how many come off
    the front is then binomial, which takes one draw.

    Args:
        first: Ids `(length,)`.
        second: Ids `(length,)`.
        max_tokens: The longest total.
        rng: What is drawn from.

    Returns:
        Both, shortened.
    """
    if len(first) + len(second) <= max_tokens:
        return first, second
    half = max_tokens // 2
    keep_first = min(len(first), max(max_tokens - len(second), max_tokens - half))
    keep_second = min(len(second), max(max_tokens - len(first), half))
    return _cut_randomly(first, keep_first, rng), _cut_randomly(second, keep_second, rng)


def _cut_randomly(ids: Ids, length: int, rng: np.random.Generator) -> Ids:
    if len(ids) == length:
        return ids
    start = int(rng.binomial(len(ids) - length, 0.5))
    return ids[start : start + length]


def _pairs(
    documents: Documents,
    index: int,
    rng: np.random.Generator,
    max_tokens: int,
    short_seq_probability: float,
    swap: bool,
) -> Iterator[SegmentPair]:
    target = max_tokens
    if rng.random() < short_seq_probability:
        target = int(rng.integers(2, max_tokens, endpoint=True))
    sentences = list(documents[index])
    position = 0
    while position < len(sentences):
        end = _end_of_chunk(sentences, position, target)
        size = end - position
        cut = position + (1 if size == 1 else int(rng.integers(1, size)))
        first = np.concatenate(sentences[position:cut])
        is_changed = size == 1 or rng.random() < 0.5
        if is_changed and (size == 1 or not swap):
            second = _foreign_segment(documents, index, rng, min_tokens=target - len(first))
            position = cut
        else:
            second = np.concatenate(sentences[cut:end])
            first, second = (second, first) if is_changed else (first, second)
            position = end
        yield SegmentPair(*truncate_pair_randomly(first, second, max_tokens, rng), int(is_changed))


def _end_of_chunk(sentences: Sentences, start: int, target: int) -> int:
    """Where sentences from `start` on have `target` tokens or more, or the document ends."""
    length = 0
    for position in range(start, len(sentences)):
        length += len(sentences[position])
        if length >= target:
            return position + 1
    return len(sentences)


def _foreign_segment(
    documents: Documents, index: int, rng: np.random.Generator, min_tokens: int
) -> Ids:
    """Sentences of another document, from a random one on: one at least, until they are enough."""
    if len(documents) < 2:
        raise ValueError(
            "The corpus has 1 document, but the second segment of a pair is taken from another "
            "one; expected at least 2. Does the way documents end fit the files?"
        )
    other = int(rng.integers(len(documents) - 1))
    document = documents[other + (other >= index)]
    parts: list[Ids] = []
    length = 0
    for position in range(int(rng.integers(len(document))), len(document)):
        parts.append(document[position])
        length += len(parts[-1])
        if length >= min_tokens:
            break
    return np.concatenate(parts)


PAIR_MAKERS: dict[str, PairMaker] = {
    "next_sentence": next_sentence_pairs,
    "sentence_order": sentence_order_pairs,
    "sentence_pairs": single_sentence_pairs,
}
