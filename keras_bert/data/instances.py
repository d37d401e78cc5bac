# SPDX-License-Identifier: Apache-2.0
"""Documents to pre-training instances: rows of ids between special tokens, by shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from keras_bert.data.full_sentences import document_sentences, full_sentences
from keras_bert.data.segment_pairs import PAIR_MAKERS, SegmentPair
from keras_bert.data.token_store import Documents, Ids

PAIR_KINDS = tuple(PAIR_MAKERS)
INSTANCE_KINDS = (*PAIR_KINDS, "full_sentences", "document_sentences")

# What a random stream is for, as part of its seed.
_DOCUMENT_ORDER, _DOCUMENT, _INSTANCE_ORDER = range(3)


class Instance(NamedTuple):
    """A row before it is masked: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    Attributes:
        token_ids: int32 `(length,)`.
        segment_ids: int32 `(length,)`: 1 for B and the separator behind it.
        label: For pairs, 0 where B follows A in the corpus, else 1; `None` for rows without B.
    """

    token_ids: Ids
    segment_ids: Ids
    label: int | None


@dataclasses.dataclass(frozen=True)
class InstanceMaker:
    """Makes the instances of a corpus, a shard at a time.

    What is drawn depends on the seed, the duplicate and the document alone, and where an instance
    goes on the number of shards: shards may be made in any order, by any number of processes.

    Args:
        cls_token_id: Id of `[CLS]`.
        sep_token_id: Id of `[SEP]`.
        kind: `"next_sentence"`, BERT's pairs of segments; `"sentence_order"`, ALBERT's;
            `"sentence_pairs"`, pairs of single sentences; `"full_sentences"`, RoBERTa's rows, which
            go on into the next document after a separator; `"document_sentences"`, which do not.
        sequence_length: The longest row in tokens, special ones counted.
        short_seq_probability: How often a document's segments are gathered to a random length; of
            no effect but on `"next_sentence"` and `"sentence_order"`.
        duplicate_factor: How often each document is used, cut and paired anew.
        seed: Decides all that is drawn.

    Example:

    >>> from keras_bert.data import InstanceMaker
    >>> documents = [[np.array([7, 8]), np.array([9])], [np.array([10, 11])]]
    >>> make = InstanceMaker(2, 3, kind="document_sentences", duplicate_factor=1)
    >>> sorted(row.token_ids.tolist() for row in make(documents))
    [[2, 7, 8, 9, 3], [2, 10, 11, 3]]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), appendix A.1;
        [RoBERTa](https://arxiv.org/abs/1907.11692), section 4.2;
        [ALBERT](https://arxiv.org/abs/1909.11942), section 3.1.
    """

    cls_token_id: int
    sep_token_id: int
    kind: str = "next_sentence"
    sequence_length: int = 128
    short_seq_probability: float = 0.1
    duplicate_factor: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in INSTANCE_KINDS:
            raise ValueError(f"kind is {self.kind!r}, expected one of {', '.join(INSTANCE_KINDS)}.")
        # Three special tokens of a pair, and one token of each segment
        if self.sequence_length < 5:
            raise ValueError(f"sequence_length is {self.sequence_length}, expected at least 5.")
        if not 0 <= self.short_seq_probability <= 1:
            raise ValueError(
                f"short_seq_probability is {self.short_seq_probability}, expected 0 to 1."
            )
        if self.duplicate_factor < 1:
            raise ValueError(f"duplicate_factor is {self.duplicate_factor}, expected at least 1.")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, expected at least 0.")

    def __call__(self, documents: Documents, shard: int = 0, num_shards: int = 1) -> list[Instance]:
        """The instances of a shard, shuffled.

        Args:
            documents: The whole corpus, from which partners are drawn too: a sequence of documents,
                each a sequence of sentences, each int32 ids `(length,)`; nothing is empty.
            shard: Which shard.
            num_shards: How many there are. Each gets an equal share of the documents of each
                duplicate, in a random order.

        Raises:
            ValueError: If there is no such shard, or pairs are to be made of a single document.
        """
        if not 0 <= shard < num_shards:
            raise ValueError(f"shard is {shard}, expected a number in [0, {num_shards}).")
        instances: list[Instance] = []
        for duplicate in range(self.duplicate_factor):
            order = self._rng(_DOCUMENT_ORDER, duplicate).permutation(len(documents))
            share = order[shard * len(order) // num_shards : (shard + 1) * len(order) // num_shards]
            instances += self._of_documents(documents, share.tolist(), duplicate)
        order = self._rng(_INSTANCE_ORDER, shard).permutation(len(instances))
        return [instances[index] for index in order]

    def _of_documents(
        self, documents: Documents, share: list[int], duplicate: int
    ) -> Iterator[Instance]:
        if self.kind in PAIR_MAKERS:
            pairs = PAIR_MAKERS[self.kind]
            for index in share:
                rng = self._rng(_DOCUMENT, duplicate, index)
                max_tokens = self.sequence_length - 3
                for pair in pairs(documents, index, rng, max_tokens, self.short_seq_probability):
                    yield self._pair(pair)
            return
        max_tokens = self.sequence_length - 2
        chosen = (documents[index] for index in share)
        if self.kind == "full_sentences":
            yield from map(self._row, full_sentences(chosen, max_tokens, self.sep_token_id))
            return
        for document in chosen:
            yield from map(self._row, document_sentences(document, max_tokens))

    def _row(self, tokens: Ids) -> Instance:
        token_ids = np.array([self.cls_token_id, *tokens, self.sep_token_id], np.int32)
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
