# SPDX-License-Identifier: Apache-2.0
"""Keras layers for encoders and heads."""

from keras_bert.layers.attention import Attention
from keras_bert.layers.batch_layout import BatchLayoutBuilder, RestorePadding
from keras_bert.layers.block import TransformerBlock
from keras_bert.layers.crf import ConditionalRandomField
from keras_bert.layers.dense import Dense
from keras_bert.layers.embeddings import EmbeddingPostprocessor, TokenEmbedding
from keras_bert.layers.feed_forward import FeedForward, GatedFeedForward
from keras_bert.layers.frozen import FrozenModel
from keras_bert.layers.heads import (
    ClassificationHead,
    GatherTokens,
    MaskedLMTransform,
    Pooler,
    ReplacedTokenHead,
    TokenProjection,
    VocabularyBias,
)
from keras_bert.layers.norm import Norm
from keras_bert.layers.pooling import SentencePooling, SpladePooling
from keras_bert.layers.positions import PositionIds, RelativeEmbeddings
from keras_bert.layers.replacement import TokenReplacer, TokenSampler, spread_slots
from keras_bert.layers.top_layers import bidirectional_lstm

__all__ = [
    "Attention",
    "BatchLayoutBuilder",
    "ClassificationHead",
    "ConditionalRandomField",
    "Dense",
    "EmbeddingPostprocessor",
    "FeedForward",
    "FrozenModel",
    "GatedFeedForward",
    "GatherTokens",
    "MaskedLMTransform",
    "Norm",
    "Pooler",
    "PositionIds",
    "RelativeEmbeddings",
    "ReplacedTokenHead",
    "RestorePadding",
    "SentencePooling",
    "SpladePooling",
    "TokenEmbedding",
    "TokenProjection",
    "TokenReplacer",
    "TokenSampler",
    "TransformerBlock",
    "VocabularyBias",
    "bidirectional_lstm",
    "spread_slots",
]
