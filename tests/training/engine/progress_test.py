# SPDX-License-Identifier: Apache-2.0
"""Progress during training."""

import contextlib
import functools
import io
import re
import time

import keras
import numpy as np
import pytest

from keras_bert.progress import bar
from training.engine import progress as progress_module
from training.engine.progress import Progress, TimeLeft

pytestmark = pytest.mark.on_torch


def train(progress, steps, epochs=1):
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((2 * steps, 1), "float32")
    model.fit(x, x, batch_size=2, epochs=epochs, verbose=0, callbacks=[progress])


@pytest.fixture
def impatient(monkeypatch):
    """Makes progress bars show each step, however fast the steps are."""
    impatient_bar = functools.partial(bar, mininterval=0.0, delay=0.0)
    monkeypatch.setattr(progress_module, "bar", impatient_bar)


@pytest.mark.usefixtures("impatient")
def test_progress_without_terminal_is_plain_lines(capsys):
    train(Progress(), steps=6, epochs=2)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if line.startswith("epoch 1/2: 4/12 steps, loss ")]
    assert [line for line in lines if line.startswith("epoch 2/2: 10/12 steps, loss ")]
    # The first step is traced, so its duration is not used. After the last, no time is left.
    shown = [line for line in lines if re.search(r" ([2-9]|10|11)/12 steps, loss ", line)]
    assert shown
    assert all(line.endswith(" left") for line in shown)
    first, last = (line for line in lines if "/12 steps" not in line)
    assert re.fullmatch(r"epoch 1/2, 6 steps, loss \S+, \S+ s, \S+ s left", first)
    assert re.fullmatch(r"epoch 2/2, 6 steps, loss \S+, \S+ s", last)


def test_short_run_logs_one_line_per_epoch(capsys):
    train(Progress(), steps=2, epochs=2)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_resumed_epoch_counts_all_steps(capsys):
    train(Progress(first_batch=lambda: 3), steps=2)
    assert "2 of 5 steps, loss" in capsys.readouterr().out


@pytest.mark.backend_independent
@pytest.mark.usefixtures("impatient")
def test_terminal_progress_overwrites_one_line():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    file, progress = Terminal(), Progress()
    progress.set_params({"epochs": 2, "steps": 3})
    with contextlib.redirect_stdout(file):
        progress.on_epoch_begin(0)
        time.sleep(0.3)  # tracing
        for batch in range(3):
            progress.on_train_batch_end(batch, {"loss": 0.5})
            time.sleep(0.01)
        # Three steps are left. The first of the finished steps is not used for the estimate.
        assert progress.time_left.seconds() < 0.25
        assert file.getvalue().endswith(" left]")
        shown = progress._bar.format_dict
        assert (shown["n"], shown["total"]) == (3, 6)
        assert 3 / shown["rate"] < 0.25
        progress.on_epoch_end(0, {"loss": 0.5})
        progress.on_train_end()
    assert file.getvalue().count("\r") >= 4
    assert file.getvalue().count("\n") == 1


@pytest.fixture
def clock(monkeypatch):
    """A list of times. The last item is the current time."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[-1])
    return now


@pytest.mark.backend_independent
def test_time_left_includes_all_seeds(clock):
    time_left = TimeLeft(6, at_most=True, note="for all 2 seeds")
    assert time_left.text() == ""
    time_left.reach(0.5)  # The first step is traced.
    clock.append(10.0)
    time_left.reach(1.0)
    assert time_left.seconds() == 100.0
    # Scoring and saving also take time.
    clock.append(20.0)
    assert time_left.text() == "at most 3 min 20 s left for all 2 seeds"
    # The first seed stopped early. A part of the next was finished before this process started.
    time_left.skip_to(5.0)
    assert time_left.seconds() == 40.0
    clock.append(30.0)
    time_left.reach(5.5)
    assert time_left.seconds() == 15.0
    time_left.reach(6.0)
    assert time_left.text() == ""


@pytest.mark.backend_independent
def test_resumed_run_estimates_remaining_time(clock, capsys):
    time_left = TimeLeft(6)
    time_left.skip_to(3)  # The second of two seeds
    progress = Progress(epochs=3, time_left=time_left, first_batch=lambda: 6)
    progress.set_params({"epochs": 3, "steps": 4})
    progress.on_epoch_begin(1)
    for batch in range(4):
        clock.append(clock[-1] + 1.0)
        progress.on_train_batch_end(batch, {})
    # An epoch of ten steps remains, at a second per step.
    assert time_left.seconds() == pytest.approx(10.0)
    progress.on_epoch_end(1)
    assert capsys.readouterr().out.endswith(", 10 s left\n")


def test_accuracy_is_shown_in_percent(capsys):
    progress = Progress(epochs=1)
    progress.set_params({"epochs": 1, "steps": 1})
    progress.on_epoch_begin(0)
    progress.on_train_batch_end(0, {})
    logs = {"accuracy": 0.8751, "start_logits_accuracy": 0.5, "loss": 0.25, "dev_accuracy": 0.5}
    progress.on_epoch_end(0, logs)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "epoch 1/1, 1 steps, accuracy 87.51, start_logits_accuracy 50, loss 0.25, dev_accuracy 0.5,"
    )
