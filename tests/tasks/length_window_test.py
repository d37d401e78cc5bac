# SPDX-License-Identifier: Apache-2.0
"""`bucketing_window`: the window in which each task's `fit` sorts rows by length."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.models.inputs import ROWS_OF_TUPLES
from keras_bert.tasks.batch_feeder import BatchFeeder
from tests.small_tasks import make_text_task

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]

# The number of words in each of six texts. A batch has two texts.
WORDS = [1, 9, 2, 8, 3, 7]
TEXTS = [" ".join("a" * count) for count in WORDS]
LABELS = [0, 1] * 3


def question(text):
    return {"question": "b", "context": text, "answers": [{"text": "a", "answer_start": 0}]}


TASKS = {
    "TextClassifier": lambda: (make_text_task("TextClassifier", 2), (TEXTS, LABELS)),
    "TokenClassifier": lambda: (
        make_text_task("TokenClassifier", 2),
        ([text.split() for text in TEXTS], [[0] * count for count in WORDS]),
    ),
    "QuestionAnswerer": lambda: (
        make_text_task("QuestionAnswerer", doc_stride=8, max_query_length=4),
        ([question(text) for text in TEXTS],),
    ),
    "MultipleChoice": lambda: (
        make_text_task("MultipleChoice"),
        ([(text, ["a", "b"]) for text in TEXTS], LABELS),
    ),
    "TextEmbedder": lambda: (make_text_task("TextEmbedder"), ([(text, "b") for text in TEXTS],)),
    "MaskedLM": lambda: (make_text_task("MaskedLM"), (TEXTS,)),
    "Distiller": lambda: (
        keras_bert.Distiller(
            make_text_task("TextClassifier", 2), make_text_task("TextClassifier", 2)
        ),
        (TEXTS, LABELS),
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_window_of_one_batch_keeps_the_order(name, monkeypatch):
    task, rows = TASKS[name]()
    task.compile()
    seen = []
    monkeypatch.setattr(keras.Model, "fit", lambda self, x, *_, **__: seen.append(x))
    for window in (1, None):
        task.fit(*rows, batch_size=2, shuffle=False, bucketing_window=window)
    unsorted_lengths, sorted_lengths = ([max_lengths(batch) for batch in x] for x in seen)
    assert np.diff(unsorted_lengths, axis=1).tolist() == [[8], [6], [4]]
    assert np.diff(np.ravel(sorted_lengths)).tolist() == [1, 1, 4, 1, 1]


def test_small_data_batches_change_each_epoch(monkeypatch):
    seen = []

    def fit(self, x, *_, callbacks, epochs=1, **__):
        for epoch in range(epochs):
            for callback in callbacks:
                if isinstance(callback, BatchFeeder):
                    callback.on_epoch_begin(epoch)
            lengths = [np.asarray(features["padding_mask"]).sum(axis=-1) for features, *_ in x]
            seen.append({tuple(sorted(batch_lengths.tolist())) for batch_lengths in lengths})

    monkeypatch.setattr(keras.Model, "fit", fit)
    task, _ = TASKS["TextClassifier"]()
    task.compile()
    keras.utils.set_random_seed(1)
    task.fit(["a " * count for count in range(1, 25)], [0, 1] * 12, batch_size=4, epochs=2)
    assert [len(batches) for batches in seen] == [6, 6]
    assert not seen[0] & seen[1]


def test_zero_window_raises():
    task, rows = TASKS["TextClassifier"]()
    with pytest.raises(
        ValueError, match=r"bucketing_window must be an integer above 0\. Received: 0"
    ):
        task.fit(*rows, bucketing_window=0)


def max_lengths(batch) -> list[int]:
    """Returns the length of the longest sequence in each of the batch's two rows."""
    features = batch[0] if isinstance(batch, tuple) else batch
    lengths = np.asarray(features["padding_mask"]).sum(axis=-1)
    if ROWS_OF_TUPLES in features:  # Each distinct text is one row.
        lengths = lengths[features[ROWS_OF_TUPLES]]
    return lengths.reshape(2, -1).max(axis=1).tolist()
