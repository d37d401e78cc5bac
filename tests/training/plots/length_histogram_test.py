# SPDX-License-Identifier: Apache-2.0

import pytest

from training.plots.length_histogram import plot_lengths

pytestmark = pytest.mark.backend_independent


def drawn(monkeypatch, path, lengths):
    """The bars that are drawn: where each begins, and its share in per cent."""
    from matplotlib.axes import Axes

    seen = {}
    bar = Axes.bar

    def remember(axes, starts, shares, **kwargs):
        seen.update(zip(starts, shares, strict=True))
        return bar(axes, starts, shares, **kwargs)

    monkeypatch.setattr(Axes, "bar", remember)
    assert plot_lengths(path, lengths, "rows") == path
    return seen


def test_shares_of_rows_are_drawn(monkeypatch, tmp_path):
    path = tmp_path / "lengths.png"
    assert drawn(monkeypatch, path, [0, 1, 0, 3]) == {0: 0.0, 1: 25.0, 2: 0.0, 3: 75.0}
    assert path.read_bytes()[1:4] == b"PNG"
    assert [item.name for item in tmp_path.iterdir()] == ["lengths.png"]


def test_long_rows_share_bars(monkeypatch, tmp_path):
    bars = drawn(monkeypatch, tmp_path / "lengths.png", [1] * 513)
    assert len(bars) <= 64
    assert sum(bars.values()) == pytest.approx(100)


def test_nothing_to_draw_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no rows"):
        plot_lengths(tmp_path / "lengths.png", [0, 0])
