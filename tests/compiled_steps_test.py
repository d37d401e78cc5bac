# SPDX-License-Identifier: Apache-2.0
"""Training steps compiled by XLA, over buckets of a few lengths: at most one trace for each."""

import keras
import numpy as np
import pytest

from keras_bert import MultipleChoice
from tests.small_tasks import TASKS, make_task

pytestmark = pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="XLA compiles TensorFlow and JAX"
)


class Traced:
    """Notes the length of the ids each time Python, and not the compiled step, runs it."""

    def call(self, inputs, training=None, mask=None):
        if training:
            self.traced_lengths.append(inputs["token_ids"].shape[-1])
        return super().call(inputs, training=training, mask=mask)


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
