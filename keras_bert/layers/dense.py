# SPDX-License-Identifier: Apache-2.0
"""The dense layer of encoders and heads, which saves its LoRA update."""

from __future__ import annotations

from typing import Any

import keras

_LORA_NAMES = ("lora_kernel_a", "lora_kernel_b")


@keras.saving.register_keras_serializable(package="keras_bert")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` that also saves its LoRA update.

    Keras saves only the kernel with the update merged into it. This layer saves the original kernel
    and the two matrices of the update too, which a layer with LoRA loads; a layer without LoRA
    loads the merged kernel.

    The class has the name of Keras' layer, since weight files contain the class names of layers in
    lists.

    Reference:
        [LoRA](https://arxiv.org/abs/2106.09685), section 4.
    """

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        # Keras' check would reject subclasses.
        super().quantize(mode, type_check=False, config=config)

    def __delattr__(self, name: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, keras.Variable):
            super().__delattr__(name)
            return
        # As Keras does, which then collects the garbage of the whole process: for each weight that
        # is quantized, it took ten times as long as the rest.
        self._untrack_variable(value)
        super(keras.layers.Layer, self).__delattr__(name)

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if self.lora_enabled:
            for name, variable in self._with_lora().items():
                store[name] = variable

    def load_own_variables(self, store: Any) -> None:
        if self.lora_enabled and _LORA_NAMES[0] in store.keys():  # noqa: SIM118, it is a group
            for name, variable in self._with_lora().items():
                variable.assign(store[name])
            return
        # Keras' own variables have numbers as keys
        super().load_own_variables({key: store[key] for key in store.keys() if key.isdigit()})  # noqa: SIM118

    def _with_lora(self) -> dict[str, Any]:
        """Returns the variables by name, with the kernel without its update."""
        return {variable.name: variable for variable in self.variables}
