# SPDX-License-Identifier: Apache-2.0
"""What is done to a model's layers after it was made: frozen, quantized, given a low-rank update.

A model's config has its arguments. Saved with them, these states let a model be made again with
the same variables, of which the same are trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

_STATES = ("frozen_layers", "frozen_variables", "quantized", "lora")


def layer_states(model: keras.Model, parts: Sequence[keras.Model] = ()) -> dict[str, Any]:
    """The states of a model's layers that its arguments do not tell, as plain values.

    Args:
        model: The model.
        parts: Models in it that keep the states of their layers themselves.

    Returns:
        Those of these fields that are not empty: `frozen_layers`, paths of layers;
        `frozen_variables`, paths of variables in layers that are not frozen; `quantized`, dtype
        policies by a layer's path; `lora`, `[rank, alpha]` by a layer's path.
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
        "lora": lora,
    }
    return {name: state for name, state in states.items() if state}


def pop_layer_states(config: dict[str, Any]) -> dict[str, Any]:
    """Takes the fields of `layer_states` out of a model's config, of one from an old file too."""
    states = {name: config.pop(name) for name in _STATES if name in config}
    dtype = keras.dtype_policies.get(config.get("dtype"))
    if isinstance(dtype, keras.dtype_policies.DTypePolicyMap):
        # Files from before `quantized` was a field have quantized layers here.
        config["dtype"] = dtype.default_policy
        states["quantized"] = {
            path: keras.dtype_policies.serialize(policy) for path, policy in dtype.items()
        }
    return states


def restore_layer_states(
    model: keras.Model, states: Mapping[str, Any], parts: Sequence[keras.Model] = ()
) -> None:
    """Brings the layers of a model that was just made into the states of another one.

    Args:
        model: The model.
        states: What `layer_states` has returned.
        parts: As there.
    """
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
        lora = states.get("lora", {}).get(layer.path)
        if lora is not None:
            layer.enable_lora(lora[0], lora_alpha=lora[1])
        for variable in layer._trainable_variables:
            if variable.path in frozen_variables:
                variable.trainable = False


def _own_layers(model: keras.Model, parts: Sequence[keras.Model]) -> list[keras.Layer]:
    """The layers in a model that have variables, each once, without those of parts."""
    of_parts = {id(layer) for part in parts for layer in part._flatten_layers()}
    own = {
        id(layer): layer
        for layer in model._flatten_layers(include_self=False)
        # A container of a part's layers has no state but theirs.
        if layer.variables and of_parts.isdisjoint(map(id, layer._flatten_layers()))
    }
    return list(own.values())
