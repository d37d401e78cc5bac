# SPDX-License-Identifier: Apache-2.0
"""Taggers for serving."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from keras_bert.export.task import check_destination, export_task, labels_of


def export_token_classifier(
    task: Any,
    filepath: str | os.PathLike[str],
    format: str = "tf_saved_model",
    *,
    class_names: Sequence[str] | None = None,
    dtype: str = "float32",
    max_batch_size: int = 32,
    warm_up: bool = True,
    sequence_length: int | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a tagger for serving, from every backend.

    `tf_saved_model`: a folder as `export_text_classifier` describes it. Its signatures:

    - `serving_default`: `text`, string `(batch,)`. Returns `num_words`, int32 `(batch,)`: how
      many words each text has; and, each `(batch, words)` with the words of the text that has
      most, `words`, string, in UTF-8; `labels`, string; `scores`, the labels' probabilities,
      float32; `starts` and `ends`, the characters (Unicode code points) between which a word
      lies, int32. What is behind a text's last word is empty or 0. Texts are split into words
      as in `TokenClassifier.tag`; those of any length are read in windows inside the graph.
      Bytes that are no UTF-8 are left out before characters are counted.
    - `serve_words`: `words`, string `(batch, words)`, shorter rows filled up with empty strings:
      for text that is split into words already. Returns `labels` and `scores`, of that shape.
    - `serve_ids`: `token_ids`, int32 `(batch, length)`; padding is known by its id. Returns
      `labels`, `scores` and `logits` of every token.

    `onnx`, `openvino`, `litert`: the network without text, with the output `logits`, float32
    `(batch, length, classes)`.

    Args:
        task: A `TokenClassifier`.
        filepath: Where to: for TensorFlow Serving a folder named by a number, the version.
        format, class_names, dtype, max_batch_size, warm_up, sequence_length, overwrite: As in
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
        kind="token_classifier",
        class_names=labels_of(task, class_names),
        dtype=dtype,
        max_batch_size=max_batch_size,
        warm_up=warm_up,
        sequence_length=sequence_length,
        overwrite=overwrite,
    )
