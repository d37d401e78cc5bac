# SPDX-License-Identifier: Apache-2.0
"""Functional models with token IDs as input."""

from keras_bert.models.backbone import Backbone

__all__ = ["Backbone"]
