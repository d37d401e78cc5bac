# SPDX-License-Identifier: Apache-2.0
"""Names that annotations use for values whose class depends on Keras' backend.

Keras carries no types, so that a type checker takes both for `Any`; a reader learns more.
"""

from typing import Any, TypeAlias

# A tensor of the backend, a KerasTensor while a functional model is built, or a NumPy array
Tensor: TypeAlias = Any
# The sizes of a tensor's dimensions, `None` where a size varies: a tuple, or a nest of tuples
Shape: TypeAlias = Any
