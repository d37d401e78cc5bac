# SPDX-License-Identifier: Apache-2.0
"""Reads multiple-choice files in the formats of public datasets."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from training.readers.choice_files import choice_fields, read_choices
from training.readers.row_values import BadRows
from training.readers.task_files import task_of_file

pytestmark = pytest.mark.backend_independent

TEXTS = ["bank", "library"]
LISTS = {"label": ["A", "B"], "text": TEXTS}
OBJECTS = [{"label": label, "text": text} for label, text in zip("AB", TEXTS, strict=True)]
ROWS = {
    "own": {"text": "Where?", "choices": TEXTS, "label": 1},
    "CommonsenseQA": {
        "question": {"stem": "Where?", "question_concept": "x", "choices": OBJECTS},
        "answerKey": "B",
    },
    "CommonsenseQA, in datasets": {"question": "Where?", "choices": LISTS, "answerKey": "B"},
    "ARC": {
        "question": {
            "stem": "Where?",
            "choices": [{**choice, "label": n} for n, choice in zip("12", OBJECTS, strict=True)],
        },
        "answerKey": "2",
    },
    "OpenBookQA, in datasets": {"question_stem": "Where?", "choices": LISTS, "answerKey": "B"},
    "SWAG": {"sent1": "Where?", "sent2": "", "ending0": "bank", "ending1": "library", "label": "1"},
}


@pytest.mark.parametrize("name", ROWS)
def test_choice_fields_of_each_dataset(name, tmp_path):
    assert choice_fields(ROWS[name]) == ("Where?", TEXTS, 1)
    unlabeled = {
        field: value
        for field, value in ROWS[name].items()
        if "abel" not in field and "Key" not in field
    }
    for labels in ({}, {"answerKey": ""}, {"label": -1}):
        assert choice_fields({**unlabeled, **labels}) == ("Where?", TEXTS, None)
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": 7, **ROWS[name]}) + "\n")
    data = read_choices(tmp_path / "a.jsonl")
    assert (data.texts, data.choices, data.labels.tolist(), data.ids) == (
        ["Where?"],
        [TEXTS],
        [1],
        ["7"],
    )
    parquet.write_table(pa.Table.from_pylist([ROWS[name]]), tmp_path / "a.parquet")
    assert read_choices(tmp_path / "a.parquet").labels.tolist() == [1]


@pytest.mark.parametrize(
    ("row", "label"),
    [
        ({"article": "Ann ran.", "options": ["a", "b"], "answer": "B"}, 1),  # RACE
        ({"dialogue": ["Ann", "ran."], "choice": ["a", "b"], "answer": "b"}, 1),  # DREAM
        ({"context": "Ann ran.", "answer0": "a", "answer1": "b", "label": 1}, 1),  # Cosmos QA
        ({"context": "Ann ran.", "answers": ["a", "b"], "correct_answer_id": 1}, 1),  # QuAIL
        ({"context": "Ann ran.", "answers": ["a", "b"], "label": 0}, 0),  # ReClor
        # The answer is a copy of the choice.
        ({"context": "Ann ran.", "choices": ["B", "A"], "answer": "A"}, 1),
        ({"context": "Ann ran.", "choices": ["a", "b"], "answer": 1}, 1),
    ],
)
def test_question_is_joined_with_each_choice(row, label, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"question": "Who?", **row}))
    data = read_choices(path)
    assert [text.split() for text in data.texts] == [["Ann", "ran."]]
    (choices,) = data.choices
    assert sorted(choice.casefold() for choice in choices) == ["who? a", "who? b"]
    assert data.labels.tolist() == [label]
    assert task_of_file(path).name == "multiple_choice"
    path.write_text(json.dumps({"question": "Who?", **row, "label": "x", "answer": "x"}))
    assert read_choices(path, labeled=False).labels is None


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("cause", "The man fell. What was the cause of this?"),
        ("effect", "The man fell. What happened as a result?"),
    ],
)
def test_copa_question_is_about_cause_or_effect(question, text):
    row = {"premise": "The man fell.", "choice1": "a", "choice2": "b", "question": question}
    assert choice_fields({**row, "label": 1, "idx": 3}) == (text, ["a", "b"], 1)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "a"}, r"the fields must include choices. Received: \['question'\]"),
        (
            {"question": "a", "choices": {"text": ["b"]}},
            "choices must have the lists label and text",
        ),
        (
            {"question": "a", "choices": [{"label": "A"}, {}]},
            "choices must be strings, or objects",
        ),
        (
            {"question": "a", "choices": LISTS, "answerKey": "C"},
            "answerKey must be one of A, B",
        ),
        ({"question": "a", "choices": LISTS, "label": 2}, "label must be one of 0, 1"),
        ({"question": {"stem": None}}, "stem must be a string"),
    ],
)
def test_invalid_choice_row_error_has_the_line(row, message, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(ROWS["own"]) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 2: {message}"):
        read_choices(path)
    bad = BadRows(collect=True)
    assert len(read_choices(path, bad=bad)) == len(bad.messages) == 1


def test_unused_columns_may_share_a_name(tmp_path):
    (tmp_path / "a.csv").write_text("gold,gold,sent1,sent2,ending0,ending1,label\n,,a,b,c,d,1\n")
    assert read_choices(tmp_path / "a.csv").choices == [["b c", "b d"]]


def test_all_invalid_choice_rows_are_collected(tmp_path):
    path, bad = tmp_path / "a.jsonl", BadRows(collect=True)
    rows = [
        {"text": "a", "choices": ["b", "c"], "label": 1},
        {"text": "a", "choices": ["b", "c"]},
        {"text": "a", "choices": ["b"], "label": 0},
        {"text": "a", "choices": ["b", "c"], "label": 2},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    data = read_choices(path, bad=bad)
    assert data.labels.tolist() == [1]
    assert [message.partition(", ")[2] for message in bad.messages] == [
        "line 3: there must be two or more choices. Received: 1",
        "line 4: label must be one of 0, 1. Received: 2",
        "line 2: label is missing, but other rows have a label",
    ]
