# SPDX-License-Identifier: Apache-2.0
"""The retrieval benchmark indexes a collection with each subject, and scores the rankings."""

import json

import pytest

from training.benchmarks.retrieval import RetrievalConfig, main

pytestmark = pytest.mark.on_torch


def test_retrieval_scores_subjects(tmp_path, capsys):
    texts = {"a": "cats sleep", "b": "dogs bark loudly", "c": "the train leaves", "d": "a mat"}
    lines = [json.dumps({"_id": name, "text": text}) for name, text in texts.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "when does my train leave"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\tc\t1\n")
    results = tmp_path / "results.json"
    options = {"data_dir": str(tmp_path), "json": str(results), "rounds": 1}
    main(RetrievalConfig(subjects=("words", "bm25s"), **options))
    assert "| words | 100.0 |" in capsys.readouterr().out
    assert [row["nDCG@10"] for row in json.loads(results.read_text())["results"]] == [100.0, 100.0]
    for subject in ("vector:minilm", "words:minilm", "vectors"):
        with pytest.raises(ValueError, match=rf"--subjects must be among .* Received: '{subject}'"):
            main(RetrievalConfig(subjects=(subject,), **options, overwrite=True))
