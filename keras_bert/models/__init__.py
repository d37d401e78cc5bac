# SPDX-License-Identifier: Apache-2.0
"""Functional models: ids in, tensors out."""

from keras_bert.models.backbone import Backbone

__all__ = ["Backbone"]
