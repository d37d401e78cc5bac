# SPDX-License-Identifier: Apache-2.0
"""Vectors of texts for serving."""

from __future__ import annotations

import os
from typing import Any

from keras_bert.export.task import check_destination, export_task


def export_text_embedder(
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
    """Writes an embedder for serving, from every backend.

    `tf_saved_model`: a folder as `export_text_classifier` describes it. Its signatures:

    - `serving_default`: `text`, string `(batch,)`. Returns `embedding`, float32
      `(batch, hidden)`.
    - `serve_ids`: `token_ids`, int32 `(batch, length)`; padding is known by its id. Returns the
      same.

    `onnx`, `openvino`, `litert`: the network without text, with the output `embedding`.

    Args:
        task: A `TextEmbedder`.
        filepath: Where to: for TensorFlow Serving a folder named by a number, the version.
        format, dtype, max_batch_size, warm_up, sequence_length, overwrite: As in
            `export_text_classifier`.

    Raises:
        ValueError: If an argument is not one of the above, or the task has no preprocessor.
        FileExistsError: If there is something at `filepath`, and not `overwrite`.
        ExportError: If the graph holds what the oldest supported server cannot run, a package
            is missing, or the child process that exports has failed.
    """
    check_destination(filepath, format, dtype)
    export_task(
        task,
        filepath,
        format,
        kind="text_embedder",
        dtype=dtype,
        max_batch_size=max_batch_size,
        warm_up=warm_up,
        sequence_length=sequence_length,
        overwrite=overwrite,
    )
