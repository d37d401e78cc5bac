# SPDX-License-Identifier: Apache-2.0

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest

from training.readers.data_files import infer_format, read_columns
from training.readers.task_files import task_of_file
from training.readers.trec_files import is_collection

pytestmark = pytest.mark.backend_independent

SQUAD = {"version": "1.1", "data": [{"title": "a", "paragraphs": []}]}
FILES = {
    "train.conll": ("EU B-ORG\nrejects O\n", "tagging"),
    "train.conllu": ("# text = EU\n1\tEU\tEU\tPROPN\t_\t_\t0\troot\t_\t_\n", "tagging"),
    "tags.txt": ("-DOCSTART- -X- O\n\nEU NNP I-ORG\nrejects VBZ O\n\n", "tagging"),
    "tags.tsv": ("EU\tB-ORG\nrejects\tO\n", "tagging"),
    "ner.csv": ("Sentence #,Word,POS,Tag\nSentence: 1,EU,NNP,B-org\n", "tagging"),
    "words.csv": ("word,label\nEU,name\n", "classification"),
    "train.json": (json.dumps(SQUAD), "question_answering"),
    "deep.json": ('{"a":' * 100_000, "question_answering"),
    "indented.json": (json.dumps(SQUAD, indent=1), "question_answering"),
    "swag.csv": ("sent1,sent2,ending0,ending1,label\na,b,c,d,0\n", "multiple_choice"),
    "choices.jsonl": ('{"text": "a", "choices": ["b", "c"], "label": 0}\n', "multiple_choice"),
    "copa.jsonl": ('{"premise": "a", "choice1": "b", "choice2": "c"}', "multiple_choice"),
    "commonsense.jsonl": (
        '{"question": {"stem": "a", "choices": []}, "answerKey": "A"}',
        "multiple_choice",
    ),
    "aliases.jsonl": ('{"question": "a", "context": "b", "answers": ["b"]}', "question_answering"),
    "pairs.csv": ("text,text_pair,label\na,b,0\n", "pairs"),
    "nli.tsv": ("premise\thypothesis\tlabel\na\tb\t0\n", "pairs"),
    "qnli.tsv": ("question\tsentence\tlabel\na\tb\t0\n", "pairs"),
    "SICK.txt": ("pair_ID\tsentence_A\tsentence_B\trelatedness_score\n1\ta\tb\t3\n", "pairs"),
    "both.csv": ("text,premise,hypothesis,label\na,b,c,0\n", "classification"),
    "reviews.csv": ("text,label\na,0\n", "classification"),
    "rows.json": ('[{"text": "a", "label": 0}]', "classification"),
    "lines.json": ('{"text": "a", "label": 0}\n{"text": "b", "label": 1}\n', "classification"),
    "none.tsv": ("", "classification"),
}


@pytest.mark.parametrize("name", FILES)
def test_task_is_inferred_from_the_file(name, tmp_path):
    text, task = FILES[name]
    path = tmp_path / name
    path.write_text(text)
    assert task_of_file(path).name == task
    compressed = tmp_path / f"{name}.gz"
    compressed.write_bytes(gzip.compress(text.encode()))
    assert task_of_file(compressed).name == task


def test_file_is_no_pairs_if_text_is_given(tmp_path):
    path = tmp_path / "nli.csv"
    path.write_text("premise,hypothesis,label\na,b,0\n")
    assert task_of_file(path, text="premise").name == "classification"


def test_unrecognized_file_error_lists_checks(tmp_path):
    path = tmp_path / "reviews.txt"
    path.write_text("a good film\na bad film\n")
    with pytest.raises(ValueError, match=r"such as B-PER\. Received: the suffix '\.txt'"):
        task_of_file(path)
    assert task_of_file(path, format="csv").name == "classification"
    assert task_of_file(path, format="codah").name == "multiple_choice"


def test_collection_requires_all_files(tmp_path):
    for name in ("corpus.jsonl", "queries.jsonl", "qrels.tsv"):
        assert not is_collection(tmp_path)
        (tmp_path / name).touch()
    assert is_collection(tmp_path)


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"pos/1.txt": "a film", "neg/2.txt": "b"}, "."),
        ({"texts.txt": "a film\nb\n", "labels.txt": "pos\nneg\n"}, "texts.txt"),
        ({"a.json": '[["a film", "pos"],\n["b", "neg"]]'}, "a.json"),
        ({"a.jsonl": '["a film", "pos"]\n["b", "neg"]\n'}, "a.jsonl"),
    ],
)
def test_unsupported_file_error_has_conversion(files, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file, content in files.items():
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text(content)

    def read_rows(name, columns):
        rows, _ = read_columns(Path(name), infer_format(Path(name)), columns, "auto")
        return sorted((row.cells["text"], row.cells["label"]) for row in rows)

    with pytest.raises(ValueError, match="this makes") as raised:
        read_rows(name, {"text": "text", "label": "label"})
    command = re.search(r"(python|paste) .* > (train\.\w+)", str(raised.value))
    subprocess.run(command[0], shell=True, check=True)
    columns = ("0", "1") if command[1] == "paste" else ("text", "label")
    converted_rows = read_rows(command[2], dict(zip(("text", "label"), columns, strict=True)))
    assert converted_rows == [("a film", "pos"), ("b", "neg")]
