# SPDX-License-Identifier: Apache-2.0
"""The Keras layers of encoders and heads."""

from keras_bert.layers.attention import SelfAttention
from keras_bert.layers.dense import Dense
from keras_bert.layers.embeddings import (
    EmbeddingPostprocessor,
    PositionIds,
    TokenEmbedding,
)
from keras_bert.layers.encoder import BiasActivation, BiasResidualNorm, TransformerBlock
from keras_bert.layers.frozen import FrozenModel
from keras_bert.layers.heads import (
    ClassificationHead,
    MaskedLMTransform,
    Pooler,
    ReplacedTokenHead,
    TokensAt,
    VocabularyBias,
)
from keras_bert.layers.replacement import SampledTokens, ScatteredTokens, spread_slots
from keras_bert.layers.top_layers import bidirectional_lstm

__all__ = [
    "BiasActivation",
    "BiasResidualNorm",
    "ClassificationHead",
    "Dense",
    "EmbeddingPostprocessor",
    "FrozenModel",
    "MaskedLMTransform",
    "Pooler",
    "PositionIds",
    "ReplacedTokenHead",
    "SampledTokens",
    "ScatteredTokens",
    "SelfAttention",
    "TokenEmbedding",
    "TokensAt",
    "TransformerBlock",
    "VocabularyBias",
    "bidirectional_lstm",
    "spread_slots",
]
