# SPDX-License-Identifier: Apache-2.0
"""The length of a batch, which a graph may not know."""

from __future__ import annotations

from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor


@dispatch.fused
def length_of(inputs: Tensor) -> Tensor:
    """Returns the length of inputs `(batch, length, ...)`, a tensor if it is not static.

    On TensorFlow, `ops.shape` adds operations to the graph for every dimension that is not static.
    Each layer needs only the length.
    """
    return ops.shape(inputs)[1]
