# SPDX-License-Identifier: Apache-2.0
"""Tasks: models with a text preprocessor, default losses and metrics, and readable predictions."""

from keras_bert.tasks.distiller import Distiller
from keras_bert.tasks.ensemble import Ensemble
from keras_bert.tasks.late_interaction_embedder import LateInteractionEmbedder
from keras_bert.tasks.masked_lm import MaskedLM
from keras_bert.tasks.multiple_choice import MultipleChoice
from keras_bert.tasks.next_sentence_predictor import NextSentencePredictor
from keras_bert.tasks.pretrainer import Pretrainer
from keras_bert.tasks.question_answerer import QuestionAnswerer
from keras_bert.tasks.replaced_token_detector import ReplacedTokenDetector
from keras_bert.tasks.sparse_embedder import SparseEmbedder
from keras_bert.tasks.static_embedder import StaticEmbedder
from keras_bert.tasks.text_classifier import TextClassifier
from keras_bert.tasks.text_embedder import TextEmbedder
from keras_bert.tasks.token_classifier import TokenClassifier

__all__ = [
    "Distiller",
    "Ensemble",
    "LateInteractionEmbedder",
    "MaskedLM",
    "MultipleChoice",
    "NextSentencePredictor",
    "Pretrainer",
    "QuestionAnswerer",
    "ReplacedTokenDetector",
    "SparseEmbedder",
    "StaticEmbedder",
    "TextClassifier",
    "TextEmbedder",
    "TokenClassifier",
]
