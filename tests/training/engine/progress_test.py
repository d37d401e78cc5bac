# SPDX-License-Identifier: Apache-2.0
"""Progress lines during training."""

import io

import keras
import numpy as np
import pytest

from training.engine.progress import Progress, step_seconds


def clock(durations):
    """A clock whose readings are so far apart."""
    return iter(np.cumsum([0.0, *durations])).__next__


def train(progress, steps, epochs=1):
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((2 * steps, 1), "float32")
    model.fit(x, x, batch_size=2, epochs=epochs, verbose=0, callbacks=[progress])


def test_without_a_terminal_progress_is_plain_lines():
    file = io.StringIO()
    train(Progress(file, seconds_between_lines=0.0), steps=6, epochs=2)
    lines = file.getvalue().splitlines()
    assert len(lines) == 2 * (6 + 1)
    assert lines[0].startswith("epoch 1/2, step 1/6, loss ")
    assert lines[-1].startswith("epoch 2/2, 6 steps, loss ")
    assert all(line.isprintable() for line in lines)


def test_the_estimate_leaves_out_the_steps_that_were_traced():
    file = io.StringIO()
    # 60 s for the trace, then 2 s a step, but for one of another shape
    train(Progress(file, 0.0, clock([60, 2, 2, 2, 2, 50, 2])), steps=7)
    left = [
        line.partition(", loss")[2].rpartition(", ")[2] for line in file.getvalue().splitlines()
    ]
    assert [("left" in words) for words in left] == [False] * 3 + [True] * 4 + [False]
    assert left[3] == "6.0 s left in the epoch"
    assert left[5] == "2.0 s left in the epoch"


@pytest.mark.backend_independent
def test_a_step_takes_the_mean_of_those_that_were_not_traced():
    assert step_seconds([9.0, 1.0]) is None
    assert step_seconds([9.0, 1.0, 2.0, 3.0, 100.0]) == pytest.approx(2.0)


@pytest.mark.backend_independent
def test_a_terminal_has_one_line_that_is_overwritten():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    file = Terminal()
    progress = Progress(file, clock=clock([1, 1, 1, 1]))
    progress.set_params({"epochs": 1, "steps": 3})
    progress.on_epoch_begin(0)
    for batch in range(3):
        progress.on_train_batch_end(batch, {"loss": 0.5})
    progress.on_epoch_end(0, {"loss": 0.5})
    assert file.getvalue().count("\r") == 4
    assert file.getvalue().count("\n") == 1


def test_accuracies_and_scores_are_percents():
    file = io.StringIO()
    progress = Progress(file, clock=clock([1.0] * 4), epochs=1)
    progress.on_epoch_begin(0)
    progress.on_train_batch_end(0, {})
    logs = {"accuracy": 0.8751, "start_logits_accuracy": 0.5, "loss": 0.25, "dev_accuracy": 0.5}
    progress.on_epoch_end(0, logs)
    (line,) = file.getvalue().splitlines()
    assert line.startswith(
        "epoch 1/1, 1 steps, accuracy 87.51, start_logits_accuracy 50, loss 0.25, dev_accuracy 0.5,"
    )
