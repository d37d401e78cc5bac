# SPDX-License-Identifier: Apache-2.0
"""Reads small TriviaQA files: questions, documents in directories, and answers without offsets."""

import json

import pytest

from keras_bert.data.squad import SpanAnswer
from training.readers.question_files import read_questions
from training.readers.triviaqa import answer_in_document, first_words

pytestmark = pytest.mark.backend_independent


def make_question(number, pages=("Ann.txt",), aliases=("ann", "anna"), results=(), **more):
    answer = {"NormalizedAliases": list(aliases), "Value": "Ann"}
    return {
        "QuestionId": f"tc_{number}",
        "Question": "Who ran?",
        "Answer": answer | more.pop("answer", {}),
        "EntityPages": [{"Filename": name, "DocPartOfVerifiedEval": True} for name in pages],
        "SearchResults": [{"Filename": name, "DocPartOfVerifiedEval": False} for name in results],
        **more,
    }


def write_files(
    directory, *questions, documents=None, domain="Wikipedia", verified=False, name="dev.json"
):
    """Writes files laid out like the download, and returns the path of the questions."""
    documents = {"wikipedia/Ann.txt": "Then Ann ran."} if documents is None else documents
    for file, text in documents.items():
        (directory / "evidence" / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / "evidence" / file).write_bytes(text.encode())
    content = {"Data": list(questions), "Domain": domain, "VerifiedEval": verified, "Version": 1.0}
    (directory / "qa").mkdir(exist_ok=True)
    (directory / "qa" / name).write_text(json.dumps(content, indent=4, sort_keys=True))
    return directory / "qa" / name


def test_answer_is_the_first_alias_in_the_document(tmp_path):
    documents = {
        "wikipedia/Ann.txt": "Bob and ANNA ran.",
        "wikipedia/Bob.txt": "Bob ran.",
        "web/3/3_1.txt": "The joanna ran",
    }
    question = make_question(1, ["Ann.txt", "Bob.txt"], ["", "anna", "bob"], ["3/3_1.txt"])
    file = read_questions(write_files(tmp_path, question, documents=documents))
    assert [(example.id, example.answers) for example in file.examples] == [
        ("tc_1--Ann.txt", (SpanAnswer("ANNA", 8),)),
        ("tc_1--Bob.txt", (SpanAnswer("Bob", 0),)),
        ("tc_1--3/3_1.txt", (SpanAnswer("anna", 6),)),  # inside a word, like in the official code
    ]
    assert {example.key for example in file.examples} == {"tc_1"}
    assert {example.aliases for example in file.examples} == {("", "anna", "bob")}
    # In the Web domain, each document is scored separately.
    path = write_files(tmp_path, question, domain="Web")
    assert [example.key for example in read_questions(path).examples] == [
        example.id for example in file.examples
    ]


def test_documents_are_truncated_to_max_words(tmp_path):
    path = write_files(
        tmp_path, make_question(1), documents={"wikipedia/Ann.txt": "one  two\nthree Ann"}
    )
    texts = {n: read_questions(path, max_document_words=n).examples[0] for n in (0, 2, 4, 9)}
    assert [question.context for question in texts.values()] == [
        "one  two\nthree Ann", "one  two", "one  two\nthree Ann", "one  two\nthree Ann",
    ]  # fmt: skip
    assert [len(question.answers) for question in texts.values()] == [1, 0, 1, 1]
    assert first_words(" a", 1) == " a"


def test_answer_offsets_count_original_text():
    text = "İ İzmir ran"
    assert len(text.lower()) == len(text) + 2
    assert answer_in_document(("ran",), text) == SpanAnswer("ran", 8)
    assert answer_in_document(("i̇zmir",), text) == SpanAnswer("İzmir", 2)
    assert answer_in_document(("x", ""), text) is None


def test_verified_file_yields_only_verified_questions(tmp_path):
    documents = {"wikipedia/Ann.txt": "Ann", "web/1.txt": "Ann"}
    data = [
        make_question(1, results=["1.txt"], QuestionPartOfVerifiedEval=True),
        make_question(2, QuestionPartOfVerifiedEval=False),
    ]
    path = write_files(tmp_path, *data, documents=documents, domain="Web", verified=True)
    assert [question.id for question in read_questions(path).examples] == ["tc_1--Ann.txt"]


def test_missing_answer_raises_if_labeled(tmp_path):
    question = make_question(1)
    del question["Answer"]
    path = write_files(tmp_path, question)
    assert read_questions(path, labeled=False).examples[0].answers is None
    with pytest.raises(
        ValueError, match=r"question 1 \(id 'tc_1'\): the field 'Answer' is missing"
    ):
        read_questions(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pages": ["No.txt"]}, r"'No\.txt' does not exist in .*wikipedia"),
        ({"pages": ["../web/secret.txt"]}, r"'\.\./web/secret\.txt' must be in .*wikipedia"),
        ({"pages": ["link.txt"]}, r"'link\.txt' must be in"),
        ({"pages": ["latin.txt"]}, r"'latin\.txt' is not UTF-8"),
        ({"pages": []}, "must have at least one document"),
        ({"pages": [3]}, r"EntityPages 1: Filename must be a string"),
        ({"aliases": []}, "NormalizedAliases must not be empty"),
        ({"answer": {"HumanAnswers": "Ann"}}, "HumanAnswers must be a list"),
        ({"Question": None}, "Question must be a string"),
    ],
)
def test_invalid_questions_raise_or_are_skipped(changes, message, tmp_path):
    documents = {"wikipedia/Ann.txt": "Ann", "web/secret.txt": "secret"}
    path = write_files(tmp_path, make_question(1), make_question(2, **changes), documents=documents)
    directory = tmp_path / "evidence" / "wikipedia"
    (directory / "link.txt").symlink_to(tmp_path / "evidence" / "web" / "secret.txt")
    (directory / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=rf"dev\.json: question 2 \(id 'tc_2'\).*({message})"):
        read_questions(path)
    file = read_questions(path, skip_invalid=True)
    assert ([question.id for question in file.examples], len(file.skipped)) == (
        ["tc_1--Ann.txt"],
        1,
    )


def test_invalid_file_raises(tmp_path):
    path = write_files(tmp_path, make_question(1), documents={})
    with pytest.raises(ValueError, match=r"must be in .*evidence or .*qa/evidence"):
        read_questions(path)
    with pytest.raises(ValueError, match="Domain must be Wikipedia or Web"):
        read_questions(write_files(tmp_path, make_question(1), domain="x"))
    with pytest.raises(ValueError, match=r"question 2 .*: the id must be unique"):
        read_questions(write_files(tmp_path, make_question(1), make_question(1)))
    with pytest.raises(ValueError, match="question 1 must be an object"):
        read_questions(write_files(tmp_path, 3))
