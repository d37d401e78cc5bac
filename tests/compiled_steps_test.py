# SPDX-License-Identifier: Apache-2.0
"""Compiled training steps, over buckets of a few lengths: at most one trace for each."""

import contextlib

import keras
import numpy as np
import pytest

from keras_bert import MultipleChoice, Pretrainer, TextClassifier
from keras_bert.ops import dispatch
from tests.small_tasks import TASKS, make_task

IS_TORCH = keras.backend.backend() == "torch"


def on_torch(test):
    test = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")(test)  # its own
    return pytest.mark.skipif(not IS_TORCH, reason="PyTorch's own")(test)


class Traced:
    """Notes the length of the ids each time Python, and not the compiled step, runs it."""

    def call(self, inputs, training=None, mask=None):
        if training:
            self.traced_lengths.append(inputs["token_ids"].shape[-1])
        return super().call(inputs, training=training, mask=mask)


@pytest.mark.skipif(IS_TORCH, reason="XLA compiles TensorFlow and JAX")
@pytest.mark.parametrize("task", TASKS)
def test_compiled_steps(task):
    model, buckets = make_task(type(f"Traced{task.__name__}", (Traced, task), {})), TASKS[task]
    model.traced_lengths = []
    model.compile(keras.optimizers.SGD(0.5), jit_compile=True)
    # Weights, and the state that dropout draws from
    start = [variable.numpy().copy() for variable in model.variables]
    initial_weights = [weight.numpy().copy() for weight in model.trainable_weights]
    first = model.fit(buckets(filler=2), shuffle=False, verbose=0).history
    traced, weights = list(model.traced_lengths), model.get_weights()
    for variable, value in zip(model.variables, start, strict=True):
        variable.assign(value)
    second = model.fit(buckets(filler=7), shuffle=False, verbose=0).history

    # JAX traces each length once. TensorFlow traces one graph for any length, and that twice if
    # the first call has to make the optimizer's variables; XLA then compiles it for each length.
    lengths = {4, 8} if keras.backend.backend() == "jax" else {None}
    assert set(traced) == lengths
    assert len(traced) <= 2
    assert model.traced_lengths == traced

    # Filler rows have weight 0
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
def test_pytorch_traces_a_step_in_one_piece():
    """On a CPU, PyTorch's operations execute what it traced: to compile that takes minutes."""
    import torch

    graphs = []

    def executed_as_it_is(graph, inputs):
        graphs.append(graph)
        return graph.forward

    on_a_gpu = dispatch.cuda_capability() is not None
    losses = {}
    for jit_compile in (False, True):
        model, buckets = make_task(Pretrainer), TASKS[Pretrainer](filler=2)
        model.compile(keras.optimizers.SGD(0.5), jit_compile=jit_compile)
        with contextlib.ExitStack() as stack:
            if not on_a_gpu:
                stack.enter_context(torch.compiler.set_stance(force_backend=executed_as_it_is))
            losses[jit_compile] = model.fit(buckets, shuffle=False, verbose=0).history
            model.train_on_batch(*buckets[0])
    # One for the first length, and one for all others
    assert len(graphs) == (0 if on_a_gpu else 2)
    for name, values in losses[False].items():
        np.testing.assert_allclose(losses[True][name], values, rtol=1e-5, atol=1e-6)


@on_torch
def test_a_training_step_of_ones_own_is_compiled_by_keras():
    from keras_bert.ops.torch_steps import TorchSteps

    class Own(TextClassifier):
        def train_step(self, data):
            return {**super().train_step(data), "own": 1.0}

    for task, is_preset_config in ((TextClassifier, True), (Own, False)):
        model = make_task(task)
        model.compile(keras.optimizers.SGD(0.5), jit_compile=True)
        assert (TorchSteps().train_function(model) is not None) == is_preset_config
        model.compile(keras.optimizers.SGD(0.5))
        assert TorchSteps().train_function(model) is None
