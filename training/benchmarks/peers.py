# SPDX-License-Identifier: Apache-2.0
"""Builds the same architecture in KerasHub and `transformers`, for every model family."""

from __future__ import annotations

from typing import Any

from keras_bert.checkpoints.config_fields import unsupported_fields, write_config
from keras_bert.checkpoints.formats.keras_hub import make_backbone
from keras_bert.config import BertConfig
from keras_bert.families import FAMILIES
from keras_bert.families.records import Family
from keras_bert.families.shared import ACTIVATIONS

# `transformers` has multiple names for GELU's tanh approximation. This one has a fused kernel.
_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_tanh", **ACTIVATIONS}


def find_family(config: BertConfig) -> Family:
    """Returns the architecture's family.

    Raises:
        ValueError: If no family has this architecture.
    """
    for family in FAMILIES.values():
        if not unsupported_fields(family.config, config, ACTIVATIONS):
            return family
    raise ValueError(
        f"no family of KerasHub and transformers has this architecture. Received: {config}"
    )


def transformers_config(config: BertConfig) -> Any:
    """Returns the architecture's `transformers` config."""
    import transformers

    family = find_family(config)
    fields = write_config(family.config, config, _ACTIVATIONS)
    return getattr(transformers, f"{family.class_prefix}Config")(**fields)


def transformers_class(config: BertConfig, ending: str) -> Any:
    """Returns a `transformers` class for the architecture, such as its `ForMaskedLM`."""
    import transformers

    return getattr(transformers, find_family(config).class_prefix + ending)


def keras_hub_backbone(config: BertConfig) -> Any:
    """Returns KerasHub's encoder for the architecture, with random weights."""
    family = find_family(config)
    if family.keras_hub is None:
        raise ValueError(
            f"KerasHub does not support {family.class_prefix}. Remove it from --subjects"
        )
    return make_backbone(family, config)


def sequence_output(backbone: Any) -> Any:
    """Returns an encoder's sequence output. Without a pooler, it is KerasHub's only output."""
    output = backbone.output
    return output["sequence_output"] if isinstance(output, dict) else output


def keras_hub_class(config: BertConfig, ending: str) -> Any:
    """Returns a KerasHub class for the architecture, such as its `MaskedLM`.

    Raises:
        ValueError: If KerasHub does not have the class.
    """
    import keras_hub

    name = find_family(config).class_prefix + ending
    if not hasattr(keras_hub.models, name):
        raise ValueError(f"KerasHub does not have {name}. Remove it from --subjects")
    return getattr(keras_hub.models, name)
