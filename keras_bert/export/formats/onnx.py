# SPDX-License-Identifier: Apache-2.0
"""ONNX models. They accept token ids."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_bert.export.description import METADATA_NAME, ExportDescription
from keras_bert.export.options import ExportFormat, ExportOptions, Servable

_OPSET = 18
# A metadata property's key in a serialized ONNX model, followed by the tag of the value
_KEY = b"\n" + bytes([len(METADATA_NAME)]) + METADATA_NAME.encode() + b"\x12"
# The axis names of the inputs, by rank
_AXES = {2: ("batch", "length"), 3: ("batch", "choices", "length")}


def _write(task: Servable, path: Path, options: ExportOptions) -> None:
    from keras_bert.export.network import network_function

    function, specs = network_function(task)
    model = convert(function, specs, ExportDescription.from_task(task, options))
    if options.dtype == "int8":
        write_int8(model, path, task)
    else:
        path.write_bytes(model.SerializeToString())


def convert(function: Any, specs: Sequence[Any], description: ExportDescription) -> Any:
    """Converts a TensorFlow function with these input specs to an `onnx.ModelProto`."""
    import tf2onnx

    model, _ = tf2onnx.convert.from_function(function, input_signature=specs, opset=_OPSET)
    # Outputs share their leading axes with the inputs. The remaining axes have fixed sizes.
    for tensor in (*model.graph.input, *model.graph.output):
        axes = tensor.type.tensor_type.shape.dim
        for axis, name in zip(axes, _AXES[len(specs[0].shape)], strict=False):
            if not axis.dim_value:
                axis.dim_param = name
    model.metadata_props.add(key=METADATA_NAME, value=description.to_json())
    return model


def write_int8(model: Any, path: Path, task: Servable) -> None:
    """Writes an `onnx.ModelProto` of a task in int8. Modifies the model."""
    from keras_bert.export import onnx_int8

    onnx_int8.write_int8(model, path, task.preprocessor.tokenizer, task.config.max_sequence_length)


def is_export(path: Path) -> bool:
    """Returns whether an ONNX file has an export's description."""
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.rfind(_KEY) >= 0


ONNX = ExportFormat(
    write=_write,
    is_export=is_export,
    suffixes=(".onnx",),
    dtypes=("float32", "int8"),
    packages=("tf2onnx",),
    int8_packages=("onnxruntime",),
)
