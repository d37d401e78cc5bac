# SPDX-License-Identifier: Apache-2.0
import copy
import json
import os
import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert.data.squad import SpanAnswer, SquadError, read_squad  # noqa: E402

CONTEXT = "Zürich 🏔 liegt am Zürichsee. 東京は日本の首都です。"
QUESTIONS = [
    {
        "id": "q1",
        "question": "Wo liegt Zürich?",
        "answers": [{"text": "am Zürichsee", "answer_start": 15}],
    },
    {
        "id": "q2",
        "question": "日本の首都は?",
        "answers": [{"text": "東京", "answer_start": 29}, {"text": "東京は", "answer_start": 29}],
    },
]


def content(version="1.1", **unanswerable):
    questions = copy.deepcopy(QUESTIONS)
    if version == "v2.0":
        for question in questions:
            question["is_impossible"] = False
        questions.append(
            {"id": "q3", "question": "?", "answers": [], "is_impossible": True, **unanswerable}
        )
    paragraph = {"context": CONTEXT, "qas": questions}
    return {"version": version, "data": [{"title": "Orte", "paragraphs": [paragraph]}]}


def write(path, value, encoding="utf-8"):
    path.write_text(json.dumps(value, ensure_ascii=False), encoding=encoding)
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_answer_offsets_are_code_points(tmp_path, encoding):
    file = read_squad(write(tmp_path / "squad.json", content(), encoding))
    assert not file.has_unanswerable
    assert file.skipped == ()
    assert [example.id for example in file.examples] == ["q1", "q2"]
    assert file.examples[1].answers == (SpanAnswer("東京", 29), SpanAnswer("東京は", 29))
    assert all(example.context == CONTEXT for example in file.examples)
    assert all(example.title == "Orte" for example in file.examples)


def test_version_2_unanswerable_questions(tmp_path):
    plausible = {"plausible_answers": [{"text": "Zürich", "answer_start": 0}]}
    file = read_squad(write(tmp_path / "squad.json", content("v2.0", **plausible)))
    assert file.has_unanswerable
    assert [len(example.answers) for example in file.examples] == [1, 2, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"answers": None},
        {"answers": "x"},
        {"answers": [{"text": "x", "answer_start": 0}]},
        {"is_impossible": 3},
    ],
)
def test_invalid_answers_are_ignored_if_unlabeled(change, tmp_path):
    value = content()
    question(value).update(change)
    path = write(tmp_path / "squad.json", value)
    assert read_squad(path, labeled=False).examples[0].answers is None
    with pytest.raises(SquadError, match=r"\(id 'q1'\)"):
        read_squad(path)


def test_unlabeled_questions_need_no_answers(tmp_path):
    value = content()
    del value["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    value["data"][0]["paragraphs"][0]["qas"][1]["answers"] = []
    path = write(tmp_path / "squad.json", value)
    examples = read_squad(path, labeled=False).examples
    assert [example.answers for example in examples] == [None, None]
    with pytest.raises(SquadError, match=r"question 1 \(id 'q1'\): the field 'answers' is missing"):
        read_squad(path)


def article(value):
    return value["data"][0]


def paragraph(value):
    return article(value)["paragraphs"][0]


def question(value, index=0):
    return paragraph(value)["qas"][index]


def answer(value):
    return question(value)["answers"][0]


# The change to a valid file, and the error message after the file name
INVALID_FILES = {
    "no articles": (lambda v: v.pop("data"), "the field 'data' is missing"),
    "article": (lambda v: v["data"].append([1]), r"article \d must be an object"),
    "paragraphs": (
        lambda v: article(v).update(paragraphs="x"),
        r"article 1 \('Orte'\): paragraphs must be a list",
    ),
    "context": (lambda v: paragraph(v).pop("context"), "paragraph 1: the field 'context'"),
    "id": (
        lambda v: question(v).update(id=[7]),
        r"question 1: id must be a string\. Received: \[7\]",
    ),
    "same id": (lambda v: question(v, 1).update(id="q1"), r"'q1'\): the id must be unique"),
    "question": (lambda v: question(v).pop("question"), r"question 1 \(id 'q1'\): the field"),
    "surrogate": (
        lambda v: question(v).update(question="a\ud83d"),
        r"question must not contain a lone surrogate\. Received: one at position 1",
    ),
    "no answer": (lambda v: question(v).update(answers=[]), "answers must not be empty"),
    "is_impossible": (
        lambda v: question(v).update(is_impossible=0),
        "is_impossible must be true or false. Received: 0",
    ),
    "empty": (
        lambda v: answer(v).update(text=""),
        "answer 1: the answer text must not be empty",
    ),
    "offset type": (
        lambda v: answer(v).update(answer_start="15"),
        r"article 1 \('Orte'\), paragraph 1, question 1 \(id 'q1'\), answer 1: "
        "answer_start must be an integer",
    ),
    "wrong offset": (
        lambda v: answer(v).update(answer_start=16),
        "must contain 'am Zürichsee' at answer_start 16. Received: 'm Zürichsee.'",
    ),
    "negative offset": (lambda v: answer(v).update(answer_start=-1), "at answer_start -1"),
    "offset past end": (lambda v: answer(v).update(answer_start=999), "Received: ''"),
}


def test_read_squad_without_ids(tmp_path):
    value = content("v2.0")
    del question(value)["id"]
    question(value, 2)["id"] = None
    file = read_squad(write(tmp_path / "squad.json", value))
    assert [example.id for example in file.examples] == ["0", "q2", "2"]


@pytest.mark.parametrize("case", INVALID_FILES)
def test_invalid_file_error_includes_location(tmp_path, case):
    change, message = INVALID_FILES[case]
    value = content()
    change(value)
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(value))
    with pytest.raises(SquadError, match=message) as raised:
        read_squad(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("case", [case for case in INVALID_FILES if case != "no articles"])
def test_skip_invalid_lists_skipped_questions(tmp_path, case):
    change, message = INVALID_FILES[case]
    value = content("v2.0")
    value["data"].append(copy.deepcopy(value["data"][0]))
    for number, item in enumerate(value["data"][1]["paragraphs"][0]["qas"], start=4):
        item["id"] = f"q{number}"
    change(value)
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(value))
    file = read_squad(path, skip_invalid=True)
    assert len(file.skipped) == 1
    with pytest.raises(SquadError, match=message):
        raise SquadError(file.skipped[0])
    assert {"q4", "q5", "q6"} <= {example.id for example in file.examples}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ([{"id": "a"}], "[{'id': 'a'}]"),
        (None, "None"),
    ],
)
def test_wrong_structure_error_shows_expected(tmp_path, content, kind):
    path = tmp_path / "flat.json"
    path.write_text(json.dumps(content))
    message = f'flat.json must be an object with the field "data".*{re.escape(kind)}'
    with pytest.raises(SquadError, match=message):
        read_squad(path)


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"data": 3}', '{"data": [}'])
def test_unreadable_file_raises_despite_skip_invalid(tmp_path, text):
    path = tmp_path / "squad.json"
    path.write_text(text)
    with pytest.raises(SquadError, match=r"squad\.json"):
        read_squad(path, skip_invalid=True)


@pytest.mark.skipif("KERAS_BERT_DATA" not in os.environ, reason="needs the data sets")
@pytest.mark.parametrize(
    ("name", "count", "unanswerable"),
    [("dev-v1.1.json", 10570, 0), ("dev-v2.0-rebuilt.json", 11873, 5943)],
)
def test_published_squad_files(name, count, unanswerable):
    file = read_squad(Path(os.environ["KERAS_BERT_DATA"]) / "squad" / name)
    assert len(file.examples) == count
    assert sum(not example.answers for example in file.examples) == unanswerable
    assert file.has_unanswerable == bool(unanswerable)
