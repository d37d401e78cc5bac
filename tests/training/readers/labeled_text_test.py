# SPDX-License-Identifier: Apache-2.0
"""Reads labeled text in each format. Errors include the file and the line."""

import gzip
import json

import numpy as np
import pytest

from training.readers.data_files import MissingColumnError
from training.readers.labeled_text import TextColumns, read_labeled_text

pytestmark = pytest.mark.backend_independent

REVIEWS = ["a gripping film", "no, thanks", 'he said "no']


def read_text(path, class_names=None, labeled=True, bad=None, **columns):
    return read_labeled_text(path, TextColumns(**columns), class_names, labeled=labeled, bad=bad)


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "reviews.tsv",
            'label\ttext\ngood\ta gripping film\nbad\tno, thanks\nbad\the said "no\n',
        ),
        (
            "reviews.csv",
            'label,text\ngood,a gripping film\nbad,"no, thanks"\nbad,"he said ""no"\n',
        ),
        (
            "reviews.jsonl",
            '{"text": "a gripping film", "label": "good"}\n'
            '{"label": "bad", "text": "no, thanks", "more": [1]}\n'
            '{"text": "he said \\"no", "label": "bad"}\n',
        ),
    ],
)
@pytest.mark.parametrize("quirk", ["plain", "bom_crlf", "blank_lines", "no_final_newline", "gzip"])
def test_all_formats_read_the_same(write, name, content, quirk):
    data = content.encode()
    if quirk == "bom_crlf":
        data = b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")
    elif quirk == "blank_lines":
        data = data.replace(b"\n", b"\n\n  \n")
    elif quirk == "no_final_newline":
        data = data.rstrip(b"\n")
    elif quirk == "gzip":
        name, data = f"{name}.gz", gzip.compress(data)
    read = read_text(write(name, data))
    assert read.texts == REVIEWS
    assert read.text_pairs is None
    assert read.labels.dtype == np.int32
    assert read.labels.tolist() == [1, 0, 0]
    assert read.class_names == ("bad", "good")
    assert (len(read), read.num_classes, read.skipped) == (3, 2, 0)
    assert read.inputs == REVIEWS


def test_columns_are_selected_by_number(write):
    path = write("pairs.tsv", "x\tno\ta\tb\ny\tyes\tc\td\n")
    read = read_text(path, text="2", text_pair="3", label="1")
    assert read.inputs == [("a", "b"), ("c", "d")]
    assert read.class_names == ("no", "yes")


def test_csv_lines_are_counted_with_quoted_newlines(write):
    path = write("a.csv", 'text,label\n"one\n\ntwo",x\nthree,y\nfour\n')
    with pytest.raises(
        ValueError, match=r"a\.csv, line 6: .* 2 columns\. Received: 1 columns, .*'four'"
    ):
        read_text(path)
    path = write("b.csv", 'text,label\n"one\n\ntwo",x\nthree,y\n')
    assert read_text(path).texts == ["one\n\ntwo", "three"]


def test_unicode_line_separators_are_text(write):
    # `str.splitlines` would split at a form feed, a next-line and a line separator.
    path = write("a.tsv", "text\tlabel\none\x0ctwo\x85three\u2028four\tx\nfive\ty\n")
    assert read_text(path).texts == ["one\x0ctwo\x85three\u2028four", "five"]


QUOTED = 'text\tlabel\n"he said ""no"""\tx\nfive inches\ty\n'


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (QUOTED, ['he said "no"', "five inches"]),
        (QUOTED.replace("\n", "\r\n"), ['he said "no"', "five inches"]),
        ('text\tlabel\n"a\tb"\tx\n"c\r\n\nd"\ty\n', ["a\tb", "c\r\n\nd"]),
        ('"text"\t"label"\n"a"\t"x"\n""\t"y"\n', ["a", ""]),
        ('text\tlabel\n"a" or "b"\tx\nc "\ty\n', ['"a" or "b"', 'c "']),
        # One row starts with a quote, and the next ends with a quote.
        ('text\tlabel\n"a\tx\nb\ty"\n', ['"a', "b"]),
    ],
)
def test_tsv_quotes_enclose_cells_or_are_text(write, content, texts):
    assert read_text(write("a.tsv", content), allow_empty=True).texts == texts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('text\tlabel\n"a"\tx\nb\ty\n', r"a\.tsv: 1 cells are in double quotes, which may be"),
        ('text\tlabel\n"\tx\nb ""\ty\nc"\tx\n', r"a\.tsv: 1 cells are in double quotes, which may"),
        (QUOTED.replace("five inches", '5" disk'), r"in 1 lines, such as line 2, quotes"),
    ],
)
def test_ambiguous_tsv_quotes_are_text_with_a_warning(write, content, message):
    path = write("a.tsv", content)
    with pytest.warns(UserWarning, match=rf"{message}.*--quoting=none .* --quoting=csv"):
        read = read_text(path)
    assert read.texts[0] == content.split("\n")[1].split("\t")[0]
    assert read_text(path, quoting="none").texts == read.texts
    if "disk" in content:
        assert read_text(path, quoting="csv").texts == ['he said "no"', '5" disk']


def test_long_cell_is_read(write):
    long_text = "word " * 40_000
    assert read_text(write("a.csv", f"text,label\n{long_text},x\nb,y\n")).texts[0] == long_text


def test_only_trailing_blank_rows_are_ignored(write):
    for name, separator in {"a.tsv": "\t", "a.csv": ","}.items():
        path = write(name, "text|label\na|x\nb|y\n|\n \n| \n".replace("|", separator))
        assert read_text(path).texts == ["a", "b"]
        unlabeled = read_text(path, labeled=False, allow_empty=True)
        assert unlabeled.texts == ["a", "b", "", ""]
        with pytest.raises(ValueError, match="line 4: text must not be empty"):
            read_text(path, labeled=False)
        path = write(name, "text|label\na|x\n|\nb|y\n".replace("|", separator))
        with pytest.raises(ValueError, match="line 3: the label must not be empty"):
            read_text(path)


def test_ids_are_read(write):
    path = write("a.csv", "id,text,label\n7,a,x\n,b,y\n")
    read = read_text(path)
    assert (read.ids, read.rows([1, 0]).ids) == (["7", None], [None, "7"])
    rows = ({"id": id, "text": "a", "label": id} for id in (7, "x", {"$oid": 1}))
    path = write(
        "a.jsonl", "\n".join(json.dumps({**row, "label": n}) for n, row in enumerate(rows))
    )
    assert read_text(path).ids == ["7", "x", '{"$oid": 1}']


def test_numeric_class_names_sort_as_numbers(write):
    path = write("a.tsv", "text\tlabel\na\t10\nb\t9\nc\t-1\n")
    assert read_text(path).class_names == ("-1", "9", "10")
    path = write("b.jsonl", '{"text": "a", "label": true}\n{"text": "b", "label": 2}\n')
    assert read_text(path).class_names == ("2", "true")


def test_dev_file_uses_the_training_classes(write):
    path = write("dev.tsv", "text\tlabel\na\tc\nb\ta\n")
    read = read_text(path, class_names=("a", "b", "c"))
    assert read.labels.tolist() == [2, 0]
    assert read.num_classes == 3
    with pytest.raises(
        ValueError, match=r"dev\.tsv, line 2: .* one of \['a', 'b'\]\. Received: 'c'$"
    ):
        read_text(path, class_names=("a", "b"))


def test_regression_labels_are_finite_numbers(write):
    read = read_text(write("a.tsv", "text\tlabel\na\t2.5\nb\t-1e-1\n"), regression=True)
    assert read.labels.dtype == np.float32
    np.testing.assert_allclose(read.labels, [2.5, -0.1], rtol=1e-6)
    assert (read.class_names, read.num_classes) == (None, 1)
    for value in ("nan", "inf", "high", "1_0", "1e39", "\uff11"):
        path = write("b.tsv", f"text\tlabel\na\t2.5\nb\t{value}\n")
        with pytest.raises(
            ValueError, match=rf"line 3: the label must be a finite .*Received: '{value}'"
        ):
            read_text(path, regression=True)


def test_unlabeled_text_is_read(write):
    read = read_text(write("a.tsv", "id\ttext\n1\ta\n"), labeled=False, class_names=("n", "y"))
    assert read.labels is None
    assert (read.texts, read.class_names) == (["a"], ("n", "y"))


@pytest.mark.parametrize(
    ("header", "content"),
    [
        ("auto", "text\tlabel\na\tx\nb\ty\n"),  # The header has a common column name.
        ("auto", "body\tverdict\na\t1\nb\t0\n"),  # Only the first label is not a number.
        ("auto", "a\tx\nb\ty\n"),
        ("yes", "whatever\tx\na\tx\nb\ty\n"),
        ("no", "a\tx\nb\ty\n"),
    ],
)
def test_header_with_numbered_columns(write, header, content):
    read = read_text(write("a.tsv", content), text="0", label="1", header=header)
    assert read.texts == ["a", "b"]


def test_header_no_error_suggests_header_yes(write):
    path = write("a.tsv", "text\tlabel\na\t1.0\nb\t0.5\n")
    for regression in (False, True):
        with pytest.raises(ValueError, match=r"line 1: the label 'label' .* Pass --header=yes"):
            read_text(path, text="0", label="1", header="no", regression=regression)
    path = write("b.tsv", "body\tverdict\na\tx\nb\ty\n")
    with pytest.raises(ValueError, match=r"Received: 'verdict'.* first line is a header"):
        read_text(path, text="0", label="1", header="no", class_names=("x", "y"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"text": "body"},
            r"line 1: text must be a column in the first row\. Received: column 'body' and .*"
            r"\['text', 'label', 'label2'\]",
        ),
        (
            {"text": "body", "header": "no"},
            "text must be an index from 0 with --header=no. Received: column 'body'",
        ),
        ({"text": "3", "label": "1"}, "text must be a column from 0 to 2. Received: 3"),
    ],
)
def test_missing_column_raises(write, arguments, message):
    path = write("a.tsv", "text\tlabel\tlabel2\na\tx\t1\nb\ty\t2\n")
    with pytest.raises(MissingColumnError, match=message):
        read_text(path, **arguments)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.tsv",
            "text\tlabel\na\tx\nb\ty\tz\n",
            "line 3: each row must have 2 columns. Received: 3 columns",
        ),
        ("a.tsv", "text\tlabel\na\tx\nb\t \n", "line 3: the label must not be empty. .* text 'b'"),
        ("a.tsv", "text\tlabel\na\tx\n\u200b\ty\n", "line 3: text must not be empty"),
        ("a.tsv", "text,label\na,x\n", r"\['text,label'\], a single cell .*\. Pass --format=csv"),
        ("a.csv", "text\tlabel\na\tx\n", r"a single cell that looks like tsv\. Pass --format=tsv"),
        (
            "a.tsv",
            "text\ttext\tlabel\na\tb\tx\n",
            "line 1: column names must be unique. Received: 'text'",
        ),
        (
            "a.tsv",
            b"text\tlabel\nna\xc3\xafve\tx\ncaf\xe9\ty\n",
            "line 3: the file must be UTF-8. Received: bytes e9 .* CP1252",
        ),
        ("a.tsv", "text\tlabel\n", "a.tsv must have at least one valid row"),
        ("a.tsv", "", "a.tsv must not be empty"),
        (
            "a.tsv",
            "text\tlabel\na\tx\nb\tx\n",
            "two or more classes. Received: only 'x', in 2 rows",
        ),
        (
            "a.csv",
            'text,label\na,x\n"b,y\nc,x\n',
            "line 3: the row that starts here must be valid CSV",
        ),
        (
            "a.csv.gz",
            gzip.compress(b"text,label\na,x\n" * 99, mtime=0)[:40],
            "cannot be read past line",
        ),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', "line 2: label must be a field"),
        ("a.jsonl", '{"text": "a", "label": null}\n', "line 1: the label must not be empty"),
        (
            "a.jsonl",
            '{"text": "a", "label": Infinity}\n',
            "line 1: label must be a finite",
        ),
        ("a.jsonl", '{"text": "a", "label": [1]}\n', "line 1: label must be a str"),
        ("a.jsonl", '{"text": 7, "label": 1}\n', "line 1: text must be a string"),
        ("a.jsonl", '\n"a"\n', "line 2: each row must be a JSON object. Received: a str"),
        (
            "a.jsonl",
            '{"text": "a", "text": "b"}\n',
            "line 1: .* names must be unique. Received: 'text'",
        ),
        (
            "a.jsonl",
            '{"text": "\\ud83d", "label": 1}\n',
            "line 1: 'text' must not contain an unpaired",
        ),
        ("a.jsonl", '{"text": ' + "[" * 200_000, "line 1: cannot be read: nested too deeply"),
        ("a.json", '[{"text": "a",\n"label": 1},\n{"text": }]', "line 3: not JSON: Expecting"),
        (
            "a.json",
            '[{"text": "a", "label": 1}]\n{',
            "line 2: not JSON: Extra data at position 0",
        ),
        (
            "a.json",
            '[{"text": "a", "label": {"b": 1}}]',
            "Received: a dict. Pass one of its fields, label.NAME",
        ),
        (
            "a.json",
            '[{"text": "a", "labels": {"b": 1}}]',
            r"an object with \['labels', 'labels.b', 'text'\]",
        ),
        ("a.txt", "text,label\na,x\n", r"the suffix of .* must be one of .* Received: '\.txt'"),
    ],
)
def test_error_includes_the_place(write, name, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_text(write(name, content))
    assert name in str(caught.value)


def test_json_array_and_nested_fields_are_read(write):
    rows = '{"body": {"text": "%s"}, "labels": [{"label": "%s"}]}'
    content = f"[\n{rows % ('a', 'x')},\n\n {rows % ('b', 'y')}\n]\n"
    for name in ("a.jsonl", "a.json"):
        read = read_text(write(name, content), text="body.text", label="labels.0.label")
        assert (read.texts, read.labels.tolist()) == (["a", "b"], [0, 1])
    with pytest.raises(MissingColumnError, match="row 1: label must be a field"):
        read_text(write("a.json", content), text="body.text")


def test_carriage_return_ends_a_line(write):
    for name, separator in {"a.tsv": "\t", "a.csv": ","}.items():
        content = f"text|label\r{'a' * 9}|x\rb|y\r".replace("|", separator)
        assert read_text(write(name, content)).texts == ["a" * 9, "b"]
    rows = "\r".join(json.dumps({"text": "a", "label": label}) for label in (0, 0, 1))
    assert len(read_text(write("a.jsonl", rows))) == 3


def test_error_truncates_long_values(write):
    long_text = "word " * 200_000
    for name, content, arguments in [
        ("a.tsv", f"{long_text}\tb\r{long_text}\tc", {}),
        ("a.tsv", f"text\tlabel\na\t{long_text}\n", {"regression": True}),
        ("a.tsv", f"text\tlabel\na\t{long_text}\n", {"class_names": ["b" * 1000]}),
        ("a.tsv", f"text\tlabel\na\t{long_text}\n", {}),
        ("a.tsv", f"text\tlabel\n{long_text}\n", {}),
        ("a.jsonl", f'{{"{long_text}": 1}}\n', {}),
        ("a.jsonl", '{"text": "a", "label": 1}' + long_text, {}),
    ]:
        with pytest.raises(ValueError, match=name) as caught:
            read_text(write(name, content), **arguments)
        assert len(str(caught.value)) < 800


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["1", "1.0", "2", "1"], r"a\.tsv: '1' \(2 rows\) and '1.0' \(1 rows\) are read as diff"),
        (["pos", "Pos", "neg"], r"'pos' \(1 rows\) and 'Pos' \(1 rows\) are read as"),
        (
            ["pos", "nan", "nan", "neg"],
            r"2 rows have the label 'nan'\. .* --skip_labels=nan skips",
        ),
        (["pos", "-", "neg"], r"1 rows have the label '-'\. .* --skip_labels=- skips such"),
        (
            [f"id {n}" for n in range(20)],
            "20 rows have 20 classes. Check that --label is the right column",
        ),
        (
            ["yes", "yes\u200b", "no"],
            r"'yes' .* and 'yes\\u200b' \(1 rows\) are read as",
        ),
        (["4,27", "3,5", "4"], r"labels such as '4,27' look like numbers with a decimal comma"),
        ([f"{n / 10}" for n in range(12)] * 3, "36 rows have 12 classes. Check .*--regression"),
        (["a", "b", "a, b", "b,a"], r"2 rows have a label that consists of other labels.* 'a, b'"),
        (["['a', 'b']", "['a']", "['b', 'c']", "['c']"], "2 rows have a label that consists of"),
    ],
)
def test_suspicious_labels_warn(write, labels, message):
    path = write("a.tsv", "text\tlabel\n" + "".join(f"a\t{label}\n" for label in labels))
    with pytest.warns(UserWarning, match=message):
        assert len(read_text(path)) == len(labels)


def test_possible_header_warns(write):
    path = write("a.tsv", "body\tverdict\n" + "a\tx\nb\ty\n" * 3)
    with pytest.warns(UserWarning, match=r"a\.tsv: .* 'verdict', occurs in no other row.*=yes"):
        read = read_text(path, text="0", label="1")
    assert read.class_names == ("verdict", "x", "y")
    assert len(read_text(path, text="0", label="1", header="yes")) == 6
    assert len(read_text(path, text="0", label="1", header="no")) == 7


def test_header_of_unlabeled_text_is_recognized(write):
    path = write("a.tsv", "review\tstars\na\t5\n")
    assert read_text(path, text="0", labeled=False).texts == ["a"]


def test_allow_empty_accepts_empty_text(write):
    read = read_text(write("a.tsv", "text\tlabel\n\tx\nb\ty\n"), allow_empty=True)
    assert read.texts == ["", "b"]


def test_equal_json_and_string_labels_warn(write):
    rows = [{"text": "a", "label": label} for label in (True, "true", "no", 1)]
    path = write("a.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.warns(
        UserWarning, match='a.jsonl: the labels true and "true" are read as the same'
    ):
        assert read_text(path).class_names == ("1", "no", "true")


def test_skip_labels_omits_rows(write):
    path = write("a.tsv", "id\ttext\tlabel\n1\ta\tx\n2\tb\t-\n3\tc\ty\n\td\t\n5\te\tx\n")
    read = read_text(path, skip_labels=("-", "null"))
    assert (read.texts, read.class_names, read.skipped) == (["a", "c", "e"], ("x", "y"), 0)
    assert (read.ids, read.left_out) == (["1", "3", "5"], {1: "2", 3: None})
    with pytest.raises(ValueError, match=r"line 3: .* Received: '-'\. --skip_labels=- skips"):
        read_text(path, class_names=("x", "y"), skip_labels=("null",))
    # Together with "+", "-" is a class.
    path = write("b.tsv", "text\tlabel\na\t+\nb\t-\n")
    assert read_text(path).class_names == ("+", "-")


def test_unknown_format_raises(write):
    path = write("a.tsv", "text\tlabel\na\t1\nb\t2\n")
    with pytest.raises(ValueError, match=r"--format must be tsv, .*\. Received: 'xml'"):
        read_text(path, format="xml")


@pytest.mark.parametrize(
    ("name", "content", "label"),
    [
        ("lists.tsv", 'text\tlabel\na\t["x, 1", "y"]\nb\t[]\nc\t["y"]\n', "label"),
        ("pandas.csv", "text,label\na,\"['x', 'y']\"\nb,[]\nc,['y']\n", "label"),
        ("names.tsv", "text\tlabel\na\tx; y\nb\t\nc\ty\n", "label"),
        ("columns.csv", "text,x,y\na,1,1.0\nb,0,0\nc,0,1\n", "x,y"),
        ("lists.jsonl", [{"label": ["x", "y"]}, {"label": []}, {"label": ["y"]}], "label"),
        ("columns.jsonl", [{"x": 1, "y": True}, {"x": 0, "y": False}, {"x": 0, "y": 1}], "x,y"),
    ],
)
def test_multi_label_formats_are_read(write, name, content, label):
    if isinstance(content, list):
        rows = [{"text": text, **row} for text, row in zip("abc", content, strict=True)]
        content = "\n".join(map(json.dumps, rows))
    data = read_text(write(name, content), label=label, multi_label=True)
    x = "x, 1" if name == "lists.tsv" else "x"
    assert (data.class_names, data.labels.tolist()) == ((x, "y"), [[1, 1], [0, 0], [0, 1]])
    assert data.counts() == {"rows": 3, x: 1, "y": 2}
    assert (data.strata, data.shown_labels) == ([0, -1, 1], [f"{x}, y", "", "y"])


@pytest.mark.parametrize(
    "cells",
    [
        ["[1, 0, 1]", "[0, 0, 0]", "[0, 0, 1]"],
        ["[1.0, 0.0, 1.0]", "[0.0, 0.0, 0.0]", "[0.0, 0.0, 1.0]"],
        ["[true, false, true]", "[]", "[false, false, true]"],
        ["[1 0 1]", "[0 0 0]", "[0 0 1]"],
        ["[1. 0. 1.]", "[0. 0. 0.]", "[0. 0. 1.]"],
        ["1;0;1", "", "0;0;1"],
    ],
)
def test_multi_hot_lists_are_read(write, cells):
    lines = [f'{text},"{cell}"' for text, cell in zip("abc", cells, strict=True)]
    path = write("flags.csv", "\n".join(["text,label", *lines, ""]))
    labels = [[1, 0, 1], [0, 0, 0], [0, 0, 1]]
    for names in (None, ("x", "y", "z")):
        data = read_text(path, multi_label=True, class_names=names)
        assert data.class_names == (names or ("0", "1", "2"))
        assert data.labels.tolist() == labels
    with pytest.raises(ValueError, match=r"one value of 0 or 1 for each .* Received: 3 values"):
        read_text(path, multi_label=True, class_names=("x", "y"))


def test_zero_and_one_may_be_class_names(write):
    path = write("ids.csv", 'text,label\na,"[0]"\nb,"[1, 0]"\nc,"[1]"\n')
    assert read_text(path, multi_label=True).labels.tolist() == [[1, 0], [1, 1], [0, 1]]
    path = write("odd.csv", 'text,label\na,"[0, 0, 1]"\nb,"[1, 0]"\nc,"[1, 0, 0]"\n')
    with pytest.raises(ValueError, match=r"line 3: each row must have 3 values .* Received: 2"):
        read_text(path, multi_label=True)


def test_invalid_multi_labels_raise(write):
    path = write("rows.csv", 'text,label,y,z\na,x,1,0\nb,"w,x",1,2\n')
    with pytest.raises(ValueError, match=r"line 3: labels must be among \['x'\]\. Received: 'w'"):
        read_text(path, multi_label=True, class_names=["x"])
    with pytest.raises(ValueError, match="line 3: z must be 0 or 1"):
        read_text(path, label="y,z", multi_label=True)


# The first row of data sets, the given flags, and the columns that are read
COLUMNS = {
    "KLUE-NLI": (
        {"guid": "0", "premise": "a", "hypothesis": "b", "gold_label": "x", "label5": "y"},
        {},
        ("premise", "hypothesis", "gold_label"),
    ),
    "KLUE-STS": (
        {"sentence1": "a", "sentence2": "b", "labels": {"real-label": 3.7, "binary-label": 1}},
        {"regression": True},
        ("sentence1", "sentence2", "labels.real-label"),
    ),
    "KLUE-STS, classes": (
        {"sentence1": "a", "sentence2": "b", "labels": {"real-label": 3.7, "binary-label": 1}},
        {"text_pair": "text_pair"},
        ("sentence1", "sentence2", "labels.binary-label"),
    ),
    "YNAT": (
        {"guid": "0", "title": "a", "label": "x", "annotations": {"annotators": ["1"]}},
        {},
        ("title", "", "label"),
    ),
    "NSMC": ({"id": "0", "document": "a", "label": 1}, {}, ("document", "", "label")),
    "QNLI": ({"question": "a", "sentence": "b", "label": 1}, {}, ("question", "sentence", "label")),
    "KorSTS": (
        {"genre": "a", "score": "5.000", "sentence1": "a", "sentence2": "b"},
        {"regression": True},
        ("sentence1", "sentence2", "score"),
    ),
    "one text given": (
        {"premise": "a", "hypothesis": "b", "gold_label": "x"},
        {"text": "premise"},
        ("premise", "", "gold_label"),
    ),
    "second text given": (
        {"premise": "a", "hypothesis": "b", "sentence1": "a", "sentence2": "b", "label": 1},
        {"text_pair": "hypothesis"},
        ("premise", "hypothesis", "label"),
    ),
    "default names": ({"text": "a", "document": "b", "label": 1, "score": 2}, {}, None),
    "no header": ({"document": "b", "score": 2}, {"header": "no"}, None),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_usual_columns_are_found(tmp_path, name):
    record, flags, expected = COLUMNS[name]
    path = tmp_path / "a.jsonl"
    path.write_text(f"[{json.dumps(record)}]")
    columns = TextColumns(**flags)
    found = columns.for_file(str(path))
    if expected is None:
        assert found == columns
    else:
        assert (found.text, found.text_pair, found.label) == expected


def test_validation_file_may_have_other_columns(tmp_path):
    train, dev = TextColumns("sentence1", "sentence2"), tmp_path / "dev.csv"
    for header, expected in {
        "premise,hypothesis,gold_label": ("premise", "hypothesis", "gold_label"),
        "sentence1,sentence2,label,premise": ("sentence1", "sentence2", "label"),
        "premise,hypothesis,Label": ("premise", "hypothesis", "label"),
        "text,label": ("sentence1", "sentence2", "label"),  # A single text is no pair.
    }.items():
        dev.write_text(f"{header}\n{header}\n")
        found = train.for_other_file(str(dev))
        assert (found.text, found.text_pair, found.label) == expected


@pytest.mark.parametrize(
    ("header", "candidates"),
    [
        ("text,category,rating", "label must be clear. Received: the columns category, rating"),
        ("review,comment,label", "text must be clear. Received: the columns review, comment"),
        (
            "premise,hypothesis,sentence1,sentence2",
            "premise and hypothesis. Pass --text and --text_p",
        ),
    ],
)
def test_equally_usual_columns_are_an_error(tmp_path, header, candidates):
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n{header}\n")
    with pytest.raises(ValueError, match=rf"a\.csv: the column of the .*{candidates}"):
        TextColumns().for_file(str(path))
