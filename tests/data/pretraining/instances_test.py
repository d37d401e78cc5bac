# SPDX-License-Identifier: Apache-2.0

import collections

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert.data.pretraining.instances import PAIR_FORMATS, SEQUENCE_FORMATS, InstanceGenerator  # noqa: E402
from tests.data.pretraining import plain_pairs  # noqa: E402

CLS, SEP = 9_999_998, 9_999_999


def generate_shards(documents, num_shards=1, **options):
    options = {"duplicate_factor": 2, "sequence_length": 40, **options}
    generate = InstanceGenerator(CLS, SEP, **options)
    return [generate(documents, shard, num_shards) for shard in range(num_shards)]


def as_tuples(shards):
    return [[(tuple(row[0]), tuple(row[1]), row[2]) for row in shard] for shard in shards]


@pytest.mark.parametrize("kind", SEQUENCE_FORMATS)
def test_rows_have_special_tokens(kind):
    documents = plain_pairs.make_corpus(30)
    (rows,) = generate_shards(documents, sequence_format=kind)
    for token_ids, segment_ids, label in rows:
        assert token_ids.dtype == segment_ids.dtype == np.int32
        assert len(token_ids) == len(segment_ids) <= 40
        assert token_ids[0] == CLS
        assert token_ids[-1] == SEP
        ends = np.flatnonzero(token_ids == SEP)
        if kind in PAIR_FORMATS:
            assert len(ends) == 2
            assert ends[0] not in (1, len(token_ids) - 2)
            assert segment_ids.tolist() == [0] * (ends[0] + 1) + [1] * (ends[1] - ends[0])
            assert label in (0, 1)
        else:
            assert label is None
            assert not segment_ids.any()
            assert len(ends) == 1 or kind == "full_sentences"


@pytest.mark.parametrize("kind", SEQUENCE_FORMATS)
def test_rows_depend_only_on_seed(kind):
    documents = plain_pairs.make_corpus(20)
    first = as_tuples(generate_shards(documents, 3, sequence_format=kind, seed=5))
    assert first == as_tuples(generate_shards(documents, 3, sequence_format=kind, seed=5))
    assert first != as_tuples(generate_shards(documents, 3, sequence_format=kind, seed=6))


@pytest.mark.parametrize("kind", [*PAIR_FORMATS, "document_sentences"])
def test_shards_partition_the_rows(kind):
    documents = plain_pairs.make_corpus(20)
    (all_rows,) = as_tuples(generate_shards(documents, sequence_format=kind))
    shards = as_tuples(generate_shards(documents, 3, sequence_format=kind))
    assert all(shards)
    assert collections.Counter(all_rows) == collections.Counter(
        row for shard in shards for row in shard
    )


def test_shards_keep_all_tokens():
    documents = plain_pairs.make_corpus(20)
    shards = generate_shards(documents, 3, sequence_format="full_sentences", duplicate_factor=2)
    tokens = np.concatenate([row.token_ids for shard in shards for row in shard])
    tokens = tokens[tokens < CLS]
    text = np.concatenate([sentence for document in documents for sentence in document])
    assert sorted(tokens) == sorted([*text, *text])


class PartialCorpus(list):
    """A corpus in which only some documents are available."""

    def __init__(self, documents, indices):
        super().__init__(
            document if index in indices else None for index, document in enumerate(documents)
        )


@pytest.mark.parametrize("kind", SEQUENCE_FORMATS)
@pytest.mark.parametrize("num_shards", [1, 3])
def test_independent_shard_needs_only_its_documents(kind, num_shards):
    documents = plain_pairs.make_corpus(20)
    options = {"sequence_format": kind, "duplicate_factor": 3, "sequence_length": 40}
    generate = InstanceGenerator(CLS, SEP, **options, independent_shards=True)
    shards = generate.shards_of(np.arange(20), 20, num_shards)
    assert shards.shape == (20, 3)
    for shard in range(num_shards):
        shard_documents = generate.documents_of(shard, 20, num_shards)
        assert shard_documents.tolist() == np.flatnonzero((shards == shard).any(axis=1)).tolist()
        # Every shard has an equal number of documents from each duplicate.
        assert set((shards == shard).sum(axis=0)) <= {20 // num_shards, -(-20 // num_shards)}
        rows = generate(documents, shard, num_shards)
        assert as_tuples([rows]) == as_tuples(
            [generate(PartialCorpus(documents, shard_documents), shard, num_shards)]
        )
        used = {
            plain_pairs.document_index(token) for row in rows for token in row[0] if token < CLS
        }
        assert used == set(shard_documents)


def test_single_document_shard_of_pairs_raises():
    generate = InstanceGenerator(CLS, SEP, duplicate_factor=1, independent_shards=True)
    with pytest.raises(
        ValueError,
        match=r"must have at least 2 documents, .* Received: 1 document. .* every shard needs 2 "
        r"documents, so use fewer shards",
    ):
        generate(plain_pairs.make_corpus(3), 0, 3)


def test_duplicates_are_sampled_independently():
    documents = plain_pairs.make_corpus(30)
    (once,) = generate_shards(documents, duplicate_factor=1)
    (twice,) = generate_shards(documents, duplicate_factor=2)
    assert len(twice) == pytest.approx(2 * len(once), rel=0.2)
    assert set(as_tuples([once])[0]) < set(as_tuples([twice])[0])
    assert len(set(as_tuples([twice])[0])) > 1.5 * len(once)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequence_format": "paragraphs"}, "sequence_format must be one of next_sentence"),
        ({"sequence_length": 4}, "sequence_length must be an integer of at least 5"),
        (
            {"short_seq_probability": 1.5},
            r"short_seq_probability must be a number in \[0, 1\]. Received: 1.5",
        ),
        ({"duplicate_factor": 0}, "duplicate_factor must be an integer above 0. Received: 0"),
        ({"seed": -1}, "seed must be an integer of at least 0. Received: -1"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        InstanceGenerator(CLS, SEP, **options)
