# SPDX-License-Identifier: Apache-2.0
"""Type aliases for values with a class that depends on Keras' backend.

Keras has no type annotations, so that both are `Any` to a type checker; they tell readers more.
"""

from typing import Any, NamedTuple, TypeAlias

# A tensor of the backend, a KerasTensor while a functional model is built, or a NumPy array.
Tensor: TypeAlias = Any
# The shape of a tensor, with `None` for dimensions that vary; or a nested structure of shapes.
Shape: TypeAlias = Any

# Integers are symmetric, so that 0 is 0.
LARGEST = 127
# Of a kernel, which has 7 bits: without VNNI, x86 CPUs add each two products of an unsigned and a
# signed byte in 16 bits, which saturate. ONNX Runtime's `reduce_range` is the same.
LARGEST_IN_KERNEL = 64


class Int8Kernel(NamedTuple):
    """A matrix of 8-bit integers with its scales.

    Attributes:
        kernel: int8 `(in, out)`, at most 64.
        input_scale: float32 `(in,)`: an input is rounded to an integer after this factor.
        kernel_range: float32 `(out,)`: what the integer 127 of each column stands for.
    """

    kernel: Tensor
    input_scale: Tensor
    kernel_range: Tensor
