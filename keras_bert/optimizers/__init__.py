# SPDX-License-Identifier: Apache-2.0
"""The optimizers of BERT and its descendants, and their learning rate schedules."""

from keras_bert.optimizers.adam import AdamW, AdamWeightDecay, StableAdamW
from keras_bert.optimizers.lamb import LAMB
from keras_bert.optimizers.layer_decay import layer_depth
from keras_bert.optimizers.schedules import (
    BertWarmupDecay,
    ElectraWarmupDecay,
    LinearWarmupDecay,
    PhasedSchedule,
    TrapezoidalWarmupDecay,
)

__all__ = [
    "LAMB",
    "AdamW",
    "AdamWeightDecay",
    "BertWarmupDecay",
    "ElectraWarmupDecay",
    "LinearWarmupDecay",
    "PhasedSchedule",
    "StableAdamW",
    "TrapezoidalWarmupDecay",
    "layer_depth",
]
