# SPDX-License-Identifier: Apache-2.0
"""What users hold: a model with its preprocessor, losses, metrics and answers."""

from keras_bert.tasks.text_classifier import TextClassifier

__all__ = ["TextClassifier"]
