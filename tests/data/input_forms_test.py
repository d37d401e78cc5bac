# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from keras_bert.data import QuestionExample, SpanAnswer
from keras_bert.data.input_forms import (
    check_words,
    choice_columns,
    is_questions,
    is_text,
    paired,
    question_examples,
    single_texts,
    text_columns,
)

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


# === Questions ===

ROW = {"id": "q", "question": "?", "context": "a b", "answers": [{"text": "b", "answer_start": 2}]}
EXAMPLE = QuestionExample("q", "?", "a b", (SpanAnswer("b", 2),))


class Frame:
    """What a data frame has in common with a dict of columns, which it is not."""

    def __init__(self, columns):
        self.columns = columns

    def to_dict(self):
        return self.columns

    def __contains__(self, name):
        return name in self.columns

    def __getitem__(self, name):
        return self.columns[name]


class DataSet(list):
    """Rows with the names of their columns, as Hugging Face's data sets have them."""

    column_names = tuple(ROW)


FORMS = [
    [ROW],
    (ROW,),
    [EXAMPLE],
    {name: [value] for name, value in ROW.items()},
    Frame({name: [value] for name, value in ROW.items()}),
    DataSet([ROW]),
    [{**ROW, "answers": {"text": np.array(["b"]), "answer_start": np.array([2])}}],
]


@pytest.mark.parametrize("x", FORMS)
def test_every_form_is_known_and_read(x):
    assert is_questions(x)
    assert question_examples(x) == [EXAMPLE]


@pytest.mark.parametrize(
    "x",
    [
        {"token_ids": np.ones((2, 3))},
        np.ones((2, 3)),
        [[1, 2, 3]],
        ["text"],
        "text",
        None,
    ],
)
def test_what_is_no_question_is_left_alone(x):
    assert not is_questions(x)


def test_answers_may_be_unknown_or_none():
    unknown, none = question_examples(
        [{"question": "?", "context": "a"}, {"question": "?", "context": "a", "answers": []}]
    )
    assert (unknown.answers, unknown.id) == (None, "0")
    assert (none.answers, none.id) == ((), "1")


def test_one_passage_serves_all_questions():
    assert paired(["a", "b"], "c") == (["a", "b"], ["c", "c"])
    assert paired("a", "c") == (["a"], ["c"])
    assert paired(np.array(["a"]), np.array(["c"])) == (["a"], ["c"])


@pytest.mark.needs_tensorflow
def test_a_dataset_is_not_iterated_to_tell_what_it_is():
    tf = pytest.importorskip("tensorflow")
    endless = tf.data.Dataset.from_tensors({"question": "?"}).repeat()
    assert not is_questions(endless)


HALF = "b \ud83d"


@pytest.mark.parametrize(
    ("read", "x", "where"),
    [
        (text_columns, ["a", HALF], "Row 1"),
        (text_columns, [("a", "é"), ("a", HALF)], "Row 1"),
        (text_columns, {"text": ["a", HALF]}, "Row 1"),
        (single_texts, HALF, "Row 0"),
        (choice_columns, [("a", ["b"]), (HALF, ["b"])], "The text of row 1"),
        (choice_columns, [("a", ["b"]), ("a", ["b", HALF])], "Choice 1 of row 1"),
        (question_examples, [{"question": HALF, "context": "a"}], "Question 0: question"),
        (question_examples, [QuestionExample("1", "a", HALF)], "Question 0: context"),
        (lambda x: paired(*x), (["a", "b"], ["a", HALF]), "Question 1: context"),
        (lambda x: check_words(x, 1), ["a", HALF], "Row 1"),
        (lambda x: check_words(x, 2), [["a"], ["a", HALF]], "Row 1"),
        (lambda x: check_words(x, 3), [[["a"], [HALF]]], "Sentence 1 of document 0"),
    ],
)
def test_a_text_that_utf_8_cannot_represent_is_named(read, x, where):
    message = rf"^{where} has the character '\\ud83d' at position 2, half of a surrogate pair"
    with pytest.raises(ValueError, match=message):
        read(x)
