# SPDX-License-Identifier: Apache-2.0
"""What goes into a stage that groups rows anew comes out: once, in order, from any batch on."""

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

# Row i is the text "a" with the word i, its label is i and its weight i + 1.
NUMBERS = [str(number) for number in range(64)]
PREPROCESSOR = TextClassifierPreprocessor(
    make_tokenizer("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", *NUMBERS), 8
)
FIRST_ID = 5
# Sizes around two and three chunks, of all stages
SIZES = [1, 2, 3, 5, 6, 7, 8, 9, 11, 12, 13, 23, 24, 25, 40]


def columns(num_rows):
    numbers = np.arange(num_rows)
    return [f"{'a ' * (row % 3)}{row}" for row in numbers], numbers, numbers + np.float32(1)


def in_memory(num_rows, options):
    return TextAdapter.read(*columns(num_rows), LabelRules()).batches(PREPROCESSOR, options)


def dataset(num_rows):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(columns(num_rows))


def read_dataset(rows, options):
    return TextDatasetAdapter(rows, LabelRules()).batches(PREPROCESSOR, options)


def from_dataset(num_rows, options):
    return read_dataset(dataset(num_rows), options)


def from_unknown_size(num_rows, options):
    return read_dataset(dataset(num_rows).filter(lambda *_: True), options)


def from_batched_dataset(num_rows, options):
    return read_dataset(dataset(num_rows).batch(options.rows_in_batch), options)


def given(batches, options):
    return TextBatchesAdapter(open_batched_text(batches), LabelRules()).batches(
        PREPROCESSOR, options
    )


def cut(num_rows, options):
    starts = range(0, num_rows, options.rows_in_batch)
    return [
        tuple(column[start : start + options.rows_in_batch] for column in columns(num_rows))
        for start in starts
    ]


def from_py_dataset(num_rows, options):
    return given(PyDataset(cut(num_rows, options)), options)


def from_generator(num_rows, options):
    return given((batch for batch in cut(num_rows, options)), options)


def from_data_loader(num_rows, options):
    data = pytest.importorskip("torch.utils.data")
    rows = list(zip(*columns(num_rows), strict=True))
    return given(data.DataLoader(rows, batch_size=options.rows_in_batch), options)


def from_streaming_data_loader(num_rows, options):
    data = pytest.importorskip("torch.utils.data")

    class Stream(data.IterableDataset):
        rows = zip(*columns(num_rows), strict=True)  # an iterator, which can be read once

        def __iter__(self):
            return self.rows

    return given(data.DataLoader(Stream(), batch_size=options.rows_in_batch), options)


SORTED = [in_memory, from_dataset, from_unknown_size]
STAGES = [
    *SORTED,
    *(
        from_batched_dataset,
        from_py_dataset,
        from_generator,
        from_data_loader,
        from_streaming_data_loader,
    ),
]


def rows_of(batches, first=0):
    """The rows of each batch, whose ids, labels and weights must belong together."""
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
def test_batches_have_each_row_once(stage, seed, small_chunks):
    cases = itertools.product(SIZES, (1, 2, 4), (None, 1))
    for num_rows, batch_size, window in random.Random(seed or 0).sample([*cases], 16):
        options = BatchOptions(batch_size, shuffle_seed=seed, bucketing_window=window)
        batches = stage(num_rows, options)
        batches.example()
        found = rows_of(batches)
        case = num_rows, batch_size, window, found
        assert sorted(itertools.chain(*found)) == list(range(num_rows)), case
        assert len(found) == -(-num_rows // batch_size), case
        assert sorted(map(len, found))[1:] == [batch_size] * (len(found) - 1), case
        if seed is None:
            in_window = batch_size if window or stage not in SORTED else 3 * batch_size
            windows = [row // in_window for row in itertools.chain(*found)]
            assert windows == sorted(windows), case
        first = random.randint(0, len(found))
        resumed = stage(num_rows, options)
        resumed.example()
        assert rows_of(resumed, first) == found[first:], (first, case)


@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("seed", [None, 3])
def test_an_invalid_row_is_named_by_its_place(seed, small_chunks):
    rows = dataset(40).map(lambda text, label, weight: (text, label))
    batches = TextDatasetAdapter(rows, LabelRules(num_ids=37)).batches(
        PREPROCESSOR, BatchOptions(2, shuffle_seed=seed)
    )
    with pytest.raises(ValueError, match=r"The label in row 37 must .*37"):
        list(batches)
