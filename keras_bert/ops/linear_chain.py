# SPDX-License-Identifier: Apache-2.0
"""Linear-chain CRFs in log space: likelihood, marginal probabilities, and Viterbi decoding.

All functions accept emissions `(batch, length, classes)` and a bool mask `(batch, length)`. An
example's sequence consists of the positions where the mask is True, wherever they are. All other
positions are left out. For example, a tagger's mask is True at the first subword of each word.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.context_variables import set_variable
from keras_bert.ops.gradients import without_gradients

_loops_are_unrolled = contextvars.ContextVar("_loops_are_unrolled", default=False)


class Potentials(NamedTuple):
    """The scores of a chain that do not depend on the input, float32.

    Attributes:
        start: The score of each class at the first position, `(classes,)`.
        transitions: The score of each class (column) after each other class (row), `(classes,
            classes)`.
        end: The score of each class at the last position, `(classes,)`.
    """

    start: Tensor
    transitions: Tensor
    end: Tensor


def log_likelihood(emissions: Tensor, labels: Tensor, mask: Tensor, chain: Potentials) -> Tensor:
    """Computes the log probability of each example's labels, float32 `(batch,)`.

    It is 0 for examples without positions. The gradient is not computed by differentiating the
    recursion. It is the difference between observed and expected counts, so that XLA needs no
    stack of intermediate results.

    Args:
        emissions: The score of each class at each position.
        labels: Class IDs, int `(batch, length)`. IDs outside the mask are not used.
        mask: Whether each position belongs to the sequence.
        chain: The other scores.

    Reference:
        [Lafferty et al., 2001](https://repository.upenn.edu/cis_papers/159/), sections 3 and 4.
    """
    emissions, chain = ops.cast(emissions, "float32"), _as_float32(chain)
    order, _ = _orders(mask)
    emissions = ops.take_along_axis(emissions, order[:, :, None], axis=1)
    labels = ops.take_along_axis(ops.cast(labels, "int32"), order, axis=1)
    is_valid, is_first, is_last = _positions(mask)
    num_classes = emissions.shape[-1]
    valid, first, last = (ops.cast(x, "float32")[:, :, None] for x in (is_valid, is_first, is_last))
    inner = valid - first
    observed = ops.one_hot(ops.where(is_valid, labels, -1), num_classes, dtype="float32")
    before = _shift(observed)
    observed_score = ops.sum(
        observed * emissions
        + first * observed * chain.start
        + inner * observed * ops.matmul(before, chain.transitions)
        + last * observed * chain.end,
        axis=-1,
    )
    free = Potentials(*map(ops.stop_gradient, chain))
    constants = ops.stop_gradient(emissions)
    alphas, norms = _forward(constants, is_valid, free)
    betas = _backward(constants, is_valid, free)
    # The normalizer of the last step contains the score of the end.
    at_end = ops.logsumexp(alphas + free.end, axis=-1)
    log_norms = norms + ops.where(is_last, at_end, 0.0)
    value = ops.sum(ops.stop_gradient(observed_score) - log_norms, axis=1)

    # The derivatives of the log partition function are the expected counts.
    expected = valid * ops.softmax(alphas + betas, axis=-1)
    # (batch, length, classes before, classes)
    pairs = _shift(alphas)[:, :, :, None] + free.transitions + (constants + betas)[:, :, None, :]
    shape = ops.shape(pairs)
    pairs = ops.softmax(ops.reshape(pairs, (*shape[:2], num_classes * num_classes)), axis=-1)
    pairs = ops.reshape(ops.sum(inner * pairs, axis=1), (-1, num_classes, num_classes))
    expected = ops.stop_gradient(expected)
    expected_score = (
        ops.sum(expected * (emissions + first * chain.start + last * chain.end), axis=(1, 2))
        + ops.sum(ops.stop_gradient(pairs) * chain.transitions, axis=(1, 2))
    )  # fmt: skip
    differentiable = ops.sum(observed_score, axis=1) - expected_score
    return ops.stop_gradient(value) + (differentiable - ops.stop_gradient(differentiable))


def log_marginals(emissions: Tensor, mask: Tensor, chain: Potentials) -> Tensor:
    """Computes the log probability of each class at each position, given the whole sequence.

    Returns:
        float32 `(batch, length, classes)`, by the forward-backward algorithm. Outside the mask,
        values are not defined.

    Args:
        emissions: The score of each class at each position.
        mask: Whether each position belongs to the sequence.
        chain: The other scores.
    """
    emissions, chain = ops.cast(emissions, "float32"), _as_float32(chain)
    order, inverse = _orders(mask)
    emissions = ops.take_along_axis(emissions, order[:, :, None], axis=1)
    is_valid, _, _ = _positions(mask)
    alphas, _ = _forward(emissions, is_valid, chain)
    logs = ops.log_softmax(alphas + _backward(emissions, is_valid, chain), axis=-1)
    return ops.take_along_axis(logs, inverse[:, :, None], axis=1)


def decode(emissions: Tensor, mask: Tensor, chain: Potentials) -> Tensor:
    """Computes each example's most probable labels with the Viterbi algorithm.

    Args:
        emissions: The score of each class at each position.
        mask: Whether each position belongs to the sequence.
        chain: The other scores.

    Returns:
        Class IDs, int32 `(batch, length)`, and -1 outside the mask.
    """
    emissions, chain = ops.cast(emissions, "float32"), _as_float32(chain)
    order, inverse = _orders(mask)
    emissions = ops.take_along_axis(emissions, order[:, :, None], axis=1)
    is_valid, _, _ = _positions(mask)
    same = ops.zeros_like(emissions[:, 0], dtype="int32") + ops.arange(
        emissions.shape[-1], dtype="int32"
    )

    def step(carry: Any, inputs: Any) -> Any:
        best, _ = carry
        emission, valid, is_first = inputs
        scores = best[:, :, None] + chain.transitions
        new = ops.where(is_first, chain.start, ops.amax(scores, axis=1)) + emission
        new = new - ops.amax(new, axis=-1, keepdims=True)
        return ops.where(valid, new, best), ops.where(valid, _argmax(scores, axis=1), same)

    initial = ops.zeros_like(emissions[:, 0]), same
    best, backs = _scan(step, initial, _steps(emissions, is_valid))

    def step_back(carry: Any, back: Any) -> Any:
        label, _ = carry
        return ops.take_along_axis(back, label[:, None], axis=1)[:, 0], label

    last = _argmax(best[-1] + chain.end, axis=-1)
    _, labels = _scan(step_back, (last, last), backs, reverse=True)
    labels = ops.take_along_axis(ops.transpose(labels), inverse, axis=1)
    return ops.where(mask, labels, -1)


def decode_with_scores(emissions: Tensor, mask: Tensor, chain: Potentials) -> tuple[Tensor, Tensor]:
    """Returns the labels of `decode`, and the marginal probability of each label, float32."""
    labels = decode(emissions, mask, chain)
    logs = log_marginals(emissions, mask, chain)
    of_labels = ops.take_along_axis(logs, ops.maximum(labels, 0)[:, :, None], axis=-1)
    return labels, ops.exp(of_labels[:, :, 0])


def unroll_loops() -> contextlib.AbstractContextManager[None]:
    """Makes TensorFlow graphs without loops, for sequences of a fixed length.

    LiteRT cannot convert loops that collect tensors of unknown shape.
    """
    return set_variable(_loops_are_unrolled, True)


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function of this module with NumPy arrays, outside of models. Returns NumPy arrays.

    TensorFlow and JAX compile the function once for each shape.
    """
    tensors = keras.tree.map_structure(ops.convert_to_tensor, arguments)
    with without_gradients():
        outputs = _compiled(function, keras.backend.backend())(*tensors)
    return keras.tree.map_structure(ops.convert_to_numpy, outputs)


@functools.cache
def _compiled(function: Callable[..., Any], backend: str) -> Any:
    if backend == "jax":
        import jax

        return jax.jit(function)
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, autograph=False)
    return function


def _forward(emissions: Tensor, is_valid: Tensor, chain: Potentials) -> tuple[Tensor, Tensor]:
    """Computes the normalized forward scores `(batch, length, classes)` and their normalizers.

    The sum of the normalizers `(batch, length)` and of the last position's end score is the log
    partition function. Without normalization, float32 would lose digits in long sequences.
    """

    def step(carry: Any, inputs: Any) -> Any:
        alpha, _ = carry
        emission, valid, is_first = inputs
        moved = ops.logsumexp(alpha[:, :, None] + chain.transitions, axis=1)
        new = ops.where(is_first, chain.start, moved) + emission
        norm = ops.logsumexp(new, axis=-1, keepdims=True)
        return ops.where(valid, new - norm, alpha), ops.where(valid, norm, 0.0)

    zeros = ops.zeros_like(emissions[:, 0])
    alphas, norms = _scan(step, (zeros, zeros[:, :1]), _steps(emissions, is_valid))
    return ops.transpose(alphas, (1, 0, 2)), ops.transpose(norms[:, :, 0])


def _backward(emissions: Tensor, is_valid: Tensor, chain: Potentials) -> Tensor:
    """Computes the backward scores `(batch, length, classes)`, up to a constant per position."""

    def step(carry: Any, inputs: Any) -> Any:
        beta, _ = carry
        emission, valid, _ = inputs
        after = (emission + beta)[:, None, :]
        new = ops.logsumexp(chain.transitions + after, axis=-1)
        new = new - ops.amax(new, axis=-1, keepdims=True)
        return ops.where(valid, new, beta), beta

    initial = ops.zeros_like(emissions[:, 0]) + chain.end
    _, betas = _scan(step, (initial, initial), _steps(emissions, is_valid), reverse=True)
    return ops.transpose(betas, (1, 0, 2))


def _argmax(x: Tensor, axis: int) -> Tensor:
    """Returns the index of the first largest value, int32, by operations that all runtimes have.

    Keras' argmax on TensorFlow uses Bitcast, which ONNX and OpenVINO cannot convert.
    """
    size = x.shape[axis]
    index = ops.arange(size, dtype="int32")
    index = index if axis == -1 else index[:, None]
    return ops.amin(ops.where(x >= ops.amax(x, axis=axis, keepdims=True), index, size), axis=axis)


def _scan(step: Callable[[Any, Any], Any], initial: Any, inputs: Any, reverse: bool = False) -> Any:
    """Calls `step(carry, inputs)` for each entry of the first axis. Returns all stacked results."""
    if keras.backend.backend() != "tensorflow":
        _, results = ops.scan(
            lambda carry, x: (step(carry, x),) * 2, initial, inputs, reverse=reverse
        )
        return results
    import tensorflow as tf

    # Keras' scan fails for multiple inputs if their length is unknown, and `reverse` of `tf.scan`
    # has no effect in ONNX models.
    turn = functools.partial(keras.tree.map_structure, lambda x: tf.reverse(x, [0]))
    inputs = turn(inputs) if reverse else inputs
    if _loops_are_unrolled.get():
        carries = [initial]
        for index in range(keras.tree.flatten(inputs)[0].shape[0]):
            entry = keras.tree.map_structure(lambda x, index=index: x[index], inputs)
            carries.append(step(carries[-1], entry))
        results = keras.tree.map_structure(lambda *values: tf.stack(values), *carries[1:])
    else:
        results = tf.scan(step, inputs, initial)
    return turn(results) if reverse else results


def _steps(emissions: Tensor, is_valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the inputs of a scan: emissions, whether positions are valid, and the first."""
    length = ops.shape(emissions)[1]
    is_first = ops.arange(length, dtype="int32")[:, None, None] == 0
    return ops.transpose(emissions, (1, 0, 2)), ops.transpose(is_valid)[:, :, None], is_first


def _orders(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the order with the sequence's positions first, and the inverse order."""
    index = ops.arange(ops.shape(mask)[1], dtype="int32")
    order = ops.argsort(ops.where(mask, index, index + ops.shape(mask)[1]), axis=1)
    order = ops.cast(order, "int32")
    return order, ops.cast(ops.argsort(order, axis=1), "int32")


def _positions(mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns which positions are valid, the first and the last, in the new order."""
    lengths = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)
    index = ops.arange(ops.shape(mask)[1], dtype="int32")
    is_valid = index < lengths
    return is_valid, ops.logical_and(is_valid, index == 0), index == lengths - 1


def _shift(x: Tensor) -> Tensor:
    """Moves values `(batch, length, classes)` to the next position. The first becomes 0."""
    return ops.concatenate([ops.zeros_like(x[:, :1]), x[:, :-1]], axis=1)


def _as_float32(chain: Potentials) -> Potentials:
    return Potentials(*(ops.cast(part, "float32") for part in chain))
