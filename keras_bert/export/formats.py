# SPDX-License-Identifier: Apache-2.0
"""The formats of other runtimes than TensorFlow: ONNX, OpenVINO, LiteRT."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_bert.export.options import ExportOptions, Servable
from keras_bert.export.saved_model import save_signatures
from keras_bert.models.inputs import INPUT_NAMES

ONNX_OPSET = 18


def write_model(task: Servable, path: Path, options: ExportOptions) -> None:
    """Writes a model with the inputs `token_ids`, `segment_ids` and `padding_mask`, or with text.

    Args:
        task: A task on the TensorFlow backend, in float32.
        path: The file.
        options: Which format.
    """
    # LiteRT knows no new axis on a tensor whose shape it does not know.
    length = options.sequence_length if options.format == "litert" else None
    # (batch, length), or (batch, choices, length)
    outer = [None] * (len(task.input["token_ids"].shape) - 1)
    specs = [tf.TensorSpec([*outer, length], tf.int32, name) for name in INPUT_NAMES]

    def logits(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        features = dict(zip(INPUT_NAMES, inputs, strict=True))
        features["padding_mask"] = tf.cast(features["padding_mask"], tf.bool)
        outputs = task(features, training=False)
        return dict(outputs) if isinstance(outputs, dict) else {task.output_name: outputs}

    function = tf.function(logits, input_signature=specs, autograph=False)
    if options.format == "openvino":
        _write_openvino(function, path, task, options)
    else:
        _WRITERS[options.format](function, specs, path)


def _write_onnx(function: Any, specs: list[tf.TensorSpec], path: Path) -> None:
    import tf2onnx

    tf2onnx.convert.from_function(
        function, input_signature=specs, opset=ONNX_OPSET, output_path=str(path)
    )


def _write_openvino(function: Any, path: Path, task: Servable, options: ExportOptions) -> None:
    import openvino

    model = openvino.convert_model(function.get_concrete_function())
    if options.text:
        from keras_bert.export.openvino_text import connect_text

        model = connect_text(model, task, options)
    openvino.save_model(model, path, compress_to_fp16=False)


def _write_litert(function: Any, specs: list[tf.TensorSpec], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        # By way of a SavedModel, for otherwise its inputs and outputs have no names.
        save_signatures({"logits": function.get_concrete_function()}, Path(folder))
        path.write_bytes(tf.lite.TFLiteConverter.from_saved_model(folder).convert())


_WRITERS = {"onnx": _write_onnx, "litert": _write_litert}
