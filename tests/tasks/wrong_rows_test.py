# SPDX-License-Identifier: Apache-2.0
"""Rows that are neither text nor features: every verb of every task names the row and its type."""

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

tf = pytest.importorskip("tensorflow")

import keras_bert  # noqa: E402
from keras_bert.data import (  # noqa: E402
    MultipleChoicePreprocessor,
    QuestionAnswererPreprocessor,
    TextClassifierPreprocessor,
    TokenClassifierPreprocessor,
)
from tests.small_tasks import CONFIG  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(ord("a"), ord("z")))]


@pytest.fixture(scope="module")
def tasks():
    tokenizer = keras_bert.WordPieceTokenizer(TOKENS)
    texts = TextClassifierPreprocessor(tokenizer, 12)
    made = [
        keras_bert.TextClassifier(keras_bert.Backbone(CONFIG), 2, texts),
        keras_bert.TokenClassifier(
            keras_bert.Backbone(CONFIG), 2, TokenClassifierPreprocessor(tokenizer, 12)
        ),
        keras_bert.QuestionAnswerer(
            keras_bert.Backbone(CONFIG), QuestionAnswererPreprocessor(tokenizer, 12, 2, 4)
        ),
        keras_bert.MultipleChoice(
            keras_bert.Backbone(CONFIG), MultipleChoicePreprocessor(tokenizer, 12)
        ),
        keras_bert.TextEmbedder(keras_bert.Backbone(CONFIG), texts),
        keras_bert.MaskedLM(keras_bert.Backbone(CONFIG), texts),
        keras_bert.ReplacedTokenDetector(keras_bert.Backbone(CONFIG), texts, generator_size=0.5),
        keras_bert.Pretrainer(keras_bert.Backbone(CONFIG)),
    ]
    return {type(task).__name__: task for task in made}


VERBS = [
    ("TextClassifier", "classify"),
    ("TokenClassifier", "tag"),
    ("MultipleChoice", "choose"),
    ("TextEmbedder", "embed"),
    ("MaskedLM", "fill"),
    ("ReplacedTokenDetector", "detect"),
]


@pytest.mark.parametrize(("name", "verb"), VERBS)
def test_a_verb_names_the_row(tasks, name, verb):
    verb = getattr(tasks[name], verb)
    with pytest.raises(ValueError, match="Row 0 is None of type NoneType; expected"):
        verb([None])
    with pytest.raises(ValueError, match="Row 1 is None of type NoneType; expected"):
        verb([("a", ["b"]), None] if name == "MultipleChoice" else ["a [MASK]", None])
    with pytest.raises(ValueError, match=r"Received (None|NoneType)"):
        verb(None)


def test_answer_names_the_question(tasks):
    answer = tasks["QuestionAnswerer"].answer
    with pytest.raises(ValueError, match="Question 1: question is None of type NoneType"):
        answer(["a", None], "b")
    with pytest.raises(ValueError, match="Question 0: context is 3 of type int"):
        answer(["a"], [3])
    with pytest.raises(ValueError, match="context is None of type NoneType"):
        answer("a", None)


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("name", [*(name for name, _ in VERBS), "QuestionAnswerer", "Pretrainer"])
def test_keras_methods_name_the_row(tasks, name, method):
    if method != "predict":
        tasks[name].compile()
    with pytest.raises(ValueError, match="Row 0 is None of type NoneType; expected"):
        getattr(tasks[name], method)([None])
    with pytest.raises(ValueError, match=r"Row 1 (is|holds) {} of type dict; expected"):
        getattr(tasks[name], method)([[1, 2], {}])


def test_columns_with_other_names(tasks):
    pandas = pytest.importorskip("pandas")
    columns = {"premise": ["a", "b"], "hypothesis": ["b", "a"], "label": [0, 1]}
    classifier = tasks["TextClassifier"]
    classifier.compile("sgd")
    dataset = tf.data.Dataset.from_tensor_slices((columns, [0, 1]))
    message = 'columns of text named premise, hypothesis, label; expected .* a dict of "text"'
    for method in (classifier.predict, classifier.classify, classifier.fit):
        for x in (columns, pandas.DataFrame(columns), dataset):
            with pytest.raises(ValueError, match=message):
                method(x)
    named = pandas.DataFrame({"text": ["a", "b"], "label": [0, 1]})
    with pytest.raises(ValueError, match=r"no labels.*: pass `y`, such as x\['label'\]"):
        classifier.fit(named)


def test_pairs_of_series(tasks):
    pandas = pytest.importorskip("pandas")
    first, second = ["a", "b c"], ["b", "a"]
    classifier = tasks["TextClassifier"]
    expected = classifier.predict((first, second), verbose=0)
    pair = pandas.Series(first), pandas.Series(second)
    for x in (pair, tuple(part.values for part in pair)):
        np.testing.assert_array_equal(classifier.predict(x, verbose=0), expected)


def test_labels_in_more_columns_than_one(tasks):
    tasks["TextClassifier"].compile("sgd")
    with pytest.raises(ValueError, match=r"labels have the shape \(2, 2\); expected class ids"):
        tasks["TextClassifier"].fit(["a", "b"], np.eye(2))


def test_weights_that_are_no_numbers(tasks):
    nan = float("nan")
    for name, x, y, weight in (
        ("TextClassifier", ["a", "b"], [0, 1], [1, nan]),
        ("TokenClassifier", [["a"], ["b"]], [[0], [1]], [[1], [nan]]),
        ("MultipleChoice", [("a", ["a", "b"]), ("b", ["a", "b"])], [0, 1], [1, nan]),
    ):
        tasks[name].compile("sgd")
        with pytest.raises(ValueError, match="sample weight in row 1 is nan; expected a finite"):
            tasks[name].fit(x, y, sample_weight=weight)


def test_validation_data_without_labels(tasks):
    masked_lm = tasks["MaskedLM"]
    masked_lm.compile("sgd")
    texts = ["a b c d e f", "f e d c b a"]
    for held_out in (texts, (texts, None), {"text": texts}):
        history = masked_lm.fit(texts, validation_data=held_out, verbose=0).history
        assert "val_loss" in history
    with pytest.raises(ValueError, match=r"must be x, \(x, None\) or a dataset; .* tuple of 1"):
        masked_lm.fit(texts, validation_data=(texts,))


def test_series_of_pandas(tasks):
    pandas = pytest.importorskip("pandas")
    for values in ([None, "a"], [float("nan"), "a"]):
        with pytest.raises(ValueError, match=r"Row 0 is .* of type (NoneType|float); expected"):
            tasks["TextClassifier"].classify(pandas.Series(values, dtype=object))


def test_an_empty_series_is_no_text_at_all(tasks):
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(["a", "b"])[:0]
    assert tasks["TextClassifier"].predict(series, verbose=0).shape == (0, 2)


@pytest.mark.parametrize("x", [[1], [[1, 2], [3, 4]], [float("nan")]])
def test_lists_of_numbers_are_refused(tasks, x):
    with pytest.raises(
        ValueError, match="Received a list of numbers; expected a string, a list of"
    ):
        tasks["TextClassifier"].predict(x, verbose=0)


@pytest.mark.on_each_backend
@pytest.mark.parametrize("method", ["fit", "evaluate"])
def test_labels_are_needed(tasks, method):
    """JAX trained on none."""
    task = tasks["TextClassifier"]
    task.compile()
    with pytest.raises(ValueError, match="There are no labels, with which a TextClassifier is"):
        getattr(task, method)(["a", "b"], verbose=0)
    with pytest.raises(ValueError, match="There are no texts to train on, or to evaluate"):
        getattr(task, method)([], [], verbose=0)
    with pytest.raises(ValueError, match="batch_size is 0; it must be at least 1"):
        getattr(task, method)(["a"], [1], batch_size=0, verbose=0)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_label_is_no_name(missing, tasks):
    tasks["TextClassifier"].compile()
    with pytest.raises(ValueError, match="The label in row 1 is missing"):
        tasks["TextClassifier"].fit(["a", "b"], ["nan", missing], verbose=0)


def test_ids_in_lists_are_features(tasks):
    logits = tasks["TextClassifier"].predict(np.array([[2, 5, 3]]), verbose=0)
    assert logits.shape == (1, 2)
