# SPDX-License-Identifier: Apache-2.0
"""Analyses of a model: its knowledge, and the reasons for its answers."""

from keras_bert.insight.attention_patterns import MEASURES, AttentionPatterns, attention
from keras_bert.insight.attribution import METHODS, Attribution, attributions
from keras_bert.insight.contexts import Neighbors, WordContexts, contexts, neighbors
from keras_bert.insight.counterfactual import (
    Counterfactuals,
    ErrorRates,
    Replacement,
    SwapDirections,
    counterfactuals,
    default_swaps,
    error_rates,
    mentions,
)
from keras_bert.insight.head_pruning import (
    HeadImportance,
    PruningReport,
    compare_pruned,
    head_importance,
    prune_heads,
)
from keras_bert.insight.layer_predictions import LayerPredictions, layers
from keras_bert.insight.likelihood import (
    PairScores,
    TextLikelihood,
    compare_pairs,
    crows_pairs,
    masked_log_probabilities,
    pseudo_log_likelihood,
)
from keras_bert.insight.measures import Comparison, Measure, Result, compare
from keras_bert.insight.probing import ProbeScores, probe
from keras_bert.insight.stereotypes import (
    PronounScores,
    StereoSetScores,
    TemplateScores,
    stereoset,
    template_log_odds,
    winobias_pronouns,
)

__all__ = [
    "MEASURES",
    "METHODS",
    "AttentionPatterns",
    "Attribution",
    "Comparison",
    "Counterfactuals",
    "ErrorRates",
    "HeadImportance",
    "LayerPredictions",
    "Measure",
    "Neighbors",
    "PairScores",
    "ProbeScores",
    "PronounScores",
    "PruningReport",
    "Replacement",
    "Result",
    "StereoSetScores",
    "SwapDirections",
    "TemplateScores",
    "TextLikelihood",
    "WordContexts",
    "attention",
    "attributions",
    "compare",
    "compare_pairs",
    "compare_pruned",
    "contexts",
    "counterfactuals",
    "crows_pairs",
    "default_swaps",
    "error_rates",
    "head_importance",
    "layers",
    "masked_log_probabilities",
    "mentions",
    "neighbors",
    "probe",
    "prune_heads",
    "pseudo_log_likelihood",
    "stereoset",
    "template_log_odds",
    "winobias_pronouns",
]
