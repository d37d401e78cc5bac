# SPDX-License-Identifier: Apache-2.0
"""Every task on every family: the cases in `tests/task_cases.py`.

Each case trains one small model through the public API, with the family's tokenizer. Predictions
and scores must agree everywhere: `fit` for two epochs with a validation split, the prediction
method, `predict_rows`, `evaluate` with two batch sizes, a dataset, a saved file and a preset.
Exports are tested in `tests/export/served_model_test.py`.

A family is a set of values, so each task and each family runs on one backend.
`KERAS_BERT_RELEASE=1` runs all tasks of all families on each backend.
"""

import dataclasses
import inspect
import itertools
import os

import keras
import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")

import keras_bert
from tests.task_cases import (
    BATCH,
    CASES,
    FAMILIES,
    MANY_ROUNDS,
    NUM_ROWS,
    get_trained,
    make_task,
    task_case,
    train,
)

pytestmark = pytest.mark.slow
BACKENDS = ["tensorflow", "jax", "torch"]
BACKEND = keras.backend.backend()


# A task of each family. The tasks on TensorFlow and JAX differ in their inputs and outputs.
SAMPLE = {
    "tensorflow": [("tagging", "bert"), ("choices", "bert"), ("masked_lm", "distilbert")],
    "jax": [("choices", "roberta"), ("detection", "deberta")],
    "torch": [
        ("questions", "xlm_roberta"),
        ("embedding", "electra"),
        ("regression", "modernbert"),
        ("pairs", "mpnet"),
        ("tagging", "eurobert"),
        ("classes", "nomic_bert"),
        ("masked_lm", "albert"),
        # The last case's task is the teacher.
        ("distilled_masked_lm", "albert"),
    ],
}


def list_cases():
    """Lists the tasks and families to run on this backend."""
    if os.environ.get("KERAS_BERT_RELEASE") == "1":
        return [(name, family) for family in FAMILIES for name in CASES]
    tasks, families = map(set, zip(*itertools.chain(*SAMPLE.values()), strict=True))
    assert families == set(FAMILIES)
    # One student is enough. tests/tasks/distiller_test.py compares the losses of all kinds.
    tasks.add("distilled_classes")
    remaining_tasks = [(name, "bert") for name in CASES if name not in tasks]
    return SAMPLE[BACKEND] + (remaining_tasks if BACKEND == "torch" else [])


@pytest.mark.parametrize(("name", "family"), list_cases())
def test_task_learns_and_predicts_consistently(name, family, tmp_path):
    case, (task, history) = task_case(name, family), get_trained(name, family)
    answers, scores = check_answers(task, case, tmp_path)
    validation = {name: history[f"val_{name}"][-1] for name in scores}
    # Label scores are NaN without labels.
    assert validation == pytest.approx(scores, rel=1e-5, abs=1e-5, nan_ok=True)
    assert len(history["loss"]) == 2
    check_directions(task, history)
    if case.ask is not None:
        check_close(case.ask(task), answers)
    if BACKEND == "tensorflow" and case.dataset is not None:
        check_dataset(task, case, scores)


def check_directions(task, history):
    """Checks that callbacks with `mode="auto"` infer the direction of each log."""
    for name in history:
        monitor = keras.callbacks.EarlyStopping(name)
        monitor.set_model(task)
        monitor._set_monitor_op()
        rises = monitor.monitor_op is keras.ops.greater
        falls = name.endswith(("loss", "perplexity", "divergence", "distance", "error"))
        assert rises != falls


def check_answers(task, case, directory, tolerance=1e-5):
    """Checks the accuracy and the saved files. Returns the predictions and the scores."""
    answers = case.answers(task)
    assert case.accuracy(answers) >= 0.95
    scores = check_saved(task, case, directory, tolerance)
    task.save_to_preset(directory / "preset")
    loaded = (case.from_preset or type(task)).from_preset(directory / "preset")
    student = getattr(task, "student_task", task)
    assert loaded.preprocessor.get_config() == student.preprocessor.get_config()
    check_close(case.answers(loaded), answers, tolerance)
    return answers, scores


def check_saved(task, case, directory, tolerance=1e-5):
    scores = evaluate(task, case, BATCH)
    task.save(directory / "task.keras")
    loaded = keras_bert.load_model(directory / "task.keras")
    assert loaded.get_config() == task.get_config()
    assert int(loaded.optimizer.iterations) == int(task.optimizer.iterations)
    check_same_values(loaded.weights, task.weights)
    check_same_values(loaded.optimizer.variables, task.optimizer.variables)
    # An embedder uses the other rows in a batch as negatives.
    size = BATCH if task.embedding_kind else NUM_ROWS
    loaded_scores = evaluate(loaded, case, size)
    assert loaded_scores == pytest.approx(scores, rel=tolerance, abs=tolerance, nan_ok=True)
    return scores


def check_same_values(loaded, saved):
    for one, other in zip(loaded, saved, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (one.value, other.value)))


def evaluate(task, case, batch_size):
    return task.evaluate(**case.data, batch_size=batch_size, return_dict=True, verbose=0)


def check_close(received, expected, tolerance=1e-5):
    """Checks that nested predictions have equal strings and close numbers."""

    def check(one, other):
        if isinstance(one, str):  # An export has strings for classes without names.
            assert one == str(other)
        else:
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)

    keras.tree.map_structure(check, received, expected)


def check_dataset(task, case, scores):
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices(case.dataset)
    received = task.evaluate(rows, batch_size=BATCH, return_dict=True, verbose=0)
    assert received == pytest.approx(scores, rel=1e-5, abs=1e-5, nan_ok=True)


@pytest.mark.on_torch
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_task_learns_in_mixed_precision(dtype, tmp_path):
    case = task_case("tagging")
    task = make_task(case, dtype=dtype)
    train(task, case)
    # The preset is loaded in float32.
    check_answers(task, case, tmp_path, tolerance=0.03)


LARGE = {"mixed_float16": 0.005, "mixed_bfloat16": 0.02}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for column, dtype in enumerate(LARGE)
        for row, name in enumerate(("classes", "masked_lm", "detection"))
        if BACKENDS[(row + column) % len(BACKENDS)] == BACKEND
    ],
)
def test_large_weights_do_not_overflow(name, dtype):
    """In float16, the products of queries and keys would overflow before they are scaled."""
    case, tasks, losses = task_case(name), [], []
    for policy in ("float32", dtype):
        keras.utils.set_random_seed(0)
        tasks.append(make_task(case, dtype=policy))
        tasks[-1].compile("sgd")
    exact, mixed = tasks
    for weight in exact.weights:
        if weight.path.endswith("kernel") and "embedding" not in weight.path:
            weight.assign(weight * (250 if "query_key_value" in weight.path else 20))
    mixed.set_weights(exact.get_weights())
    for task in tasks:
        keras.utils.set_random_seed(1)  # The seed determines the masks.
        losses.append(evaluate(task, case, NUM_ROWS)["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=LARGE[dtype], abs=0.002)


@pytest.mark.on_torch
def test_lora_learns_and_can_be_loaded(tmp_path):
    # LoRA changes little, because the embeddings keep their initial values.
    case = dataclasses.replace(task_case("tagging"), rounds=MANY_ROUNDS)
    task = make_task(case)
    task.backbone.enable_lora(4)
    train(task, case)
    check_answers(task, case, tmp_path)


@pytest.mark.on_torch
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_int8_task_is_accurate_and_can_be_loaded(tmp_path):
    case = task_case("tagging")
    task = make_task(case)
    train(task, case)
    task.quantize("int8")
    assert case.accuracy(case.answers(task)) >= 0.95
    check_saved(task, case, tmp_path)
    # Presets store floating-point weights.
    with pytest.raises(
        keras_bert.checkpoints.CheckpointError, match="Save the model before quantizing"
    ):
        task.save_to_preset(tmp_path / "preset")


@pytest.mark.backend_independent
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("distilled")])
def test_predict_rows_requires_task_fields(name):
    case = task_case(name)
    task = make_task(case)
    if not case.rows:
        with pytest.raises(ValueError, match="A Pretrainer makes no predictions for text"):
            task.predict_rows([{"text": "the test"}])
        return
    row = case.rows[0]
    assert set(task.fields) <= set(row)
    assert {"batch_size", "verbose"} <= inspect.signature(
        getattr(task, task.predict_method)
    ).parameters.keys()
    assert task.predict_rows([]) == []
    with pytest.raises(ValueError, match=f"Row 1 must have {task.fields[0]}. Received: id"):
        task.predict_rows([row, {"id": 1}])
    for field in task.optional_fields:
        with pytest.raises(ValueError, match=f"Row 1 must have {field}. Received: text"):
            task.predict_rows([{**row, field: "fails"}, {"text": "the test"}])
