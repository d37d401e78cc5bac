# SPDX-License-Identifier: Apache-2.0
"""Export formats. Each module defines one `ExportFormat`."""

from keras_bert.export.formats.litert import LITERT
from keras_bert.export.formats.mediapipe import MEDIAPIPE
from keras_bert.export.formats.onnx import ONNX
from keras_bert.export.formats.onnx_hugging_face import ONNX_HUGGING_FACE
from keras_bert.export.formats.openvino import OPENVINO
from keras_bert.export.formats.tf_saved_model import TF_SAVED_MODEL

FORMATS = {
    "tf_saved_model": TF_SAVED_MODEL,
    "onnx": ONNX,
    "onnx_hugging_face": ONNX_HUGGING_FACE,
    "openvino": OPENVINO,
    "litert": LITERT,
    "mediapipe": MEDIAPIPE,
}
"""The export formats by name."""
