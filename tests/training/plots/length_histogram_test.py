# SPDX-License-Identifier: Apache-2.0

import pytest

from training.plots.length_histogram import length_figure

pytestmark = pytest.mark.backend_independent


def bars_of(lengths):
    """The bars that are drawn: where each begins, and its share in percent."""
    (axes,) = length_figure(lengths, "rows").axes
    return {round(bar.get_x()): bar.get_height() for bar in axes.patches}


def test_shares_of_rows_are_drawn():
    assert bars_of([0, 1, 0, 3]) == {0: 0.0, 1: 25.0, 2: 0.0, 3: 75.0}


def test_long_rows_share_bars():
    bars = bars_of([1] * 513)
    assert len(bars) <= 64
    assert sum(bars.values()) == pytest.approx(100)


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="no rows"):
        length_figure([0, 0])


def test_a_long_row_does_not_flatten_the_others():
    lengths = [0] * 50_001
    lengths[10], lengths[30], lengths[90], lengths[50_000] = 70, 28, 1, 1
    assert bars_of(lengths) == {**dict.fromkeys(range(31), 0.0), 10: 70.0, 30: 28.0}
    (axes,) = length_figure(lengths).axes
    (note,) = axes.texts
    assert note.get_text().splitlines() == [
        "median 10",
        "mean 516.3",
        "not drawn: 2 rows",
        "(2 %) of up to 50,000 tokens",
    ]
    # Rows of all lengths are drawn, although some are long
    assert len(bars_of([1] * 1000)) > 50
    assert bars_of([0, 0, 3]) == {0: 0.0, 1: 0.0, 2: 100.0}
    assert bars_of([0, 1]) == {0: 0.0, 1: 100.0}
