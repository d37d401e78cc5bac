# SPDX-License-Identifier: Apache-2.0
"""Reads small files in GLUE's nine formats, and the full files if `KERAS_BERT_DATA` has them."""

import os
from pathlib import Path

import numpy as np
import pytest

from training.readers.glue import TASKS, find_task, read_split

pytestmark = pytest.mark.backend_independent

# The columns of the official files, and two examples of each split.
FILES = {
    "CoLA/train": ["gj04\t1\t\tThey left.", "gj04\t0\t*\tThem left."],
    "CoLA/dev": ["gj04\t1\t\tThey left.", "gj04\t0\t*\tThem left."],
    "CoLA/test": ["index\tsentence", "0\tThey left.", "1\tThem left."],
    "SST-2/train": ["sentence\tlabel", 'a "fine film \t1', "no wit \t0"],
    "SST-2/test": ["index\tsentence", "0\ta fine film", "1\tno wit"],
    "MRPC/train": [
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        '1\t7\t8\tHe said " go .\tHe said go .',
        "0\t7\t8\tA\tB",
    ],
    "MRPC/test": ["\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t7\t8\tA\tB"],
    "STS-B/train": [
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "0\tmain-news\tMSR\t2012\t1\tnone\tnone\tA dog.\tA cat.\t2.500",
        "1\tmain-news\tMSR\t2012\t1\tnone\tnone\tA dog.\tA dog.\t5.000",
    ],
    "STS-B/test": [
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2",
        "0\tmain-news\tMSR\t2012\t1\tnone\tnone\tA dog.\tA cat.",
    ],
    "QQP/train": [
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "0\t1\t2\tWhy?\tHow?\t0",
        "1\t1\t2\tWhy is",  # This row is also truncated in the official download.
        "2\t1\t2\t\tHow?\t1",
    ],
    "QQP/test": ["id\tquestion1\tquestion2", "0\tWhy?\tHow?"],
    "MNLI/train": [
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse"
        "\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
        "0\t1\t1n\tfiction\t( A )\t( B )\t(R A)\t(R B)\tA\tB\tneutral\tneutral",
        "1\t1\t1e\tfiction\t( A )\t( B )\t(R A)\t(R B)\tA\tC\tentailment\tentailment",
        "2\t1\t1c\tfiction\t( A )\t( B )\t(R A)\t(R B)\tA\tD\tentailment\tcontradiction",
    ],
    "MNLI/dev_matched": [
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse"
        "\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4"
        "\tlabel5\tgold_label",
        "0\t1\t1n\tfiction\t( A )\t( B )\t(R A)\t(R B)\tA\tB\tneutral\tneutral\tneutral\tneutral"
        "\tneutral\tneutral",
        "1\t1\t1n\tfiction\t( A )\t( B )\t(R A)\t(R B)\tA\tB\tneutral\tentailment\tneutral"
        "\tentailment\tcontradiction\t-",
    ],
    "MNLI/test_mismatched": [
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse"
        "\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2",
        "0\t1\t1\tfiction\t( A )\t( B )\t(R A)\t(R B)\tA\tB",
    ],
    "QNLI/train": [
        "index\tquestion\tsentence\tlabel",
        "0\tWho?\tShe did.\tentailment",
        "1\tWho?\tIt rains.\tnot_entailment",
    ],
    "RTE/train": [
        "index\tsentence1\tsentence2\tlabel",
        "0\tA\tB\tnot_entailment",
        "1\tA\tC\tentailment",
    ],
    "WNLI/train": ["index\tsentence1\tsentence2\tlabel", "0\tA\tB\t1", "1\tA\tC\t0"],
    "WNLI/test": ["index\tsentence1\tsentence2", "0\tA\tB"],
}

# (file, inputs, labels)
EXPECTED = [
    ("CoLA/train", ["They left.", "Them left."], [1, 0]),
    ("CoLA/dev", ["They left.", "Them left."], [1, 0]),
    ("CoLA/test", ["They left.", "Them left."], None),
    ("SST-2/train", ['a "fine film ', "no wit "], [1, 0]),
    ("SST-2/test", ["a fine film", "no wit"], None),
    ("MRPC/train", [('He said " go .', "He said go ."), ("A", "B")], [1, 0]),
    ("MRPC/test", [("A", "B")], None),
    ("STS-B/train", [("A dog.", "A cat."), ("A dog.", "A dog.")], [2.5, 5.0]),
    ("STS-B/test", [("A dog.", "A cat.")], None),
    ("QQP/test", [("Why?", "How?")], None),
    ("MNLI/train", [("A", "B"), ("A", "C"), ("A", "D")], [2, 1, 0]),
    ("MNLI/dev_matched", [("A", "B")], [2]),
    ("MNLI/test_mismatched", [("A", "B")], None),
    ("QNLI/train", [("Who?", "She did."), ("Who?", "It rains.")], [0, 1]),
    ("RTE/train", [("A", "B"), ("A", "C")], [1, 0]),
    ("WNLI/train", [("A", "B"), ("A", "C")], [1, 0]),
    ("WNLI/test", [("A", "B")], None),
]


@pytest.fixture
def data_dir(tmp_path):
    for name, lines in FILES.items():
        path = tmp_path / f"{name}.tsv"
        path.parent.mkdir(exist_ok=True)
        # Some of the official files also lack the final newline.
        path.write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("file", "inputs", "labels"), EXPECTED)
def test_official_columns_are_read(data_dir, file, inputs, labels):
    directory, split = file.split("/")
    split_data = read_split(data_dir, directory, split)
    assert split_data.inputs == inputs
    assert (None if labels is None else split_data.labels.tolist()) == labels
    assert split_data.class_names == find_task(directory).class_names
    assert split_data.num_classes == find_task(directory).num_classes


def test_truncated_qqp_rows_are_skipped_with_a_warning(data_dir):
    with pytest.warns(
        UserWarning, match=r"skipped 1 of 3 rows: .*train\.tsv, line 3: .* 4 columns"
    ):
        split_data = read_split(data_dir, "qqp", "train")
    assert split_data.inputs == [("Why?", "How?"), ("", "How?")]
    assert (split_data.labels.tolist(), split_data.skipped) == ([0, 1], 1)


def test_small_files_cover_every_task():
    assert {file.split("/")[0] for file in FILES} == {task.directory for task in TASKS.values()}


def test_class_names_match_file_labels():
    for task in TASKS.values():
        assert len(task.class_names or ()) == len(task.file_labels or ())
        assert task.regression == (task.name == "stsb")


def test_find_task_accepts_any_spelling():
    for name in ("sst2", "SST-2", "sst_2"):
        assert find_task(name).directory == "SST-2"
    with pytest.raises(
        ValueError, match=r"GLUE task must be one of cola, sst2.* Received: 'squad'"
    ):
        find_task("squad")


def test_task_directory_is_accepted_for_its_task_only(data_dir):
    assert len(read_split(data_dir / "RTE", "rte", "train")) == 2
    with pytest.raises(FileNotFoundError, match=r"WNLI/\{train,dev,test\}\.tsv"):
        read_split(data_dir / "RTE", "wnli", "train")


def test_missing_split_raises(data_dir):
    with pytest.raises(
        ValueError, match=r"split of MNLI must be one of train, dev_matc.* Received: 'dev'"
    ):
        read_split(data_dir, "mnli", "dev")
    with pytest.raises(FileNotFoundError, match=r"must be the GLUE download.*no .*SST-2.dev\.tsv"):
        read_split(data_dir, "sst2", "dev")


@pytest.mark.parametrize(
    ("name", "num_train", "num_dev", "positive"),
    [
        ("sst2", 67_349, 872, 444),
        ("cola", 8_551, 1_043, 721),
        ("mrpc", 3_667, 408, 279),
        ("rte", 2_490, 277, 131),
        ("stsb", 5_749, 1_500, None),
    ],
)
def test_full_glue_files_are_read(name, num_train, num_dev, positive):
    data = Path(os.environ.get("KERAS_BERT_DATA", "") or "/nonexistent", "glue")
    if not data.is_dir():
        pytest.skip("KERAS_BERT_DATA does not point to real data")
    train, dev = (read_split(data, name, split) for split in ("train", "dev"))
    assert (len(train), len(dev)) == (num_train, num_dev)
    assert train.skipped == dev.skipped == 0
    assert all(text.strip() for text in train.texts)
    if positive is None:
        assert (train.labels.min(), train.labels.max()) == (0, 5)
    else:
        assert np.sum(dev.labels == 1) == positive
