# SPDX-License-Identifier: Apache-2.0
"""What users hold: a model with its preprocessor, losses, metrics and answers."""

from keras_bert.tasks.masked_lm import MaskedLM
from keras_bert.tasks.pretrainer import Pretrainer
from keras_bert.tasks.text_classifier import TextClassifier

__all__ = ["MaskedLM", "Pretrainer", "TextClassifier"]
