# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

tf = pytest.importorskip("tensorflow")

from keras_bert.data import QuestionExample, SpanAnswer  # noqa: E402
from keras_bert.tasks.question_answerer import (  # noqa: E402
    is_questions,
    paired,
    question_examples,
)

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
        # Of unknown length, and not to be iterated first
        tf.data.Dataset.from_tensors({"question": "?"}).repeat(),
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
