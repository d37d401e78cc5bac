# SPDX-License-Identifier: Apache-2.0
"""Reads compressed files, and files from Excel, SICK, Parquet, Arrow and `datasets`."""

import bz2
import json
import lzma
import zipfile

import openpyxl
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from training.pretraining.tokenizer_source import make_tokenizer
from training.readers import trec_files
from training.readers.choice_files import read_choices
from training.readers.data_files import exists, infer_format, read_columns, read_records
from training.readers.labeled_text import TextColumns, read_labeled_text
from training.readers.question_files import read_questions
from training.readers.row_values import BadRows
from training.readers.tagged_words import WordColumns
from training.readers.task_files import task_of_file
from training.scores.question_scores import read_gold

pytestmark = pytest.mark.backend_independent

ROWS = "text,label\ngood; really,pos\nbad,neg\n"
EXPECTED = (["good; really", "bad"], [1, 0], ("neg", "pos"))
CLASS_NUMBER = "label must be a class ID from 0 to 1, or -1"


def read_text(path, labeled=True, bad=None, **columns):
    return read_labeled_text(path, TextColumns(**columns), labeled=labeled, bad=bad)


def read(path, **arguments):
    data = read_text(path, **arguments)
    return data.texts, data.labels.tolist(), data.class_names


def compress_zstandard(content):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("bz2", bz2.compress), ("xz", lzma.compress), ("zst", compress_zstandard)],
)
def test_compressed_files_are_read(suffix, compress, tmp_path):
    path = tmp_path / f"a.csv.{suffix}"
    path.write_bytes(compress(ROWS.encode()))
    assert read(path) == EXPECTED
    path.write_bytes(compress(ROWS.encode() * 99)[:-20])
    with pytest.raises(ValueError, match=rf"a\.csv\.{suffix}: cannot be read past line"):
        read(path)


@pytest.mark.parametrize(
    "content",
    [
        'text;label\n"good; really";pos\nbad;neg\n'.encode("utf-8-sig"),
        b'"text";"label"\r\n"good; really";"pos"\r\n"bad";"neg"\r\n',
        b"sep=|\r\ntext|label\r\ngood; really|pos\r\nbad|neg\r\n",
        'text;label\n"good; really";pos\nbad;neg\n'.encode("utf-16"),
        ROWS.encode(),
    ],
)
def test_csv_from_excel_is_read(content, tmp_path):
    (tmp_path / "a.csv").write_bytes(content)
    assert read(tmp_path / "a.csv") == EXPECTED


def test_error_line_counts_the_sep_line(tmp_path):
    (tmp_path / "a.csv").write_text('sep=;\ntext;label\n"a\nb";x\nc\n')
    with pytest.raises(
        ValueError, match=r"a\.csv, line 5: .* 2 columns\. Received: 1 columns, .* 'c'"
    ):
        read(tmp_path / "a.csv")


def test_semicolon_in_single_column_is_text(tmp_path):
    (tmp_path / "a.csv").write_text("Hello; world\nNo; no\n")
    rows, _ = read_columns(tmp_path / "a.csv", "csv", {"text": "0"}, "no")
    assert [row.cells["text"] for row in rows] == ["Hello; world", "No; no"]


def test_windows_1252_is_read_with_a_warning(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("text;label\nun café;pos\nŒuvre – à l’œil;neg\n".encode("cp1252"))
    with pytest.warns(UserWarning, match="read as Windows-1252, in which line 2 is 'un café;pos'"):
        assert read(path)[0] == ["un café", "Œuvre – à l’œil"]
    # UTF-8 with one invalid byte, and Windows-1251
    for content in ("text,label\nnaïve,x\nna\x00ve,y\n", "text,label\nПривет,x\n"):
        encoding = "utf-8" if "ï" in content else "cp1251"
        path.write_bytes(content.encode(encoding).replace(b"\0", b"\xef"))
        with pytest.raises(
            ValueError, match=r"a\.csv, line [23]: the file must be UTF-8. Received: bytes "
        ):
            read(path)


# Files with Korean text, and how to read them in an encoding
ENCODED = {
    "a.csv": (
        "text,label\n참 좋다,긍정\n별로다,부정\n",
        lambda path, encoding: read_text(path, encoding=encoding).inputs,
    ),
    "b.json": (
        '[\n{"text": "참 좋다", "label": "긍정"}, {"text": "별로다", "label": "부정"}]',
        lambda path, encoding: read_text(path, encoding=encoding).inputs,
    ),
    "b.conll": (
        "서울 B-LOC\n간다 O\n",
        lambda path, encoding: WordColumns(encoding=encoding).read_words(path).words,
    ),
    "words.csv": (
        "Sentence,Word,Tag\n가,서울,B-LOC\n나,간다,O\n",
        lambda path, encoding: WordColumns(encoding=encoding).read_words(path).words,
    ),
    "sentences.txt": (
        "서울 간다\tB-LOC O\n",
        lambda path, encoding: WordColumns(encoding=encoding).read_words(path).words,
    ),
    "codah.tsv": (
        "범주\t문장\t하나\t둘\t1\n",
        lambda path, encoding: read_choices(path, "codah", encoding=encoding).inputs,
    ),
    "squad.json": (
        '{"data": [{"paragraphs": [{"context": "서울", "qas": [{"id": "1", '
        '"question": "어디?", "answers": [{"text": "서울", "answer_start": 0}]}]}]}]}',
        lambda path, encoding: (
            read_questions(path, encoding=encoding).examples,
            read_gold(path, encoding).questions,
            task_of_file(path, encoding=encoding).name,
        ),
    ),
    "qrels.tsv": ("질의 1 1\n", lambda path, encoding: trec_files.read_qrels(path, encoding)),
    "corpus.txt": (
        "서울은 수도다.\n부산은 항구다.\n",
        lambda path, encoding: (
            make_tokenizer("wordpiece", [path], 90, encoding=encoding).vocabulary
        ),
    ),
}


@pytest.mark.parametrize("name", list(ENCODED))
def test_each_reader_has_an_encoding(tmp_path, name):
    content, read = ENCODED[name]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    expected = read(path, "utf-8")
    path.write_text(content, encoding="cp949")
    assert read(path, "cp949") == expected
    with pytest.raises(ValueError, match=r"the file must be UTF-8\. Received: bytes"):
        read(path, "utf-8")


def test_first_excel_sheet_is_read(tmp_path):
    book = openpyxl.Workbook()
    for row in (["text", "label", "id"], ["a", 1, None], ["b", 2.5, "x"], [True, 1, None]):
        book.active.append(row)
    # This cell has a format but no value.
    book.active.cell(row=9, column=5).font = openpyxl.styles.Font(bold=True)
    book.save(tmp_path / "a.xlsx")
    data = read_text(tmp_path / "a.xlsx")
    assert (data.texts, data.labels.tolist()) == (["a", "b", "TRUE"], [0, 1, 0])
    assert (data.class_names, data.ids) == (("1", "2.5"), [None, "x", None])
    book.active["B3"] = None
    book.create_sheet("more")
    book.save(tmp_path / "a.xlsx")
    with (
        pytest.warns(UserWarning, match="has 2 sheets. Only the first sheet, 'Sheet', is read"),
        pytest.raises(ValueError, match=r"a\.xlsx, row 3: the label must not be empty"),
    ):
        read(tmp_path / "a.xlsx")


def write_altered_xlsx(path, change):
    """Writes an Excel file with altered sheet XML."""
    book = openpyxl.Workbook()
    for row in (["text", "label"], ["a", 1], ["b", 0], ["c", 1]):
        book.active.append(row)
    book.save(path)
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, change(content) if "sheet1.xml" in name else content)


def test_excel_rows_outside_the_dimension_are_read(tmp_path):
    write_altered_xlsx(tmp_path / "a.xlsx", lambda sheet: sheet.replace(b'"A1:B4"', b'"A1:B2"'))
    assert read(tmp_path / "a.xlsx")[0] == ["a", "b", "c"]


def test_damaged_excel_files_raise(tmp_path):
    write_altered_xlsx(tmp_path / "cut.xlsx", lambda sheet: sheet[:400])
    book = openpyxl.Workbook()
    book.save(tmp_path / "flipped.xlsx")
    content = bytearray((tmp_path / "flipped.xlsx").read_bytes())
    with zipfile.ZipFile(tmp_path / "flipped.xlsx") as file:
        content[file.getinfo("xl/worksheets/sheet1.xml").header_offset + 60] ^= 255
    (tmp_path / "flipped.xlsx").write_bytes(content)
    (tmp_path / "text.xlsx").write_text("text,label\n")
    for name in ("cut.xlsx", "flipped.xlsx", "text.xlsx"):
        with pytest.raises(ValueError, match=rf"{name} cannot be read as an Excel file"):
            read(tmp_path / name)


def test_sick_is_read(tmp_path):
    path = tmp_path / "SICK_train.txt"
    path.write_text(
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        "1\tA man sings\tNobody sings\t3.5\tCONTRADICTION\n"
        "2\tA man sings\tA person sings\t4.7\tENTAILMENT\n"
    )
    pair = {"text": "sentence_A", "text_pair": "sentence_B"}
    data = read_text(path, **pair, label="entailment_judgment")
    assert data.inputs[0] == ("A man sings", "Nobody sings")
    assert data.class_names == ("CONTRADICTION", "ENTAILMENT")
    scores = read_text(path, **pair, label="relatedness_score", regression=True)
    assert scores.labels.tolist() == pytest.approx([3.5, 4.7])
    assert infer_format(path) == "tsv"


def class_table(labels, names=("neg", "pos")):
    features = {"text": {"dtype": "string"}, "label": {"names": names, "_type": "ClassLabel"}}
    table = pa.table({"text": [f"text {n}" for n in range(len(labels))], "label": labels})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return table.replace_schema_metadata(metadata)


def write_arrow(path, table):
    path.parent.mkdir(parents=True, exist_ok=True)
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def test_parquet_class_names_are_read(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(class_table([1, 0, 1]), path)
    assert read(path) == (["text 0", "text 1", "text 2"], [1, 0, 1], ("neg", "pos"))
    with pytest.raises(
        ValueError, match=r"row 1: text must be a field .* field 'body' .* 'text'\]"
    ):
        read(path, text="body")
    parquet.write_table(class_table([1, -1, 0]), path)
    with pytest.raises(ValueError, match=r"a\.parquet, row 2: the label must not be empty"):
        read(path)
    # The file is a test set without labels.
    parquet.write_table(class_table([-1, -1]), path)
    assert [record for _, record in read_records(path)] == [{"text": "text 0"}, {"text": "text 1"}]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"a\.parquet cannot be read"):
        read(path)


def test_datasets_directory_is_read(tmp_path):
    for split, labels in {"train": [1, 0, 1], "test": [0, 1]}.items():
        directory = tmp_path / "saved" / split
        for number, part in enumerate((labels[:2], labels[2:])):
            write_arrow(directory / f"data-{number:05}-of-00002.arrow", class_table(part))
        write_arrow(directory / "cache-0123.arrow", class_table([1]))
        files = [{"filename": f"data-{number:05}-of-00002.arrow"} for number in range(2)]
        (directory / "state.json").write_text(json.dumps({"_data_files": files}))
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert read(tmp_path / "saved" / "train")[1] == [1, 0, 1]
    assert infer_format(tmp_path / "saved") == "arrow"
    with pytest.raises(
        ValueError, match=r"saved must have a single split\. Received: test, train\."
    ):
        read(tmp_path / "saved")


def test_class_number_out_of_range_raises(tmp_path):
    path = tmp_path / "a.parquet"
    for label in (2, -2):
        parquet.write_table(class_table([1, label]), path)
        with pytest.raises(ValueError, match=rf"row 2: {CLASS_NUMBER}\. Received: {label}$"):
            read(path)
    for metadata in ('{"info": 1}', "[" * 100_000):
        table = class_table([0]).replace_schema_metadata({"huggingface": metadata})
        parquet.write_table(table, path)
        with pytest.raises(ValueError, match=r"a\.parquet: the metadata of datasets is invalid"):
            read(path)


def test_class_names_in_nested_columns_and_shards(tmp_path):
    label = {"names": ["neg", "pos"], "_type": "ClassLabel"}
    spans = {"feature": {"kind": label}, "_type": "Sequence"}
    features = {"meta": {"label": label, "spans": spans}, "gone": label}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    for number, labels in enumerate(([1, 0], [0, -1])):
        rows = [{"label": number, "other": 1, "spans": {"kind": [number]}} for number in labels]
        table = pa.table({"text": ["a", "b"], "meta": rows})
        table = table if number else table.replace_schema_metadata(metadata)
        parquet.write_table(table, tmp_path / f"train-0000{number}-of-00002.parquet")
    values = [record["meta"] for _, record in read_records(tmp_path / "train")]
    assert [value["label"] for value in values] == ["pos", "neg", "neg", None]
    assert values[0] == {"label": "pos", "other": 1, "spans": {"kind": ["pos"]}}
    features["meta"]["label"] = {"names": ["pos", "neg"], "_type": "ClassLabel"}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    parquet.write_table(
        table.replace_schema_metadata(metadata), tmp_path / "train-00001-of-00002.parquet"
    )
    with pytest.raises(
        ValueError, match=r"00001-of-00002\.parquet: meta must have the same classes"
    ):
        read(tmp_path / "train", label="meta.label")


def test_unreadable_value_raises_only_if_used(tmp_path):
    path = tmp_path / "a.parquet"
    days = pa.array([1, 10**8], pa.date32())
    parquet.write_table(pa.table({"text": ["a", "b"], "label": ["x", "y"], "day": days}), path)
    assert read(path) == (["a", "b"], [0, 1], ("x", "y"))
    with pytest.raises(ValueError, match=r"a\.parquet, row 1: label must be a string"):
        read(path, label="day")
    words = pa.array([b"a", b"\xff"]).view(pa.string())
    parquet.write_table(pa.table({"text": words, "label": ["x", "y"], "id": days}), path)
    with pytest.raises(ValueError, match=r"a\.parquet, row 2: text cannot be read: 'utf-8' codec"):
        read(path)
    assert read_text(path, bad=BadRows(collect=True), labeled=False).ids == ["1970-01-02"]


def test_duplicate_column_names_raise(tmp_path):
    table = pa.table([["a"], ["x"], ["y"]], names=["text", "label", "label"])
    parquet.write_table(table, tmp_path / "a.parquet")
    write_arrow(tmp_path / "a.arrow", table)
    for name in ("a.parquet", "a.arrow"):
        with pytest.raises(
            ValueError, match=rf"{name} .*must be unique. Received: 'label' 2 times"
        ):
            read(tmp_path / name)


def test_parquet_page_checksum_mismatch_raises(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": ["some words"], "label": ["x"]})
    parquet.write_table(table, path, write_page_checksum=True, compression="none")
    path.write_bytes(path.read_bytes().replace(b"some words", b"some lords", 1))
    with pytest.raises(ValueError, match=r"a\.parquet cannot be read: .*CRC checksum"):
        read(path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["train-00000-of-00002.parquet"], "must have 2 files .*: 1 files, without number 1"),
        (
            ["train-00000-of-00001.parquet", "train-00000-of-00001-0123456789abcdef.parquet"],
            "must have 1 files .* Received: 2 files",
        ),
        (
            ["a/train-00000-of-00001.parquet", "b/train-00000-of-00001.parquet"],
            "files of one data set",
        ),
        (["train-00000-of-00001.parquet", "train-00000-of-00002.parquet"], "files of one data set"),
        (
            ["train.parquet", "train.arrow"],
            "files of one data set.*: .*train.arrow and .*parquet",
        ),
        (["train/0000.parquet", "data/train.parquet"], "files of one data set"),
    ],
)
def test_directory_with_multiple_data_sets_raises(names, message, tmp_path):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        parquet.write_table(class_table([0, 1]), tmp_path / name)
    # If the directory contains a subdirectory `train`, read the directory instead.
    path = tmp_path if "train/0000.parquet" in names else tmp_path / "train"
    with pytest.raises(ValueError, match=message):
        read(path)


def test_old_datasets_selection_raises(tmp_path):
    """The indices of its rows are in a different file, so all rows would be read."""
    state = {"_data_files": [{"filename": "a"}], "_indices_data_files": [{"filename": "b"}]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match=r"state\.json must not refer to a selection of rows"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["../other.arrow", "/etc/passwd"])
def test_files_outside_the_directory_are_not_read(name, tmp_path):
    directory = tmp_path / "saved"
    write_arrow(tmp_path / "other.arrow", class_table([1]))
    directory.mkdir()
    (directory / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with pytest.raises(ValueError, match=r"state\.json must only refer to files in its directory"):
        read(directory)
    (directory / "state.json").write_text("{}")
    with pytest.raises(ValueError, match=r"state\.json must contain the list _data_files"):
        read(directory)


@pytest.mark.parametrize(
    "names",
    [
        "data/{}-00000-of-00001.parquet",
        "data/{}-00000-of-00001-0123456789abcdef.parquet",
        "{}/0000.parquet",
        "{}.parquet",
    ],
)
def test_parquet_split_is_read(names, tmp_path):
    for split, labels in {"train": [1, 0, 1], "validation": [0, 1]}.items():
        path = tmp_path / names.format(split)
        path.parent.mkdir(exist_ok=True)
        parquet.write_table(class_table(labels), path)
    assert read(tmp_path / "validation")[1] == [0, 1]
    assert exists(tmp_path / "train")
    assert not exists(tmp_path / "test")
    with pytest.raises(ValueError, match=r"a single split. Received: train, validation"):
        read(tmp_path)


def test_directory_without_data_raises(tmp_path):
    with pytest.raises(ValueError, match="must be a directory with Parquet or Arrow files"):
        read(tmp_path)


def test_invalid_rows_are_collected(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": "a", "label": "x"}\n{"text": \n{"label": "x"}\n{"text": "", "label": "y"}\n'
        '{"text": "b", "label": "y"}\n[1]\n'
    )
    bad = BadRows(collect=True)
    assert read(path, bad=bad)[0] == ["a", "b"]
    places = [message.partition(": ")[0] for message in bad.messages]
    assert places == [f"{path}, {place}" for place in ("line 2", "line 3", "row 1", "line 4")]
    path.write_text('{"text": "", "label": "y"}\n')
    with pytest.raises(ValueError, match=r"at least one valid row\. The first error: .*line 1: te"):
        read(path, bad=BadRows(collect=True))


def test_label_map_renames_labels(tmp_path):
    path = tmp_path / "hans.tsv"
    path.write_text("text\tlabel\na\tneutral\nb\tentailment\nc\tcontradiction\n")
    label_map = ("neutral:non-entailment", "contradiction:non-entailment")
    assert read(path, label_map=label_map)[1:] == ([1, 0, 1], ("entailment", "non-entailment"))
    with pytest.raises(ValueError, match=r"must have a label in .* Received: 'neutrl:other'"):
        read(path, label_map=("neutrl:other",))


def write_invalid_rows(tmp_path, format):
    """Writes labeled text with invalid rows, and returns the path and the expected messages."""
    path = tmp_path / f"a.{format}"
    rows = [["good", "1"], ["", "0"], ["fine", ""], ["bad", "0"], ["", ""]]
    label_message = "the label must not be empty. Received: an empty label for the text"
    empty = "text must not be empty. --allow_empty accepts it"
    hint = "--skip_labels=null skips such rows"
    messages = {
        1: empty,
        2: f"{label_message} 'fine'. {hint}",
        4: f"{label_message} ''. {hint}; {empty}",
    }
    first_row = {"csv": 2, "tsv": 2, "xlsx": 2}.get(format, 1)
    if format == "xlsx":
        book = openpyxl.Workbook()
        for row in (["text", "label"], *rows):
            book.active.append(row)
        book.active.append(["end", "1"])
        book.save(path)
    elif format == "parquet":
        texts, labels = zip(*rows, strict=True)
        table = pa.table({"text": texts, "label": [int(label or -7) for label in labels]})
        classes = {"label": {"_type": "ClassLabel", "names": ["0", "1"]}}
        metadata = json.dumps({"info": {"features": classes}})
        parquet.write_table(table.replace_schema_metadata({"huggingface": metadata}), path)
        expected = CLASS_NUMBER
        # If a row has an unknown class, its text is not read.
        messages |= dict.fromkeys((2, 4), expected)
    elif format in ("json", "jsonl"):
        records = [json.dumps({"text": text, "label": label}) for text, label in rows]
        lines = [*records, '{"text": "a"}', '{"text": ["a"], "label": 1}']
        expected = "text must be a string. Received: a list. Pass one of its fields, text.NAME"
        missing = "label must be a field of the object. Received: field 'label' and an object with"
        messages |= {5: f"{missing} ['text']", 6: expected}
        content = "[" + ",\n".join(lines) + "]" if format == "json" else "\n".join(lines)
        path.write_text(content)
    else:
        separator = "," if format == "csv" else "\t"
        lines = [separator.join(row) for row in (["text", "label"], *rows)]
        messages |= {5: "each row must have 2 columns. Received: 1 columns, starting with 'torn'"}
        lines.append("torn")
        if format == "csv":
            messages |= dict.fromkeys((6, 8), "the row that starts here must be valid CSV. ")
            lines += ['"a film,1', "fine,0", '"one" two,1', "end,0"]
        path.write_text("\n".join(lines) + "\n")
    unit = "line" if format in ("csv", "tsv", "jsonl") else "row"
    return path, {f"{path}, {unit} {first_row + row}": message for row, message in messages.items()}


@pytest.mark.parametrize("format", ["csv", "tsv", "xlsx", "parquet", "json", "jsonl"])
def test_all_invalid_rows_are_collected_at_once(format, tmp_path):
    path, expected = write_invalid_rows(tmp_path, format)
    bad = BadRows(collect=True)
    data = read_text(path, bad=bad)
    messages = dict(message.split(": ", 1) for message in bad.messages)
    assert messages.keys() == expected.keys()
    for place, message in expected.items():
        assert messages[place].startswith(message)
    assert {"good", "bad"} <= set(data.texts)
    if format == "csv":
        assert data.texts == ["good", "bad", "fine", "end"]
    with pytest.raises(ValueError, match=r"a\..*: "):
        read_text(path)


def test_missing_column_error_suggests_similar_names(tmp_path):
    # SNLI and KLUE-NLI have such columns. One annotator's label is in label5.
    path = tmp_path / "nli.csv"
    path.write_text("premise,hypothesis,gold_label,label5\na,b,x,y\n")
    with pytest.raises(ValueError, match=r"did you mean 'gold_label'\?"):
        read_columns(path, "csv", {"text": "premise", "label": "label"}, "auto")
