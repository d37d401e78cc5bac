# SPDX-License-Identifier: Apache-2.0
"""Compiled training steps trace each bucket length at most once."""

import contextlib

import keras
import numpy as np
import pytest

from keras_bert import MultipleChoice, Pretrainer, ReplacedTokenDetector, TextClassifier
from keras_bert.ops import dispatch
from tests.small_tasks import TASKS, make_task

BACKEND = keras.backend.backend()
IS_TORCH = BACKEND == "torch"
# These tasks contain what the others compute, and the choices have a dimension more.
COMPILED = {
    "tensorflow": (TextClassifier, ReplacedTokenDetector),
    "jax": (TextClassifier, ReplacedTokenDetector, MultipleChoice),
}


def on_torch(test):
    test = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")(
        test
    )  # PyTorch's own warning
    return pytest.mark.skipif(not IS_TORCH, reason="PyTorch's own")(test)


class Traced:
    """Records the length of the ids each time Python runs the call, not the compiled step."""

    def call(self, inputs, training=None, mask=None):
        if training:
            self.traced_lengths.append(inputs["token_ids"].shape[-1])
        return super().call(inputs, training=training, mask=mask)


@pytest.mark.skipif(IS_TORCH, reason="XLA compiles TensorFlow and JAX")
@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=() if task in COMPILED.get(BACKEND, ()) else pytest.mark.release)
        for task in TASKS
    ],
)
def test_compiled_steps(task):
    model, buckets = make_task(type(f"Traced{task.__name__}", (Traced, task), {})), TASKS[task]
    model.traced_lengths = []
    model.compile(keras.optimizers.SGD(0.5), jit_compile=True)
    # The weights, and the state of dropout's random generator
    start = [variable.numpy().copy() for variable in model.variables]
    initial_weights = [weight.numpy().copy() for weight in model.trainable_weights]
    first = model.fit(buckets(padding_id=2), shuffle=False, verbose=0).history
    traced, weights = list(model.traced_lengths), model.get_weights()
    for variable, value in zip(model.variables, start, strict=True):
        variable.assign(value)
    second = model.fit(buckets(padding_id=7), shuffle=False, verbose=0).history

    # JAX traces each length once. TensorFlow traces one graph for any length, or twice if the first
    # call creates the optimizer's variables. XLA then compiles the graph for each length.
    lengths = {4, 8} if BACKEND == "jax" else {None}
    assert set(traced) == lengths
    assert len(traced) <= 2
    assert model.traced_lengths == traced

    # Padding rows have weight 0.
    for name, values in first.items():
        np.testing.assert_allclose(second[name], values, rtol=1e-5)
    for now, before in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(now, before, atol=1e-5)
        assert np.isfinite(now).all()
    for weight, value in zip(model.trainable_weights, initial_weights, strict=True):
        # A constant added to all choices has no gradient, except for rounding.
        if not (task is MultipleChoice and weight.path == "classifier/dense/bias"):
            assert (weight.numpy() != value).any(), weight.path


@on_torch
def test_pytorch_traces_step_as_one_graph():
    """On a CPU, PyTorch's operations run the traced graph, because compiling it takes minutes."""
    import torch

    graphs = []

    def run_uncompiled(graph, inputs):
        graphs.append(graph)
        return graph.forward

    has_gpu = dispatch.cuda_capability() is not None
    losses = {}
    for jit_compile in (False, True):
        model, buckets = make_task(Pretrainer), TASKS[Pretrainer](padding_id=2)
        model.compile(keras.optimizers.SGD(0.5), jit_compile=jit_compile)
        with contextlib.ExitStack() as stack:
            if not has_gpu:
                stack.enter_context(torch.compiler.set_stance(force_backend=run_uncompiled))
            losses[jit_compile] = model.fit(buckets, shuffle=False, verbose=0).history
            model.train_on_batch(*buckets[0])
    # One graph for the first length, and one for all other lengths
    assert len(graphs) == (0 if has_gpu else 2)
    for name, values in losses[False].items():
        np.testing.assert_allclose(losses[True][name], values, rtol=1e-5, atol=1e-6)


@on_torch
def test_custom_train_step_is_compiled_by_keras():
    from keras_bert.ops.torch_steps import TorchSteps

    class CustomClassifier(TextClassifier):
        def train_step(self, data):
            return {**super().train_step(data), "own": 1.0}

    for task, uses_torch_steps in ((TextClassifier, True), (CustomClassifier, False)):
        model = make_task(task)
        model.compile(keras.optimizers.SGD(0.5), jit_compile=True)
        assert (TorchSteps().train_function(model) is not None) == uses_torch_steps
        model.compile(keras.optimizers.SGD(0.5))
        assert TorchSteps().train_function(model) is None
