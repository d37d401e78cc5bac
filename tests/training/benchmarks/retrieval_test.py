# SPDX-License-Identifier: Apache-2.0
"""The retrieval benchmark indexes a collection with each subject, and scores the rankings."""

import json
import sys

import pytest

from training.benchmarks.retrieval import RetrievalConfig, main

pytestmark = pytest.mark.on_torch

TEXTS = {"a": "cats sleep", "b": "dogs bark loudly", "c": "the train leaves", "d": "a mat"}


@pytest.fixture
def collection(tmp_path):
    lines = [json.dumps({"_id": name, "text": text}) for name, text in TEXTS.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    queries = '{"_id": "1", "text": "when does my train leave"}\n{"_id": "2", "text": "cats"}\n'
    (tmp_path / "queries.jsonl").write_text(queries)
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n2\td\t1\n")
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tc\t1\n")
    return tmp_path


def test_retrieval_scores_subjects(collection, capsys):
    results = collection / "results.json"
    options = {"data_dir": str(collection), "json": str(results), "rounds": 1}
    main(RetrievalConfig(subjects=("words", "bm25s"), **options))
    output = capsys.readouterr().out
    assert "4 documents, 1 queries" in output  # without the training query
    assert "| words | 100.0 |" in output
    assert [row["nDCG@10"] for row in json.loads(results.read_text())["results"]] == [100.0, 100.0]
    for subject in ("vector:minilm", "words:minilm", "vectors"):
        with pytest.raises(ValueError, match=rf"--subjects must be among .* Received: '{subject}'"):
            main(RetrievalConfig(subjects=(subject,), **options, overwrite=True))
    with pytest.raises(ValueError, match=r"--python must be library:interpreter .* 'bm25s'"):
        RetrievalConfig(python=("bm25s",))


def test_retrieval_without_a_library(collection, capsys):
    python = collection / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    options = {"data_dir": str(collection), "python": (f"bm25s:{python}",), "rounds": 1}
    main(RetrievalConfig(subjects=("bm25s", "words"), **options))
    output = capsys.readouterr().out
    advice = f"skipped: bm25s: No module named 'bm25s'. Run {python} -m pip install bm25s"
    assert advice in output
    assert "| words | 100.0 |" in output
    options["python"] = ("bm25s:nowhere",)
    with pytest.raises(ValueError, match="must contain one that is not skipped"):
        main(RetrievalConfig(subjects=("bm25s",), **options))
    assert "skipped: bm25s: nowhere cannot be started: No such file" in capsys.readouterr().out


def test_retrieval_reads_questions(tmp_path, capsys):
    def question(id, text, answers):
        return {"id": id, "question": text, "answers": answers, "is_impossible": not answers}

    answer = [{"text": "train", "answer_start": 4}]
    questions = {"a": ("1", "what barks?", []), "c": ("2", "what leaves?", answer)}
    paragraphs = [
        {"context": TEXTS[name], "qas": [question(*one)]} for name, one in questions.items()
    ]
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}))
    main(RetrievalConfig(data_dir=str(file), subjects=("words",), rounds=1))
    output = capsys.readouterr().out
    assert "2 documents, 1 queries" in output
    assert "| words | 100.0 |" in output
