# SPDX-License-Identifier: Apache-2.0
"""What a model has learned and why it answers so."""

from keras_bert.insight.attention_patterns import MEASURES, AttentionPatterns, attention
from keras_bert.insight.attribution import METHODS, Attribution, attributions
from keras_bert.insight.contexts import Neighbours, WordContexts, contexts, neighbours
from keras_bert.insight.layer_predictions import LayerPredictions, layers
from keras_bert.insight.likelihood import (
    PairScores,
    TextLikelihood,
    compare_pairs,
    crows_pairs,
    masked_log_probabilities,
    pseudo_log_likelihood,
)

__all__ = [
    "MEASURES",
    "METHODS",
    "AttentionPatterns",
    "Attribution",
    "LayerPredictions",
    "Neighbours",
    "PairScores",
    "TextLikelihood",
    "WordContexts",
    "attention",
    "attributions",
    "compare_pairs",
    "contexts",
    "crows_pairs",
    "layers",
    "masked_log_probabilities",
    "neighbours",
    "pseudo_log_likelihood",
]
