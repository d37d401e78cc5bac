# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from keras_bert.data import QuestionExample, SpanAnswer, TextClassifierPreprocessor
from keras_bert.data.adapters.choices import choice_columns
from keras_bert.data.adapters.documents import DocumentsAdapter
from keras_bert.data.adapters.questions import is_questions, pair_with_contexts, question_examples
from keras_bert.data.adapters.reading import check_input_form
from keras_bert.data.adapters.texts import is_text, single_texts, text_columns
from keras_bert.data.adapters.words import as_lists, check_words, word_depth
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.columns import as_array, as_list, label_column
from keras_bert.text import WordPieceTokenizer

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    "x",
    [
        "a",
        ["a", "b"],
        [],
        np.array(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        np.array(["a", "b"], dtype=np.dtypes.StringDType()),
        [("a", "b")],
        [["a", "b"]],
        (["a"], ["b"]),
        {"text": ["a"]},
        {"text": ["a"], "text_pair": ["b"]},
        [b"bytes"],
    ],
)
def test_is_text(x):
    assert is_text(x)


@pytest.mark.parametrize(
    "x", [np.zeros((2, 3), int), {"token_ids": np.zeros((2, 3), int)}, [[1, 2]], None, 3]
)
def test_is_not_text(x):
    assert not is_text(x)


def test_pair_rows_match_pair_columns():
    rows = text_columns([("a", "b"), ("c", "d")])
    columns = text_columns((["a", "c"], ["b", "d"]))
    from_dict = text_columns({"text": ["a", "c"], "text_pair": ["b", "d"]})
    for actual in (rows, columns, from_dict):
        assert list(actual["text"]) == ["a", "c"]
        assert list(actual["text_pair"]) == ["b", "d"]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([("a", "b"), ("c",)], "Row 1 must be a pair of texts. Received: 1 texts"),
        ((["a", "b"], ["c"]), "same length"),
        (["a", None], r"Row 1 must be text as a string, a list .* Received: None of type NoneType"),
        (
            {"text": ["a", 3.5]},
            r"Row 1 must be text as a string, a list .* Received: 3\.5 of type float",
        ),
    ],
)
def test_invalid_row_error_includes_index(x, message):
    with pytest.raises(ValueError, match=message):
        text_columns(x)


# === Tables and columns ===

TABLE = {"text": ["a", "b c"], "text_pair": ["d", "é"], "label": [1, 0]}


def import_constructors(library):
    """Returns the library's functions that create a table and a column."""
    module = pytest.importorskip(library)
    if library == "pyarrow":
        return module.table, module.array
    if library != "datasets":
        return module.DataFrame, module.Series

    def dataset(columns):
        rows = module.table.InMemoryTable.from_pydict(columns)
        return module.Dataset(rows, fingerprint="rows")

    return dataset, lambda values: dataset({"column": values})["column"]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "datasets"])
def test_library_tables_and_columns_are_read(library):
    table, column = import_constructors(library)
    texts = {"text": ["a", "b c"], "text_pair": ["d", "é"]}
    for x in (
        table(TABLE),
        (column(TABLE["text"]), column(TABLE["text_pair"])),
        column([["a", "d"], ["b c", "é"]]),
    ):
        assert is_text(x)
        assert {name: list(values) for name, values in text_columns(x).items()} == texts
    assert label_column(table(TABLE)) == [1, 0]
    assert label_column(table(texts)) is None
    assert is_text(column(TABLE["text"]))
    assert single_texts(column(TABLE["text"])) == TABLE["text"]
    words = column([["a", "b"], ["c"]])
    assert (word_depth(words), as_lists(words)) == (2, [["a", "b"], ["c"]])
    assert as_array(column([1, 0])).tolist() == as_list(column([1, 0])) == [1, 0]
    choices = choice_columns(table({"text": ["a"], "choices": [["b", "c"]]}))
    assert choices == (["a"], [["b", "c"]])
    with pytest.raises(
        ValueError,
        match=r"x must have a column that this task reads\. Received: premise\. .* x can be "
        r"TEXT, or feat",
    ):
        check_input_form(table({"premise": ["a"]}), "TEXT")


def test_label_ids_map_by_class_name():
    """Hugging Face datasets have their own class order."""

    class ClassLabel:
        names = ("pos", "neg")

    class Table(dict):
        @property
        def features(self):
            return {"label": ClassLabel()}

    table = Table(text=["a", "b", "c"], label=[0, 1, -1])
    assert label_column(table, ("neg", "pos")) == ["pos", "neg", -1]
    assert label_column(table) == [0, 1, -1]
    datasets = pytest.importorskip("datasets")
    features = {"label": datasets.List(datasets.ClassLabel(names=["pos", "neg"]))}
    rows = datasets.Dataset.from_dict({"label": [[0, 1], []]}, datasets.Features(features))
    assert label_column(rows, ("neg", "pos")) == [["pos", "neg"], []]


def test_unsupported_inputs_raise():
    class LazyFrame:
        collect = None

    class IterableDataset:
        column_names = ("text",)

    for x in (iter(["a"]), {"a"}, map(str, [1]), LazyFrame(), IterableDataset()):
        assert not is_text(x)
        with pytest.raises(
            ValueError, match=rf"^x must be TEXT, or features\. Received: {type(x).__name__}"
        ):
            check_input_form(x, "TEXT")


@pytest.mark.needs_tensorflow
def test_string_tensors_are_read():
    tf = pytest.importorskip("tensorflow")
    assert single_texts(tf.constant(["a", "é"])) == ["a", "é"]
    assert single_texts(tf.constant("a")) == ["a"]
    pairs = text_columns(tf.constant([["a", "b"], ["c", "d"]]))
    assert [list(column) for column in pairs.values()] == [[b"a", b"c"], [b"b", b"d"]]
    words = tf.ragged.constant([["a", "b"], ["c"]])
    assert (word_depth(words), as_lists(words)) == (2, [[b"a", b"b"], [b"c"]])
    assert as_list(tf.constant([1, 2])) == [1, 2]


# === Questions ===

ROW = {"id": "q", "question": "?", "context": "a b", "answers": [{"text": "b", "answer_start": 2}]}
EXAMPLE = QuestionExample("q", "?", "a b", (SpanAnswer("b", 2),))


class Frame:
    """A minimal data frame. It has columns, but is not a dict."""

    def __init__(self, columns):
        self.columns = columns

    def to_dict(self):
        return self.columns

    def __contains__(self, name):
        return name in self.columns

    def __getitem__(self, name):
        return self.columns[name]


class DataSet(list):
    """A list of rows with column names, as in Hugging Face datasets."""

    column_names = tuple(ROW)

    def __getitem__(self, key):
        return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)


QUESTION_INPUTS = [
    [ROW],
    (ROW,),
    [EXAMPLE],
    {name: [value] for name, value in ROW.items()},
    Frame({name: [value] for name, value in ROW.items()}),
    DataSet([ROW]),
    [{**ROW, "answers": {"text": np.array(["b"]), "answer_start": np.array([2])}}],
]


@pytest.mark.parametrize("x", QUESTION_INPUTS)
def test_question_inputs_are_read(x):
    assert is_questions(x)
    assert question_examples(x) == [EXAMPLE]


@pytest.mark.parametrize(
    "x",
    [
        {"token_ids": np.ones((2, 3))},
        np.ones((2, 3)),
        [[1, 2, 3]],
        ["text"],
        "text",
        None,
    ],
)
def test_is_not_questions(x):
    assert not is_questions(x)


def test_answers_can_be_missing_or_empty():
    unlabeled, unanswerable = question_examples(
        [{"question": "?", "context": "a"}, {"question": "?", "context": "a", "answers": []}]
    )
    assert (unlabeled.answers, unlabeled.id) == (None, "0")
    assert (unanswerable.answers, unanswerable.id) == ((), "1")


def test_single_passage_is_repeated():
    assert pair_with_contexts(["a", "b"], "c") == (["a", "b"], ["c", "c"])
    assert pair_with_contexts("a", "c") == (["a"], ["c"])
    assert pair_with_contexts(np.array(["a"]), np.array(["c"])) == (["a"], ["c"])


@pytest.mark.needs_tensorflow
def test_is_questions_does_not_iterate_dataset():
    tf = pytest.importorskip("tensorflow")
    endless = tf.data.Dataset.from_tensors({"question": "?"}).repeat()
    assert not is_questions(endless)


HALF_SURROGATE = "b \ud83d"


@pytest.mark.parametrize(
    ("read", "x", "location"),
    [
        (text_columns, ["a", HALF_SURROGATE], "Row 1"),
        (text_columns, [("a", "é"), ("a", HALF_SURROGATE)], "Row 1"),
        (text_columns, {"text": ["a", HALF_SURROGATE]}, "Row 1"),
        (single_texts, HALF_SURROGATE, "Row 0"),
        (choice_columns, [("a", ["b"]), (HALF_SURROGATE, ["b"])], "The text of row 1"),
        (choice_columns, [("a", ["b"]), ("a", ["b", HALF_SURROGATE])], "Choice 1 of row 1"),
        (question_examples, [{"question": HALF_SURROGATE, "context": "a"}], "Question 0: question"),
        (question_examples, [QuestionExample("1", "a", HALF_SURROGATE)], "Question 0: context"),
        (
            lambda x: pair_with_contexts(*x),
            (["a", "b"], ["a", HALF_SURROGATE]),
            "Question 1: context",
        ),
        (lambda x: check_words(x, 1), ["a", HALF_SURROGATE], "Row 1"),
        (lambda x: check_words(x, 2), [["a"], ["a", HALF_SURROGATE]], "Row 1"),
        (lambda x: check_words(x, 3), [[["a"], [HALF_SURROGATE]]], "Sentence 1 of document 0"),
    ],
)
def test_surrogate_error_includes_location(read, x, location):
    message = (
        rf"^{location} must only contain characters that UTF-8 can represent\. Received: "
        rf"the lone surrogate '\\ud83d' at position 2"
    )
    with pytest.raises(ValueError, match=message):
        read(x)


@pytest.mark.parametrize("sequence_format", ["next_sentence", "sentence_order"])
@pytest.mark.parametrize("separators", [1, 2])  # BERT, RoBERTa
def test_documents_become_labeled_pairs(sequence_format, separators):
    words = [f"w{number}" for number in range(60)]
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    tokenizer.pair_separators = separators
    # Each sentence is a word. The number of its document is number // 10.
    documents = [words[start : start + 10] for start in range(0, 60, 10)]
    preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=16)
    batches = DocumentsAdapter(documents, sequence_format).batches(
        preprocessor, BatchOptions(duplicate_factor=5)
    )
    labels = set()
    for features, *_ in batches:
        rows = zip(features["token_ids"], features["next_sentence_labels"], strict=True)
        for ids, label in rows:
            ends = np.flatnonzero(ids == tokenizer.sep_token_id)
            assert len(ends) == separators + 1
            first = ids[1 : ends[0]] - 5
            second = ids[ends[-2] + 1 : ends[-1]] - 5
            if label and sequence_format == "sentence_order":
                first, second = second, first
            follows = set(np.diff(np.concatenate([first, second]))) == {1}
            assert set(np.diff(first)) | set(np.diff(second)) <= {1}
            is_same_document = first[0] // 10 == second[0] // 10
            assert follows or not is_same_document
            labels.add((int(label), bool(is_same_document)))
    expected = {(0, True), (1, sequence_format == "sentence_order")}
    assert expected <= labels <= expected | {(1, False)}
