# SPDX-License-Identifier: Apache-2.0

import pytest

from training.plots.classifier_plots import calibration_figure, confusion_figure
from training.plots.style import save

pytestmark = pytest.mark.backend_independent


def test_class_names_are_not_parsed_as_math(tmp_path):
    """Matplotlib parses text between two dollar signs as math, and fails to parse this text."""
    save(confusion_figure([0, 1], [1, 1], ["$_$", "a_b"]), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_calibration_omits_small_bins():
    figure = calibration_figure([True] * 7, [0.95] * 6 + [0.25])
    assert figure.axes[0].lines[1].get_xdata() == pytest.approx([0.95])
