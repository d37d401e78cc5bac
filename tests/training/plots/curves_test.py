# SPDX-License-Identifier: Apache-2.0
"""The plot of a run: its curves, and the file."""

import os
import sys

import pytest

from keras_bert.atomic import write_text
from training.plots.curves import curves_figure
from training.plots.style import new_figure, png, save, style

pytestmark = pytest.mark.backend_independent


def drawn_labels(history, **arguments):
    """The names that are written at the curves' ends, by the panel's title."""
    figure = curves_figure(history, **arguments)
    return {
        axes.get_title("left"): [text.get_text() for text in axes.texts] for axes in figure.axes
    }


def test_a_png_is_written_and_nothing_else(tmp_path):
    path = save(curves_figure({"loss": [0.7, 0.4]}, title="A run"), tmp_path / "curves.png")
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert list(tmp_path.iterdir()) == [path]


def test_evaluations_take_the_place_of_training_metrics():
    history = {
        "loss": [0.7, 0.4],
        "accuracy": [0.6, 0.8],
        "learning_rate": [1e-5, 0.0],
    }
    evaluations = [
        {"epoch": 1, "accuracy": 80.0, "f1": 70.0, "mse": 1.0},
        {"epoch": 2, "accuracy": 91.25, "f1": 90.0, "mse": 2.0},
    ]
    assert drawn_labels(history, evaluations=evaluations, best_epoch=1) == {
        "Loss": ["training 0.4", "best"],
        "Score on the development set": ["accuracy 91.25", "f1 90", "best"],
    }


def test_keras_own_validation_scores():
    history = {
        "loss": [0.7],
        "val_loss": [0.8],
        "accuracy": [0.5],
        "val_accuracy": [0.75],
        "lr_loss": [1.0],
    }
    assert drawn_labels(history) == {
        "Loss": ["training 0.7", "development 0.8"],
        "Score": ["accuracy 0.5", "val_accuracy 0.75"],
    }


def test_values_that_are_not_finite_are_left_out():
    history = {"loss": [0.5, 0.4], "mcc": [10.0, float("nan")], "f1": [float("nan")] * 2}
    figure = curves_figure(history, steps=[50, 100])
    assert [list(line.get_xdata()) for line in figure.axes[1].lines] == [[50.0]]
    assert drawn_labels(history, steps=[50, 100])["Score"] == ["mcc 10"]


def test_labels_of_curves_that_end_together_do_not_cover_each_other():
    history = {"accuracy": [80, 90.0], "f1": [70, 90.01], "macro_f1": [60, 90.02]}
    (axes,) = curves_figure(history).axes
    low, middle, high = sorted(text.xy[1] for text in axes.texts)
    assert min(middle - low, high - middle) >= 0.079


def test_matplotlib_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="install the extra `training`"):
        curves_figure({"loss": [1.0]})


def test_names_that_are_not_utf8_are_drawn(tmp_path):
    with style():
        figure, _ = new_figure(2, 1)
    figure.suptitle(os.fsdecode(b"caf\xe9.csv"))
    assert png(figure).startswith(b"\x89PNG")
    write_text(tmp_path / "a.txt", os.fsdecode(b"caf\xe9.csv"))
    assert (tmp_path / "a.txt").read_text() == r"caf\udce9.csv"
