# SPDX-License-Identifier: Apache-2.0
"""Plots training curves and saves them as a file."""

import os
import sys

import pytest

from keras_bert.atomic import write_text
from training.plots.curves import curves_figure
from training.plots.style import new_figure, png, save, style

pytestmark = pytest.mark.backend_independent


def curve_labels(history, **arguments):
    """The labels at the ends of the curves, by panel title."""
    figure = curves_figure(history, **arguments)
    return {
        axes.get_title("left"): [text.get_text() for text in axes.texts] for axes in figure.axes
    }


def test_save_writes_only_the_png(tmp_path):
    path = save(curves_figure({"loss": [0.7, 0.4]}, title="A run"), tmp_path / "curves.png")
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert list(tmp_path.iterdir()) == [path]


def test_evaluations_replace_training_metrics():
    history = {
        "loss": [0.7, 0.4],
        "accuracy": [0.6, 0.8],
        "learning_rate": [1e-5, 0.0],
    }
    evaluations = [
        {"epoch": 1, "accuracy": 80.0, "f1": 70.0, "mse": 1.0},
        {"epoch": 2, "accuracy": 91.25, "f1": 90.0, "mse": 2.0},
    ]
    assert curve_labels(history, evaluations=evaluations, best_epoch=1) == {
        "Loss": ["training 0.4", "best"],
        "Score on the development set": ["accuracy 91.25", "f1 90", "best"],
    }


def test_keras_validation_metrics_are_plotted():
    history = {
        "loss": [0.7],
        "val_loss": [0.8],
        "accuracy": [0.5],
        "val_accuracy": [0.75],
        "lr_loss": [1.0],
    }
    assert curve_labels(history) == {
        "Loss": ["training 0.7", "development 0.8"],
        "Score": ["accuracy 0.5", "val_accuracy 0.75"],
    }


def test_non_finite_values_are_omitted():
    history = {"loss": [0.5, 0.4], "mcc": [10.0, float("nan")], "f1": [float("nan")] * 2}
    figure = curves_figure(history, steps=[50, 100])
    assert [list(line.get_xdata()) for line in figure.axes[1].lines] == [[50.0]]
    assert curve_labels(history, steps=[50, 100])["Score"] == ["mcc 10"]


def test_curve_labels_do_not_overlap():
    history = {"accuracy": [80, 90.0], "f1": [70, 90.01], "macro_f1": [60, 90.02]}
    (axes,) = curves_figure(history).axes
    low, middle, high = sorted(text.xy[1] for text in axes.texts)
    assert min(middle - low, high - middle) >= 0.079


def test_missing_matplotlib_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="Plotting requires matplotlib"):
        curves_figure({"loss": [1.0]})


def test_non_utf8_names_are_plotted(tmp_path):
    with style():
        figure, _ = new_figure(2, 1)
    figure.suptitle(os.fsdecode(b"caf\xe9.csv"))
    assert png(figure).startswith(b"\x89PNG")
    write_text(tmp_path / "a.txt", os.fsdecode(b"caf\xe9.csv"))
    assert (tmp_path / "a.txt").read_text() == r"caf\udce9.csv"
