# SPDX-License-Identifier: Apache-2.0
"""Calls from several threads, and calls that are interrupted."""

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_bert import Backbone, TextClassifier, TokenClassifier
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


def in_threads(*calls):
    """What each of the calls returns, of which each is made in a thread of its own at once."""
    start = threading.Barrier(len(calls))

    def wait_and(call):
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(wait_and, calls))


def test_threads_predict_with_a_model_and_its_encoder():
    model = TextClassifier(Backbone(CONFIG), num_classes=2)  # and so its functions are made at once
    outputs = in_threads(
        *[lambda: model.predict(X, batch_size=2, verbose=0)] * 3,
        *[lambda: model.predict_on_batch(X)] * 2,
        lambda: model.backbone.predict(X, batch_size=2, verbose=0)["pooled_output"],
    )
    expected = keras.ops.convert_to_numpy(model(X))
    for logits in outputs[:5]:
        np.testing.assert_allclose(keras.ops.convert_to_numpy(logits), expected, atol=1e-5)
    pooled = keras.ops.convert_to_numpy(model.backbone(X)["pooled_output"])
    np.testing.assert_allclose(outputs[5], pooled, atol=1e-5)


def test_threads_evaluate_all_rows_each(classifier):
    """Metrics are variables of the model, which a second evaluation resets."""

    def evaluate():
        return classifier.evaluate(X, Y, batch_size=2, verbose=0)

    expected = evaluate()
    for metrics in in_threads(*[evaluate] * 4):
        np.testing.assert_allclose(metrics, expected, rtol=1e-5)


def test_threads_predict_while_another_one_trains(classifier):
    losses, *outputs = in_threads(
        lambda: classifier.fit(X, Y, batch_size=2, epochs=2, verbose=0).history["loss"],
        *[lambda: classifier.predict(X, batch_size=4, verbose=0)] * 3,
    )
    assert np.isfinite(losses).all()
    assert all(logits.shape == (ROWS, 2) for logits in outputs)


class Interruption(keras.callbacks.Callback):
    """Interrupts what it is a callback of, and is not asked for the model, which would help it."""

    def __init__(self, at):
        super().__init__()
        setattr(self, at, self.interrupt)

    def interrupt(self, batch, logs=None):
        raise KeyboardInterrupt


@on_jax
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_an_interrupted_call_leaves_every_task_with_its_weights(task):
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
def test_a_step_that_is_interrupted_after_it_was_computed(classifier, call, monkeypatch):
    """Python raises what interrupts a compiled function when it returns: its result is lost."""
    import jax

    before = classifier.get_weights()
    compile_function = jax.jit

    def interrupted(function, **options):
        compiled = compile_function(function, **options)

        def call(*arguments):
            compiled(*arguments)
            raise KeyboardInterrupt

        return call

    monkeypatch.setattr(jax, "jit", interrupted)
    for name in ("predict", "test"):
        monkeypatch.setattr(classifier, f"{name}_function", None)
    data = (X,) if "predict" in call else (X, Y)
    with pytest.raises(KeyboardInterrupt):
        getattr(classifier, call)(*data)
    for weight, other in zip(before, classifier.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, other)


@on_jax
def test_an_interrupted_step_of_training_keeps_its_result(classifier):
    """What takes place between the end of a compiled step and the next line of Python."""
    from keras_bert.ops import jax_steps

    classifier.train_on_batch(X, Y)
    step = jax_steps.training_step(classifier)
    state = tuple(jax_steps.training_state(classifier).values())
    _, state = step(state, (X, Y, None))  # compiles
    classifier._jax_state = None

    def at_return(frame, event, argument):
        # The compiled function is not Python's: its end is an event of the frame that calls it.
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


def test_callbacks_of_training_predict(classifier):
    outputs = []

    class Predict(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            outputs.append(classifier.predict(X, verbose=0))

    classifier.fit(X, Y, batch_size=4, callbacks=[Predict()], verbose=0)
    assert len(outputs) == 2
    np.testing.assert_allclose(outputs[-1], classifier.predict(X, verbose=0), atol=1e-5)


# JAX warns of any fork; Python from 3.12 on, of one with threads.
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:DeprecationWarning")
def test_forked_child_raises(classifier):
    """It would wait for threads that it does not have. (Programs of other tests fork before.)"""
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
    assert classifier.predict(X, verbose=0).shape == (ROWS, 2)  # the parent goes on


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film"]


def test_threads_are_the_first_to_use_text():
    from keras_bert.data import TextClassifierPreprocessor, TokenClassifierPreprocessor
    from keras_bert.text import WordPieceTokenizer

    tokenizer = WordPieceTokenizer(WORDS)
    for task, made_by, text in (
        (TextClassifier, TextClassifierPreprocessor, ["a good film", "bad"]),
        (TokenClassifier, TokenClassifierPreprocessor, [["a", "good", "film"], ["bad"]]),
    ):
        config = made_by(tokenizer, sequence_length=8).get_config()
        model = task(Backbone(CONFIG), num_classes=2, preprocessor=config)
        predict_method = model.classify if task is TextClassifier else model.tag
        answers = in_threads(
            *[lambda predict_method=predict_method, text=text: predict_method(text)] * 3
        )
        assert answers == [predict_method(text)] * 3


def test_values_for_a_while_stay_in_a_thread(classifier):
    """Explanations, calibration and repeated computations change no other thread's calls."""
    backbone = classifier.backbone
    attention, dense = backbone.blocks[0].attention, backbone.blocks[0].attention.query_key_value
    seeds, drawn = backbone.embeddings.seed_generator, keras.ops.zeros((2,), "uint32")
    heads = np.zeros((1, attention.num_heads), "float32")
    seen = []

    def outputs():
        return keras.ops.convert_to_numpy(classifier(X))

    expected = outputs()
    with (
        interventions.replace_embeddings(backbone.token_embedding, keras.ops.zeros((ROWS, 6, 16))),
        interventions.weigh_heads(attention, [heads]),
        interventions.observe_inputs(dense, seen.append),
        seeds.replay_seed(drawn),
    ):
        assert abs(outputs() - expected).max() > 1e-4
        others, seed = in_threads(outputs, seeds.next)
        assert seeds.next() is drawn
    np.testing.assert_array_equal(others, expected)
    assert len(seen) == 1
    assert keras.ops.convert_to_numpy(seed).any()


def test_calibration_leaves_the_traced_function():
    model = TextClassifier(Backbone(CONFIG), num_classes=2)
    model.predict(X, verbose=0)
    before, functions = model.predict_function, []

    def note(_):
        functions.append(model.predict_function)

    dense = model.backbone.blocks[0].attention.query_key_value
    with interventions.observe_inputs(dense, note):
        _eager_view(model).predict(X, verbose=0)
    assert functions == [before]
    model.quantize("int8", calibration=X)
    assert model.predict_function not in (before, None)  # which a loop would call
