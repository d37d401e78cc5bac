# SPDX-License-Identifier: Apache-2.0
"""Imitates the request batching of TensorFlow Serving's `batching_session.cc`."""

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
    """Returns the outputs for a request without other requests in its batch."""
    import tensorflow as tf

    outputs = signature(**{name: tf.constant(value) for name, value in request.items()})
    return {name: value.numpy() for name, value in outputs.items()}


def run_together(
    signature: Signature, requests: Sequence[Tensors], allowed_batch_sizes: Sequence[int] = ()
) -> list[Tensors]:
    """Returns the outputs for requests that the server joins into one batch.

    As with `pad_variable_length_inputs`, each tensor of a request is padded with its own first
    element in all dimensions except the first. This includes strings.

    Args:
        signature: SavedModel signature.
        requests: Input arrays by name. The arrays of a request have the same first dimension.
        allowed_batch_sizes: The batch is padded with copies of its first row to the next of these
            sizes.

    Returns:
        The output rows of each request.
    """
    sizes = [len(next(iter(request.values()))) for request in requests]
    assert all(len(x) == n for r, n in zip(requests, sizes, strict=True) for x in r.values())
    total = sum(sizes)
    rows = min((size for size in allowed_batch_sizes if size >= total), default=total)
    batch = {}
    padded_requests = pad_requests(requests)
    for name in requests[0]:
        tensors = [request[name] for request in padded_requests]
        batch[name] = np.concatenate([*tensors, *[tensors[0][:1]] * (rows - total)])
    outputs = run_alone(signature, batch)
    ends = np.cumsum(sizes)
    for name, value in outputs.items():
        assert len(value) == rows, f"{name} has {len(value)} rows, but the batch has {rows}"
    return [
        {name: value[end - size : end] for name, value in outputs.items()}
        for size, end in zip(sizes, ends, strict=True)
    ]


def run_scheduled(
    signature: Signature, requests: Sequence[Tensors], *, pads: bool
) -> list[Tensors | Exception]:
    """Returns the outputs for concurrent client requests that the server's scheduler joins.

    The scheduler is part of TensorFlow (`tf.nondifferentiable_batch_function`). The server pads
    requests before it schedules them.

    Args:
        signature: SavedModel signature.
        requests: Input arrays by name. The first request must have arrays of the right rank.
        pads: Whether the server sets `pad_variable_length_inputs`.

    Returns:
        The outputs for each request, or the error that its client receives.
    """
    import tensorflow as tf

    names, total = list(requests[0]), sum(len(next(iter(request.values()))) for request in requests)
    inputs = tuple((name, value.dtype, value.ndim) for name, value in requests[0].items())
    join, outputs = _scheduler(signature, inputs, total)

    def send(request: Tensors) -> Tensors | Exception:
        try:
            tensors = join(*(tf.constant(request[name]) for name in names))
        except tf.errors.OpError as error:
            return error
        return dict(zip(outputs, (value.numpy() for value in tensors), strict=True))

    with concurrent.futures.ThreadPoolExecutor(len(requests)) as clients:
        return list(clients.map(send, pad_requests(requests) if pads else requests))


@functools.cache
def _scheduler(
    signature: Signature, inputs: tuple[tuple[str, np.dtype, int], ...], num_rows: int
) -> tuple[Any, list[str]]:
    """Returns a function that joins requests to a signature, and the names of its outputs.

    Tracing takes seconds, so the function is cached.

    Args:
        signature: SavedModel signature.
        inputs: The name, dtype and rank of each input.
        num_rows: Batch size. The batch starts when it has this number of rows.
    """
    import tensorflow as tf

    outputs, batches = [], []

    def compute_outputs(*values: Any) -> list[Any]:
        results = signature(
            **{
                name: tf.ensure_shape(value, [None] * rank)
                for (name, _, rank), value in zip(inputs, values, strict=True)
            }
        )
        outputs[:] = list(results)
        batches.append(tf.shape(values[0])[0])
        return list(results.values())

    scheduled = tf.nondifferentiable_batch_function(
        # A full batch starts immediately.
        num_batch_threads=1, max_batch_size=num_rows, batch_timeout_micros=60_000_000
    )(compute_outputs)  # fmt: skip
    specs = [tf.TensorSpec(None, tf.as_dtype(dtype)) for _, dtype, _ in inputs]

    @tf.function(input_signature=specs, autograph=False)
    def join(*values: Any) -> list[Any]:
        # Schedulers with the same name are shared.
        with tf.name_scope(f"scheduler_{next(_SCHEDULERS)}"):
            return scheduled(*values)

    join.get_concrete_function()
    assert len(batches) == 1, "must be traced once for all requests"
    return join, outputs


_SCHEDULERS = itertools.count()


def pad_requests(requests: Sequence[Tensors]) -> list[Tensors]:
    """Pads requests to one shape, except in rows, as with `pad_variable_length_inputs`."""
    shapes = {
        name: np.max([request[name].shape[1:] for request in requests], axis=0).astype(int)
        for name in requests[0]
    }
    return [
        {name: _pad(value, shapes[name]) for name, value in request.items()} for request in requests
    ]


def run_split(
    signature: Signature,
    request: Tensors,
    max_execution_batch_size: int,
    neighbors: Sequence[Tensors] = (),
) -> Tensors:
    """Returns the outputs for a request that the server splits (`enable_large_batch_splitting`).

    Args:
        signature: SavedModel signature.
        request: Request with any number of rows.
        max_execution_batch_size: Number of rows per part.
        neighbors: Requests of other clients. Each shares a batch with one part, in order.

    Raises:
        AssertionError: If the outputs of the parts differ in width. The server would crash.
    """
    count = len(next(iter(request.values())))
    part_outputs = []
    for index, start in enumerate(range(0, count, max_execution_batch_size)):
        part = {
            name: value[start : start + max_execution_batch_size] for name, value in request.items()
        }
        part_outputs.append(run_together(signature, [part, *neighbors[index : index + 1]])[0])
    for name in part_outputs[0]:
        widths = {outputs[name].shape[1:] for outputs in part_outputs}
        assert len(widths) == 1, f"{name} has parts with the shapes {sorted(widths)}"
    return {
        name: np.concatenate([outputs[name] for outputs in part_outputs])
        for name in part_outputs[0]
    }


def _pad(tensor: np.ndarray, shape: np.ndarray) -> np.ndarray:
    padding = [(0, 0), *((0, int(n - m)) for n, m in zip(shape, tensor.shape[1:], strict=True))]
    if not any(after for _, after in padding):
        return tensor
    result = np.empty((len(tensor), *shape), tensor.dtype)
    result[...] = tensor.reshape(-1)[0]
    result[tuple(slice(size) for size in tensor.shape)] = tensor
    return result


def parse_tags(texts: Sequence[bytes], approximate: bool = False) -> list[Any]:
    """Parses the JSON output of a tagger. Approximate scores can be compared."""
    tags = [json.loads(text) for text in texts]
    for tag in itertools.chain(*tags) if approximate else ():
        tag["score"] = pytest.approx(tag["score"], abs=1e-4)
    return tags


def assert_same_outputs(
    actual: Tensors, expected_outputs: Tensors, whole_rows: bool = True
) -> None:
    """Checks that a batched request has its unbatched outputs, followed by padding."""
    assert actual.keys() == expected_outputs.keys()
    for name, expected in expected_outputs.items():
        valid = tuple(slice(size) for size in expected.shape)
        outputs = actual[name][valid]
        if name == "tags":
            assert parse_tags(outputs) == parse_tags(expected, approximate=True)
        elif expected.dtype.kind == "f":
            np.testing.assert_allclose(outputs, expected, atol=2e-5, err_msg=name)
        else:
            assert outputs.tolist() == expected.tolist(), name
        padding = actual[name][:, expected.shape[1] :] if expected.ndim > 1 else np.zeros(0)
        if whole_rows and name != "ranking" and name != "ranked_choices":
            assert not padding.any(), name
