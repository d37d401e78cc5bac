# SPDX-License-Identifier: Apache-2.0

import pytest

from training.plots.length_histogram import length_figure

pytestmark = pytest.mark.backend_independent


def histogram_bars(lengths):
    """The percentage of rows in each bar, by the bar's first length."""
    (axes,) = length_figure(lengths, "rows").axes
    return {round(bar.get_x()): bar.get_height() for bar in axes.patches}


def test_histogram_shows_percentages():
    assert histogram_bars([0, 1, 0, 3]) == {0: 0.0, 1: 25.0, 2: 0.0, 3: 75.0}


def test_histogram_has_at_most_64_bars():
    bars = histogram_bars([1] * 513)
    assert len(bars) <= 64
    assert sum(bars.values()) == pytest.approx(100)


def test_empty_histogram_raises():
    with pytest.raises(ValueError, match="at least one row"):
        length_figure([0, 0])


def test_histogram_omits_outliers():
    lengths = [0] * 50_001
    lengths[10], lengths[30], lengths[90], lengths[50_000] = 70, 28, 1, 1
    assert histogram_bars(lengths) == {**dict.fromkeys(range(31), 0.0), 10: 70.0, 30: 28.0}
    (axes,) = length_figure(lengths).axes
    (note,) = axes.texts
    assert note.get_text().splitlines() == [
        "median 10",
        "mean 516.3",
        "not shown: 2 rows",
        "(2%) of up to 50,000 tokens",
    ]
    # Long rows are not omitted if all lengths are equally frequent.
    assert len(histogram_bars([1] * 1000)) > 50
    assert histogram_bars([0, 0, 3]) == {0: 0.0, 1: 0.0, 2: 100.0}
    assert histogram_bars([0, 1]) == {0: 0.0, 1: 100.0}
