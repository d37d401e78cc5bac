# SPDX-License-Identifier: Apache-2.0
"""Fused operations: a portable definition of each, and faster implementations per backend."""

from keras_bert.ops.activations import (
    activation_function,
    bias_activation,
    bias_add,
    gated_activation,
)
from keras_bert.ops.attention import attention, attention_with_scores
from keras_bert.ops.batch_layout import BatchLayout
from keras_bert.ops.dropout import dropout
from keras_bert.ops.norm import layer_norm, norm
from keras_bert.ops.rematerialization import rematerialize
from keras_bert.ops.residual import bias_dropout_residual, bias_dropout_residual_norm
from keras_bert.ops.rotary import cos_sin_of, rotate
from keras_bert.ops.seeds import SeedGenerator
from keras_bert.ops.tokens import take, take_of_few, token_logits, tokens_at

__all__ = [
    "BatchLayout",
    "SeedGenerator",
    "activation_function",
    "attention",
    "attention_with_scores",
    "bias_activation",
    "bias_add",
    "bias_dropout_residual",
    "bias_dropout_residual_norm",
    "cos_sin_of",
    "dropout",
    "gated_activation",
    "layer_norm",
    "norm",
    "rematerialize",
    "rotate",
    "take",
    "take_of_few",
    "token_logits",
    "tokens_at",
]
