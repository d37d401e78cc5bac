# SPDX-License-Identifier: Apache-2.0
"""Calls from multiple threads, and interrupted calls."""

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_bert import (
    Backbone,
    ReplacedTokenDetector,
    TextClassifier,
    TokenClassifier,
)
from keras_bert.layers import interventions
from keras_bert.models.calibration import _eager_view
from tests.small_tasks import CONFIG, TASKS, make_task

ROWS = 8
random = np.random.default_rng(0)
X = {"token_ids": random.integers(1, 50, (ROWS, 6)), "padding_mask": np.ones((ROWS, 6), "int32")}
Y = random.integers(0, 2, ROWS)

on_jax = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="elsewhere, variables keep their values in calls"
)


@pytest.fixture(scope="module")
def classifier():
    model = TextClassifier(Backbone(CONFIG), num_classes=2)
    model.compile("sgd")
    return model


def run_in_threads(*calls):
    """Makes all calls at the same time in separate threads, and returns their results."""
    start = threading.Barrier(len(calls))

    def wait_and_call(call):
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(wait_and_call, calls))


def test_threads_predict_with_model_and_encoder():
    model = TextClassifier(
        Backbone(CONFIG), num_classes=2
    )  # A new model creates its functions in these calls.
    outputs = run_in_threads(
        *[lambda: model.predict(X, batch_size=2, verbose=0)] * 3,
        *[lambda: model.predict_on_batch(X)] * 2,
        lambda: model.backbone.predict(X, batch_size=2, verbose=0)["pooled_output"],
    )
    expected = keras.ops.convert_to_numpy(model(X))
    for logits in outputs[:5]:
        np.testing.assert_allclose(keras.ops.convert_to_numpy(logits), expected, atol=1e-5)
    pooled = keras.ops.convert_to_numpy(model.backbone(X)["pooled_output"])
    np.testing.assert_allclose(outputs[5], pooled, atol=1e-5)


def test_threads_evaluate_all_rows(classifier):
    """Metrics are variables of the model, and a second evaluation resets them."""

    def evaluate():
        return classifier.evaluate(X, Y, batch_size=2, verbose=0)

    expected = evaluate()
    for metrics in run_in_threads(*[evaluate] * 4):
        np.testing.assert_allclose(metrics, expected, rtol=1e-5)


def test_threads_predict_during_training(classifier):
    losses, *outputs = run_in_threads(
        lambda: classifier.fit(X, Y, batch_size=2, epochs=2, verbose=0).history["loss"],
        *[lambda: classifier.predict(X, batch_size=4, verbose=0)] * 3,
    )
    assert np.isfinite(losses).all()
    assert all(logits.shape == (ROWS, 2) for logits in outputs)


class Interruption(keras.callbacks.Callback):
    """Interrupts the call. It does not access the model, because that would sync the JAX state."""

    def __init__(self, method_name):
        super().__init__()
        setattr(self, method_name, self.interrupt)

    def interrupt(self, batch, logs=None):
        raise KeyboardInterrupt


# Multiple outputs and random numbers. All tasks have the same step.
INTERRUPTED_TASKS = (ReplacedTokenDetector,)


@on_jax
@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=() if task in INTERRUPTED_TASKS else pytest.mark.release)
        for task in TASKS
    ],
    ids=lambda task: task.__name__,
)
def test_interrupted_call_keeps_weights(task):
    model = make_task(task)
    model.compile("sgd")
    before = model.get_weights()
    batches = TASKS[task]()
    features, labels, weights = batches[0]
    with pytest.raises(KeyboardInterrupt):
        model.evaluate(batches, callbacks=[Interruption("on_test_batch_end")], verbose=0)
    with pytest.raises(KeyboardInterrupt):
        model.predict(features, callbacks=[Interruption("on_predict_batch_end")], verbose=0)
    for weight, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, other)
    assert np.isfinite(model.test_on_batch(features, labels, weights)).all()


@on_jax
@pytest.mark.parametrize("call", ["predict", "evaluate", "predict_on_batch", "test_on_batch"])
def test_interrupt_after_compiled_step_keeps_weights(classifier, call, monkeypatch):
    """Python raises the interrupt when the compiled function returns, so its result is lost."""
    import jax

    before = classifier.get_weights()
    compile_function = jax.jit

    def interrupting_jit(function, **options):
        compiled = compile_function(function, **options)

        def call(*arguments):
            compiled(*arguments)
            raise KeyboardInterrupt

        return call

    monkeypatch.setattr(jax, "jit", interrupting_jit)
    for name in ("predict", "test"):
        monkeypatch.setattr(classifier, f"{name}_function", None)
    data = (X,) if "predict" in call else (X, Y)
    with pytest.raises(KeyboardInterrupt):
        getattr(classifier, call)(*data)
    for weight, other in zip(before, classifier.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, other)


@on_jax
def test_interrupted_training_step_keeps_its_result(classifier):
    """The interrupt comes between the end of a compiled step and the next line of Python."""
    from keras_bert.ops import jax_steps

    classifier.train_on_batch(X, Y)
    step = jax_steps.training_step(classifier)
    state = tuple(jax_steps.training_state(classifier).values())
    _, state = step(state, (X, Y, None))  # Compiles the step
    classifier._jax_state = None

    def at_return(frame, event, argument):
        # The compiled function is not in Python, so its end is an event of the calling frame.
        if event == "c_return" and frame.f_code.co_name == "compute_and_store":
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(at_return)
    try:
        with pytest.raises(KeyboardInterrupt):
            step(state, (X, Y, None))
    finally:
        sys.setprofile(None)
    arrays = keras.tree.flatten(classifier._jax_state)
    assert arrays
    assert not any(array.is_deleted() for array in arrays)
    classifier._jax_state_synced = False
    classifier.jax_state_sync()
    assert np.isfinite(classifier.evaluate(X, Y, verbose=0)).all()


def test_training_callbacks_can_predict(classifier):
    outputs = []

    class Predict(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            outputs.append(classifier.predict(X, verbose=0))

    classifier.fit(X, Y, batch_size=4, callbacks=[Predict()], verbose=0)
    assert len(outputs) == 2
    np.testing.assert_allclose(outputs[-1], classifier.predict(X, verbose=0), atol=1e-5)


# JAX warns about any fork, and Python 3.12 or later about a fork with threads.
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:DeprecationWarning")
def test_forked_child_raises(classifier):
    """The child would wait for threads that it does not have."""
    calls = [
        lambda: classifier.predict(X, verbose=0),
        lambda: classifier.predict_on_batch(X),
        lambda: classifier.fit(X, Y, verbose=0),
        lambda: classifier(X),
        lambda: classifier.preprocessor,
        lambda: Backbone(CONFIG),
    ]
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(60)
        for call in calls:
            try:
                call()
                answer = b"answered"
            except BaseException as error:
                answer = str(error).encode()
            os.write(writer, answer + b"\n")
        os._exit(0)
    os.close(writer)
    with open(reader) as answers:
        messages = answers.read().splitlines()
    os.waitpid(child, 0)
    assert len(messages) == len(calls)
    assert all("Models must be created or loaded after a fork" in message for message in messages)
    assert classifier.predict(X, verbose=0).shape == (ROWS, 2)  # The parent can still predict.


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film"]


def test_first_use_of_text_in_threads():
    from keras_bert.data import TextClassifierPreprocessor, TokenClassifierPreprocessor
    from keras_bert.text import WordPieceTokenizer

    tokenizer = WordPieceTokenizer(WORDS)
    for task, preprocessor_class, text in (
        (TextClassifier, TextClassifierPreprocessor, ["a good film", "bad"]),
        (TokenClassifier, TokenClassifierPreprocessor, [["a", "good", "film"], ["bad"]]),
    ):
        config = preprocessor_class(tokenizer, sequence_length=8).get_config()
        model = task(Backbone(CONFIG), num_classes=2, preprocessor=config)
        predict_method = model.classify if task is TextClassifier else model.tag
        answers = run_in_threads(
            *[lambda predict_method=predict_method, text=text: predict_method(text)] * 3
        )
        assert answers == [predict_method(text)] * 3


def test_temporary_values_stay_in_their_thread(classifier):
    """Explanations, calibration and repeated computations do not change calls in other threads."""
    backbone = classifier.backbone
    attention, dense = backbone.blocks[0].attention, backbone.blocks[0].attention.query_key_value
    seeds, seed_value = backbone.embeddings.seed_generator, keras.ops.zeros((2,), "uint32")
    heads = np.zeros((1, attention.num_heads), "float32")
    seen = []

    def outputs():
        return keras.ops.convert_to_numpy(classifier(X))

    expected = outputs()
    with (
        interventions.replace_embeddings(backbone.token_embedding, keras.ops.zeros((ROWS, 6, 16))),
        interventions.weigh_heads(attention, [heads]),
        interventions.observe_inputs(dense, seen.append),
        seeds.replay_seed(seed_value),
    ):
        assert abs(outputs() - expected).max() > 1e-4
        other_outputs, seed = run_in_threads(outputs, seeds.next)
        assert seeds.next() is seed_value
    np.testing.assert_array_equal(other_outputs, expected)
    assert len(seen) == 1
    assert keras.ops.convert_to_numpy(seed).any()


def test_calibration_keeps_traced_function():
    model = TextClassifier(Backbone(CONFIG), num_classes=2)
    model.predict(X, verbose=0)
    before, functions = model.predict_function, []

    def record_function(_):
        functions.append(model.predict_function)

    dense = model.backbone.blocks[0].attention.query_key_value
    with interventions.observe_inputs(dense, record_function):
        _eager_view(model).predict(X, verbose=0)
    assert functions == [before]
    model.quantize("int8", calibration=X)
    assert model.predict_function not in (before, None)  # Calls of `predict` use this function.
