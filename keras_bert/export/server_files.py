# SPDX-License-Identifier: Apache-2.0
"""Files that TensorFlow Serving reads beside a SavedModel: batching, and warm-up requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_bert.export.options import ExportOptions, Servable
from keras_bert.export.signatures import TEXT_SIGNATURE

BATCHING_FILE = "batching_params.pbtxt"
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"

# Rows of the largest request that a server splits
LARGEST_REQUEST = 1024
# Length in tokens of the second shortest warm-up text
_SHORTEST = 16


def batch_sizes(max_batch_size: int) -> tuple[int, ...]:
    """Returns the powers of two below the largest size, and the largest size.

    Example:

    >>> batch_sizes(24)
    (1, 2, 4, 8, 16, 24)
    """
    powers = [1 << power for power in range((max_batch_size - 1).bit_length())]
    return (*powers, max_batch_size)


def have_fixed_widths(signatures: Mapping[str, Any]) -> bool:
    """Returns whether all dimensions of the outputs except the batch are static.

    Only then can a server split large requests: TensorFlow Serving crashes if the chunks of an
    answer have different widths.
    """
    outputs = [out for function in signatures.values() for out in function.outputs]
    return all(out.shape[1:].is_fully_defined() for out in outputs)


def write_batching_parameters(
    folder: Path, max_batch_size: int, *, splits: bool, padded: bool = False
) -> None:
    """Writes the file for the server's `--batching_parameters_file`.

    With `--enable_per_model_batching_parameters` the server looks for a file of this name only. A
    server that `splits` takes requests of more rows than `max_batch_size`, up to `LARGEST_REQUEST`;
    otherwise it rejects them. If `padded`, it pads the rows of several requests to one length.
    """
    if splits:
        largest = max(LARGEST_REQUEST, max_batch_size)
        # The server requires max_batch_size as the last of allowed_batch_sizes.
        sizes = (
            f"max_batch_size {{ value: {largest} }}\n"
            f"max_execution_batch_size {{ value: {max_batch_size} }}\n"
            "enable_large_batch_splitting { value: true }\n"
        )
    else:
        sizes = f"max_batch_size {{ value: {max_batch_size} }}\n" + "".join(
            f"allowed_batch_sizes: {size}\n" for size in batch_sizes(max_batch_size)
        )
    (folder / BATCHING_FILE).write_text(
        f"{sizes}"
        # While all threads are busy, requests gather by themselves; to wait for more with an idle
        # thread only delays the answer to a client that is alone.
        "batch_timeout_micros { value: 0 }\n"
        "max_enqueued_batches { value: 1000 }\n"
        # A server that pads ends if one batch has requests of different ranks.
        f"pad_variable_length_inputs: {str(padded).lower()}\n"
    )


def write_warm_up_requests(
    folder: Path, functions: Mapping[str, Any], task: Servable, options: ExportOptions
) -> None:
    """Writes requests that the server runs before it reports the model as available.

    For every signature, they are a row of each length, up to the longest that the model takes, and
    short rows in the largest batch; for the text signature in every batch size.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    path = folder / WARM_UP_FILE
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
    """Yields the number of rows and of tokens of each request to a signature."""
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
    """Returns an input of a request with rows of about `length` tokens."""
    tokenizer = task.preprocessor.tokenizer
    # The first and the last element differ, unlike in rows that a server has padded.
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
    """Returns a serialized `tf.train.Example` of texts."""
    example = tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
                for name, text in features.items()
            }
        )
    )
    return bytes(example.SerializeToString())
