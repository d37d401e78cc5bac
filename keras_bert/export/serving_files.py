# SPDX-License-Identifier: Apache-2.0
"""What TensorFlow Serving reads beside a model: how to batch, and what to warm up with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

BATCHING_FILE = "batching_params.pbtxt"
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"


def batch_sizes(max_batch_size: int) -> tuple[int, ...]:
    """Powers of two, and the largest size itself as the last.

    Example:

    >>> batch_sizes(24)
    (1, 2, 4, 8, 16, 24)
    """
    powers = [1 << power for power in range((max_batch_size - 1).bit_length())]
    return (*powers, max_batch_size)


def write_batching_parameters(folder: Path, max_batch_size: int) -> None:
    """Writes the file for the server's `--batching_parameters_file`.

    Args:
        folder: Of the SavedModel.
        max_batch_size: The largest batch that the server forms of waiting requests.
    """
    sizes = "".join(f"allowed_batch_sizes: {size}\n" for size in batch_sizes(max_batch_size))
    (folder / BATCHING_FILE).write_text(
        f"max_batch_size {{ value: {max_batch_size} }}\n"
        "batch_timeout_micros { value: 1000 }\n"
        "max_enqueued_batches { value: 1000 }\n"
        # Lets requests of ids share a batch; those of text have nothing to pad.
        "pad_variable_length_inputs: true\n"
        f"{sizes}"
    )


def write_warm_up_requests(
    folder: Path,
    *,
    signature: str,
    inputs: Sequence[tf.TensorSpec],
    max_batch_size: int,
    sequence_length: int,
) -> None:
    """Writes requests that the server runs before it reports the model as available.

    One short text in every batch size, and one text that is as long as the model takes.

    Args:
        folder: Of the SavedModel.
        signature: The text signature's name.
        inputs: Its inputs: strings `(batch,)`, or `(batch, several)`.
        max_batch_size: As in `write_batching_parameters`.
        sequence_length: The longest row in tokens.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    batches = [["a short text"] * size for size in batch_sizes(max_batch_size)]
    batches.append(["text " * sequence_length])
    path = folder / WARM_UP_FILE
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for batch in batches:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = signature
            for spec in inputs:
                values = batch if spec.shape.rank == 1 else [[text, "another"] for text in batch]
                request.inputs[spec.name].CopyFrom(tf.make_tensor_proto(values, tf.string))
            writer.write(log.SerializeToString())
