# SPDX-License-Identifier: Apache-2.0
"""Functional models of token ids."""

from keras_bert.models.backbone import Backbone

__all__ = ["Backbone"]
