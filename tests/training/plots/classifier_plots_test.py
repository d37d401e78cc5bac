# SPDX-License-Identifier: Apache-2.0

import pytest

from training.plots.classifier_plots import plot_confusion

pytestmark = pytest.mark.backend_independent


def test_names_of_classes_are_shown_as_they_are(tmp_path):
    """Two dollar signs enclose a formula for matplotlib, which refuses this one."""
    plot_confusion(tmp_path / "a.png", [0, 1], [1, 1], ["$_$", "a_b"])
    assert (tmp_path / "a.png").stat().st_size > 1000
