# SPDX-License-Identifier: Apache-2.0
"""The formats of runtimes other than TensorFlow: ONNX, OpenVINO, LiteRT."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_bert.export.description import METADATA_NAME, PACKED_FILE, ExportDescription
from keras_bert.export.options import ExportOptions, Servable
from keras_bert.export.saved_model import save_signatures
from keras_bert.models.inputs import INPUT_NAMES
from keras_bert.ops.layout import padded_form

ONNX_OPSET = 18
# The names of the axes of an ONNX model's inputs, by their number
_AXES = {2: ("batch", "length"), 3: ("batch", "choices", "length")}


def write_model(task: Servable, path: Path, options: ExportOptions) -> None:
    """Writes a model with the inputs `token_ids`, `segment_ids` and `padding_mask`, or with text.

    The task is on the TensorFlow backend, in float32.
    """
    # LiteRT cannot insert an axis into a tensor of unknown shape.
    length = options.sequence_length if options.format == "litert" else None
    # (batch, length), or (batch, choices, length)
    outer = [None] * (len(task.input["token_ids"].shape) - 1)
    specs = [tf.TensorSpec([*outer, length], tf.int32, name) for name in INPUT_NAMES]

    def logits(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        features = dict(zip(INPUT_NAMES, inputs, strict=True))
        features["padding_mask"] = tf.cast(features["padding_mask"], tf.bool)
        if options.format != "openvino":
            # Both refuse ids beyond the vocabulary, but count negative ones from its end.
            ids = features["token_ids"]
            features["token_ids"] = tf.where(ids < 0, tf.int32.max, ids)
        with padded_form():  # Not all runtimes have the operations of the unpadded form.
            outputs = task(features, training=False)
        return dict(outputs) if isinstance(outputs, dict) else {task.output_name: outputs}

    function = tf.function(logits, input_signature=specs, autograph=False)
    description = ExportDescription.of_task(task, options).to_json()
    if options.format == "onnx":
        _write_onnx(function, specs, path, task, options.dtype, description)
    elif options.format == "openvino":
        _write_openvino(function, path, task, options, description)
    else:
        _write_litert(function, path, options.dtype, description)


def _write_onnx(
    function: Any,
    specs: list[tf.TensorSpec],
    path: Path,
    task: Servable,
    dtype: str,
    description: str,
) -> None:
    import tf2onnx

    model, _ = tf2onnx.convert.from_function(function, input_signature=specs, opset=ONNX_OPSET)
    # Outputs have some of the inputs' axes, and then fixed ones.
    for tensor in (*model.graph.input, *model.graph.output):
        axes = tensor.type.tensor_type.shape.dim
        for axis, name in zip(axes, _AXES[len(specs[0].shape)], strict=False):
            if not axis.dim_value:
                axis.dim_param = name
    model.metadata_props.add(key=METADATA_NAME, value=description)
    if dtype == "int8":
        from keras_bert.export.onnx_int8 import write_int8

        write_int8(model, path, task.preprocessor.tokenizer, task.config.max_sequence_length)
    else:
        path.write_bytes(model.SerializeToString())


def _write_openvino(
    function: Any, path: Path, task: Servable, options: ExportOptions, description: str
) -> None:
    import openvino

    model = openvino.convert_model(function.get_concrete_function())
    if options.dtype == "int8":
        model = _quantize(model, task, options.calibration)
    if options.text:
        from keras_bert.export.openvino_text import connect_text

        model = connect_text(model, task, options)
    model.set_rt_info(description, METADATA_NAME)
    openvino.save_model(model, path, compress_to_fp16=False)


def _quantize(model: Any, task: Servable, calibration: Sequence[Sequence[str]]) -> Any:
    """Returns an `openvino.Model` with int8 matrix products in the encoder.

    The pooler and the head stay in float32: they take no time, and int8 costs regressions accuracy.
    """
    import nncf

    from keras_bert.data.questions import QuestionWindows

    def features(numbered_row: tuple[int, Sequence[str]]) -> dict[str, Any]:
        # Batches of one row have no padding, which would distort the calibration.
        number, row = numbered_row
        inputs = task.preprocessor(*([text] for text in row))
        if isinstance(inputs, QuestionWindows):
            # The first passage's first window, the second's second, and so on
            inputs = task.preprocessor.padded(inputs)
            window = number % len(inputs["token_ids"])
            real = inputs["padding_mask"][window]
            inputs = {name: x[window][real][None] for name, x in inputs.items()}
        return {name: inputs[name].astype("int32") for name in INPUT_NAMES}

    tasks = getattr(task, "members", (task,))
    heads = {member.head.name for member in tasks if hasattr(member, "head")}
    return nncf.quantize(
        model,
        nncf.Dataset(list(enumerate(calibration)), features),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(calibration),
        # Names contain layers, such as .../pooler_1/dense_1/MatMul. Not all tasks have both.
        ignored_scope=nncf.IgnoredScope(
            patterns=[rf".*/{name}(_\d+)?/.*MatMul" for name in ("pooler", *heads)], validate=False
        ),
    )


def _write_litert(function: Any, path: Path, dtype: str, description: str) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        # Converting a SavedModel preserves the names of inputs and outputs.
        save_signatures({"logits": function.get_concrete_function()}, Path(folder))
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if dtype == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        path.write_bytes(converter.convert())
    # Where LiteRT's metadata library packs files of a model: in a zip archive behind it
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(PACKED_FILE, description)
