# SPDX-License-Identifier: Apache-2.0
"""BERT for Keras 3: text, fine-tuning and serving on TensorFlow, JAX and PyTorch."""

from __future__ import annotations

from keras_bert.lazy import lazy_imports

# Names are imported on first use, so importing is fast, and training on IDs works without
# TensorFlow.
with lazy_imports(globals()):
    from keras_bert import checkpoints as checkpoints
    from keras_bert import data as data
    from keras_bert import export as export
    from keras_bert import insight as insight
    from keras_bert import layers as layers
    from keras_bert import losses as losses
    from keras_bert import metrics as metrics
    from keras_bert import models as models
    from keras_bert import optimizers as optimizers
    from keras_bert import search as search
    from keras_bert import tasks as tasks
    from keras_bert import text as text
    from keras_bert.config import BertConfig as BertConfig
    from keras_bert.config import ConfigError as ConfigError
    from keras_bert.models.backbone import Backbone as Backbone
    from keras_bert.tasks.distiller import Distiller as Distiller
    from keras_bert.tasks.ensemble import Ensemble as Ensemble
    from keras_bert.tasks.hard_negatives import mine_hard_negatives as mine_hard_negatives
    from keras_bert.tasks.late_interaction_embedder import (
        LateInteractionEmbedder as LateInteractionEmbedder,
    )
    from keras_bert.tasks.loading import load_model as load_model
    from keras_bert.tasks.masked_lm import MaskedLM as MaskedLM
    from keras_bert.tasks.multiple_choice import MultipleChoice as MultipleChoice
    from keras_bert.tasks.next_sentence_predictor import (
        NextSentencePredictor as NextSentencePredictor,
    )
    from keras_bert.tasks.pretrainer import Pretrainer as Pretrainer
    from keras_bert.tasks.question_answerer import QuestionAnswerer as QuestionAnswerer
    from keras_bert.tasks.replaced_token_detector import (
        ReplacedTokenDetector as ReplacedTokenDetector,
    )
    from keras_bert.tasks.sparse_embedder import SparseEmbedder as SparseEmbedder
    from keras_bert.tasks.static_embedder import StaticEmbedder as StaticEmbedder
    from keras_bert.tasks.text_classifier import TextClassifier as TextClassifier
    from keras_bert.tasks.text_embedder import TextEmbedder as TextEmbedder
    from keras_bert.tasks.token_classifier import TokenClassifier as TokenClassifier
    from keras_bert.text.byte_pair import BytePairTokenizer as BytePairTokenizer
    from keras_bert.text.sentence_piece import SentencePieceTokenizer as SentencePieceTokenizer
    from keras_bert.text.tokenizer import Tokenizer as Tokenizer
    from keras_bert.text.wordpiece import WordPieceTokenizer as WordPieceTokenizer

__version__ = "0.1.0"
