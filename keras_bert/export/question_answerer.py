# SPDX-License-Identifier: Apache-2.0
"""Question answerers for serving."""

from __future__ import annotations

import os
from typing import Any

from keras_bert.export.task import export_task


def export_question_answerer(
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
    """Writes a question answerer for serving, from every backend.

    `tf_saved_model`: a folder as `export_text_classifier` describes it. Its signatures:

    - `serving_default`: `question` and `context`, strings `(batch,)`. Returns, each `(batch,)`,
      `answer`, a part of the context, string; `start` and `end`, the characters (Unicode code
      points) of the context between which it lies, int32; and `score`, its probability, float32.
      A context of any length is read in windows inside the graph, 32 at a time. With the task's
      `null_threshold` an answer may be empty, from 0 to 0. Bytes of a
      context that are no UTF-8 are left out before characters are counted.
    - `serve_ids`: `token_ids` and `segment_ids`, int32 `(batch, length)`; padding is known by its
      id. Returns `start_logits` and `end_logits`, float32 `(batch, length)`.

    `onnx`, `openvino`, `litert`: the network without text, with these two outputs.

    Args:
        task: A `QuestionAnswerer`.
        filepath: Where to: for TensorFlow Serving a folder named by a number, the version.
        format, dtype, max_batch_size, warm_up, sequence_length, overwrite: As in
            `export_text_classifier`.

    Raises:
        ValueError: If an argument is not one of the above, or the task has no preprocessor.
        FileExistsError: If there is something at `filepath`, and not `overwrite`.
        ExportError: If the graph holds what the oldest supported server cannot run, a package
            is missing, or the child process that exports has failed.
    """
    export_task(
        task,
        filepath,
        format,
        kind="question_answerer",
        dtype=dtype,
        max_batch_size=max_batch_size,
        warm_up=warm_up,
        sequence_length=sequence_length,
        overwrite=overwrite,
    )
