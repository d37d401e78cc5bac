# SPDX-License-Identifier: Apache-2.0
"""Operations with a reference implementation, and faster implementations for some backends."""

from keras_bert.ops.attention import attention, attention_with_scores
from keras_bert.ops.batch_layout import BatchLayout
from keras_bert.ops.reference import (
    activation_function,
    bias_activation,
    bias_add,
    bias_dropout_residual,
    bias_dropout_residual_norm,
    cos_sin_of,
    dropout,
    gated_activation,
    layer_norm,
    norm,
    rotate,
    take,
    take_of_few,
    token_logits,
    tokens_at,
)
from keras_bert.ops.rematerialization import rematerialize
from keras_bert.ops.seeds import SeedGenerator

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
