# SPDX-License-Identifier: Apache-2.0
"""Arguments of Keras's `fit` and `evaluate` do the same with text as with features.

Arguments that text does not support raise an error with their name. Long rows come first, so that
sorting by length changes the order of the rows.
"""

import functools
import inspect

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.models.inputs import ROWS_OF_TUPLES
from keras_bert.optimizers import AdamW
from tests.small_tasks import CONFIG, LETTERS, make_text_task

pytestmark = pytest.mark.on_torch

# The number of words in each row, and the batch size
WORDS, BATCH_SIZE = [9, 8, 7, 6, 4, 3, 2], 2
TEXTS = [" ".join("ab"[row % 2] * count) for row, count in enumerate(WORDS)]
LABELS = [0, 0, 1, 0, 1, 1, 1]
WEIGHTS = np.linspace(0.5, 2, len(WORDS), dtype="float32")


def question(text):
    answers = [{"text": text[-1], "answer_start": len(text) - 1}]
    # Each row has 9 to 16 tokens, because padding counts in the training loss.
    return {"question": "b b b b", "context": text, "answers": answers}


# Arguments of the task's class, and (x, y, sample_weight)
TASKS = {
    "TextClassifier": ((2,), (TEXTS, LABELS, WEIGHTS)),
    "TokenClassifier": (
        (2,),
        (
            [text.split() for text in TEXTS],
            [[label] * count for label, count in zip(LABELS, WORDS, strict=True)],
            [[weight] * count for weight, count in zip(WEIGHTS.tolist(), WORDS, strict=True)],
        ),
    ),
    "QuestionAnswerer": ((), (list(map(question, TEXTS)), None, None)),
    "MultipleChoice": ((), ([(text, ["a", "b b"]) for text in TEXTS], LABELS, WEIGHTS)),
}


@functools.cache
def make_task_and_features(name):
    """Returns a task without dropout, its text and features in the same order, and its weights."""
    arguments, (x, y, weights) = TASKS[name]
    options = {"doc_stride": 8, "max_query_length": 4} if name == "QuestionAnswerer" else {}
    config = CONFIG.replace(
        vocabulary_size=7, max_sequence_length=32, dropout=0.0, attention_dropout=0.0
    )
    preprocessor = {"tokenizer": {"vocabulary": LETTERS}, "sequence_length": 32, **options}
    backbone = keras_bert.Backbone(config)
    task = getattr(keras_bert, name)(backbone, *arguments, preprocessor=preprocessor)
    task.compile(keras.optimizers.SGD(0.1))
    (batch,) = task.evaluation_batches(x, y, weights, batch_size=len(WORDS))
    place = np.argsort(np.argsort(WORDS, kind="stable"))
    batch = keras.tree.map_structure(lambda rows: rows[place], batch)
    return task, (x, y, weights), batch, task.get_weights()


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches = {"train": 0, "test": 0}

    def on_train_batch_end(self, batch, logs=None):
        self.batches["train"] += 1

    def on_test_batch_end(self, batch, logs=None):
        self.batches["test"] += 1


def make_arguments(data, arguments, is_text):
    """Returns arguments of `fit` or `evaluate` for text or features."""
    x, y, weights = data
    labeled = {"x": x, "y": y}
    if not is_text and isinstance(weights, np.ndarray):
        # Only the first token of each word has a label.
        labeled["sample_weight"] = (weights > 0).astype("float32")
    validation = x if is_text and y is None else tuple(labeled.values())
    parts = {"sample_weight": weights, "validation_data": validation}
    arguments = {name: parts.get(name, value) for name, value in arguments.items()}
    return {**labeled, "batch_size": BATCH_SIZE, **arguments}


FROM_DATA = "filled in by `make_arguments`"
FIT = {
    "epochs": {"epochs": 2},
    "steps_per_epoch": {"steps_per_epoch": 2},
    "initial_epoch": {"epochs": 2, "initial_epoch": 1},
    "validation_data": {"validation_data": FROM_DATA},
    "validation_split": {"validation_split": 0.4},
    "validation_steps": {"validation_data": FROM_DATA, "validation_steps": 2},
    "validation_batch_size": {"validation_data": FROM_DATA, "validation_batch_size": 4},
    "validation_freq": {"epochs": 2, "validation_split": 0.4, "validation_freq": 2},
    "sample_weight": {"sample_weight": FROM_DATA},
    "class_weight": {"class_weight": {1: 3.0}},
}
EVALUATE = {
    "steps": {"steps": 2},
    "batch_size": {"batch_size": 3},
    "sample_weight": {"sample_weight": FROM_DATA},
}


def make_cases(arguments):
    return [
        pytest.param(
            task,
            name,
            marks=[]
            if task == "TextClassifier"
            else [pytest.mark.release, pytest.mark.on_each_backend],
        )
        for task in TASKS
        for name in arguments
        if (task, name) not in UNSUPPORTED
    ]


# Arguments that these tasks do not support for text. Other tests check their errors.
UNSUPPORTED = {
    ("QuestionAnswerer", "sample_weight"),
    ("QuestionAnswerer", "class_weight"),
    ("MultipleChoice", "class_weight"),
}


@pytest.mark.parametrize(("name", "argument"), make_cases(FIT))
def test_fit_arguments_match_features(name, argument):
    task, *both, weights = make_task_and_features(name)
    results = []
    for data in both:
        is_text, recorder = data is both[0], Recorder()
        task.set_weights(weights)
        in_order = {"bucketing_window": 1} if is_text and argument != "steps_per_epoch" else {}
        history = task.fit(
            **make_arguments(data, FIT[argument], is_text),
            **in_order,
            shuffle=False,
            verbose=0,
            callbacks=[recorder],
        )
        results.append({**history.history, **recorder.batches})
    received, expected = results
    assert received.keys() == expected.keys()
    for key, values in expected.items():
        assert received[key] == pytest.approx(values, rel=1e-4), key


@pytest.mark.parametrize(("name", "argument"), make_cases(EVALUATE))
def test_evaluate_arguments_match_features(name, argument):
    task, *both, _ = make_task_and_features(name)
    results = []
    for data in both:
        recorder = Recorder()
        arguments = make_arguments(data, EVALUATE[argument], data is both[0])
        arguments |= {"return_dict": True, "verbose": 0, "callbacks": [recorder]}
        results.append({**task.evaluate(**arguments), **recorder.batches})
    assert results[0] == pytest.approx(results[1], rel=1e-4)


def test_positional_arguments_match_keras():
    for method in ("fit", "evaluate", "predict"):
        task_arguments, keras_arguments = (
            [
                parameter.name
                for parameter in inspect.signature(getattr(cls, method)).parameters.values()
                if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            ]
            for cls in (keras_bert.TextClassifier, keras.Model)
        )
        assert task_arguments == keras_arguments[: len(task_arguments)]


def test_shuffle_value_is_passed_to_keras(monkeypatch):
    """Regression: `"batch"` was passed on as True."""
    task, _, (x, y, _), _ = make_task_and_features("TextClassifier")
    seen = []
    monkeypatch.setattr(keras.Model, "fit", lambda *_, shuffle, **__: seen.append(shuffle))
    for shuffle in (True, False, "batch"):
        task.fit(x, y, shuffle=shuffle)
    assert seen == [True, False, "batch"]


def test_accumulation_keeps_validation_batch_size(monkeypatch):
    task, _, (x, y, _), _ = make_task_and_features("TextClassifier")
    monkeypatch.setattr(task.optimizer, "gradient_accumulation_steps", 2)
    seen = []
    monkeypatch.setattr(keras.Model, "fit", lambda *_, **data: seen.append(data))
    for data in ({"validation_data": (x, y)}, {"validation_split": 0.4}):
        task.fit(x, y, BATCH_SIZE, **data)
        assert seen[-1]["validation_batch_size"] == BATCH_SIZE
        assert seen[-1]["validation_data"][1] is not None


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_validation_data_accepts_any_form(monkeypatch):
    tf = pytest.importorskip("tensorflow")
    task, (x, y, weights), features, _ = make_task_and_features("TextClassifier")
    seen = []
    monkeypatch.setattr(keras.Model, "fit", lambda *_, **data: seen.append(data["validation_data"]))
    forms = [
        ((x, y), False),
        ([x, y], False),
        ((x, y, weights), True),
        ({"text": x, "label": y}, False),
        (features[:2], False),
        (features, True),
        (tf.data.Dataset.from_tensor_slices((x, y, weights)), True),
    ]
    for form, is_weighted in forms:
        task.fit(x, y, validation_data=form)
        _, labels, received = seen[-1]
        if labels is None:  # batches
            targets = [batch[1:] for batch in seen[-1][0]]
            labels, *rest = map(np.concatenate, zip(*targets, strict=True))
            received = rest[0] if rest else None
        assert sorted(np.array(labels).tolist()) == sorted(LABELS)
        assert (received is not None) == is_weighted
        if is_weighted:
            np.testing.assert_allclose(np.sort(received), WEIGHTS)


# === Number of steps ===


def sequence_lengths(features):
    """Returns the number of tokens of each sequence, also of texts that a batch has only once."""
    lengths = np.asarray(features["padding_mask"]).sum(axis=-1)
    return lengths[features[ROWS_OF_TUPLES]] if ROWS_OF_TUPLES in features else lengths


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("accumulated", [None, 3])
@pytest.mark.parametrize("validation_split", [0.0, 0.4])
@pytest.mark.parametrize("name", [*TASKS, "TextEmbedder", "MaskedLM"])
def test_num_steps_matches_fit(name, validation_split, accumulated, monkeypatch):
    if name in TASKS:
        task, (x, y, weights), *_ = make_task_and_features(name)
    else:
        task, y, weights = make_text_task(name), None, None
        x = [(text, "b") for text in TEXTS] if name == "TextEmbedder" else TEXTS
    if name == "QuestionAnswerer":
        x = [*x, question("a b" * 40)] * 2  # The last question needs multiple windows.
    monkeypatch.setattr(task, "negative_fraction", 0.0)
    task.compile(AdamW(0.1, gradient_accumulation_steps=accumulated))
    seen = []
    monkeypatch.setattr(keras.Model, "fit", lambda *_, **data: seen.append(data))
    task.fit(x, y, BATCH_SIZE, validation_split=validation_split, sample_weight=weights)
    batches, validation = (seen[0][name] for name in ("x", "validation_data"))
    num_batches = batches.num_batches if accumulated else len(batches)
    updates = -(-num_batches // (accumulated or 1))
    assert task.num_steps(x, BATCH_SIZE, epochs=3, validation_split=validation_split) == 3 * updates
    if validation_split and name == "QuestionAnswerer":  # Validation includes all windows.
        held_out = task.evaluation_batches(x[-len(x) * 4 // 10 :], batch_size=BATCH_SIZE)
        assert len(validation[0]) == len(held_out)
    if validation_split == 0 and not accumulated:
        lengths = np.concatenate([sequence_lengths(features).ravel() for features, *_ in batches])
        assert sorted(task.sequence_lengths(x, BATCH_SIZE)) == sorted(lengths[lengths > 0])
