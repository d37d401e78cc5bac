# SPDX-License-Identifier: Apache-2.0

import itertools
import types

import numpy as np
import pytest

from keras_bert.data.arrays import Ragged
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.bucketing import bucket_lengths
from keras_bert.data.choices import ChoiceExamples, MultipleChoicePreprocessor
from keras_bert.data.loader import Loader, RowsInMemory, to_indexed_batch
from keras_bert.data.packing import Sequences
from keras_bert.data.texts import InMemory
from tests.text.small_tokenizers import make_tokenizer

pytestmark = pytest.mark.backend_independent

PREPROCESSOR = types.SimpleNamespace(
    tokenizer=types.SimpleNamespace(pad_token_id=0), sequence_length=13
)


class RecordingRows(InMemory):
    """Rows in memory that record the indices of packed rows."""

    packed = ()

    def pack(self, index):
        self.packed = [*self.packed, *index.tolist()]
        return super().pack(index)


def make_loader(num_rows, finish=to_indexed_batch, pairs=False, **options):
    """Creates a loader. Row i contains the id 1 + i, repeated 1 + i % 13 times.

    With `pairs`, each row has a second sequence of two ids.
    """
    lengths = 1 + np.arange(num_rows) % 13
    values = np.repeat(1 + np.arange(num_rows), lengths).astype("int32")
    rows, counts = Ragged(values, lengths), None
    if pairs:
        rows = [ids for row in rows.to_list() for ids in (row, [7, 7])]
        values = np.array(list(itertools.chain(*rows)), "int32")
        rows = Ragged(values, np.array(list(map(len, rows)), "int64"))
        counts = np.full(num_rows, 2)
    examples = RecordingRows(Sequences({"token_ids": rows}, counts))
    options = BatchOptions(**{"batch_size": 4, **options})
    return Loader(
        RowsInMemory(examples, {"labels": np.arange(num_rows)}), PREPROCESSOR, options, finish
    )


def read_order(batches, epoch=0, first=0):
    return [tuple(index.tolist()) for _, index in batches.epoch(epoch, first)]


def test_batches_are_padded_to_buckets():
    for features, index in make_loader(50):
        lengths = 1 + index % 13
        width = features["token_ids"].shape[1]
        assert width == min(b for b in bucket_lengths(13) if b >= lengths.max())
        expected = np.where(np.arange(width) < lengths[:, None], 1 + index[:, None], 0)
        np.testing.assert_array_equal(features["token_ids"], expected)
        np.testing.assert_array_equal(features["padding_mask"], expected != 0)


def test_batch_rows_have_similar_lengths():
    spreads = [np.ptp(1 + np.array(index) % 13) for index in read_order(make_loader(200))]
    assert np.mean(spreads) < 1


def test_order_depends_only_on_seed_and_epoch():
    epochs = [read_order(make_loader(60, shuffle_seed=1), epoch) for epoch in range(2)]
    assert epochs[0] != epochs[1]
    loader = make_loader(60, shuffle_seed=1)
    assert [read_order(loader, epoch) for epoch in (1, 0)] == epochs[::-1]
    assert read_order(make_loader(60, shuffle_seed=2)) != epochs[0]
    repeated = set(map(frozenset, epochs[0])) & set(map(frozenset, epochs[1]))
    assert len(repeated) < len(epochs[0]) / 4


def test_last_batch_is_padded_with_weight_0_rows():
    loader = make_loader(10, None, compiles=True, training=True)
    batches = list(loader)
    weighted_labels = np.concatenate([labels[row_mask == 1] for _, labels, row_mask in batches])
    assert sorted(weighted_labels) == list(range(10))
    assert all(len(labels) == 4 for _, labels, _ in batches)
    assert loader.rows_in_batch == 4
    assert {features["token_ids"].shape[1] for features, *_ in batches} <= {13}


def test_long_epochs_compile_more_lengths():
    def lengths(rows, **options):
        loader = make_loader(rows, batch_size=1, compiles=True, **options)
        return {features["token_ids"].shape[1] for features, *_ in loader}

    assert lengths(59) == lengths(59, batches_for_more_lengths=60) == {13}
    assert lengths(60, batches_for_more_lengths=60) == {8, 13}


def map_all_rows(function, num_rows, **options):
    """Returns the same result as `keras_bert.ops.jax_steps.sharded_map`."""
    return function(np.arange(num_rows))


@pytest.mark.parametrize("sharded_map", [None, map_all_rows])
@pytest.mark.parametrize("first", [0, 3])
def test_process_shards_form_the_whole_batch(sharded_map, first):
    options = {"shuffle_seed": 5, "bucketing_window": 2}
    whole_batches = list(make_loader(30, None, num_replicas=2, **options).epoch(1, first))
    loaders = [
        make_loader(30, None, shard=(n, 2), sharded_map=sharded_map, **options) for n in range(2)
    ]
    for loader in loaders:
        loader.source.examples.packed = []
    shards = [list(loader.epoch(1, first)) for loader in loaders]
    for batch, *shard_batches in zip(whole_batches, *shards, strict=True):
        for name, value in batch[0].items():
            np.testing.assert_array_equal(
                np.concatenate([shard_batch[0][name] for shard_batch in shard_batches]), value
            )
        for column in (1, 2):
            actual = np.concatenate([shard_batch[column] for shard_batch in shard_batches])
            np.testing.assert_array_equal(actual, batch[column])
    if sharded_map is not None:
        for loader, shard in zip(loaders, shards, strict=True):
            assert loader.source.examples.packed == [row for batch in shard for row in batch[1]]


@pytest.mark.parametrize("sharded_map", [None, map_all_rows])
def test_shards_have_equal_sequence_counts(sharded_map):
    texts = ["a b", "b", "a b a", "b a b"]
    choices = [["a"], ["b", "a"], ["b"], ["a", "b", "b"]]
    tokenizer = make_tokenizer("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b")
    preprocessor = MultipleChoicePreprocessor(tokenizer, 9)
    source = RowsInMemory(ChoiceExamples(texts, choices, preprocessor))
    for number in range(2):
        options = BatchOptions(4, shard=(number, 2), sharded_map=sharded_map)
        ((features,),) = Loader(source, preprocessor, options, lambda batch: (batch.features,))
        assert features["token_ids"].shape == (2, 3, 8)


def test_mismatched_rows_across_processes_raise():
    loader = make_loader(9, shard=(1, 2), sharded_map=lambda *_, **__: np.ones((9, 2), "int32"))
    with pytest.raises(
        ValueError, match=r"example [2-8] with [3-9] tokens in this process, and with 1 in"
    ):
        list(loader)


def test_example_matches_batch_structure():
    (features, index), (all_features, _) = make_loader(9).example(), next(iter(make_loader(9)))
    assert index.tolist() == [0]
    assert {name: x.dtype for name, x in features.items()} == {
        name: x.dtype for name, x in all_features.items()
    }
