# SPDX-License-Identifier: Apache-2.0

import pytest

from training.plots.length_histogram import length_figure

pytestmark = pytest.mark.backend_independent


def drawn(lengths):
    """The bars that are drawn: where each begins, and its share in percent."""
    (axes,) = length_figure(lengths, "rows").axes
    return {round(bar.get_x()): bar.get_height() for bar in axes.patches}


def test_shares_of_rows_are_drawn():
    assert drawn([0, 1, 0, 3]) == {0: 0.0, 1: 25.0, 2: 0.0, 3: 75.0}


def test_long_rows_share_bars():
    bars = drawn([1] * 513)
    assert len(bars) <= 64
    assert sum(bars.values()) == pytest.approx(100)


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="no rows"):
        length_figure([0, 0])
