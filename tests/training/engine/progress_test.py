# SPDX-License-Identifier: Apache-2.0
"""Progress during training."""

import io
import time

import keras
import numpy as np
import pytest

from training.engine.progress import Progress


def train(progress, steps, epochs=1):
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((2 * steps, 1), "float32")
    model.fit(x, x, batch_size=2, epochs=epochs, verbose=0, callbacks=[progress])


def test_without_a_terminal_progress_is_plain_lines():
    file = io.StringIO()
    train(Progress(file, mininterval=0.0, delay=0.0), steps=6, epochs=2)
    lines = file.getvalue().splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if line.startswith("epoch 1/2: 4/12 steps, loss ")]
    assert [line for line in lines if line.startswith("epoch 2/2: 10/12 steps, loss ")]
    assert all(line.endswith(" left") for line in lines if "/12 steps" in line)
    assert [line.partition(", loss")[0] for line in lines if " left" not in line] == [
        "epoch 1/2, 6 steps",
        "epoch 2/2, 6 steps",
    ]


def test_a_short_run_without_a_terminal_has_a_line_for_each_epoch_alone():
    file = io.StringIO()
    train(Progress(file), steps=2, epochs=2)
    assert len(file.getvalue().splitlines()) == 2


@pytest.mark.backend_independent
def test_a_terminal_has_one_line_that_is_overwritten():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    file = Terminal()
    progress = Progress(file, mininterval=0.0)
    progress.set_params({"epochs": 2, "steps": 3})
    progress.on_epoch_begin(0)
    time.sleep(0.3)  # tracing
    for batch in range(3):
        progress.on_train_batch_end(batch, {"loss": 0.5})
        time.sleep(0.01)
    # Three steps are left, of which the first says nothing
    shown = progress._bar.format_dict
    assert (shown["n"], shown["total"]) == (3, 6)
    assert 3 / shown["rate"] < 0.25
    progress.on_epoch_end(0, {"loss": 0.5})
    progress.on_train_end()
    assert file.getvalue().count("\r") >= 4
    assert file.getvalue().count("\n") == 1


def test_accuracies_and_scores_are_percents():
    file = io.StringIO()
    progress = Progress(file, epochs=1)
    progress.set_params({"epochs": 1, "steps": 1})
    progress.on_epoch_begin(0)
    progress.on_train_batch_end(0, {})
    logs = {"accuracy": 0.8751, "start_logits_accuracy": 0.5, "loss": 0.25, "dev_accuracy": 0.5}
    progress.on_epoch_end(0, logs)
    (line,) = file.getvalue().splitlines()
    assert line.startswith(
        "epoch 1/1, 1 steps, accuracy 87.51, start_logits_accuracy 50, loss 0.25, dev_accuracy 0.5,"
    )
