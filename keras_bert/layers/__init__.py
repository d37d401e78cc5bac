# SPDX-License-Identifier: Apache-2.0
"""The layers that models are composed of."""

from keras_bert.layers.attention import SelfAttention
from keras_bert.layers.embeddings import EmbeddingPostprocessor, TokenEmbedding
from keras_bert.layers.encoder import BiasActivation, BiasResidualNorm, TransformerBlock
from keras_bert.layers.heads import ClassificationHead, MaskedLMTransform, Pooler, VocabularyBias

__all__ = [
    "BiasActivation",
    "BiasResidualNorm",
    "ClassificationHead",
    "EmbeddingPostprocessor",
    "MaskedLMTransform",
    "Pooler",
    "SelfAttention",
    "TokenEmbedding",
    "TransformerBlock",
    "VocabularyBias",
]
