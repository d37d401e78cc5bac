# SPDX-License-Identifier: Apache-2.0
"""LiteRT models. They accept token ids of one fixed length."""

from __future__ import annotations

import contextlib
import tempfile
import zipfile
from pathlib import Path

from keras_bert.export.description import PACKED_FILE, ExportDescription
from keras_bert.export.options import ExportFormat, ExportOptions, Servable


def _write(task: Servable, path: Path, options: ExportOptions) -> None:
    import tensorflow as tf

    from keras_bert.export.network import network_function
    from keras_bert.export.saved_model import save_signatures

    # LiteRT cannot insert an axis into a tensor of unknown shape.
    function, _ = network_function(task, length=options.sequence_length)
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        # Converting a SavedModel preserves the names of inputs and outputs.
        save_signatures({"logits": function.get_concrete_function()}, Path(directory))
        converter = tf.lite.TFLiteConverter.from_saved_model(directory)
        if options.dtype == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        path.write_bytes(converter.convert())
    # LiteRT's metadata library also appends a model's files as a zip archive.
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(PACKED_FILE, ExportDescription.from_task(task, options).to_json())


def _is_export(path: Path) -> bool:
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return PACKED_FILE in archive.namelist()
    return False


LITERT = ExportFormat(
    write=_write,
    is_export=_is_export,
    suffixes=(".tflite",),
    dtypes=("float32", "int8"),
    has_fixed_length=True,
)
