# SPDX-License-Identifier: Apache-2.0
"""Multiple choice for serving."""

from __future__ import annotations

import os
from typing import Any

from keras_bert.export.task import check_destination, export_task


def export_multiple_choice(
    task: Any,
    filepath: str | os.PathLike[str],
    format: str = "tf_saved_model",
    *,
    dtype: str = "float32",
    max_batch_size: int = 32,
    warm_up: bool = True,
    sequence_length: int | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a multiple-choice task for serving, from every backend.

    `tf_saved_model`: a folder as `export_text_classifier` describes it. Its signatures:

    - `serving_default`: `text`, string `(batch,)`, and `choices`, string `(batch, choices)`, rows
      with fewer filled up with empty strings. Returns `choice`, the best one's place from 0, int32
      `(batch,)`; `score`, its probability, float32 `(batch,)`; `probabilities`, float32 `(batch,
      choices)`, in the order of the choices; and, from the best to the worst, `ranking`, their
      places, int32, `ranked_choices`, string, and `ranked_scores`, float32, `(batch, choices)`.
      Choices that are empty, or say what the first one of their row says, have probability 0: a
      server that batches requests fills shorter ones up with their first element.
    - `serve_ids`: `token_ids` and `segment_ids`, int32 `(batch, choices, length)`; padding is known
      by its id, and a choice of padding alone has probability 0. Returns the same but for
      `ranked_choices`, and `logits`, float32 `(batch, choices)`.

    `onnx`, `openvino`: the network without text, in float32. Inputs `token_ids`, `segment_ids` and
    `padding_mask`, int32 `(batch, choices, length)`; output `logits`, float32 `(batch, choices)`.

    Args:
        task: A `MultipleChoice`.
        filepath: Where to: for TensorFlow Serving a folder named by a number, the version.
        format: One of the above.
        dtype, max_batch_size, warm_up, sequence_length, overwrite: As in
            `export_text_classifier`.

    Raises:
        ValueError: If an argument is not one of the above, or the task has no preprocessor.
        FileExistsError: If there is something at `filepath`, and not `overwrite`.
        ExportError: If the graph holds what the oldest supported server cannot run, a package
            is missing, or the child process that exports has failed.
    """
    check_destination(filepath, format, dtype)
    if format == "litert":
        raise ValueError(
            "format is 'litert', which needs one shape for all inputs; multiple choice has "
            "tf_saved_model, onnx and openvino."
        )
    export_task(
        task,
        filepath,
        format,
        kind="multiple_choice",
        dtype=dtype,
        max_batch_size=max_batch_size,
        warm_up=warm_up,
        sequence_length=sequence_length,
        overwrite=overwrite,
    )
