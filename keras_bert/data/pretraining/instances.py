# SPDX-License-Identifier: Apache-2.0
"""Creates pre-training instances (segment pairs or sequences of sentences) in shards."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from keras_bert import checks
from keras_bert.data.pretraining.document_order import DocumentOrder, Integers
from keras_bert.data.pretraining.token_store import Documents, Ids, Sentences
from keras_bert.text.tokenizer import pair_limits

PAIR_FORMATS = ("next_sentence", "sentence_order", "sentence_pairs")
SEQUENCE_FORMATS = (*PAIR_FORMATS, "full_sentences", "document_sentences")

# Identifiers of the random streams, for their seeds
_DOCUMENT_ORDER, _DOCUMENT, _INSTANCE_ORDER = range(3)


class Instance(NamedTuple):
    """A sequence before masking: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    Attributes:
        token_ids: int32 `(length,)`.
        segment_ids: int32 `(length,)`, 1 for B and the separator after it.
        label: For pairs, 0 if B follows A in the corpus, otherwise 1. `None` for sequences without
            B.
    """

    token_ids: Ids
    segment_ids: Ids
    label: int | None


@dataclasses.dataclass(frozen=True)
class InstanceGenerator:
    """Creates pre-training instances from a corpus, one shard at a time.

    Any number of processes can create the shards, in any order, because random numbers only depend
    on the seed, the duplicate, and the document or shard. By default, each process reads the whole
    corpus, because a random second segment can come from any document. With `independent_shards`, a
    shard only depends on its own documents, so a cluster only needs to send each document to its
    shards.

    Args:
        cls_token_id: The id of `[CLS]`.
        sep_token_id: The id of `[SEP]`.
        sequence_format: `"next_sentence"` (segment pairs as in BERT), `"sentence_order"` (segment
            pairs as in ALBERT), `"sentence_pairs"` (pairs of single sentences), `"full_sentences"`
            (sentences that continue with the next document after a separator, as in RoBERTa), or
            `"document_sentences"` (sentences from one document). Defaults to `"next_sentence"`.
        sequence_length: Maximum sequence length in tokens, including special tokens. Defaults to
            128.
        short_seq_probability: Probability that a document's segment pairs have a random target
            length below `sequence_length`. Only used for `"next_sentence"` and `"sentence_order"`.
            Defaults to 0.1.
        duplicate_factor: Number of times that each document is used, with different random splits
            and pairs. Defaults to 10.
        seed: Seed of all random numbers, a nonnegative integer. Defaults to 0.
        independent_shards: Whether random second segments are sampled from other documents of the
            same shard, and the document order is computed in constant memory. Defaults to `False`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> from keras_bert.data import InstanceGenerator
    >>> documents = [[np.array([7, 8]), np.array([9])], [np.array([10, 11])]]
    >>> make = InstanceGenerator(2, 3, sequence_format="document_sentences", duplicate_factor=1)
    >>> sorted(row.token_ids.tolist() for row in make(documents))
    [[2, 7, 8, 9, 3], [2, 10, 11, 3]]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), appendix A.1;
        [RoBERTa](https://arxiv.org/abs/1907.11692), section 4.2;
        [ALBERT](https://arxiv.org/abs/1909.11942), section 3.1.
    """

    cls_token_id: int
    sep_token_id: int
    sequence_format: str = "next_sentence"
    sequence_length: int = 128
    short_seq_probability: float = 0.1
    duplicate_factor: int = 10
    seed: int = 0
    independent_shards: bool = False

    def __post_init__(self) -> None:
        checks.check_choice(SEQUENCE_FORMATS, sequence_format=self.sequence_format)
        # A pair has three special tokens and at least one token in each segment.
        checks.NumberRange(at_least=5, integer=True).check(sequence_length=self.sequence_length)
        checks.FRACTION.check(short_seq_probability=self.short_seq_probability)
        checks.POSITIVE_INT.check(duplicate_factor=self.duplicate_factor)
        checks.NON_NEGATIVE_INT.check(seed=self.seed)

    def __call__(self, documents: Documents, shard: int = 0, num_shards: int = 1) -> list[Instance]:
        """Creates the instances in a shard.

        Args:
            documents: The whole corpus, because random second segments can come from any document.
                Documents are sequences of sentences, and sentences are int32 ids `(length,)`.
                Documents and sentences must not be empty. With `independent_shards`, only its
                length and the documents in `documents_of` are used.
            shard: Index of the shard.
            num_shards: Number of shards. Each has almost the same number of documents from each
                duplicate, in random order.

        Returns:
            A shuffled list of `Instance`s.

        Raises:
            ValueError: If the shard is out of range, or if pairs need a second document and the
                corpus (with `independent_shards`, the shard) only has one.
        """
        if not 0 <= shard < num_shards:
            raise ValueError(f"shard must be a number in [0, {num_shards}). Received: {shard}")
        partners = documents
        if self.independent_shards:
            own = self.documents_of(shard, len(documents), num_shards)
            partners = [documents[index] for index in own.tolist()]
        instances: list[Instance] = []
        for duplicate in range(self.duplicate_factor):
            shard_indices = self._shard_documents(len(documents), shard, num_shards, duplicate)
            places = (
                np.searchsorted(own, shard_indices) if self.independent_shards else shard_indices
            )
            instances += self._make_instances(
                partners, shard_indices.tolist(), places.tolist(), duplicate
            )
        order = self._rng(_INSTANCE_ORDER, shard).permutation(len(instances))
        return [instances[index] for index in order]

    def documents_of(self, shard: int, num_documents: int, num_shards: int) -> Integers:
        """Returns the sorted indices of a shard's documents, for `independent_shards`.

        Args:
            shard: Index of the shard.
            num_documents: Number of documents in the corpus.
            num_shards: Number of shards.

        Returns:
            int64 `(documents,)`. Each document occurs once, even if multiple duplicates are in the
            shard.
        """
        shards = [
            self._shard_documents(num_documents, shard, num_shards, duplicate)
            for duplicate in range(self.duplicate_factor)
        ]
        return np.unique(np.concatenate(shards))

    def shards_of(self, documents: Integers, num_documents: int, num_shards: int) -> Integers:
        """Returns the shards that contain the duplicates of documents, for `independent_shards`.

        Args:
            documents: Indices of the documents in the corpus, int64 `(documents,)`.
            num_documents: Number of documents in the corpus.
            num_shards: Number of shards.

        Returns:
            int64 `(documents, duplicates)`.
        """
        orders = [self._order(num_documents, n) for n in range(self.duplicate_factor)]
        positions = np.stack([order.positions(documents) for order in orders], axis=1)
        # The inverse of how `_shard_documents` splits the order
        return ((positions + 1) * num_shards - 1) // num_documents

    def _order(self, num_documents: int, duplicate: int) -> DocumentOrder:
        return DocumentOrder(num_documents, self.seed, _DOCUMENT_ORDER, duplicate)

    def _shard_documents(
        self, num_documents: int, shard: int, num_shards: int, duplicate: int
    ) -> Integers:
        """Returns a shard's document indices for one duplicate, in order."""
        bounds = [n * num_documents // num_shards for n in (shard, shard + 1)]
        if self.independent_shards:
            return self._order(num_documents, duplicate).documents(np.arange(*bounds))
        order = self._rng(_DOCUMENT_ORDER, duplicate).permutation(num_documents)
        return order[slice(*bounds)]

    def _make_instances(
        self, documents: Documents, indices: list[int], places: list[int], duplicate: int
    ) -> Iterator[Instance]:
        """Creates instances. `indices` refers to the corpus, and `places` to `documents`."""
        if self.sequence_format in PAIR_MAKERS:
            pairs = PAIR_MAKERS[self.sequence_format]
            for index, place in zip(indices, places, strict=True):
                rng = self._rng(_DOCUMENT, duplicate, index)
                max_tokens = self.sequence_length - 3
                for pair in pairs(documents, place, rng, max_tokens, self.short_seq_probability):
                    yield self._pair(pair)
            return
        max_tokens = self.sequence_length - 2
        shard_documents = (documents[place] for place in places)
        if self.sequence_format == "full_sentences":
            yield from map(
                self._row, full_sentences(shard_documents, max_tokens, self.sep_token_id)
            )
            return
        for document in shard_documents:
            yield from map(self._row, document_sentences(document, max_tokens))

    def _row(self, tokens: Ids) -> Instance:
        token_ids = np.empty(len(tokens) + 2, np.int32)
        token_ids[0], token_ids[1:-1], token_ids[-1] = self.cls_token_id, tokens, self.sep_token_id
        return Instance(token_ids, np.zeros_like(token_ids), None)

    def _pair(self, pair: SegmentPair) -> Instance:
        start_of_second = len(pair.first) + 2
        token_ids = np.empty(start_of_second + len(pair.second) + 1, np.int32)
        token_ids[0] = self.cls_token_id
        token_ids[1 : start_of_second - 1] = pair.first
        token_ids[start_of_second:-1] = pair.second
        token_ids[[start_of_second - 1, -1]] = self.sep_token_id
        segment_ids = np.zeros_like(token_ids)
        segment_ids[start_of_second:] = 1
        return Instance(token_ids, segment_ids, pair.label)

    def _rng(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *stream])


def full_sentences(
    documents: Iterable[Sentences], max_tokens: int, separator: int
) -> Iterator[Ids]:
    """Yields sequences of consecutive sentences, across documents, int32 `(length,)`.

    A `separator` is inserted between documents. A sentence that does not fit starts the next
    sequence, and overlong sentences are split. Every token is used exactly once.

    Reference:
        [RoBERTa](https://arxiv.org/abs/1907.11692), section 4.2, FULL-SENTENCES.
    """
    between = np.array([separator], np.int32)
    row: list[Ids] = []
    length = 0
    for document in documents:
        is_new_document = True
        for sentence in _cut_to(document, max_tokens):
            glue = [between] if is_new_document and row else []
            if length + len(glue) + len(sentence) > max_tokens:
                yield np.concatenate(row)
                row, length, glue = [], 0, []
            row += [*glue, sentence]
            length += len(glue) + len(sentence)
            is_new_document = False
    if row:
        yield np.concatenate(row)


def document_sentences(document: Sentences, max_tokens: int) -> Iterator[Ids]:
    """Yields sequences of consecutive sentences from one document, int32 `(length,)`.

    Reference:
        [RoBERTa](https://arxiv.org/abs/1907.11692), section 4.2, DOC-SENTENCES.
    """
    return full_sentences([document], max_tokens, separator=-1)


def _cut_to(sentences: Iterable[Ids], max_tokens: int) -> Iterator[Ids]:
    for sentence in sentences:
        for start in range(0, len(sentence), max_tokens):
            yield sentence[start : start + max_tokens]


class SegmentPair(NamedTuple):
    """Two nonempty segments, and whether the second segment follows the first in the corpus.

    Attributes:
        first: int32 ids `(length,)`.
        second: int32 ids `(length,)`.
        label: 0 if `second` follows `first`. 1 if it is from a different document, or if the
            segments are swapped.
    """

    first: Ids
    second: Ids
    label: int


PairMaker = Callable[[Documents, int, np.random.Generator, int, float], Iterator[SegmentPair]]


def segment_pairs(
    documents: Documents,
    index: int,
    rng: np.random.Generator,
    max_tokens: int,
    short_seq_probability: float = 0.1,
    *,
    swap: bool,
) -> Iterator[SegmentPair]:
    """Creates a document's segment pairs as in BERT or, with `swap`, as in ALBERT.

    Consecutive sentences are collected up to a target length and split into two segments at a
    random sentence boundary. In half of BERT's pairs, the second segment is replaced with
    consecutive sentences from another document (label 1). The replaced sentences start the next
    pair, so no sentence is lost. In half of ALBERT's pairs, the segments are swapped (label 1). For
    a single sentence, the second segment is always from another document. All other documents are
    equally probable. In contrast, the original BERT code may choose the same document after ten
    attempts.

    Pairs have at most `max_tokens` tokens without special tokens. This is also the target length.
    But with probability `short_seq_probability`, a document's target length is random and uniform
    in `[2, max_tokens]`. Documents and sentences must not be empty.

    Raises:
        ValueError: If a random segment is required and the corpus only has one document.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 2, and appendix A.1;
        [ALBERT](https://arxiv.org/abs/1909.11942), section 3.1.
    """
    target = max_tokens
    if rng.random() < short_seq_probability:
        target = int(rng.integers(2, max_tokens, endpoint=True))
    sentences = list(documents[index])
    position = 0
    while position < len(sentences):
        end = _end_of_chunk(sentences, position, target)
        size = end - position
        middle = position + (1 if size == 1 else int(rng.integers(1, size)))
        first = np.concatenate(sentences[position:middle])
        is_changed = size == 1 or rng.random() < 0.5
        if is_changed and (size == 1 or not swap):
            second = _foreign_segment(documents, index, rng, min_tokens=target - len(first))
            position = middle
        else:
            second = np.concatenate(sentences[middle:end])
            first, second = (second, first) if is_changed else (first, second)
            position = end
        yield SegmentPair(*truncate_pair_randomly(first, second, max_tokens, rng), int(is_changed))


next_sentence_pairs = functools.partial(segment_pairs, swap=False)
sentence_order_pairs = functools.partial(segment_pairs, swap=True)


def single_sentence_pairs(
    documents: Documents,
    index: int,
    rng: np.random.Generator,
    max_tokens: int,
    short_seq_probability: float = 0.0,
) -> Iterator[SegmentPair]:
    """Creates pairs of single sentences. With probability 0.5, the second is random (label 1).

    If a sentence from another document replaces the second sentence, the replaced sentence starts
    the next pair. For the arguments see `segment_pairs`. `short_seq_probability` is ignored.

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
    """Truncates a pair, one token at a time from the longer segment, at a random end.

    On a tie, the second segment is truncated. The original BERT code chooses the front or back for
    each token. The number of tokens removed at the front is then binomial, so this function only
    samples once.
    """
    if len(first) + len(second) <= max_tokens:
        return first, second
    limits = pair_limits(len(first), len(second), max_tokens)
    return _cut_randomly(first, limits[0], rng), _cut_randomly(second, limits[1], rng)


def _cut_randomly(ids: Ids, length: int, rng: np.random.Generator) -> Ids:
    if len(ids) <= length:
        return ids
    start = int(rng.binomial(len(ids) - length, 0.5))
    return ids[start : start + length]


def _end_of_chunk(sentences: Sentences, start: int, target: int) -> int:
    """Returns the end of the shortest chunk from `start` with at least `target` tokens."""
    length = 0
    for position in range(start, len(sentences)):
        length += len(sentences[position])
        if length >= target:
            return position + 1
    return len(sentences)


def _foreign_segment(
    documents: Documents, index: int, rng: np.random.Generator, min_tokens: int
) -> Ids:
    """Returns consecutive sentences from a random position in a random other document."""
    if len(documents) < 2:
        raise ValueError(
            "The corpus must have at least 2 documents, because second segments are taken from "
            "other documents. Received: 1 document. Separate documents by a blank line, or pass "
            "document_ends to read_corpus. With independent_shards, every shard needs 2 documents, "
            "so use fewer shards."
        )
    other = int(rng.integers(len(documents) - 1))
    document = documents[other + (other >= index)]
    sentences: list[Ids] = []
    length = 0
    for position in range(int(rng.integers(len(document))), len(document)):
        sentences.append(document[position])
        length += len(sentences[-1])
        if length >= min_tokens:
            break
    return np.concatenate(sentences)


PAIR_MAKERS: dict[str, PairMaker] = {
    "next_sentence": next_sentence_pairs,
    "sentence_order": sentence_order_pairs,
    "sentence_pairs": single_sentence_pairs,
}
