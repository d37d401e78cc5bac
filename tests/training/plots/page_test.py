# SPDX-License-Identifier: Apache-2.0

import re

import pytest

from training.plots import page

pytestmark = pytest.mark.backend_independent


def test_table_escapes_text_and_formats_numbers():
    table = page.table(
        ["text", "rows", "score"],
        [["<b>&", 12345, 0.5], [page.Html("<mark>x</mark>"), None, None]],
        "a <caption>",
    ).text
    assert "&lt;b&gt;&amp;" in table
    assert "<mark>x</mark>" in table
    assert '<td class="number">12,345</td><td class="number">0.50</td>' in table
    assert "a &lt;caption&gt;" in table


def test_page_is_self_contained(tmp_path):
    figure_module = pytest.importorskip("matplotlib.figure")
    plot = figure_module.Figure()
    plot.add_subplot().plot([1, 2])

    def write_content(path):
        line = page.figure(plot, 'a "line"')
        sections = [page.section("One & two", page.text("a < b"), line)]
        return page.write_page(path, "Title", sections).read_text(encoding="utf-8")

    content = write_content(tmp_path / "page.html")
    assert write_content(tmp_path / "again.html") == content
    assert "<h2>One &amp; two</h2>" in content
    assert 'alt="a &quot;line&quot;"' in content
    sources = re.findall(r'(?:src|href)="([^"]{,30})', content)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert len(sources) == 1
