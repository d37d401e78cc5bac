# SPDX-License-Identifier: Apache-2.0
"""What TensorFlow Serving's batching session does with requests: see `batching_session.cc`."""

import concurrent.futures
import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

Tensors = dict[str, np.ndarray]
Signature = Callable[..., Mapping[str, Any]]


def run_alone(signature: Signature, request: Tensors) -> Tensors:
    """The answer to a request that shares its batch with no other."""
    import tensorflow as tf

    answer = signature(**{name: tf.constant(value) for name, value in request.items()})
    return {name: value.numpy() for name, value in answer.items()}


def run_together(
    signature: Signature, requests: Sequence[Tensors], allowed_batch_sizes: Sequence[int] = ()
) -> list[Tensors]:
    """The answers to requests that the server puts into one batch.

    As with `pad_variable_length_inputs`: each tensor of a request is filled up with its own first
    element, strings too, in all dimensions but the first.

    Args:
        signature: Of a SavedModel.
        requests: Arrays of the inputs by their names, whose first dimensions are the same.
        allowed_batch_sizes: The batch is filled up with copies of its first row to the next of
            these sizes, if there are any.

    Returns:
        The rows of the outputs that belong to each request.
    """
    sizes = [len(next(iter(request.values()))) for request in requests]
    assert all(len(x) == n for r, n in zip(requests, sizes, strict=True) for x in r.values())
    total = sum(sizes)
    rows = min((size for size in allowed_batch_sizes if size >= total), default=total)
    batch = {}
    padded = padded_requests(requests)
    for name in requests[0]:
        tensors = [request[name] for request in padded]
        batch[name] = np.concatenate([*tensors, *[tensors[0][:1]] * (rows - total)])
    outputs = run_alone(signature, batch)
    ends = np.cumsum(sizes)
    for name, value in outputs.items():
        assert len(value) == rows, f"{name} has {len(value)} rows, of a batch of {rows}"
    return [
        {name: value[end - size : end] for name, value in outputs.items()}
        for size, end in zip(sizes, ends, strict=True)
    ]


def run_scheduled(
    signature: Signature, requests: Sequence[Tensors], *, pads: bool
) -> list[Tensors | Exception]:
    """The answers to requests that clients send at a time, joined by the server's scheduler.

    The scheduler is a part of TensorFlow (`tf.nondifferentiable_batch_function`). It does not pad,
    which the server does before it.

    Args:
        signature: Of a SavedModel.
        requests: Arrays of the inputs by their names; those of the first have the right rank.
        pads: The server's `pad_variable_length_inputs`.

    Returns:
        For each request its answer, or the error that its client gets.
    """
    import tensorflow as tf

    names, total = list(requests[0]), sum(len(next(iter(each.values()))) for each in requests)
    inputs = tuple((name, value.dtype, value.ndim) for name, value in requests[0].items())
    join, outputs = _scheduler(signature, inputs, total)

    def send(request: Tensors) -> Tensors | Exception:
        try:
            tensors = join(*(tf.constant(request[name]) for name in names))
        except tf.errors.OpError as error:
            return error
        return dict(zip(outputs, (value.numpy() for value in tensors), strict=True))

    with concurrent.futures.ThreadPoolExecutor(len(requests)) as clients:
        return list(clients.map(send, padded_requests(requests) if pads else requests))


@functools.cache
def _scheduler(
    signature: Signature, inputs: tuple[tuple[str, np.dtype, int], ...], num_rows: int
) -> tuple[Any, list[str]]:
    """Returns a function that joins requests to a signature, and the names of its outputs.

    To trace it takes seconds, so it is kept for other requests.

    Args:
        signature: Of a SavedModel.
        inputs: The name of each, its dtype and its number of dimensions.
        num_rows: Those of a batch, which waits for all of them.
    """
    import tensorflow as tf

    outputs, batches = [], []

    def answer(*values: Any) -> list[Any]:
        answers = signature(
            **{
                name: tf.ensure_shape(value, [None] * rank)
                for (name, _, rank), value in zip(inputs, values, strict=True)
            }
        )
        outputs[:] = list(answers)
        batches.append(tf.shape(values[0])[0])
        return list(answers.values())

    scheduled = tf.nondifferentiable_batch_function(
        # A batch that is full starts at once.
        num_batch_threads=1, max_batch_size=num_rows, batch_timeout_micros=60_000_000
    )(answer)  # fmt: skip
    specs = [tf.TensorSpec(None, tf.as_dtype(dtype)) for _, dtype, _ in inputs]

    @tf.function(input_signature=specs, autograph=False)
    def join(*values: Any) -> list[Any]:
        # Schedulers of the same name are one.
        with tf.name_scope(f"scheduler_{next(_SCHEDULERS)}"):
            return scheduled(*values)

    join.get_concrete_function()
    assert len(batches) == 1, "traced once, for all requests"
    return join, outputs


_SCHEDULERS = itertools.count()


def padded_requests(requests: Sequence[Tensors]) -> list[Tensors]:
    """Requests of one shape but for the rows, as with `pad_variable_length_inputs`."""
    shapes = {
        name: np.max([request[name].shape[1:] for request in requests], axis=0).astype(int)
        for name in requests[0]
    }
    return [
        {name: _filled(value, shapes[name]) for name, value in request.items()}
        for request in requests
    ]


def run_in_parts(
    signature: Signature,
    request: Tensors,
    max_execution_batch_size: int,
    neighbors: Sequence[Tensors] = (),
) -> Tensors:
    """The answer to a request that the server splits (`enable_large_batch_splitting`).

    Args:
        signature: Of a SavedModel.
        request: Of any number of rows.
        max_execution_batch_size: Rows of a part.
        neighbors: Requests of others; the first shares its batch with the first part, and so on.

    Raises:
        AssertionError: If the parts' outputs differ in width: the server's process then ends.
    """
    count = len(next(iter(request.values())))
    answers = []
    for index, start in enumerate(range(0, count, max_execution_batch_size)):
        part = {
            name: value[start : start + max_execution_batch_size] for name, value in request.items()
        }
        answers.append(run_together(signature, [part, *neighbors[index : index + 1]])[0])
    for name in answers[0]:
        widths = {answer[name].shape[1:] for answer in answers}
        assert len(widths) == 1, f"{name} has parts of the shapes {sorted(widths)}"
    return {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}


def _filled(tensor: np.ndarray, shape: np.ndarray) -> np.ndarray:
    missing = [(0, 0), *((0, int(n - m)) for n, m in zip(shape, tensor.shape[1:], strict=True))]
    if not any(after for _, after in missing):
        return tensor
    result = np.empty((len(tensor), *shape), tensor.dtype)
    result[...] = tensor.reshape(-1)[0]
    result[tuple(slice(size) for size in tensor.shape)] = tensor
    return result


def tags_of(texts: Sequence[bytes], approximate: bool = False) -> list[Any]:
    """JSON of a tagger, its scores as they are or to be compared with."""
    tags = [json.loads(text) for text in texts]
    for tag in itertools.chain(*tags) if approximate else ():
        tag["score"] = pytest.approx(tag["score"], abs=1e-4)
    return tags


def check_same(received: Tensors, alone: Tensors, whole_rows: bool = True) -> None:
    """What a request gets in a batch is what it gets alone, and then nothing."""
    assert received.keys() == alone.keys()
    for name, expected in alone.items():
        own = tuple(slice(size) for size in expected.shape)
        cut = received[name][own]
        if name == "tags":
            assert tags_of(cut) == tags_of(expected, approximate=True)
        elif expected.dtype.kind == "f":
            np.testing.assert_allclose(cut, expected, atol=2e-5, err_msg=name)
        else:
            assert cut.tolist() == expected.tolist(), name
        rest = received[name][:, expected.shape[1] :] if expected.ndim > 1 else np.zeros(0)
        if whole_rows and name != "ranking" and name != "ranked_choices":
            assert not rest.any(), name
