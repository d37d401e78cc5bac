# SPDX-License-Identifier: Apache-2.0
"""Text classifiers and regressions for serving."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from keras_bert.export.task import check_destination, export_task, labels_of


def export_text_classifier(
    task: Any,
    filepath: str | os.PathLike[str],
    format: str = "tf_saved_model",
    *,
    class_names: Sequence[str] | None = None,
    dtype: str = "float32",
    pair: bool = False,
    max_batch_size: int = 32,
    warm_up: bool = True,
    sequence_length: int | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a text classifier, or a regression, for serving, from every backend.

    `tf_saved_model`: a folder that TensorFlow Serving loads, or `tf.saved_model.load` where
    `tensorflow_text` has been imported. Vocabulary and weights are inside; a batch is padded to
    its longest row. Its signatures:

    - `serving_default`: `text`, string `(batch,)`, and with `pair` also `text_pair`. Returns
      `label`, string `(batch,)`; `score`, the label's probability, float32 `(batch,)`; and
      `probabilities`, float32 `(batch, classes)`. A regression returns `score` alone.
    - `serve_ids`: `token_ids`, int32 `(batch, length)`, and with `pair` also `segment_ids`;
      padding is known by its id. Returns the same, and `logits`.

    Beside it lie `batching_params.pbtxt` and, with the package `tensorflow-serving-api`,
    requests to warm up with.

    `onnx`, `openvino`, `litert`: the network without text, in float32. Inputs `token_ids`,
    `segment_ids` and `padding_mask`, int32 `(batch, length)`; output `logits`, float32
    `(batch, classes)`.

    Args:
        task: A `TextClassifier`.
        filepath: Where to. TensorFlow Serving wants a number as the last folder, the model's
            version: `export/sst2/1`. The other formats are files, which end in `.onnx`, `.xml`
            (a `.bin` is written beside it) and `.tflite`.
        format: One of the above.
        class_names: Labels in the order of the class ids; `None` takes the task's own, or the
            ids if it has none.
        dtype: `float32`, or `bfloat16` for weights and matrix products at half the size; then
            LayerNorm, the head and the answers still are computed in float32.
        pair: Whether a SavedModel takes two texts.
        max_batch_size: The largest batch that a server forms of waiting requests.
        warm_up: Whether to add requests that a server runs before it answers any.
        sequence_length: The one length that a LiteRT model takes, in tokens; `None` takes the
            longest possible. The other formats take any.
        overwrite: Whether to replace what is at `filepath`. It is replaced whole, at the end.

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
        kind="text_classifier",
        class_names=_labels(task, class_names),
        dtype=dtype,
        pair=pair,
        max_batch_size=max_batch_size,
        warm_up=warm_up,
        sequence_length=sequence_length,
        overwrite=overwrite,
    )


def _labels(task: Any, class_names: Sequence[str] | None) -> tuple[str, ...] | None:
    if not task.is_regression:
        return labels_of(task, class_names)
    if class_names is not None:
        raise ValueError("A regression has no classes; leave class_names out.")
    return None
