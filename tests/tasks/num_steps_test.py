# SPDX-License-Identifier: Apache-2.0
"""`num_steps`: the number of optimizer steps in `fit`, which schedules need."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.optimizers import AdamW
from tests.small_tasks import TASKS as TASKS_WITH_IDS
from tests.small_tasks import make_task, make_text_task
from tests.tasks.length_window_test import LABELS, TASKS, TEXTS, question

pytestmark = pytest.mark.on_tensorflow


@pytest.fixture
def fit_batches(monkeypatch):
    """Records the data that Keras's `fit` receives, with one entry per call."""
    seen = []
    monkeypatch.setattr(keras.Model, "fit", lambda self, x, *_, **__: seen.append(x))
    return seen


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("QuestionAnswerer", ([question("a " * 60), question("a")],)),
        ("TokenClassifier", ([["a"] * 70, ["b"]], [[0] * 70, [1]])),
        ("TokenClassifier", ([[["a"] * 70], [["b"], ["a"]]], [[[0] * 70], [[1], [0]]])),
    ],
)
def test_num_steps_counts_windows_of_long_rows(name, rows, fit_batches):
    task, _ = TASKS[name]()
    task.compile()
    task.fit(*rows, batch_size=1)
    assert task.num_steps(rows[0], batch_size=1) == len(fit_batches[0]) > 2


def test_num_steps_of_text_dataset():
    tf = pytest.importorskip("tensorflow")
    task = make_text_task("TextClassifier", 2)
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS))
    assert task.num_steps(rows, batch_size=4) == 2
    assert task.num_steps(rows.filter(lambda text, label: label == 1), batch_size=2, epochs=2) == 4
    assert task.num_steps(rows.map(lambda text, label: text).filter(lambda text: True)) == 1
    assert task.num_steps(rows.batch(4).filter(lambda text, label: True), batch_size=1) == 2
    # Labels are not read: here the task has no class names.
    named = rows.map(lambda text, label: (text, "x"))
    lengths = sorted(task.sequence_lengths(TEXTS))
    assert sorted(task.sequence_lengths(named)) == lengths
    assert sorted(task.sequence_lengths(named.batch(2))) == lengths
    with pytest.raises(ValueError, match="The dataset must be finite"):
        task.num_steps(rows.repeat())
    with pytest.raises(ValueError, match="requires examples in memory"):
        task.num_steps(rows, validation_split=0.5)


def test_num_steps_of_features():
    tf = pytest.importorskip("tensorflow")
    task = make_task(keras_bert.TextClassifier)
    ids = np.ones((10, 4), "int32")
    assert task.num_steps(ids, batch_size=4) == 3
    assert task.num_steps({"token_ids": ids}, batch_size=4, validation_split=0.5) == 2
    assert task.num_steps(TASKS_WITH_IDS[keras_bert.TextClassifier](), epochs=2) == 8
    assert task.num_steps(tf.data.Dataset.from_tensor_slices(ids).batch(5)) == 2
    with pytest.raises(ValueError, match="Received: generator, whose batches cannot be counted"):
        task.num_steps(batch for batch in [ids])


# Keras warns in each epoch of a dataset of unknown size.
@pytest.mark.needs_tensorflow
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.on_each_backend
def test_unknown_size_steps_match_batches():
    """On TensorFlow, Keras starts one extra step in each epoch, which the optimizer counts."""
    tf = pytest.importorskip("tensorflow")
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).filter(lambda text, label: True)
    task = make_text_task("TextClassifier", 2)
    steps = task.num_steps(rows, batch_size=2, epochs=2)
    task.compile(AdamW(1e-2, steps))
    task.fit(rows, batch_size=2, epochs=2, verbose=0, shuffle=False)
    assert int(task.optimizer.iterations) == steps == 6
    with pytest.raises(ValueError, match="would change no weight"):
        task.fit(rows, batch_size=2, verbose=0)
    task.compile(AdamW(1e-2, steps - 3))
    with pytest.warns(UserWarning, match="no longer changes any weight"):
        task.fit(rows, batch_size=2, epochs=2, verbose=0, shuffle=False)
