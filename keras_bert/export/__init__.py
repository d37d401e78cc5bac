# SPDX-License-Identifier: Apache-2.0
"""Models for serving: text in, answers out, without Keras or Python."""

from keras_bert.export.deployment import deploy
from keras_bert.export.exporting import export_task
from keras_bert.export.options import ExportError, ExportOptions
from keras_bert.export.served_model import ServedModel

__all__ = [
    "ExportError",
    "ExportOptions",
    "ServedModel",
    "deploy",
    "export_task",
]
