# SPDX-License-Identifier: Apache-2.0
"""Invalid rows raise an error with the row and its type in every method of every task."""

import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

import keras  # noqa: E402

import keras_bert  # noqa: E402
from keras_bert.data import (  # noqa: E402
    MultipleChoicePreprocessor,
    QuestionAnswererPreprocessor,
    TextClassifierPreprocessor,
    TokenClassifierPreprocessor,
)
from tests.small_tasks import CONFIG  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(ord("a"), ord("z")))]


@pytest.fixture(scope="module")
def tasks():
    tokenizer = make_tokenizer(*TOKENS)
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


PREDICT_METHODS = [
    ("TextClassifier", "classify"),
    ("TokenClassifier", "tag"),
    ("MultipleChoice", "choose"),
    ("TextEmbedder", "embed"),
    ("MaskedLM", "fill"),
    ("ReplacedTokenDetector", "detect"),
]


@pytest.mark.parametrize(("name", "predict_method"), PREDICT_METHODS)
def test_predict_method_error_includes_row(tasks, name, predict_method):
    predict_method = getattr(tasks[name], predict_method)
    with pytest.raises(
        ValueError, match=r"Row 0 .*Received: None of type|None of type NoneType .row 0"
    ):
        predict_method([None])
    with pytest.raises(
        ValueError, match=r"Row 1 .*Received: None of type|None of type NoneType .row 1"
    ):
        predict_method([("a", ["b"]), None] if name == "MultipleChoice" else ["a [MASK]", None])
    with pytest.raises(ValueError, match=r"Received: (None|NoneType)"):
        predict_method(None)


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize(
    "name", [*(name for name, _ in PREDICT_METHODS), "QuestionAnswerer", "Pretrainer"]
)
def test_keras_method_error_includes_row(tasks, name, method):
    if method != "predict":
        tasks[name].compile()
    with pytest.raises(
        ValueError, match=r"Row 0 .*Received: None of type|None of type NoneType .row 0"
    ):
        getattr(tasks[name], method)([None])
    with pytest.raises(ValueError, match=r"Received: .*{} of type dict .row 1"):
        getattr(tasks[name], method)([[1, 2], {}])


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_unknown_columns_raise(tasks):
    tf = pytest.importorskip("tensorflow")
    pandas = pytest.importorskip("pandas")
    columns = {"premise": ["a", "b"], "hypothesis": ["b", "a"], "label": [0, 1]}
    classifier = tasks["TextClassifier"]
    classifier.compile("sgd")
    dataset = tf.data.Dataset.from_tensor_slices((columns, [0, 1]))
    message = (
        "a column that this task reads. Received: premise, hypothesis, label. "
        r"Pass the columns separately, such as x\['premise'\] with y=x\['label'\], or rename"
    )
    for method in (classifier.predict, classifier.classify, classifier.fit):
        for x in (columns, pandas.DataFrame(columns), dataset):
            with pytest.raises(ValueError, match=message):
                method(x)
    named = pandas.DataFrame({"text": ["a", "b"], "stars": [0, 1]})
    with pytest.raises(
        ValueError,
        match=r"must have labels to train .*\. Received: None\. Pass `y`, such as x\['stars'\]",
    ):
        classifier.fit(named)


@pytest.mark.parametrize(
    ("name", "predict_method"), [*PREDICT_METHODS, ("QuestionAnswerer", "answer")]
)
def test_calling_a_task_on_text_raises(tasks, name, predict_method):
    message = f"{name} must be called on features. Received: text. .* such as `{predict_method}`"
    for x in ("a film", ["a", "b"], [("a", ["b"])], {"text": ["a"]}, [{"question": "a"}]):
        with pytest.raises(ValueError, match=message):
            tasks[name](x)


IDS = np.array([[2, 5, 3], [2, 6, 3]])
MASKED_FEATURES = {"token_ids": IDS, "mask_positions": np.ones((2, 1), "int32")}
MASKED_TARGETS = {
    "masked_lm_logits": np.array([[5], [6]]),
    "next_sentence_logits": np.array([0, 1]),
}


@pytest.mark.parametrize("weight", [float("nan"), -1.0])
def test_invalid_sample_weight_raises(tasks, weight):
    weights = np.array([1.0, weight])
    output_weights = {
        "masked_lm_logits": weights[:, np.newaxis],
        "next_sentence_logits": np.ones(2),
    }
    for name, x, y, sample_weight in (
        ("TextClassifier", ["a", "b"], [0, 1], weights.tolist()),
        ("TextClassifier", IDS, np.array([0, 1]), weights),
        ("TokenClassifier", [["a"], ["b"]], [[0], [1]], [[1], [weight]]),
        ("MultipleChoice", [("a", ["a", "b"]), ("b", ["a", "b"])], [0, 1], weights),
        ("TextEmbedder", [("a", "b"), ("c", "d")], None, weights),
        ("Pretrainer", MASKED_FEATURES, MASKED_TARGETS, output_weights),
    ):
        tasks[name].compile("sgd")
        for method in (tasks[name].fit, tasks[name].evaluate):
            with pytest.raises(
                ValueError,
                match=f"weight in row 1 must be a finite number of at least 0. Received: {weight}",
            ):
                method(x, y, sample_weight=sample_weight, verbose=0)


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_invalid_dataset_or_generator_weight_raises(tasks):
    weight = -1.0
    tf = pytest.importorskip("tensorflow")
    classifier, rows = tasks["TextClassifier"], (["a", "b"], [0, 1], [1.0, weight])
    classifier.compile("sgd")
    texts = tf.data.Dataset.from_tensor_slices(rows)
    for dataset in (texts, texts.batch(2)):
        with pytest.raises(
            ValueError,
            match=f"weight in row 1 must be a finite number of at least 0. Received: {weight}",
        ):
            classifier.fit(dataset, verbose=0)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"weights of element.*must be a finite number"
    ):
        classifier.fit(tf.data.Dataset.from_tensors((IDS, *rows[1:])), verbose=0)
    batches = ((IDS, np.array([0, 1]), np.array(rows[2])) for _ in range(1))
    with pytest.raises(
        ValueError,
        match=r"sample weight in row 1 must be a finite number of at least 0\. Received: -1\.0",
    ):
        classifier.fit(batches, verbose=0)


def test_masked_lm_validation_needs_no_labels(tasks):
    masked_lm = tasks["MaskedLM"]
    masked_lm.compile("sgd")
    texts = ["a b c d e f", "f e d c b a"]
    for held_out in (texts, (texts, None), {"text": texts}):
        history = masked_lm.fit(texts, validation_data=held_out, verbose=0).history
        assert "val_loss" in history
    with pytest.raises(
        ValueError, match=r"must be x, \(x, None\) or a dataset\. Received: a tuple of 1"
    ):
        masked_lm.fit(texts, validation_data=(texts,))


@pytest.mark.parametrize("x", [[1], [[1, 2], [3, 4]], [float("nan")]])
def test_list_of_numbers_raises(tasks, x):
    with pytest.raises(
        ValueError, match=r"x must be a string, a list of strings, .* Received: a list of numbers"
    ):
        tasks["TextClassifier"].predict(x, verbose=0)


@pytest.mark.on_each_backend
@pytest.mark.parametrize("method", ["fit", "evaluate"])
def test_missing_labels_or_zero_batch_size_raise(tasks, method):
    """Regression: JAX trained without labels."""
    task = tasks["TextClassifier"]
    task.compile()
    with pytest.raises(
        ValueError, match="y must have labels to train and evaluate a TextClassifier"
    ):
        getattr(task, method)(["a", "b"], verbose=0)
    with pytest.raises(ValueError, match="batch_size must be an integer above 0"):
        getattr(task, method)(["a"], [1], batch_size=0, verbose=0)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_missing_label_raises(missing, tasks):
    tasks["TextClassifier"].compile()
    with pytest.raises(
        ValueError, match=f"The label in row 1 must not be missing. Received: {missing}"
    ):
        tasks["TextClassifier"].fit(["a", "b"], ["nan", missing], verbose=0)


@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("TextClassifier", {"text": "a b"}),
        ("TextClassifier", (["a", "b", "c"], "a b")),
        ("MultipleChoice", {"text": "a b", "choices": [["a", "b"]] * 3}),
        ("QuestionAnswerer", {"question": "a b", "context": "a b"}),
    ],
)
def test_string_as_column_raises(tasks, name, x):
    """Regression: each character was read as a row."""
    with pytest.raises(ValueError, match=r"A column must be a list of texts. Received: 'a b'"):
        tasks[name].predict(x, verbose=0)


def test_empty_training_data_raises(tasks):
    for name, *data in (
        ("TextClassifier", [], []),
        ("TokenClassifier", [], []),
        ("TokenClassifier", [[], []], [[], []]),
        ("QuestionAnswerer", []),
        ("MultipleChoice", [], []),
        ("TextEmbedder", []),
        ("MaskedLM", []),
    ):
        tasks[name].compile("sgd")
        for method in ("fit", "evaluate"):
            with pytest.raises(
                ValueError, match=r"Training and evaluation need at least one (text|word)"
            ):
                getattr(tasks[name], method)(*data, verbose=0)
    for name in ("MaskedLM", "ReplacedTokenDetector"):
        tasks[name].compile()
        with pytest.raises(ValueError, match="At least one text must have tokens"):
            tasks[name].fit(["", " "], verbose=0)


@pytest.mark.parametrize("validation_split", [0.3, 1.0, 1.5, -0.5])
def test_invalid_validation_split_raises(tasks, validation_split):
    message = (
        r"validation_split must (leave at least one row for training|be a number in \[0, 1\)).*"
        f" Received: {validation_split}"
    )
    tasks["TextClassifier"].compile("sgd")
    with pytest.raises(ValueError, match=message):
        tasks["TextClassifier"].fit(["a"], [0], validation_split=validation_split, verbose=0)
    tasks["TokenClassifier"].compile("sgd")
    with pytest.raises(ValueError, match=message):
        tasks["TokenClassifier"].fit([["a"]], [[0]], validation_split=validation_split, verbose=0)


def test_validation_data_overrides_validation_split(tasks):
    """Regression: the rows of the split were used for validation and not for training."""
    task = tasks["TextClassifier"]
    task.compile("sgd")
    seen = []
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(batch)
    )
    history = task.fit(
        ["a", "b"] * 4,
        [0, 1] * 4,
        batch_size=4,
        validation_split=0.5,
        validation_data=(["c d"], [1]),
        callbacks=[callback],
        verbose=0,
    ).history
    assert len(seen) == 2
    assert history["val_loss"][0] == pytest.approx(task.evaluate(["c d"], [1], verbose=0)[0])


def test_validation_split_ignores_class_weight(tasks):
    texts = list("abcdefgh")
    for name, x, y in (
        ("TextClassifier", texts, [0, 1] * 4),
        ("TokenClassifier", [[text, "y"] for text in texts], [[0, 1], [1, 0]] * 4),
        ("MultipleChoice", [(text, ["w", "x y"]) for text in texts], [0, 1] * 4),
    ):
        task = tasks[name]
        task.compile(keras.optimizers.SGD(0.0))
        history = task.fit(
            x, y, class_weight={1: 9.0}, validation_split=0.5, shuffle=False, verbose=0
        ).history
        expected = task.evaluate(x[4:], y[4:], verbose=0)
        measured = [history["val_loss"][0], history["val_accuracy"][0]]
        np.testing.assert_allclose(measured, expected, rtol=1e-5)
        # With new weights, all losses are close to the loss of uniform probabilities.
        assert history["loss"][0] != expected[0]


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_labels_and_weights_accept_other_forms(tasks):
    tf = pytest.importorskip("tensorflow")
    classifier = tasks["TextClassifier"]
    classifier.compile("sgd")
    expected = classifier.evaluate(["a", "b"], [0, 1], sample_weight=[1, 2], verbose=0)
    labels, weights = np.array([0, 1], object), np.array([1, 2], object)
    assert classifier.evaluate(["a", "b"], labels, sample_weight=weights, verbose=0) == expected
    assert len(classifier.evaluate("a", 1, verbose=0)) == 2
    column = [[1], [2]]
    assert classifier.evaluate(["a", "b"], [0, 1], sample_weight=column, verbose=0) == expected
    with pytest.raises(ValueError, match=r"the 2 texts. Received: shape \(2, 2\)"):
        classifier.evaluate(["a", "b"], [0, 1], sample_weight=np.ones((2, 2)), verbose=0)
    tagger = tasks["TokenClassifier"]
    tagger.compile("sgd")
    words, labels, weights = [["a"], ["b", "c"]], [[0], [1, 0]], [[1.0], [0.0, 2.0]]
    expected = tagger.evaluate(words, labels, sample_weight=weights, verbose=0)
    with pytest.raises(
        ValueError, match=r"row 2 must not be missing. Received: None \(Rows are words"
    ):
        tagger.fit(words, [[0], [1, None]], verbose=0)
    ragged = tf.ragged.constant(labels), tf.ragged.constant(weights)
    assert tagger.evaluate(words, ragged[0], sample_weight=ragged[1], verbose=0) == expected


def test_unsupported_arguments_with_text_raise(tasks):
    with pytest.raises(ValueError, match="shuffle"):
        tasks["TextClassifier"].fit(["a"], [0], shuffle="batch", verbose=0)
    with pytest.raises(ValueError, match="With text, `predict` does not support steps"):
        tasks["TextClassifier"].predict(["a"] * 40, steps=1, verbose=0)
    with pytest.raises(ValueError, match="With text, `predict` does not support callbacks"):
        tasks["TokenClassifier"].predict([["a"]], callbacks=[], verbose=0)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (float("nan"), "Question 0: answers must be a list"),
        ("b", "Question 0: answers must be a list"),
        ({"text": ["b"], "answer_start": []}, "1 texts and 0 values of answer_start"),
    ],
)
def test_invalid_answers_raise(tasks, answers, message):
    with pytest.raises(ValueError, match=message):
        tasks["QuestionAnswerer"].fit([{"question": "a", "context": "b", "answers": answers}])
