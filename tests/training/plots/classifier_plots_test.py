# SPDX-License-Identifier: Apache-2.0

import pytest

from training.plots.classifier_plots import calibration_figure, confusion_figure
from training.plots.style import save

pytestmark = pytest.mark.backend_independent


def test_names_of_classes_are_shown_as_they_are(tmp_path):
    """Two dollar signs enclose a formula for matplotlib, which refuses this one."""
    save(confusion_figure([0, 1], [1, 1], ["$_$", "a_b"]), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_bins_of_few_rows_have_no_point():
    figure = calibration_figure([True] * 7, [0.95] * 6 + [0.25])
    assert figure.axes[0].lines[1].get_xdata() == pytest.approx([0.95])
