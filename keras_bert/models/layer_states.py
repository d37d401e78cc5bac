# SPDX-License-Identifier: Apache-2.0
"""The states of layers that change after a model is created: frozen, quantized, or with LoRA.

The config of a model has the arguments of its constructor. With these states, a model can be
created again with the same variables, and the same ones trainable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

_STATES = ("frozen_layers", "frozen_variables", "quantized", "static_int8", "lora")


def layer_states(model: keras.Model, parts: Sequence[keras.Model] = ()) -> dict[str, Any]:
    """Returns the states of a model's layers as plain values, which JSON can represent.

    Those that are not empty: `frozen_layers`, the paths of frozen layers; `frozen_variables`, the
    paths of frozen variables in other layers; `quantized`, dtype policies by the path of the layer;
    `static_int8`, the paths of layers with scales of their inputs; and `lora`, `[rank, alpha]` by
    path. `parts` are models in it that save their own.
    """
    layers = _own_layers(model, parts)
    lora = {
        layer.path: [layer.lora_rank, layer.lora_alpha]
        for layer in layers
        if getattr(layer, "lora_enabled", False)
    }
    states = {
        "frozen_layers": [layer.path for layer in layers if not layer.trainable],
        "frozen_variables": [
            variable.path
            for layer in layers
            for variable in layer._trainable_variables
            if layer.trainable and not variable.trainable
        ],
        "quantized": {
            layer.path: keras.dtype_policies.serialize(layer.dtype_policy)
            for layer in layers
            if layer.quantization_mode is not None
        },
        "static_int8": [
            layer.path for layer in layers if getattr(layer, "input_scale", None) is not None
        ],
        "lora": lora,
    }
    return {name: state for name, state in states.items() if state}


def pop_layer_states(config: dict[str, Any]) -> dict[str, Any]:
    """Removes the fields of `layer_states` from a model's config and returns them."""
    return {name: config.pop(name) for name in _STATES if name in config}


def restore_layer_states(
    model: keras.Model, states: Mapping[str, Any], parts: Sequence[keras.Model] = ()
) -> None:
    """Restores the states of `layer_states` of the layers of a newly created model."""
    layers = _own_layers(model, parts)
    frozen_layers = set(states.get("frozen_layers", ()))
    frozen_variables = set(states.get("frozen_variables", ()))
    for layer in layers:
        if layer.path in frozen_layers:
            layer.trainable = False
    for layer in layers:
        quantized = states.get("quantized", {}).get(layer.path)
        if quantized is not None:
            layer.dtype_policy = keras.dtype_policies.deserialize(quantized)
        if layer.path in states.get("static_int8", ()):
            layer.add_static_scales()
        lora = states.get("lora", {}).get(layer.path)
        if lora is not None:
            layer.enable_lora(lora[0], lora_alpha=lora[1])
        for variable in layer._trainable_variables:
            if variable.path in frozen_variables:
                variable.trainable = False


def _own_layers(model: keras.Model, parts: Sequence[keras.Model]) -> list[keras.Layer]:
    """Returns the layers of a model that have variables, each once, without those of `parts`."""
    of_parts = {id(layer) for part in parts for layer in part._flatten_layers()}
    own = {
        id(layer): layer
        for layer in model._flatten_layers(include_self=False)
        # A container of layers of a part has no state of its own.
        if layer.variables and of_parts.isdisjoint(map(id, layer._flatten_layers()))
    }
    return list(own.values())
