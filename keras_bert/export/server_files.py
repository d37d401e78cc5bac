# SPDX-License-Identifier: Apache-2.0
"""Writes TensorFlow Serving's batching parameters and warm-up requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_bert.export.options import ExportOptions, Servable
from keras_bert.export.signatures import TEXT_SIGNATURE

BATCHING_FILE = "batching_params.pbtxt"
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"

# Number of examples in the largest request that a server splits
LARGEST_REQUEST = 1024
# Warm-up texts have 3 tokens, or at least this many.
_SHORTEST = 16


def batch_sizes(max_batch_size: int) -> tuple[int, ...]:
    """Returns the powers of two below the maximum batch size, and the maximum batch size.

    Example:

    >>> batch_sizes(24)
    (1, 2, 4, 8, 16, 24)
    """
    powers = [1 << power for power in range((max_batch_size - 1).bit_length())]
    return (*powers, max_batch_size)


def have_fixed_widths(signatures: Mapping[str, Any]) -> bool:
    """Returns whether all output dimensions except the batch are static.

    Otherwise, a server must not split large requests, because TensorFlow Serving crashes if a
    response's chunks have different widths.
    """
    outputs = [out for function in signatures.values() for out in function.outputs]
    return all(out.shape[1:].is_fully_defined() for out in outputs)


def write_batching_parameters(
    directory: Path, max_batch_size: int, *, splits: bool, padded: bool = False
) -> None:
    """Writes the file for the server's `--batching_parameters_file` flag.

    With `--enable_per_model_batching_parameters`, the server only looks for this file name.

    Args:
        directory: Directory of the SavedModel.
        max_batch_size: Maximum number of examples in a batch.
        splits: Whether the server splits requests with more than `max_batch_size` examples, up to
            `LARGEST_REQUEST`. Otherwise it rejects them.
        padded: Whether the server pads multiple requests to the same length.
    """
    if splits:
        largest = max(LARGEST_REQUEST, max_batch_size)
        # The server requires the last of allowed_batch_sizes to be max_batch_size.
        sizes = (
            f"max_batch_size {{ value: {largest} }}\n"
            f"max_execution_batch_size {{ value: {max_batch_size} }}\n"
            "enable_large_batch_splitting { value: true }\n"
        )
    else:
        sizes = f"max_batch_size {{ value: {max_batch_size} }}\n" + "".join(
            f"allowed_batch_sizes: {size}\n" for size in batch_sizes(max_batch_size)
        )
    (directory / BATCHING_FILE).write_text(
        f"{sizes}"
        # While all threads are busy, requests queue up without a timeout. If a thread is idle,
        # waiting for more requests only delays the response.
        "batch_timeout_micros { value: 0 }\n"
        "max_enqueued_batches { value: 1000 }\n"
        # A server that pads crashes if a batch has requests of different ranks.
        f"pad_variable_length_inputs: {str(padded).lower()}\n"
    )


def write_warm_up_requests(
    directory: Path, functions: Mapping[str, Any], task: Servable, options: ExportOptions
) -> None:
    """Writes requests that the server runs before it reports the model as available.

    Each signature gets single examples of some lengths up to the maximum sequence length (powers of
    two from 16, and the maximum), and short examples in the largest batch. The text signature gets
    short examples in every batch size.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    path = directory / WARM_UP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, function in functions.items():
            for rows, length in _shapes(name, task, options):
                log = prediction_log_pb2.PredictionLog()
                request = log.predict_log.request
                request.model_spec.signature_name = name
                for spec in function.input_signature:
                    values = _values(spec, rows, length, task, options)
                    request.inputs[spec.name].CopyFrom(tf.make_tensor_proto(values, spec.dtype))
                writer.write(log.SerializeToString())


def _shapes(signature: str, task: Servable, options: ExportOptions) -> Iterator[tuple[int, int]]:
    """Yields the batch size and the sequence length of each request to a signature."""
    sizes = batch_sizes(options.max_batch_size)
    for rows in sizes if signature == TEXT_SIGNATURE else {1, sizes[-1]}:
        yield rows, 3
    longest = task.preprocessor.sequence_length
    for length in batch_sizes(longest):
        if length >= min(_SHORTEST, longest):
            yield 1, length


def _values(
    spec: tf.TensorSpec, rows: int, length: int, task: Servable, options: ExportOptions
) -> list[Any]:
    """Returns a request input with about `length` tokens per example."""
    tokenizer = task.preprocessor.tokenizer
    # The first and last elements differ, because they are equal in examples padded by a server.
    words = ["a", *["text"] * (length - 1)]
    text = " ".join(words)
    if spec.name == "token_ids":
        row: Any = [
            tokenizer.cls_token_id,
            *[tokenizer.unk_token_id] * (length - 2),
            tokenizer.sep_token_id,
        ]
    elif spec.name == "segment_ids":
        row = [0] * length
    elif spec.name == "inputs":
        row = _example(dict.fromkeys(("text", "text_pair") if options.pair else ("text",), text))
    else:
        row = {
            "words": words,
            "num_words": len(words),
            "choices": [text, "another"],
            "num_choices": 2,
        }.get(spec.name, text)
    return [[row, row] if spec.shape.rank == 3 else row] * rows


def _example(features: Mapping[str, str]) -> bytes:
    """Serializes texts as a `tf.train.Example`."""
    example = tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
                for name, text in features.items()
            }
        )
    )
    return bytes(example.SerializeToString())
