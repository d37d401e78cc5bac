# SPDX-License-Identifier: Apache-2.0
"""TensorFlow SavedModels. They accept text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keras_bert.export.options import ExportFormat, ExportOptions


def _write(task: Any, path: Path, options: ExportOptions) -> None:
    from keras_bert.export.saved_model import write_saved_model

    if options.dtype == "int8":
        columns = zip(*options.calibration, strict=True)
        texts = tuple(map(list, columns))
        task.quantize("int8", calibration=texts if len(texts) > 1 else texts[0])
    write_saved_model(task, path, options)


TF_SAVED_MODEL = ExportFormat(
    write=_write,
    is_export=lambda path: False,  # A SavedModel is a directory, not a file.
    suffixes=("",),
    dtypes=("float32", "bfloat16", "int8"),
    packages=("tensorflow_text",),
    text_packages=(),
    is_calibrated=True,
)
