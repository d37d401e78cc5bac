# SPDX-License-Identifier: Apache-2.0
"""Fused operations: a portable definition of each, and faster implementations per backend."""

from keras_bert.ops.activations import activation_function, bias_activation, bias_add
from keras_bert.ops.attention import attention, attention_with_scores
from keras_bert.ops.dropout import dropout
from keras_bert.ops.residual import bias_dropout_residual_layer_norm, layer_norm
from keras_bert.ops.seeds import SeedGenerator
from keras_bert.ops.tokens import token_logits, tokens_at

__all__ = [
    "SeedGenerator",
    "activation_function",
    "attention",
    "attention_with_scores",
    "bias_activation",
    "bias_add",
    "bias_dropout_residual_layer_norm",
    "dropout",
    "layer_norm",
    "token_logits",
    "tokens_at",
]
