# SPDX-License-Identifier: Apache-2.0
"""A dense layer for encoders and heads that saves LoRA updates and supports static int8."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.layers import interventions
from keras_bert.ops.annotations import LARGEST, LARGEST_IN_KERNEL, Int8Kernel, Tensor
from keras_bert.ops.int8 import int8_product

_LORA_NAMES = ("lora_kernel_a", "lora_kernel_b")
_SCALE_NAMES = ("input_scale", "kernel_range")
# Fraction of the differences between input channels to move to the kernel, from 0 to 1
_SMOOTHING = 0.8
_TINY = 1e-9


@keras.saving.register_keras_serializable(package="keras_bert")
class Dense(keras.layers.Dense):
    """A `keras.layers.Dense` that also saves its LoRA update.

    Keras only saves the kernel with the update merged into it. This layer also saves the original
    kernel and the two matrices of the update. A layer with LoRA loads these three, and a layer
    without LoRA loads the merged kernel.

    The class has the same name as Keras' layer, because weight files contain the class names of
    layers in lists.

    Reference:
        [LoRA](https://arxiv.org/abs/2106.09685), section 4.
    """

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        # Keras' check would reject subclasses.
        super().quantize(mode, type_check=False, config=config)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        interventions.report_inputs(self, inputs)
        return super().call(inputs, training=training)

    # For static int8, float32 `(in,)` and `(units,)`, see `Int8Kernel`
    input_scale: Any = None
    kernel_range: Any = None

    def quantize_statically(self, largest: Tensor) -> None:
        """Quantizes the kernel and the inputs, given the largest expected inputs.

        Args:
            largest: Maximum absolute value of each input channel, `(in,)`, or `(1,)` for the same
                scale in all channels. Larger inputs are clipped.

        Reference:
            [SmoothQuant](https://arxiv.org/abs/2211.10438), equation 4, for the input channels.
        """
        kernel = ops.cast(self.kernel, "float32")
        largest = ops.maximum(ops.cast(largest, "float32"), _TINY)
        in_kernel = ops.maximum(ops.max(ops.abs(kernel), axis=1), _TINY)
        channels = ops.ones_like(in_kernel)
        if largest.shape[0] > 1:
            channels = largest**_SMOOTHING / in_kernel ** (1 - _SMOOTHING)
        # The value that the integer 1 represents in each channel
        steps = channels * ops.max(largest / channels) / LARGEST
        kernel = kernel * steps[:, None]
        kernel_range = ops.maximum(ops.max(ops.abs(kernel), axis=0), _TINY)
        kernel_range *= LARGEST / LARGEST_IN_KERNEL
        self.quantize("int8")
        self._kernel.assign(ops.cast(ops.round(kernel / kernel_range * LARGEST), "int8"))
        self.add_static_scales()
        self.input_scale.assign(1 / steps)
        self.kernel_range.assign(kernel_range)

    def add_static_scales(self) -> None:
        """Creates the variables for static int8 in a quantized layer."""
        sizes = (self._kernel.shape[0], self.units)
        self._tracker.unlock()
        for name, size in zip(_SCALE_NAMES, sizes, strict=True):
            options = {"dtype": "float32", "autocast": False, "trainable": False}
            variable = self.add_weight(name=name, shape=(size,), initializer="ones", **options)
            setattr(self, name, variable)
        self._tracker.lock()

    @property
    def int8_kernel(self) -> Int8Kernel | None:
        """The kernel for static int8, or `None`."""
        if self.input_scale is None:
            return None
        scales = (ops.convert_to_tensor(getattr(self, name)) for name in _SCALE_NAMES)
        return Int8Kernel(ops.convert_to_tensor(self._kernel), *scales)

    @property
    def variable_serialization_spec(self) -> dict[Any, list[str]]:
        """The names of the variables that Keras saves and loads, by quantization mode."""
        spec: dict[Any, list[str]] = super().variable_serialization_spec
        if self.input_scale is None:
            return spec
        return {**spec, "int8": [*spec["int8"], *_SCALE_NAMES]}

    def _int8_call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        kernel = self.int8_kernel
        if kernel is None:
            return super()._int8_call(inputs, training=training)
        if training:
            raise ValueError(
                f"Layers with static int8 scales cannot be trained. Received: {self.path}. Train "
                "before quantization."
            )
        return int8_product(inputs, kernel, self.bias)

    def __delattr__(self, name: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, keras.Variable):
            super().__delattr__(name)
            return
        # Keras does the same, and then collects the garbage of the whole process for each quantized
        # weight. This took ten times as long as the rest.
        self._untrack_variable(value)
        super(keras.layers.Layer, self).__delattr__(name)

    def enable_lora(self, *args: Any, **kwargs: Any) -> None:
        if self.input_scale is not None:
            raise ValueError(
                f"LoRA cannot be enabled in layers with static int8 scales. Received: {self.path}. "
                "Enable LoRA before quantization."
            )
        super().enable_lora(*args, **kwargs)

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if self.lora_enabled:
            for name, variable in self._lora_variables().items():
                store[name] = variable

    def load_own_variables(self, store: Any) -> None:
        if self.lora_enabled and _LORA_NAMES[0] in store.keys():  # noqa: SIM118, it is a group
            for name, variable in self._lora_variables().items():
                variable.assign(store[name])
            return
        # Keras sets both matrices to 0. Their gradients would then stay 0 forever.
        first = ops.convert_to_numpy(self.lora_kernel_a).copy() if self.lora_enabled else None
        # Keras' own variables have numeric keys.
        super().load_own_variables({key: store[key] for key in store.keys() if key.isdigit()})  # noqa: SIM118
        if first is not None:
            self.lora_kernel_a.assign(first)

    def _lora_variables(self) -> dict[str, Any]:
        """Returns the variables by name, with the kernel before the update."""
        return {variable.name: variable for variable in self.variables}
