# SPDX-License-Identifier: Apache-2.0
"""Changes to a task's layers (LoRA, int8, freezing) survive saving and loading."""

import keras
import numpy as np
import pytest

import keras_bert
from tests.small_tasks import TASKS, make_task


def to_arrays(variables):
    return [keras.ops.convert_to_numpy(variable.value) for variable in variables]


@pytest.mark.on_torch
@pytest.mark.parametrize("task_class", [keras_bert.MaskedLM, keras_bert.Distiller])
def test_config_copies_shared_weights(task_class):
    """`clone_model` would separate shared weights, so it raises and suggests the config."""
    task = make_task(task_class)
    with pytest.raises(NotImplementedError, match="Copy the model with its config"):
        keras.models.clone_model(task)
    copy = type(task).from_config(task.get_config())
    copy.set_weights(task.get_weights())
    features = TASKS[keras_bert.Distiller]()[0][0]
    for one, other in zip(*map(keras.tree.flatten, (task(features), copy(features))), strict=True):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(other), keras.ops.convert_to_numpy(one)
        )


@pytest.mark.on_torch
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize(
    "task_class",
    [
        keras_bert.TextClassifier,  # An encoder and a head, like most tasks
        keras_bert.MaskedLM,
        keras_bert.Pretrainer,
        keras_bert.Distiller,
        keras_bert.ReplacedTokenDetector,
    ],
)
def test_lora_and_int8_round_trip(task_class, tmp_path):
    task = make_task(task_class)
    encoder = getattr(task, "student_task", task).backbone
    encoder.enable_lora(2, lora_alpha=3)
    update = encoder.blocks[0].attention.query_key_value.lora_kernel_b
    update.assign(np.full(update.shape, 0.1))
    task.quantize("int8")
    task.save(tmp_path / "task.keras")
    loaded = keras_bert.load_model(tmp_path / "task.keras")
    for name in ("weights", "trainable_variables"):
        old, new = getattr(task, name), getattr(loaded, name)
        assert [variable.path for variable in new] == [variable.path for variable in old]
        for one, other in zip(to_arrays(old), to_arrays(new), strict=True):
            assert other.dtype == one.dtype
            np.testing.assert_array_equal(other, one)
    if task_class is keras_bert.ReplacedTokenDetector:  # Its outputs depend on sampled tokens.
        return
    features = TASKS.get(task_class, TASKS[keras_bert.Distiller])()[0][0]
    old, new = (keras.tree.flatten(model(features)) for model in (task, loaded))
    for one, other in zip(old, new, strict=True):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(other), keras.ops.convert_to_numpy(one)
        )


def trainable_flags(model):
    """Returns which layers and variables of a model are trainable."""
    layers = {id(layer): layer for layer in model._flatten_layers() if layer.variables}
    return (
        [(layer.path, layer.trainable) for layer in layers.values()],
        [(variable.path, variable.trainable) for variable in model.weights],
        [variable.path for variable in model.trainable_variables],
    )


@pytest.mark.on_torch
@pytest.mark.parametrize(
    "task_class",
    [keras_bert.TextClassifier, keras_bert.ReplacedTokenDetector, keras_bert.Distiller],
)
def test_trainable_flags_survive(task_class, tmp_path):
    task = make_task(task_class)
    random = np.random.default_rng(0)
    layers = [layer for layer in task._flatten_layers() if layer.variables]
    variables = [variable for layer in layers for variable in layer._trainable_variables]
    for number in range(2):
        for part in random.permutation(np.array([*layers, *variables], object))[: len(layers)]:
            part.trainable = bool(random.integers(2))
        assert trainable_flags(type(task).from_config(task.get_config())) == trainable_flags(
            task
        ), number
    if task_class is not keras_bert.Distiller:
        assert trainable_flags(keras_bert.insight.prune_heads(task, {0: [1]})) == trainable_flags(
            task
        )
    task.trainable = True
    task.backbone.trainable = False
    task.backbone.blocks[-1].trainable = True
    task.compile()
    task.optimizer.build(task.trainable_variables)
    task.save(tmp_path / "task.keras")
    loaded = keras_bert.load_model(tmp_path / "task.keras")
    assert trainable_flags(loaded) == trainable_flags(task)
    paths = [[v.path for v in x.optimizer.variables] for x in (task, loaded)]
    assert paths[0] == paths[1]


@pytest.mark.parametrize("steps", [0, 1])
def test_optimizer_survives_later_freezing(steps, tmp_path):
    task = make_task(keras_bert.MaskedLM)
    features, targets, _ = TASKS[keras_bert.Distiller]()[0]
    task.compile()
    for _ in range(steps):
        task.train_on_batch(features, targets)
    task.trainable = False
    task.save(tmp_path / "task.keras")
    loaded = keras_bert.load_model(tmp_path / "task.keras")
    assert not loaded.trainable_variables
    for one, other in zip(*(to_arrays(x.optimizer.variables) for x in (task, loaded)), strict=True):
        np.testing.assert_array_equal(other, one)


@pytest.mark.on_torch
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_optimizer_round_trip_after_quantize(tmp_path):
    task = make_task(keras_bert.MaskedLM)
    features, targets, _ = TASKS[keras_bert.Distiller]()[0]
    task.compile()
    task.train_on_batch(features, targets)
    task.quantize("int8")
    for number in range(2):
        task.save(tmp_path / f"{number}.keras")
        loaded = keras_bert.load_model(tmp_path / f"{number}.keras")
        old, new = (to_arrays(model.optimizer.variables) for model in (task, loaded))
        for one, other in zip(old, new, strict=True):
            np.testing.assert_array_equal(other, one)
        task = loaded
    # On JAX, Keras's optimizers need the variables that they were built for, saved or not.
    if keras.backend.backend() != "jax":
        task.train_on_batch(features, targets)
        assert int(task.optimizer.iterations) == 2
