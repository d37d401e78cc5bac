# SPDX-License-Identifier: Apache-2.0

import os
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert.data.conll import (  # noqa: E402
    MissingLabelsError,
    TaggedText,
    read_conll,
    write_conll,
)

WORDS = [["EU", "rejects"], ["Peter"]]
LABELS = [["I-ORG", "O"], ["I-PER"]]


@pytest.fixture
def write(tmp_path):
    def write_file(content: str | bytes, name: str = "a.conll") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.mark.parametrize(
    "content",
    [
        "EU NNP I-ORG\nrejects VBZ O\n\nPeter NNP I-PER\n",
        "EU\tI-ORG\nrejects\tO\n\t\nPeter\tI-PER",
        "EU\t\tI-ORG\nrejects\tO\n\nPeter\t\tI-PER\n",
        "EU  I-ORG\r\nrejects  O\r\n \r\n\r\nPeter  I-PER\r\n",
        b"\xef\xbb\xbfEU I-ORG\nrejects O\n\n\n\nPeter I-PER\n\n\n",
        "EU \t I-ORG \nrejects \t O\n \t \nPeter \t I-PER\n",
    ],
    ids=["spaces", "tabs", "aligned tabs", "CRLF", "BOM", "mixed"],
)
def test_column_separators(write, content):
    text = read_conll(write(content))
    assert (text.words, text.labels) == (WORDS, LABELS)
    assert text.document_starts is None


def test_column_options(write):
    path = write("1 EU NNP I-ORG x\n2 rejects VBZ O x\n\n1 Peter NNP I-PER x\n")
    text = read_conll(path, word_column=1, label_column=3)
    assert (text.words, text.labels) == (WORDS, LABELS)
    assert read_conll(path, word_column=-4, label_column=2).labels[0] == ["NNP", "VBZ"]
    assert read_conll(path, word_column=1, labeled=False).labels is None


def test_words_can_contain_unicode_spaces(write):
    path = write("New York\tB-LOC\na\u2028b\tO\n\xa0\tO\n\u200b\tO\n")
    assert read_conll(path).words == [["New York", "a\u2028b", "\xa0", "\u200b"]]


def test_docstart_lines_start_documents(write):
    path = write(
        "-DOCSTART- -X- O O\n\nEU NNP B O\n\na b c O\n\n-DOCSTART-\nPeter NNP B O\n-DOCSTART-\n"
    )
    text = read_conll(path)
    assert text.words == [["EU"], ["a"], ["Peter"]]
    assert text.document_starts == [0, 2]
    assert text.group_by_document(text.words) == [[["EU"], ["a"]], [["Peter"]]]


def test_conll_u_with_comments_option(write):
    path = write(
        "# newdoc id = a\n# sent_id = 1\n1-2\tdu\t_\t_\n1\tde\tde\tADP\n2\tle\tle\tDET\n"
        "2.1\tx\tx\tX\n3\t#\t#\tSYM\n\n# newdoc\n# text = b\n1\tb\tb\tNOUN\n"
    )
    text = read_conll(path, word_column=1, label_column=3, comments=True)
    assert text.words == [["de", "le", "#"], ["b"]]
    assert text.labels == [["ADP", "DET", "SYM"], ["NOUN"]]
    assert text.document_starts == [0, 1]


def test_conll_u_is_detected(write):
    row = "{}\t{}\tx\t{}\tx\t_\t0\troot\t_\t_\n"
    path = write(
        "# newdoc id = a\n"
        + row.format("1-2", "du", "_")
        + row.format(1, "de", "ADP")
        + row.format(2, "#", "SYM")
        + "\n# text = b\n"
        + row.format(1, "b", "NOUN")
    )
    with pytest.warns(
        UserWarning,
        match=r"a\.conll is a CoNLL-U file, so the labels are read from column 3, .* pass "
        r"label_column",
    ):
        text = read_conll(path)
    assert (text.words, text.labels) == ([["de", "#"], ["b"]], [["ADP", "SYM"], ["NOUN"]])
    assert text.document_starts == [0]
    assert read_conll(path, label_column=7).labels == [["root", "root"], ["root"]]
    assert read_conll(path, labeled=False).words == text.words


def test_lines_before_each_sentence_are_comments(write):
    path = write("## KLUE\n## a\t<가:PS> 나\n가\tB-PS\n \tO\n나\tO\n\n## b\t#\n#\tO\n")
    with pytest.warns(UserWarning, match="starts with #, so .* are skipped .* pass comments=False"):
        text = read_conll(path)
    assert (text.words, text.labels) == ([["가", " ", "나"], ["#"]], [["B-PS", "O", "O"], ["O"]])
    assert read_conll(path, comments=False).words[1] == ["## b", "#"]


def test_word_number_column_is_skipped(write):
    path = write("0\tCertaines\tO\n1\tvilles\tO\n\n0\tParis\tB-LOC\n")
    with pytest.warns(
        UserWarning,
        match="first column only contains word numbers, .* the second, such as 'Certaines' in "
        "line 1",
    ):
        text = read_conll(path)
    assert text.words == [["Certaines", "villes"], ["Paris"]]
    assert read_conll(path, word_column=0).words == [["0", "1"], ["0"]]
    with pytest.warns(UserWarning, match="only contains word numbers"):
        assert read_conll(write("7 a\n8 b\n"), labeled=False).words == [["a", "b"]]
    for content in ("1 O\n2 O\n", "7 x O\n7 y O\n", "1 x O\n\n1 y O\n"):
        assert read_conll(write(content)).words[0][0] in "17"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            "a O\nb\n",
            {},
            r"a.conll, line 2: each line must have 2 columns, as in line 1. Received: 1 "
            r"column, \['b'\]",
        ),
        ("a\nb\n", {}, r"line 1: the label must be in column -1. Received: 1 column"),
        (
            "a,O\n",
            {},
            r"Received: 1 column, \['a,O'\]. Columns must be separated by tabs or spaces",
        ),
        ("a N O\n\nb N\n", {"label_column": 2}, r"line 3: the label must be in column 2"),
        (
            "a N O\nb O\n",
            {},
            r"line 2: each line must have 3 columns, as in line 1. Received: 2 columns",
        ),
        (
            "a\tb\tO\nc\t\t\n",
            {"separator": "tab"},
            r"line 2: the label in column -1 must not be empty. Received: ''",
        ),
        ("\tO\n", {}, r"line 1: the word in column 0 must not be empty. Received: ''"),
        (
            "a\tO\nb\t \tx\n",
            {"label_column": 1, "separator": "tab"},
            "line 2: the label in column 1 must not be empty. Received: ' '",
        ),
        (
            "# id 1\na O\n",
            {},
            r"line 2: each line must have 3 columns, as in line 1. .*comments=True "
            r"\(--comments in commands\)",
        ),
        (
            "1\ta\t_\n",
            {"word_column": 1},
            r"line 1: the label in column -1 must not be empty. Received: '_'",
        ),
        ("\n \n", {}, "a.conll must contain words. Received: 2 lines without words"),
        (b"a O\n\xff O\n", {}, "line 2: the file must be UTF-8"),
        ("a O\n", {"separator": ","}, "separator must be one of auto, tab, space. Received: ','"),
        (
            "a O\nb" + " b" * 100_000,
            {},
            r"line 2: each line must have 2 columns, as in line 1. Received: 100001 columns",
        ),
    ],
)
def test_invalid_file_error_includes_line(write, content, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_conll(write(content), **options)
    assert len(str(caught.value)) < 800


def test_skip_invalid_drops_sentences(write):
    path = write("-DOCSTART- O\n\na\n\nb N O\n\nc O\nd O\n\n-DOCSTART- O\n\ne _\n\nf O\n")
    text = read_conll(path, skip_invalid=True)
    assert (text.words, text.labels) == ([["c", "d"], ["f"]], [["O", "O"], ["O"]])
    assert text.document_starts == [0, 1]
    assert [message.split(": ")[0].rpartition(" ")[2] for message in text.skipped] == [
        "3",
        "5",
        "12",
    ]
    with pytest.raises(MissingLabelsError, match="line 1: the label must"):
        read_conll(write("a\n\nb\n"), skip_invalid=True)


def test_write_conll_round_trip(tmp_path):
    text = TaggedText([["New York", "x"], ["y"], ["z"]], [["B", "O"], ["O"], ["O"]], [0, 2])
    predicted = [["O", "O"], ["B"], ["O"]]
    path = tmp_path / "predictions.conll"
    write_conll(path, text, predicted)
    assert path.read_text().startswith("-DOCSTART-\tO\tO\n\nNew York\tB\tO\n")
    reread = read_conll(path)
    assert (reread.words, reread.labels, reread.document_starts) == (text.words, predicted, [0, 2])
    assert read_conll(path, label_column=1).labels == text.labels
    assert os.listdir(tmp_path) == ["predictions.conll"]


@pytest.mark.parametrize(
    ("words", "predicted", "message"),
    [
        ([["a"]], [["O"], ["O"]], "must have 1 sentences. Received: 2"),
        (
            [["a"]],
            [["O", "O"]],
            r"columns of sentence 0 must have the same number of words. Received: \[1, 2\]",
        ),
        ([["a\tb"]], [["O"]], r"A value must not contain a tab or line break. Received: 'a\\tb'"),
    ],
)
def test_write_conll_rejects_invalid_input(tmp_path, words, predicted, message):
    with pytest.raises(ValueError, match=message):
        write_conll(tmp_path / "a", TaggedText(words, None), predicted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif("KERAS_BERT_DATA" not in os.environ, reason="needs the WNUT-17 files")
def test_wnut_17_sizes():
    directory = Path(os.environ["KERAS_BERT_DATA"]) / "ner"
    names = ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")
    assert [len(read_conll(directory / name)) for name in names] == [3394, 1009, 1287]
