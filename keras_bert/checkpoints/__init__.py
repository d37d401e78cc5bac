# SPDX-License-Identifier: Apache-2.0
"""Loads and saves checkpoints: presets, Hugging Face, TF1 releases and KerasHub (loading only)."""

from keras_bert.checkpoints.checkpoint import Checkpoint
from keras_bert.checkpoints.errors import CheckpointError, CheckpointWarning
from keras_bert.checkpoints.formats.google_tf1 import save_google_tf1
from keras_bert.checkpoints.formats.hugging_face import save_hugging_face
from keras_bert.checkpoints.formats.preset import save_preset
from keras_bert.checkpoints.loading import load_backbone, open_checkpoint

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointWarning",
    "load_backbone",
    "open_checkpoint",
    "save_google_tf1",
    "save_hugging_face",
    "save_preset",
]
