# SPDX-License-Identifier: Apache-2.0
"""Reads words and labels from JSON Lines, tables, tab-separated lines and `datasets` files."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from keras_bert.data.conll import MissingLabelsError
from training.readers.tagged_words import WordColumns, convert_to_scheme, sentence_texts
from training.readers.task_files import task_of_file

pytestmark = pytest.mark.backend_independent

WORDS = [["Ann", "sang"], ["Bob"]]
LABELS = [["B-PER", "O"], ["B-PER"]]


def test_read_words_from_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"words": words, "labels": tags} for words, tags in zip(WORDS, LABELS, strict=True)]
    path.write_text("\n".join(map(json.dumps, rows)))
    text = WordColumns().read_words(str(path))
    assert (text.words, text.labels, text.path) == (WORDS, LABELS, str(path))
    assert WordColumns().read_words(str(path), labeled=False).labels is None
    assert task_of_file(path).name == "tagging"


def test_read_words_from_a_table(tmp_path):
    path = tmp_path / "ner_dataset.csv"
    path.write_text(
        'Sentence #,Word,POS,Tag\nSentence: 1,Ann,NNP,B-PER\n,sang,VBD,O\n,",",",",O\n'
        "Sentence: 2,Bob,NNP,B-PER\n,,NNP,O\n"
    )
    text = WordColumns().read_words(str(path), skip_invalid=True)
    assert text.words == [["Ann", "sang", ","], ["Bob"]]
    assert text.labels == [["B-PER", "O", "O"], ["B-PER"]]
    assert len(text.skipped) == 1
    with pytest.raises(
        ValueError, match="line 6: each word must have a label, and each label a word"
    ):
        WordColumns().read_words(str(path))
    path.write_text("Word,Tag\nAnn,B-PER\n")
    with pytest.raises(ValueError, match=r"must have the columns Sentence, Word and Tag.*\.conll"):
        WordColumns().read_words(str(path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text,labels\n"Ann sang ,",B-PER O O\nBob sat,B-PER O\n'),
        ("a.tsv", "Sentence\tTags\nAnn sang ,\tB-PER O O\nBob sat\tB-PER O\n"),
    ],
)
def test_read_words_from_a_table_of_sentences(name, content, tmp_path):
    path = tmp_path / name
    path.write_text(content)
    text = WordColumns().read_words(str(path))
    assert text.words == [["Ann", "sang", ","], ["Bob", "sat"]]
    assert text.labels == [["B-PER", "O", "O"], ["B-PER", "O"]]
    assert task_of_file(path).name == "tagging"
    path.write_text(content.replace("O O", "O"))
    with pytest.raises(ValueError, match=r"line 2: each .* one label"):
        WordColumns().read_words(str(path))


def test_read_words_from_tab_separated_lines(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("비토리오 감독 이 왔다 .\tPER-B CVL-B O O O\n서울\tLOC-B\n", "utf-8")
    text = WordColumns().read_words(str(path))
    assert text.words == [["비토리오", "감독", "이", "왔다", "."], ["서울"]]
    assert text.labels == [["PER-B", "CVL-B", "O", "O", "O"], ["LOC-B"]]
    assert convert_to_scheme(text, "IOB2").labels == [["B-PER", "B-CVL", "O", "O", "O"], ["B-LOC"]]
    assert task_of_file(path).name == "tagging"
    path.write_text("서울 은, \tLOC_B - \n", "utf-8")  # No line ends in a span.
    assert task_of_file(path).name == "tagging"
    path.write_text("서울 은\tLOC_B -\n" * 100 + "은\t- -\n", "utf-8")
    with pytest.raises(ValueError, match="line 101: each line must be words, a tab and one label"):
        WordColumns().read_words(str(path))
    assert len(WordColumns().read_words(str(path), skip_invalid=True).skipped) == 1


def test_read_characters_with_comments_and_spaces(tmp_path):
    path = tmp_path / "klue-ner.tsv"
    rows = "경\tB-OG\n찰\tI-OG\n" + "".join(f"{character}\tO\n" for character in " 또자금을관리.")
    path.write_text("".join(f"## {i}\t<경찰:OG> 또\n{rows}\n" for i in range(5)), "utf-8")
    assert task_of_file(path).name == "tagging"
    with pytest.warns(UserWarning, match="skipped as comments"):
        text = WordColumns().read_words(str(path))
    assert (text.words, text.labels) == (
        [list("경찰 또자금을관리.")] * 5,
        [["B-OG", "I-OG", *["O"] * 8]] * 5,
    )
    assert sentence_texts(text)[0] == "경찰 또자금을관리."


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_label_numbers_are_read_as_names(is_wrapped, tmp_path):
    label = {"names": ["O", "B-PER"], "_type": "ClassLabel"}
    features = {"ner_tags": {"feature": label, "_type": "List"} if is_wrapped else [label]}
    table = pa.table({"tokens": WORDS, "ner_tags": [[1, 0], [1]]})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    text = WordColumns().read_words(str(tmp_path / "a.parquet"))
    assert (text.words, text.labels) == (WORDS, LABELS)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"words": ["a"], "labels": ["O", "O"]},
            "each word must have one label. Received: 1 words and 2",
        ),
        ({"words": [], "labels": []}, r"words must be a list of one or more strings"),
        ({"words": ["a"], "labels": [1]}, r"labels must be a list"),
        ({"labels": ["O"]}, "words must be a list"),
    ],
)
def test_invalid_row_error_has_the_line(row, message, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"words": ["a"], "labels": ["O"]}\n' + json.dumps(row))
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 2: {message}"):
        WordColumns().read_words(str(path))
    text = WordColumns().read_words(str(path), skip_invalid=True)
    assert (len(text), len(text.skipped)) == (1, 1)


def test_missing_labels_raise(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"tokens": ["a"]}\n')
    with pytest.raises(
        MissingLabelsError, match="line 1: the fields must include labels or tags or ner_t"
    ):
        WordColumns().read_words(str(path))
