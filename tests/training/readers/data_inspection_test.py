# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert.data import TaggedText  # noqa: E402
from keras_bert.data.squad import QuestionExample, SpanAnswer  # noqa: E402
from keras_bert.text import BytePairTokenizer, WordPieceTokenizer  # noqa: E402
from training.readers.choice_files import ChoiceRows  # noqa: E402
from training.readers.data_inspection import (  # noqa: E402
    Rows,
    count_rows,
    findings,
    rare_classes,
    text_rows,
    tokenize_rows,
)
from training.readers.labeled_text import LabeledText  # noqa: E402
from training.readers.scripts import scripts  # noqa: E402


def test_text_rows_of_each_task():
    text = LabeledText(["a", "b"], ["c", "d"], np.array([1, 0]), ("no", "yes"), "f")
    assert text_rows(text) == Rows([("a", "c"), ("b", "d")], ["yes", "no"])
    scores = LabeledText(["a"], None, np.array([0.5], "float32"), None, "f")
    assert text_rows(scores) == Rows([("a",)], ["0.5"])
    assert text_rows(TaggedText([["a", "b"]], [["O", "B-X"]])) == Rows([("a b",)], ["O B-X"])
    choices = ChoiceRows(["a"], [["b", "c"]], np.array([1]), "f")
    assert text_rows(choices) == Rows([("a", "b", "c")], ["1"], have_choices=True)
    questions = (
        QuestionExample("1", "q", "p", (SpanAnswer("p", 0),)),
        QuestionExample("2", "r", "p", ()),
    )
    assert text_rows(questions) == Rows([("q", "p"), ("r", "p")], share_passages=True)
    expected = {"questions": 2, "passages": 1, "answerable": 1, "unanswerable": 1}
    assert count_rows(questions) == expected


def test_findings_report_duplicates_and_leaks():
    train = Rows([("A  b",), ("a b",), ("c",), ("ｃ",), ("d",)], ["x", "x", "x", "y", "x"])
    dev = Rows([("C",), ("e",)], ["x", "y"])
    messages = findings({"train": train, "dev": dev})
    assert messages == [
        "train: 2 of 5 rows (40.0%) repeat a different row's text. For example, 'a b' occurs "
        "2 times",
        "train: 2 of 5 rows (40.0%) have a text that occurs with different labels, such as 'c' "
        "with ['x', 'y']",
        "dev: 1 of 2 rows (50.0%) are also in train, so scores on dev are too high",
    ]
    assert findings({"train": Rows([("a",), ("b",)]), "dev": Rows([("c",)])}) == []
    # Two pairs are duplicates only if both texts are equal.
    assert findings({"train": Rows([("a", "b"), ("a", "c")], ["x", "y"])}) == []


def test_findings_compare_passages_without_questions():
    train = Rows([("a", "p"), ("b", "p"), ("c", "q")], share_passages=True)
    dev = Rows([("d", "P"), ("c", "q"), ("e", "r")], share_passages=True)
    assert findings({"train": train, "dev": dev}) == [
        "dev: 1 of 3 rows (33.3%) are also in train, so scores on dev are too high",
        "dev: 2 of 3 passages (66.7%) are also in train, so scores on dev are too high",
    ]


def test_shared_passage_is_counted_once():
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"])
    rows = Rows([("a", "b zz б"), ("b", "b zz б")], share_passages=True)
    counts = tokenize_rows(rows, tokenizer)
    assert counts.lengths.tolist() == [7, 7]
    assert counts.unknown == pytest.approx(100 * 2 / 5)
    assert counts.unknown_words == [("zz", 1), ("б", 1)]
    assert scripts(rows.different_texts()) == {
        "Latin": pytest.approx(500 / 6),
        "Cyrillic": pytest.approx(100 / 6),
    }


def test_scripts_are_percentages_of_letters():
    assert scripts(["ab 12!", "дж", "漢"]) == {"Latin": 40, "Cyrillic": 40, "Cjk": 20}
    assert scripts(["1 2"]) == {}


def test_token_counts_include_separators():
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##b"])
    rows = Rows([("a b",), ("", "ab a zz"), ("zz b", "a", "yy")])
    counts = tokenize_rows(rows, tokenizer)
    assert counts.lengths.tolist() == [4, 7, 8]
    assert counts.unknown == pytest.approx(100 * 3 / 10)
    assert counts.unknown_words == [("zz", 2), ("yy", 1)]
    # RoBERTa puts two separators between paired texts.
    tokens = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", *map(chr, range(33, 127)), "ab"]
    roberta = BytePairTokenizer(tokens, ["a b"])
    num_text_tokens = sum(map(len, roberta(["a", "ab"])))
    assert tokenize_rows(Rows([("a", "ab")]), roberta).lengths.tolist() == [num_text_tokens + 4]


def test_choice_lengths_include_the_text():
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"])
    choices = ChoiceRows(["a a", "b"], [["a", "b b b", "a"], ["", "a a"]], None, "f")
    # [CLS] a a [SEP] b b b [SEP], and [CLS] b [SEP] a a [SEP]
    assert tokenize_rows(text_rows(choices), tokenizer).lengths.tolist() == [8, 6]


def test_rare_classes_are_reported():
    def make_labeled_text(*counts):
        labels = np.repeat(np.arange(len(counts)), counts)
        return LabeledText(["a"] * len(labels), None, labels, ("a", "b", "c", "d"), "f")

    train = make_labeled_text(60, 50, 2, 1)
    assert rare_classes({"train": train, "dev": make_labeled_text(5, 1, 0, 0)}) == [
        "train: 1 of 4 classes have a single row, ['d']. They cannot be both learned and scored",
        "dev: 1 of 4 classes have a single row, ['b']. They have unreliable scores",
        "train: 1 of 4 classes have no row in dev, ['c']. They are not scored",
    ]
    assert rare_classes({"train": train})[1:] == [
        "train: 1 of 4 classes have no row in the tenth held out without --dev_file, "
        "['c']. They are not scored"
    ]
    # There are too few rows to hold out a tenth.
    assert rare_classes({"train": make_labeled_text(2, 2, 2, 2)}) == []
    tags = TaggedText([["a"]] * 4, [["B-X"], ["B-X"], ["B-Y"], ["O"]])
    dev = TaggedText([["a"]] * 2, [["B-Y"], ["B-Y"]])
    assert rare_classes({"train": tags, "dev": dev}) == [
        "train: 1 of 2 types have a single entity, ['Y']. They cannot be both learned and scored",
        "train: 1 of 2 types have no entity in dev, ['X']. They are not scored",
    ]
    assert rare_classes({"train": ChoiceRows(["a"], [["b", "c"]], np.array([1]), "f")}) == []
