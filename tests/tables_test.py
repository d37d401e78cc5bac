# SPDX-License-Identifier: Apache-2.0

import pytest

from keras_bert.tables import markdown_table, text_table

pytestmark = pytest.mark.backend_independent


def test_tables_align_wide_characters():
    names = ["한국어", "e\u0301te\u0301", "a|b\nc", "plain"]
    lines = text_table(["", "f1"], [[name, 1.5] for name in names]).splitlines()
    widths = [len(line) + 3 * ("한" in line) - 2 * ("\u0301" in line) for line in lines]
    assert widths == [len("한국어") * 2 + len("  1.50")] * 5
    rows = markdown_table(["x|y", "f1"], [["a|b\nc", 1.5], [r"a\|b", 2]]).splitlines()
    assert rows == [r"| x\|y | f1 |", "|---|---|", r"| a\|b c | 1.50 |", r"| a\|b | 2 |"]
