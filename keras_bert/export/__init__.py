# SPDX-License-Identifier: Apache-2.0
"""Models for serving: text in, answers out, without Keras or Python."""

from keras_bert.export.deployment import deploy
from keras_bert.export.exporting import export_task
from keras_bert.export.options import ExportError, ExportOptions
from keras_bert.export.served_model import ServedModel

# Names from when each kind of task had a function of its own
export_multiple_choice = export_task
export_question_answerer = export_task
export_text_classifier = export_task
export_text_embedder = export_task
export_token_classifier = export_task

__all__ = [
    "ExportError",
    "ExportOptions",
    "ServedModel",
    "deploy",
    "export_multiple_choice",
    "export_question_answerer",
    "export_task",
    "export_text_classifier",
    "export_text_embedder",
    "export_token_classifier",
]
