# SPDX-License-Identifier: Apache-2.0
"""LiteRT models. They accept token ids of one fixed length."""

from __future__ import annotations

import contextlib
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.export.description import PACKED_FILE, ExportDescription
from keras_bert.export.options import ExportFormat, ExportOptions, Servable


def _write(task: Servable, path: Path, options: ExportOptions) -> None:
    from keras_bert.export.network import network_function

    # LiteRT cannot insert an axis into a tensor of unknown shape.
    function, _ = network_function(task, length=options.sequence_length)
    path.write_bytes(convert(function, path.parent, options))
    append_files(path, {PACKED_FILE: ExportDescription.from_task(task, options).to_json()})


def convert(function: Any, directory: Path, options: ExportOptions) -> bytes:
    """Converts a TensorFlow function to a LiteRT model, in a scratch directory in `directory`."""
    import tensorflow as tf

    from keras_bert.export.saved_model import save_signatures

    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        # Converting a SavedModel preserves the names of inputs and outputs.
        save_signatures({"logits": function.get_concrete_function()}, Path(scratch))
        converter = tf.lite.TFLiteConverter.from_saved_model(scratch)
        if options.dtype == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        return bytes(converter.convert())


def append_files(path: Path, files: Mapping[str, str]) -> None:
    """Appends texts by file name to a LiteRT model, in a zip archive like LiteRT's own tools."""
    with zipfile.ZipFile(path, "a") as archive:
        for name, text in files.items():
            archive.writestr(name, text)


def is_litert_export(path: Path) -> bool:
    """Returns whether a file ends with an archive that contains an export's description."""
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return PACKED_FILE in archive.namelist()
    return False


LITERT = ExportFormat(
    write=_write,
    is_export=is_litert_export,
    suffixes=(".tflite",),
    dtypes=("float32", "int8"),
    has_fixed_length=True,
)
