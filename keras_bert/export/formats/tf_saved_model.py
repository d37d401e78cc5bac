# SPDX-License-Identifier: Apache-2.0
"""TensorFlow SavedModels. They accept text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from keras_bert.export.description import DESCRIPTION_FILE, TOKENIZER_FILE
from keras_bert.export.options import ExportFormat, ExportOptions

# Files and directories in an exported SavedModel, and the SavedModel itself (".")
_OWN_FILES = re.compile(
    r"\.|(saved_model|fingerprint)\.pb|batching_params\.pbtxt|assets|assets\.extra|"
    rf"{re.escape(DESCRIPTION_FILE)}|{re.escape(TOKENIZER_FILE)}|"
    r"assets\.extra/tf_serving_warmup_requests|variables(/variables\.(index|data-\d+-of-\d+))?"
)


def _write(task: Any, path: Path, options: ExportOptions) -> None:
    from keras_bert.export.saved_model import write_saved_model

    if options.dtype == "int8":
        columns = zip(*options.calibration, strict=True)
        texts = tuple(map(list, columns))
        task.quantize("int8", calibration=texts if len(texts) > 1 else texts[0])
    write_saved_model(task, path, options)


TF_SAVED_MODEL = ExportFormat(
    write=_write,
    is_export=lambda path: (path / DESCRIPTION_FILE).exists(),
    suffixes=("",),
    dtypes=("float32", "bfloat16", "int8"),
    packages=("tensorflow_text",),
    text_packages=(),
    is_calibrated=True,
    has_tokenizer=True,
    directory_files=_OWN_FILES,
)
