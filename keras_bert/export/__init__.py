# SPDX-License-Identifier: Apache-2.0
"""Models for serving: text in, answers out, without Keras or Python."""

from keras_bert.export.errors import ExportError
from keras_bert.export.multiple_choice import export_multiple_choice
from keras_bert.export.question_answerer import export_question_answerer
from keras_bert.export.text_classifier import export_text_classifier
from keras_bert.export.text_embedder import export_text_embedder
from keras_bert.export.token_classifier import export_token_classifier

__all__ = [
    "ExportError",
    "export_multiple_choice",
    "export_question_answerer",
    "export_text_classifier",
    "export_text_embedder",
    "export_token_classifier",
]
