# SPDX-License-Identifier: Apache-2.0
"""Exports the classifier of `tiny.py` to other formats."""

import keras_bert

task = keras_bert.load_model("tiny.keras")
for name in ("tiny.onnx", "tiny.xml", "tiny.tflite"):
    format = {".onnx": "onnx", ".xml": "openvino", ".tflite": "litert"}[name[4:]]
    for dtype in ("float32", "int8"):
        is_calibrated = (format, dtype) == ("openvino", "int8")
        calibration = ["good film", "bad plot"] * 8 if is_calibrated else None
        task.export(f"{dtype}_{name}", format=format, dtype=dtype, calibration=calibration)
task.export("text.xml", format="openvino", text=True)
