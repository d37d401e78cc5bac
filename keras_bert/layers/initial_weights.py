# SPDX-License-Identifier: Apache-2.0
"""Skips the sampling of initial weights that a checkpoint will replace.

Sampling the weights of BERT-base takes longer than reading a checkpoint.
"""

from __future__ import annotations

import contextlib
import contextvars
from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.context_variables import set_variable

# Whether a checkpoint is being loaded, and whether it has weights for the layers being created
_is_loading = contextvars.ContextVar("_is_loading", default=False)
_is_replaced = contextvars.ContextVar("_is_replaced", default=False)


class TruncatedNormal(keras.initializers.TruncatedNormal):
    """Keras' initializer, or zeros within `skip_replaced_weights`."""

    def __call__(self, shape: Shape, dtype: Any = None) -> Tensor:
        return ops.zeros(shape, dtype) if _is_replaced.get() else super().__call__(shape, dtype)


def skip_initial_weights(weights: bool = True) -> contextlib.AbstractContextManager[None]:
    """Declares that a checkpoint will be loaded into the new encoder, unless `weights` is False."""
    return set_variable(_is_loading, weights)


def skip_replaced_weights() -> contextlib.AbstractContextManager[None]:
    """Declares that the checkpoint has weights for the layers created within the block.

    Outside of the block, a subclass of the encoder may create other layers. Checkpoints do not need
    to have a pooler, so Keras' own initializer samples its weights.
    """
    return set_variable(_is_replaced, _is_loading.get())
