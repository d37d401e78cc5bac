# SPDX-License-Identifier: Apache-2.0
"""The dense layer of encoders and heads, which keeps its low-rank update when it is saved."""

from __future__ import annotations

from typing import Any

import keras

_LORA_NAMES = ("lora_kernel_a", "lora_kernel_b")


@keras.saving.register_keras_serializable(package="keras_bert")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` that saves its low-rank update (LoRA) too.

    Keras saves the kernel with the update merged into it, which a layer without LoRA loads here
    too; a layer with LoRA loads the original kernel and the two matrices of the update.

    The name is Keras': files of weights call layers in lists by the names of their classes.
    """

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        # The check is for subclasses that compute something else.
        super().quantize(mode, type_check=False, config=config)

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
        # Keras numbers its own
        super().load_own_variables({key: store[key] for key in store.keys() if key.isdigit()})  # noqa: SIM118

    def _with_lora(self) -> dict[str, Any]:
        """The variables by name, the kernel without its update."""
        return {variable.name: variable for variable in self.variables}
