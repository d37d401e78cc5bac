# SPDX-License-Identifier: Apache-2.0

import io

import pytest

from keras_bert.progress import bar

pytestmark = pytest.mark.backend_independent


def test_progress_prints_lines_without_terminal():
    file = io.StringIO()
    with bar("reading", 30, "B", file, mininterval=0, delay=0) as shown:
        for _ in range(3):
            shown.update(10)
    lines = file.getvalue().splitlines()
    assert lines[0] == "reading: 0/30 B, ? left"
    assert lines[2].startswith("reading: 20/30 B, ")
    assert all(line.isprintable() for line in lines)


def test_short_progress_is_silent_without_terminal():
    file = io.StringIO()
    with bar("reading", file=file) as shown:
        shown.update(1)
    assert file.getvalue() == ""
