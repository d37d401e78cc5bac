# SPDX-License-Identifier: Apache-2.0
"""Interpretability: what a model has learned, and why it makes its predictions."""

from keras_bert.insight.attention_patterns import MEASURES, AttentionPatterns, attention_patterns
from keras_bert.insight.attribution import METHODS, Attribution, attributions
from keras_bert.insight.bias.counterfactual import (
    Counterfactuals,
    ErrorRates,
    SwapDirections,
    counterfactuals,
    error_rates,
)
from keras_bert.insight.bias.crows_pairs import PairScores, compare_pairs, crows_pairs
from keras_bert.insight.bias.measures import Comparison, Measure, Result, compare
from keras_bert.insight.bias.stereoset import StereoSetScores, stereoset
from keras_bert.insight.bias.templates import TemplateScores, template_log_odds
from keras_bert.insight.bias.winobias import PronounScores, winobias_pronouns
from keras_bert.insight.bias.word_swaps import Replacement, contains_any, default_swaps
from keras_bert.insight.contextual_similarity import Neighbors, WordContexts, contexts, neighbors
from keras_bert.insight.head_pruning import (
    HeadImportance,
    PruningReport,
    compare_pruned,
    head_importance,
    prune_heads,
)
from keras_bert.insight.input_sequence import Excerpt, InputSequence, ModelInputs
from keras_bert.insight.likelihood import (
    TextLikelihood,
    masked_log_probabilities,
    pseudo_log_likelihood,
)
from keras_bert.insight.logit_lens import LayerPredictions, logit_lens
from keras_bert.insight.model_input import model_inputs
from keras_bert.insight.probes.probing import ProbeScores, probe

__all__ = [
    "MEASURES",
    "METHODS",
    "AttentionPatterns",
    "Attribution",
    "Comparison",
    "Counterfactuals",
    "ErrorRates",
    "Excerpt",
    "HeadImportance",
    "InputSequence",
    "LayerPredictions",
    "Measure",
    "ModelInputs",
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
    "attention_patterns",
    "attributions",
    "compare",
    "compare_pairs",
    "compare_pruned",
    "contains_any",
    "contexts",
    "counterfactuals",
    "crows_pairs",
    "default_swaps",
    "error_rates",
    "head_importance",
    "logit_lens",
    "masked_log_probabilities",
    "model_inputs",
    "neighbors",
    "probe",
    "prune_heads",
    "pseudo_log_likelihood",
    "stereoset",
    "template_log_odds",
    "winobias_pronouns",
]
