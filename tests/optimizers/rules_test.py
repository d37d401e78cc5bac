# SPDX-License-Identifier: Apache-2.0
"""A hundred steps of each optimizer match its formula in float64."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert import optimizers
from keras_bert.optimizers import LAMB, AdamW, AdamWeightDecay, StableAdamW
from tests.optimizers.compiled_apply import compiled_apply

STEPS, WARMUP, PEAK, DECAY, CLIP = 100, 10, 1e-2, 0.01, 1.0
SHAPES = {"embeddings": (40, 6), "kernel": (6, 5), "gamma": (5,), "bias": (5,), "output_bias": (7,)}
UNDECAYED = ("gamma", "bias", "output_bias")


def initial_weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: 0.1 * random.standard_normal(shape) for name, shape in SHAPES.items()}


def make_gradients() -> list[dict[str, np.ndarray]]:
    """Gradients of very different sizes, so that only some steps are clipped."""
    random = np.random.default_rng(1)
    return [
        {name: size * random.standard_normal(shape) for name, shape in SHAPES.items()}
        for size in np.exp(random.uniform(-7, 2, STEPS))
    ]


def make_variables(weights: dict[str, np.ndarray]) -> list[keras.Variable]:
    return [keras.Variable(value, name=name, dtype="float32") for name, value in weights.items()]


def train(optimizer: keras.optimizers.Optimizer) -> dict[str, np.ndarray]:
    variables = make_variables(initial_weights())
    optimizer.build(variables)
    apply = compiled_apply(optimizer, variables)
    for step in make_gradients():
        apply([ops.convert_to_tensor(value, "float32") for value in step.values()])
    return {variable.name: ops.convert_to_numpy(variable.value) for variable in variables}


def scaled_gradients(clip: float | None):
    """Yields the gradients of each step, clipped by their global norm."""
    for step in make_gradients():
        norm = np.sqrt(sum(np.sum(g**2) for g in step.values()))
        scale = 1.0 if clip is None else min(1.0, clip / norm)
        yield {name: scale * g for name, g in step.items()}


def moments(clip: float | None = CLIP):
    """Yields the moments of the clipped gradients of each step, without bias correction."""
    m = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    v = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for step in scaled_gradients(clip):
        for name, g in step.items():
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g**2
        yield m, v


def original_rate(step: int) -> float:
    return PEAK * (step / WARMUP if step < WARMUP else 1 - step / STEPS)


def adam_weight_decay_reference() -> dict[str, np.ndarray]:
    weights = initial_weights()
    for step, (m, v) in enumerate(moments()):
        for name, w in weights.items():
            u = m[name] / (np.sqrt(v[name]) + 1e-6)
            if name not in UNDECAYED:
                u = u + DECAY * w
            weights[name] = w - original_rate(step) * u
    return weights


def lamb_reference() -> dict[str, np.ndarray]:
    weights = initial_weights()
    for step, (m, v) in enumerate(moments()):
        for name, w in weights.items():
            u = m[name] / (np.sqrt(v[name]) + 1e-6)
            ratio = 1.0
            if name not in UNDECAYED:
                u = u + DECAY * w
                ratio = np.linalg.norm(w) / np.linalg.norm(u)
            weights[name] = w - original_rate(step) * ratio * u
    return weights


def adamw_reference(clip: float | None) -> dict[str, np.ndarray]:
    weights = initial_weights()
    for step, (m, v) in enumerate(moments(clip)):
        rate = PEAK * min((step + 1) / WARMUP, (STEPS - step) / (STEPS - WARMUP))
        for name, w in weights.items():
            if name not in UNDECAYED:
                w = w * (1 - rate * DECAY)
            root = np.sqrt(v[name]) / np.sqrt(1 - 0.999 ** (step + 1)) + 1e-8
            weights[name] = w - rate / (1 - 0.9 ** (step + 1)) * m[name] / root
    return weights


def stable_adamw_reference(clip: float | None) -> dict[str, np.ndarray]:
    """Algorithm 2 of the StableAdamW paper. Its decay rates correct the bias of the averages."""
    weights = initial_weights()
    m = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    v = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    divided = 0
    for step, scaled in enumerate(scaled_gradients(clip), start=1):
        rate = PEAK * min(step / WARMUP, (STEPS - step + 1) / (STEPS - WARMUP))
        beta_1, beta_2 = (
            beta * (1 - beta ** (step - 1)) / (1 - beta**step) for beta in (0.9, 0.98)
        )
        for name, g in scaled.items():
            m[name] = beta_1 * m[name] + (1 - beta_1) * g
            v[name] = beta_2 * v[name] + (1 - beta_2) * g**2
            rms = np.sqrt(np.mean(g**2 / np.maximum(v[name], 1e-6**2)))
            divided += rms > 1
            tensor_rate = rate / max(1.0, rms)
            decay = 0.0 if name in UNDECAYED else DECAY
            weights[name] = (1 - tensor_rate * decay) * weights[name]
            weights[name] -= tensor_rate * m[name] / (np.sqrt(v[name]) + 1e-6)
    # Both the case that differs from AdamW and the other case must occur.
    assert 0.1 < divided / (STEPS * len(SHAPES)) < 0.9
    return weights


def assert_close(trained: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, weight in trained.items():
        np.testing.assert_allclose(weight, expected[name], rtol=1e-6, atol=1e-6, err_msg=name)


each_clip = pytest.mark.parametrize("clip", [CLIP, pytest.param(None, marks=pytest.mark.on_torch)])


def test_adam_weight_decay_matches_original():
    assert_close(train(AdamWeightDecay(PEAK, STEPS, WARMUP)), adam_weight_decay_reference())


def test_lamb_matches_reference():
    assert_close(train(LAMB(PEAK, STEPS, WARMUP)), lamb_reference())


@each_clip
def test_adamw_matches_formula(clip):
    trained = train(AdamW(PEAK, STEPS, WARMUP, global_clipnorm=clip))
    assert_close(trained, adamw_reference(clip))


@each_clip
def test_stable_adamw_matches_paper(clip):
    trained = train(StableAdamW(PEAK, STEPS, WARMUP, global_clipnorm=clip))
    assert_close(trained, stable_adamw_reference(clip))


def apply_steps(optimizer, *steps):
    """Returns two variables after updates, each with one gradient value per step."""
    weights = make_variables({"kernel": np.ones((2, 2)), "bias": np.full(3, 2.0)})
    for kernel, bias in steps:
        optimizer.apply(
            [ops.full((2, 2), kernel, dtype="float32"), ops.full((3,), bias, dtype="float32")],
            weights,
        )
    return [ops.convert_to_numpy(weight.value) for weight in weights]


def test_first_stable_adamw_step_matches_adamw():
    """In the first step, the second moment is the squared gradient, whatever its size."""
    options = {"beta_2": 0.98, "epsilon": 1e-6, "global_clipnorm": None}
    for size in (1e-3, 1e6):
        stable, plain = (
            apply_steps(o(0.1, **options), (size, -size)) for o in (StableAdamW, AdamW)
        )
        for a, b in zip(stable, plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_stable_adamw_rate_is_per_variable():
    """If a gradient grows a thousandfold, it dominates its average: rms² = 1 / (1 - β̂₂)."""
    calm, sudden = (1.0, 1.0), (1.0, 1e3)
    options = {"beta_1": 0.0, "beta_2": 0.98, "weight_decay": 0.0, "global_clipnorm": None}
    before = apply_steps(StableAdamW(0.1, **options), calm)
    after = apply_steps(StableAdamW(0.1, **options), calm, sudden)
    plain = apply_steps(AdamW(0.1, epsilon=1e-6, **options), calm, sudden)
    np.testing.assert_allclose(after[0], plain[0], rtol=1e-6)
    rms = np.sqrt(1 / ((1 - 0.98) / (1 - 0.98**2)))
    # m̂ / √v̂ also equals the rms, so the step is the learning rate, as with a calm gradient.
    np.testing.assert_allclose(before[1] - after[1], 0.1, rtol=1e-4)
    np.testing.assert_allclose(before[1] - plain[1], 0.1 * rms, rtol=1e-4)


def test_first_adam_weight_decay_update_is_zero():
    variables = make_variables(initial_weights())
    optimizer = AdamWeightDecay(PEAK, STEPS, WARMUP)
    optimizer.apply([ops.ones(variable.shape) for variable in variables], variables)
    for variable, before in zip(variables, initial_weights().values(), strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(variable.value), np.float32(before))


def test_lamb_splits_fused_query_key_value():
    rng = np.random.default_rng(5)
    parts = [rng.normal(size=(4, 2)) * size for size in (1.0, 10.0, 0.0)]
    gradients = [rng.normal(size=(4, 2)) for _ in parts]
    with keras.name_scope("query_key_value"):
        fused = keras.Variable(np.concatenate(parts, axis=1).astype("float32"), name="kernel")
    separate = [keras.Variable(part.astype("float32"), name="kernel") for part in parts]
    LAMB(0.1, global_clipnorm=None).apply(
        [ops.convert_to_tensor(np.concatenate(gradients, 1).astype("float32"))], [fused]
    )
    LAMB(0.1, global_clipnorm=None).apply(
        [ops.convert_to_tensor(g.astype("float32")) for g in gradients], separate
    )
    expected = np.concatenate([ops.convert_to_numpy(v.value) for v in separate], axis=1)
    np.testing.assert_allclose(ops.convert_to_numpy(fused.value), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["AdamW", "AdamWeightDecay", "LAMB", "StableAdamW"])
def test_infinite_gradient_makes_weights_nan(name):
    weights = make_variables({"kernel": np.ones((2,)), "other": np.ones((3,))})
    bad = ops.convert_to_tensor(np.array([np.inf, 1.0], "float32"))
    optimizer = getattr(optimizers, name)(0.1, global_clipnorm=1.0)
    optimizer.apply([bad, ops.ones((3,))], weights)
    assert np.isnan(ops.convert_to_numpy(weights[1].value)).all()


@pytest.mark.on_torch
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_warmup_steps": 5}, "num_warmup_steps=5, num_train_steps=None"),
        (
            {"learning_rate": optimizers.BertWarmupDecay(1.0, 9), "num_train_steps": 9},
            "a number, the peak of the schedule",
        ),
    ],
)
def test_contradictory_schedules_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        AdamW(**arguments)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's gradients")
def test_sparse_clipping_sums_repeated_rows():
    import tensorflow as tf

    rows, indices = tf.constant([[3.0, 0.0], [0.0, 1.0], [0.0, 4.0]]), tf.constant([1, 0, 1])
    dense = np.array([[0.0, 1.0], [3.0, 4.0], [0.0, 0.0]], "float32")
    trained = []
    for gradient in (tf.IndexedSlices(rows, indices, tf.constant([3, 2])), tf.constant(dense)):
        table = keras.Variable(np.ones((3, 2), "float32"), name="embeddings")
        optimizer = AdamWeightDecay(0.1, weight_decay=0.0)
        optimizer.apply([gradient], [table])
        trained.append(ops.convert_to_numpy(table.value))
    m = 0.1 * dense / np.sqrt(26)
    expected = 1 - 0.1 * m / (np.sqrt(0.001 * (dense / np.sqrt(26)) ** 2) + 1e-6)
    np.testing.assert_allclose(trained[0], expected, rtol=1e-6)
    np.testing.assert_array_equal(trained[0], trained[1])


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's gradients")
def test_stable_adamw_averages_over_all_table_rows():
    """With three rows of zeros, the rms of the gradient is 0.7 instead of 1.4."""
    import tensorflow as tf

    trained = []
    for is_sparse in (True, False):
        table = keras.Variable(np.ones((4, 2), "float32"), name="embeddings")
        optimizer = StableAdamW(0.1, weight_decay=0.0)
        for size in (1.0, 1e3):
            rows, indices = tf.fill((2, 2), size), tf.constant([1, 1])
            dense = np.zeros((4, 2), "float32")
            dense[1] = 2 * size
            sparse = tf.IndexedSlices(rows, indices, tf.constant([4, 2]))
            optimizer.apply([sparse if is_sparse else tf.constant(dense)], [table])
        trained.append(ops.convert_to_numpy(table.value))
    np.testing.assert_array_equal(trained[0], trained[1])
    m = (0.9 * 0.1 * 2 + 0.1 * 2e3) / (1 - 0.9**2)
    v = (0.98 * 0.02 * 2**2 + 0.02 * 2e3**2) / (1 - 0.98**2)
    np.testing.assert_allclose(trained[0][1], 1 - 0.1 - 0.1 * m / np.sqrt(v), rtol=1e-5)
    np.testing.assert_array_equal(trained[0][[0, 2, 3]], 1.0)
