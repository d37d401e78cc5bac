# SPDX-License-Identifier: Apache-2.0
"""Type aliases for values whose class depends on Keras' backend.

Keras has no type annotations, so both aliases are `Any` to a type checker. They only inform
readers.
"""

from typing import Any, NamedTuple, TypeAlias

# A backend tensor, a KerasTensor while a functional model is built, or a NumPy array.
Tensor: TypeAlias = Any
# A tensor shape, with `None` for unknown dimensions, or a nested structure of shapes.
Shape: TypeAlias = Any

# The integer range is symmetric, so 0 stands for 0.
LARGEST = 127
# Kernels use only 7 bits, like ONNX Runtime's `reduce_range`. Without VNNI, x86 CPUs multiply
# unsigned by signed bytes and add pairs of products in 16 bits. With 8 bits, the sums could
# saturate.
LARGEST_IN_KERNEL = 64


class Int8Kernel(NamedTuple):
    """A matrix of 8-bit integers and its scales.

    Attributes:
        kernel: int8 `(in, out)` in `[-64, 64]`.
        input_scale: float32 `(in,)`. Inputs are multiplied by it and rounded to integers.
        kernel_range: float32 `(out,)`. The value that the integer 127 represents in each column.
    """

    kernel: Tensor
    input_scale: Tensor
    kernel_range: Tensor
