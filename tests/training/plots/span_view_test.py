# SPDX-License-Identifier: Apache-2.0

import pytest

from training.plots.span_view import AnsweredQuestion, marked, write_span_view

pytestmark = pytest.mark.backend_independent


def test_overlapping_answers_are_distinguished():
    question = AnsweredQuestion("Q", "abcdef", (1, 4), 0.5, [(3, 5)])
    assert marked(question) == (
        'a<mark class="answer">bc</mark><mark class="both">d</mark><mark class="gold">e</mark>f'
    )


def test_span_view_escapes_text_in_any_script(tmp_path):
    path = write_span_view(
        tmp_path / "spans.html",
        [
            AnsweredQuestion("誰<b>?", "歌德 & 席勒", (0, 2), 0.75),
            AnsweredQuestion("When?", "No idea.", None, 0.9),
        ],
    )
    page = path.read_text(encoding="utf-8")
    assert '<mark class="answer">歌德</mark> &amp; 席勒' in page
    assert "誰&lt;b&gt;?" in page
    assert "no answer (90%)" in page
    assert [file.name for file in tmp_path.iterdir()] == ["spans.html"]
