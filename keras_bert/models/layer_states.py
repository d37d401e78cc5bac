# SPDX-License-Identifier: Apache-2.0
"""The states of layers that can change after a model is created: frozen, quantized, or with LoRA.

A model's config contains its constructor arguments. With the layer states, the model can be created
again with the same variables, frozen or trainable as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

_STATES = ("frozen_layers", "frozen_variables", "quantized", "static_int8", "lora")


def layer_states(model: keras.Model, parts: Sequence[keras.Model] = ()) -> dict[str, Any]:
    """Returns a model's layer states as values that JSON can represent.

    The dict only contains nonempty states:

    - `frozen_layers` and `frozen_variables` are the paths of all frozen layers (`""` for the model)
      and all frozen variables. A trainable layer may contain frozen variables, and vice versa.
    - `quantized` maps layer paths to dtype policies.
    - `static_int8` contains the paths of layers with static input scales.
    - `lora` maps layer paths to `[rank, alpha]`.

    `parts` are models inside the model that save their own states.
    """
    layers = _own_layers(model, parts)
    states = {
        "frozen_layers": [path for path, layer in layers if not layer.trainable],
        "frozen_variables": [
            variable.path
            for _, layer in layers
            for variable in layer._trainable_variables
            if not variable.trainable
        ],
        "quantized": {
            path: keras.dtype_policies.serialize(layer.dtype_policy)
            for path, layer in layers
            if layer.quantization_mode is not None
        },
        "static_int8": [
            path for path, layer in layers if getattr(layer, "input_scale", None) is not None
        ],
        "lora": {
            path: [layer.lora_rank, layer.lora_alpha]
            for path, layer in layers
            if getattr(layer, "lora_enabled", False)
        },
    }
    return {name: state for name, state in states.items() if state}


def pop_layer_states(config: dict[str, Any]) -> dict[str, Any]:
    """Removes the states from a model's config and returns them."""
    return {name: config.pop(name) for name in _STATES if name in config}


def restore_layer_states(
    model: keras.Model, states: Mapping[str, Any], parts: Sequence[keras.Model] = ()
) -> None:
    """Restores the result of `layer_states` in a newly created model."""
    frozen_layers = set(states.get("frozen_layers", ()))
    frozen_variables = set(states.get("frozen_variables", ()))
    for path, layer in _own_layers(model, parts):
        quantized = states.get("quantized", {}).get(path)
        if quantized is not None:
            layer.dtype_policy = keras.dtype_policies.deserialize(quantized)
        if path in states.get("static_int8", ()):
            layer.add_static_scales()
        lora = states.get("lora", {}).get(path)
        if lora is not None:
            layer.enable_lora(lora[0], lora_alpha=lora[1])
        # Do not use the setter, because it also sets all inner layers and variables.
        layer._trainable = path not in frozen_layers
        for variable in layer._trainable_variables:
            variable.trainable = variable.path not in frozen_variables


def _own_layers(model: keras.Model, parts: Sequence[keras.Model]) -> list[tuple[str, keras.Layer]]:
    """Returns a model and its layers with variables, except those in `parts`, with their paths."""
    part_ids = {id(layer) for part in parts for layer in part._flatten_layers()}
    own = {
        id(layer): layer
        for layer in model._flatten_layers()
        if layer.variables and id(layer) not in part_ids
    }
    return [("" if layer is model else layer.path, layer) for layer in own.values()]
