# SPDX-License-Identifier: Apache-2.0
"""Batches of every input type contain each row once and can be resumed at any batch."""

import itertools
import random
import sys

import numpy as np
import pytest

from keras_bert.data import TextClassifierPreprocessor, batch_options
from keras_bert.data.adapters.text_batches import (
    TextBatchesAdapter,
    TextDatasetAdapter,
    open_batched_text,
)
from keras_bert.data.adapters.texts import TextAdapter
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.labels import LabelRules
from tests.tasks.batch_forms_test import Batches as PyDataset
from tests.text.small_tokenizers import make_tokenizer

pytestmark = pytest.mark.backend_independent

# Row i is the text "a" followed by the word i. Its label is i and its weight is i + 1.
NUMBERS = [str(number) for number in range(64)]
PREPROCESSOR = TextClassifierPreprocessor(
    make_tokenizer("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", *NUMBERS), 8
)
FIRST_ID = 5
# Sizes around two and three chunks of all stages
SIZES = [1, 2, 3, 5, 6, 7, 8, 9, 11, 12, 13, 23, 24, 25, 40]


def columns(num_rows):
    numbers = np.arange(num_rows)
    return [f"{'a ' * (row % 3)}{row}" for row in numbers], numbers, numbers + np.float32(1)


def batches_from_memory(num_rows, options):
    return TextAdapter.read(*columns(num_rows), LabelRules()).batches(PREPROCESSOR, options)


def dataset(num_rows):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(columns(num_rows))


def read_dataset(rows, options):
    return TextDatasetAdapter(rows, LabelRules()).batches(PREPROCESSOR, options)


def batches_from_dataset(num_rows, options):
    return read_dataset(dataset(num_rows), options)


def batches_from_unknown_size(num_rows, options):
    return read_dataset(dataset(num_rows).filter(lambda *_: True), options)


def batches_from_batched_dataset(num_rows, options):
    return read_dataset(dataset(num_rows).batch(options.rows_in_batch), options)


def read_batches(batches, options):
    return TextBatchesAdapter(open_batched_text(batches), LabelRules()).batches(
        PREPROCESSOR, options
    )


def split_columns(num_rows, options):
    starts = range(0, num_rows, options.rows_in_batch)
    return [
        tuple(column[start : start + options.rows_in_batch] for column in columns(num_rows))
        for start in starts
    ]


def batches_from_py_dataset(num_rows, options):
    return read_batches(PyDataset(split_columns(num_rows, options)), options)


def batches_from_generator(num_rows, options):
    return read_batches((batch for batch in split_columns(num_rows, options)), options)


def batches_from_data_loader(num_rows, options):
    data = pytest.importorskip("torch.utils.data")
    rows = list(zip(*columns(num_rows), strict=True))
    return read_batches(data.DataLoader(rows, batch_size=options.rows_in_batch), options)


def batches_from_streaming_data_loader(num_rows, options):
    data = pytest.importorskip("torch.utils.data")

    class Stream(data.IterableDataset):
        rows = zip(*columns(num_rows), strict=True)  # an iterator that can only be read once

        def __iter__(self):
            return self.rows

    return read_batches(data.DataLoader(Stream(), batch_size=options.rows_in_batch), options)


SORTED_STAGES = [batches_from_memory, batches_from_dataset, batches_from_unknown_size]
STAGES = [
    *SORTED_STAGES,
    *(
        batches_from_batched_dataset,
        batches_from_py_dataset,
        batches_from_generator,
        batches_from_data_loader,
        batches_from_streaming_data_loader,
    ),
]


def read_rows(batches, first=0):
    """Returns the row numbers of each batch and checks that ids, labels and weights agree."""
    result = []
    for features, labels, weights in batches.epoch(0, first):
        last = features["padding_mask"].sum(axis=1) - 2
        rows = features["token_ids"][np.arange(len(last)), last] - FIRST_ID
        assert rows.tolist() == labels.tolist() == (weights - 1).tolist()
        result.append(rows.tolist())
    return result


@pytest.fixture
def small_chunks(monkeypatch):
    modules = [batch_options]
    if "tensorflow" in sys.modules:
        from keras_bert.data.tfdata import text_datasets

        monkeypatch.setattr(text_datasets, "_ROWS_READ", 4)
        modules.append(text_datasets)
    for module in modules:
        for name, size in (("WINDOW_BATCHES", 3), ("WINDOWS_IN_EPOCH", 2), ("SHUFFLE_BATCHES", 4)):
            monkeypatch.setattr(module, name, size, raising=False)


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("stage", STAGES)
def test_each_row_comes_once_from_any_batch(stage, seed, small_chunks):
    cases = itertools.product(SIZES, (1, 2, 4), (None, 1))
    for num_rows, batch_size, window in random.Random(seed or 0).sample([*cases], 16):
        options = BatchOptions(batch_size, shuffle_seed=seed, bucketing_window=window)
        batches = stage(num_rows, options)
        batches.example()
        batch_rows = read_rows(batches)
        case = num_rows, batch_size, window, batch_rows
        assert sorted(itertools.chain(*batch_rows)) == list(range(num_rows)), case
        assert len(batch_rows) == -(-num_rows // batch_size), case
        assert sorted(map(len, batch_rows))[1:] == [batch_size] * (len(batch_rows) - 1), case
        if seed is None:
            window_size = batch_size if window or stage not in SORTED_STAGES else 3 * batch_size
            windows = [row // window_size for row in itertools.chain(*batch_rows)]
            assert windows == sorted(windows), case
        first = random.randint(0, len(batch_rows))
        resumed = stage(num_rows, options)
        resumed.example()
        assert read_rows(resumed, first) == batch_rows[first:], (first, case)


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("stage", STAGES[1:])
def test_each_window_comes_once_from_any_batch(stage, seed, small_chunks, monkeypatch):
    def long_columns(num_rows):
        texts = [f"{row} " * (1 + row % 4 * 2) for row in range(num_rows)]
        return texts, *short_columns(num_rows)[1:]

    # A text of 1, 3, 5 or 7 tokens has 1, 1, 2 or 3 windows of 3 tokens.
    tokenizer, short_columns, this = PREPROCESSOR.tokenizer, columns, sys.modules[__name__]
    preprocessor = TextClassifierPreprocessor(tokenizer, 5, long_texts="mean", overlap=1)
    monkeypatch.setattr(this, "PREPROCESSOR", preprocessor)
    monkeypatch.setattr(this, "columns", long_columns)
    for num_rows, batch_size in random.Random(seed or 0).sample(
        [*itertools.product(SIZES, (1, 2, 4))], 4
    ):
        options = BatchOptions(batch_size, shuffle_seed=seed)
        batches = stage(num_rows, options)
        batches.example()
        batch_rows = read_rows(batches)
        expected = [row for row in range(num_rows) for _ in range((1, 1, 2, 3)[row % 4])]
        case = num_rows, batch_size, batch_rows
        assert sorted(itertools.chain(*batch_rows)) == expected, case
        # Batches have as many windows as the first batch has texts.
        size = min(batch_size, num_rows)
        assert [*map(len, batch_rows[:-1])] == [size] * (len(batch_rows) - 1), case
        assert 0 < len(batch_rows[-1]) <= size, case
        if seed is None:
            assert [*itertools.chain(*batch_rows)] == expected, case
        first = random.randint(0, len(batch_rows))
        resumed = stage(num_rows, options)
        resumed.example()
        assert read_rows(resumed, first) == batch_rows[first:], (first, case)


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("seed", [None, 3])
def test_invalid_label_error_includes_row(seed, small_chunks):
    rows = dataset(40).map(lambda text, label, weight: (text, label))
    batches = TextDatasetAdapter(rows, LabelRules(num_ids=37)).batches(
        PREPROCESSOR, BatchOptions(2, shuffle_seed=seed)
    )
    with pytest.raises(
        ValueError, match=r"The label in row 37 must be an id from 0 to 36. Received: 37"
    ):
        list(batches)
