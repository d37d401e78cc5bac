# SPDX-License-Identifier: Apache-2.0
"""Type aliases for values with a class that depends on Keras' backend.

Keras has no type annotations, so that both are `Any` to a type checker; they tell readers more.
"""

from typing import Any, TypeAlias

# A tensor of the backend, a KerasTensor while a functional model is built, or a NumPy array.
Tensor: TypeAlias = Any
# The shape of a tensor, with `None` for dimensions that vary; or a nested structure of shapes.
Shape: TypeAlias = Any
