# SPDX-License-Identifier: Apache-2.0
"""Reads questions from rows with the columns of `squad` and `squad_v2` on Hugging Face."""

import json

import pytest

from keras_bert.data.squad import QuestionExample, SpanAnswer
from training.readers.question_files import read_questions
from training.readers.task_files import task_of_file
from training.scores.question_scores import read_gold

pytestmark = pytest.mark.backend_independent


def make_row(number, texts=("Ann",), starts=(5,), **changes):
    answers = {"text": list(texts), "answer_start": list(starts)}
    fields = {"id": f"q{number}", "title": "T", "context": "Then Ann ran.", "question": "Who ran?"}
    return fields | {"answers": answers} | changes


ROWS = [make_row(1), make_row(2, ["Ann", "Ann ran"], [5, 5])]
EXAMPLES = (
    QuestionExample("q1", "Who ran?", "Then Ann ran.", (SpanAnswer("Ann", 5),), "T"),
    QuestionExample(
        "q2", "Who ran?", "Then Ann ran.", (SpanAnswer("Ann", 5), SpanAnswer("Ann ran", 5)), "T"
    ),
)


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    answers = pyarrow.struct(
        {"text": pyarrow.list_(pyarrow.string()), "answer_start": pyarrow.list_(pyarrow.int32())}
    )
    texts = dict.fromkeys(("id", "title", "context", "question"), pyarrow.string())
    schema = pyarrow.schema({**texts, "answers": answers})
    path.parent.mkdir(exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path)
    return path


@pytest.mark.parametrize(
    "file_format", ["jsonl", "json_lines", "array", "list", "parquet", "directory"]
)
def test_questions_are_read_in_every_format(file_format, tmp_path):
    if file_format in ("jsonl", "json_lines"):
        path = write_jsonl(tmp_path / ("a.jsonl" if file_format == "jsonl" else "a.json"), ROWS)
    elif file_format == "array":
        path = tmp_path / "a.json"
        path.write_text(json.dumps(ROWS, indent=2))
    elif file_format == "list":  # like in the official SQuAD files
        pairs = [zip(*row["answers"].values(), strict=True) for row in ROWS]
        answers = [
            [{"text": text, "answer_start": n} for text, n in row_answers] for row_answers in pairs
        ]
        rows = [row | {"answers": golds} for row, golds in zip(ROWS, answers, strict=True)]
        path = write_jsonl(tmp_path / "a.jsonl", rows)
    elif file_format == "parquet":
        path = write_parquet(tmp_path / "a.parquet", ROWS)
    else:
        write_parquet(tmp_path / "squad" / "train-00000-of-00001.parquet", ROWS)
        write_parquet(tmp_path / "squad" / "validation-00000-of-00001.parquet", ROWS[:1])
        path = tmp_path / "squad" / "train"
    file = read_questions(path)
    assert (file.examples, file.has_unanswerable, file.skipped) == (EXAMPLES, False, ())
    assert task_of_file(path).name == "question_answering"
    assert read_gold(path).scores({"q1": "the Ann", "q2": "ran"}) == {
        "exact_match": 50.0,
        "f1": pytest.approx(100 * (1 + 2 / 3) / 2),
    }


def test_empty_answers_are_unanswerable(tmp_path):
    path = write_parquet(tmp_path / "v2.parquet", [make_row(1), make_row(2, [], [])])
    file = read_questions(path)
    assert [row.answers for row in file.examples] == [(SpanAnswer("Ann", 5),), ()]
    assert file.has_unanswerable
    assert read_gold(path).data_set == "squad_v2"
    unlabeled = [{"question": "?", "context": "c"}, {"id": 7, "question": "?", "context": "c"}]
    path = write_jsonl(tmp_path / "test.jsonl", unlabeled)
    file = read_questions(path, labeled=False)
    assert [(row.id, row.answers) for row in file.examples] == [("0", None), ("7", None)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question": None}, "the field 'question' is missing"),
        ({"context": 3}, "context must be a string"),
        ({"answers": None}, "the field 'answers' is missing"),
        ({"answers": "Ann"}, "answers must be a list"),
        ({"answers": {"text": ["Ann"]}}, "the field 'answer_start' is missing"),
        ({"answers": {"text": ["Ann"], "answer_start": []}}, "1 texts and 0 values of"),
        (
            {"answers": {"text": ["Ann"], "answer_start": [4]}},
            "must contain 'Ann' at answer_start 4",
        ),
        ({"id": "q1"}, r"\(id 'q1'\): the id must be unique"),
    ],
)
def test_invalid_cell_error_has_line_and_field(changes, message, tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [make_row(1), make_row(2, **changes)])
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 2.*{message}"):
        read_questions(path)
    file = read_questions(path, skip_invalid=True)
    assert (len(file.examples), len(file.skipped)) == (1, 1)


def test_parquet_error_has_the_row(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [make_row(1), make_row(2, ["Bob"])])
    with pytest.raises(
        ValueError, match=r"a\.parquet, row 2 \(id 'q2'\), answer 1: .* contain 'Bob'"
    ):
        read_questions(path)


def test_klue_mrc_is_read(tmp_path):
    # In KLUE's JSON, plausible answers have their own field. Its script for `datasets` adds them to
    # the answers.
    context = "글라스도어가 ‘2014년 일하고 싶은 50대 회사’를 선정했다. 페이스북은 5위였다."
    plausible = {"text": "2014년", "answer_start": 8}
    answer = {"text": "페이스북", "answer_start": context.index("페이스북")}
    questions = [
        {"guid": "klue-mrc-v1_dev_03566", "question": "퇴사하고 싶은 회사로 선정된 해는?"},
        {"guid": "klue-mrc-v1_dev_02673", "question": "5위로 선정된 기업은?"},
    ]
    impossible, answerable = questions
    impossible |= {"is_impossible": True, "answers": [], "plausible_answers": [plausible]}
    answerable |= {"is_impossible": False, "answers": [answer]}
    path = tmp_path / "klue.json"
    nested = {"data": [{"title": "", "paragraphs": [{"context": context, "qas": questions}]}]}
    path.write_text(json.dumps(nested, ensure_ascii=False), encoding="utf-8")
    expected = read_questions(path)
    assert expected.has_unanswerable
    assert [example.id for example in expected.examples] == [one["guid"] for one in questions]
    assert [len(example.answers) for example in expected.examples] == [0, 1]
    golds = read_gold(str(path))
    assert [gold.texts for gold in golds.questions] == [(), ("페이스북",)]
    impossible["answers"] = [plausible]
    rows = write_jsonl(tmp_path / "rows.jsonl", [{**one, "context": context} for one in questions])
    with pytest.warns(UserWarning, match="1 questions have answers, but is_impossible is true"):
        assert read_questions(rows).examples == expected.examples
    scores = golds.scores({"klue-mrc-v1_dev_03566": "", "klue-mrc-v1_dev_02673": "“페이스북”은"})
    # The longest common run has 4 characters, and the prediction 7.
    assert (scores["klue_exact"], scores["klue_rouge_w"]) == (50, pytest.approx(50 + 50 * 8 / 11))
