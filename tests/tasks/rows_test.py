# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from keras_bert.tasks.rows import is_text, text_columns

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    "x",
    [
        "a",
        ["a", "b"],
        [],
        np.array(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        [("a", "b")],
        [["a", "b"]],
        (["a"], ["b"]),
        {"text": ["a"]},
        {"text": ["a"], "text_pair": ["b"]},
        [b"bytes"],
    ],
)
def test_text_is_told(x):
    assert is_text(x)


@pytest.mark.parametrize(
    "x", [np.zeros((2, 3), int), {"token_ids": np.zeros((2, 3), int)}, [[1, 2]], None, 3]
)
def test_what_is_not_text_is_told(x):
    assert not is_text(x)


def test_rows_of_pairs_and_columns_of_pairs_are_the_same():
    rows = text_columns([("a", "b"), ("c", "d")])
    columns = text_columns((["a", "c"], ["b", "d"]))
    named = text_columns({"text": ["a", "c"], "text_pair": ["b", "d"]})
    for each in (rows, columns, named):
        assert list(each["text"]) == ["a", "c"]
        assert list(each["text_pair"]) == ["b", "d"]


def test_a_string_is_one_row():
    assert list(text_columns("a")["text"]) == ["a"]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([("a", "b"), ("c",)], "Row 1 has 1 texts"),
        ((["a", "b"], ["c"]), "differ in length"),
        (["a", None], "Row 1 is None"),
        ({"text": ["a", 3.5]}, "Row 1 is 3.5 of type float"),
    ],
)
def test_bad_rows_are_named(x, message):
    with pytest.raises(ValueError, match=message):
        text_columns(x)
