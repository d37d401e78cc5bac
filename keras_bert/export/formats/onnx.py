# SPDX-License-Identifier: Apache-2.0
"""ONNX models. They accept token ids."""

from __future__ import annotations

import mmap
from pathlib import Path

from keras_bert.export.description import METADATA_NAME, ExportDescription
from keras_bert.export.options import ExportFormat, ExportOptions, Servable

_OPSET = 18
# A metadata property's key in a serialized ONNX model, followed by the tag of the value
_KEY = b"\n" + bytes([len(METADATA_NAME)]) + METADATA_NAME.encode() + b"\x12"
# The axis names of the inputs, by rank
_AXES = {2: ("batch", "length"), 3: ("batch", "choices", "length")}


def _write(task: Servable, path: Path, options: ExportOptions) -> None:
    import tf2onnx

    from keras_bert.export.network import network_function

    function, specs = network_function(task)
    model, _ = tf2onnx.convert.from_function(function, input_signature=specs, opset=_OPSET)
    # Outputs share their leading axes with the inputs. The remaining axes have fixed sizes.
    for tensor in (*model.graph.input, *model.graph.output):
        axes = tensor.type.tensor_type.shape.dim
        for axis, name in zip(axes, _AXES[len(specs[0].shape)], strict=False):
            if not axis.dim_value:
                axis.dim_param = name
    description = ExportDescription.from_task(task, options).to_json()
    model.metadata_props.add(key=METADATA_NAME, value=description)
    if options.dtype == "int8":
        from keras_bert.export.onnx_int8 import write_int8

        write_int8(model, path, task.preprocessor.tokenizer, task.config.max_sequence_length)
    else:
        path.write_bytes(model.SerializeToString())


def _is_export(path: Path) -> bool:
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.rfind(_KEY) >= 0


ONNX = ExportFormat(
    write=_write,
    is_export=_is_export,
    suffixes=(".onnx",),
    dtypes=("float32", "int8"),
    packages=("tf2onnx",),
    int8_packages=("onnxruntime",),
)
