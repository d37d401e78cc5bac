# SPDX-License-Identifier: Apache-2.0
"""Functional models: ids in, tensors out."""

from keras_bert.models.backbone import Backbone
from keras_bert.models.pretraining import PretrainingModel, pretraining_model

__all__ = ["Backbone", "PretrainingModel", "pretraining_model"]
