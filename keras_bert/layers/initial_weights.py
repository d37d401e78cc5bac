# SPDX-License-Identifier: Apache-2.0
"""The initial weights of encoders, which are not drawn where a checkpoint's will replace them.

To draw BERT-base's takes longer than to read a checkpoint.
"""

from __future__ import annotations

import contextlib
import contextvars
from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.context_variables import set_variable

# Whether a checkpoint is being loaded, and whether the layers that it has weights of are made
_is_loading = contextvars.ContextVar("_is_loading", default=False)
_is_replaced = contextvars.ContextVar("_is_replaced", default=False)


class TruncatedNormal(keras.initializers.TruncatedNormal):
    """Keras' initializer, or zeros for `skip_replaced_weights`."""

    def __call__(self, shape: Shape, dtype: Any = None) -> Tensor:
        return ops.zeros(shape, dtype) if _is_replaced.get() else super().__call__(shape, dtype)


def skip_initial_weights(weights: bool = True) -> contextlib.AbstractContextManager[None]:
    """Declares that a checkpoint is loaded into the encoder that is made, if with its weights."""
    return set_variable(_is_loading, weights)


def skip_replaced_weights() -> contextlib.AbstractContextManager[None]:
    """Declares that a checkpoint has the weights of the layers that are made.

    A subclass of the encoder may make others. Checkpoints need not have a pooler: Keras' own
    initializer draws its weights.
    """
    return set_variable(_is_replaced, _is_loading.get())
