# SPDX-License-Identifier: Apache-2.0
"""Reads and writes config files with the fields of each model family."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.directories import checkpoint_errors
from keras_bert.config import BertConfig
from keras_bert.families import FAMILIES
from keras_bert.families.records import ConfigFields, Family
from keras_bert.families.shared import ACTIVATIONS, map_value, word_of

# Fields without effect on the outputs. They only affect training, tokenization, or which outputs
# are returned. Only some families have `causal`, so it is checked separately.
_WITHOUT_EFFECT = (
    "causal",
    "dropout",
    "attention_dropout",
    "classifier_dropout",
    "token_dropout",
    "embedding_dropout",
    "answer_dropout",
    "pooler_dropout",
    "initializer_range",
    "scaled_initializer",
    "pad_token_id",
    "tokenizer",
    "output_hidden_states",
    "output_attention_scores",
)
# Number of zero segment embeddings in the files of encoders without segments
ZERO_SEGMENTS = 2

NEEDED: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "configuration_files": (),
    "is_decoder": (False,),
    "per_layer_config": ({},),
    "position_embedding_type": ("absolute",),
    "pruned_heads": ({},),
    "quantization_config": (),
    "transformers_weights": (),
}
"""Allowed values of fields that change the computation, or the files to read, in all families.

An absent field or null is always allowed.
"""


def check_needed(fields: Mapping[str, Any], needed: Mapping[str, tuple[Any, ...]]) -> None:
    """Checks that fields in a file have allowed values, or are absent or null."""
    for name, allowed_values in needed.items():
        # Some files contain null for an absent value.
        if fields.get(name) not in (None, *allowed_values):
            choices = " or ".join([*map(repr, allowed_values), "absent"])
            raise ValueError(f"{name} must be {choices}. Received: {fields[name]!r}")


def effects(config: BertConfig, masked_lm: bool = True) -> dict[str, Any]:
    """Returns the config values that affect an architecture's outputs.

    If two architectures have equal dicts, they compute the same outputs from the same weights.

    Args:
        config: The architecture.
        masked_lm: Whether the model has the masked LM head. Otherwise the head's fields are
            excluded.
    """
    owners = config.attention_owners, config.feed_forward_owners
    windows = config.attention_windows
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    values |= {
        **dict.fromkeys(("layer_sharing", "num_layer_groups"), owners),
        **dict.fromkeys(("attention_window", "global_attention_every"), windows),
        **dict.fromkeys(("rotary_base", "local_rotary_base"), config.rotary_bases),
        "first_attention_norm": config.attention_norms,
        "heads_by_layer": config.effective_heads_by_layer,
        "num_key_value_heads": config.effective_num_key_value_heads,
        "intermediate_bias": config.effective_intermediate_bias,
        "masked_lm_activation": config.effective_masked_lm_activation,
        "pooling": config.effective_pooling,
    }
    unused = {*_WITHOUT_EFFECT}
    for fields, is_used in (
        (("masked_lm_head", "masked_lm_bias", "masked_lm_activation"), masked_lm),
        (("rotary_scale",), config.positions == "rotary"),
        (("position_offset",), config.positions == "learned"),
        (("relative_buckets", "relative_distance"), config.relative_positions is not None),
        (("norm_bias",), config.norm == "layer_norm"),
    ):
        unused |= set() if is_used else {*fields}
    return {name: value for name, value in values.items() if name not in unused}


def differing_fields(
    config: BertConfig, other: BertConfig, masked_lm: bool = True
) -> dict[str, Any]:
    """Returns `other`'s values for the fields that make two architectures' outputs differ.

    See `effects` for the arguments.
    """
    fields, others = effects(config, masked_lm), effects(other, masked_lm)
    names = [name for name in {**fields, **others} if fields.get(name) != others.get(name)]
    # Multiple fields can have one effect, for example a window and its interval. Keep those with
    # different values.
    return {
        name: getattr(other, name)
        for name in names
        if getattr(config, name) != getattr(other, name)
    }


def read_config(
    record: ConfigFields, fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]
) -> BertConfig:
    """Converts the fields in a file to a `BertConfig`.

    Args:
        record: Fields of the family's files.
        fields: Fields in the file.
        path: Path of the file, for error messages.
        activations: `BertConfig` name of each activation in files.

    Raises:
        CheckpointError: If a field is missing or has an unsupported value.
    """
    with checkpoint_errors(path):
        return _read(record, fields, activations)


def _read(
    record: ConfigFields, fields: Mapping[str, Any], activations: Mapping[str, str]
) -> BertConfig:
    check_needed(fields, {**NEEDED, **record.needed})
    if record.to_flat is not None:
        fields = record.to_flat(fields, activations)
    absent_fields = [
        name for name in (*record.required.values(), record.activation) if name not in fields
    ]
    if absent_fields:
        raise ValueError(f"the fields {', '.join(absent_fields)} are missing.")
    activation = map_value(fields, record.activation, activations)
    values = {name: fields[key] for name, key in record.required.items()}
    optional_values = {name: fields.get(key) for name, key in record.optional.items()}
    values |= record.defaults
    values |= {name: value for name, value in optional_values.items() if value is not None}
    config = BertConfig(**values, **record.fixed, activation=activation)
    # Redundant values become `None`, so that equal architectures have equal configs.
    changes: dict[str, Any] = {}
    if config.masked_lm_activation == config.activation:
        changes["masked_lm_activation"] = None
    if "pooler_dropout" in record.fixed:
        # These classifiers use the same rate for both dropouts.
        changes["pooler_dropout"] = config.effective_classifier_dropout
    if config.embedding_dim == config.hidden_dim and not record.always_projects:
        changes["embedding_dim"] = None
    if record.positions_follow_padding:
        offset = config.pad_token_id + 1
        changes["position_offset"] = offset
        changes["max_sequence_length"] = config.max_sequence_length - offset
    return config.replace(**changes)


def write_config(
    record: ConfigFields, config: BertConfig, activations: Mapping[str, str]
) -> dict[str, Any]:
    """Converts a `BertConfig` to the fields in a file. The inverse of `read_config`."""
    names = {**record.required, **record.optional}
    config = with_zero_segments(record, config)
    fields = {key: getattr(config, name) for name, key in names.items()}
    if "embedding_dim" in names:
        fields[names["embedding_dim"]] = config.embedding_width
    for rate in {"classifier_dropout", "embedding_dropout"}.intersection(record.defaults):
        # In these families, the rate must be a number.
        fields[names[rate]] = getattr(config, f"effective_{rate}")
    fields[names["max_sequence_length"]] += config.position_offset
    fields[record.activation] = word_of(config.activation, "activation", activations)
    return fields if record.from_flat is None else record.from_flat(fields, activations)


def needs_zero_segments(record: ConfigFields, config: BertConfig) -> bool:
    """Returns whether files require zero segment embeddings for an encoder without segments."""
    return "num_segments" in record.required and not config.num_segments


def with_zero_segments(record: ConfigFields, config: BertConfig) -> BertConfig:
    """Adds the segment embeddings required in files to an architecture."""
    is_needed = needs_zero_segments(record, config)
    return config.replace(num_segments=ZERO_SEGMENTS) if is_needed else config


def unsupported_fields(
    record: ConfigFields,
    config: BertConfig,
    activations: Mapping[str, str],
    masked_lm: bool = True,
) -> str:
    """Returns the fields that a file cannot represent, or an empty string.

    The result lists the fields with the values required by the file, or is the reason why the
    written file could not be read.
    """
    needs = []
    if config.activation not in activations.values():
        choices = dict.fromkeys(activations.values())
        needs.append(f"activation={' or '.join(map(repr, choices))}")
        config = config.replace(activation=next(iter(choices)))
    try:
        read = _read(record, write_config(record, config, activations), activations)
    except ValueError as error:
        return str(error)
    written = with_zero_segments(record, config)
    fields = differing_fields(written, read.replace(causal=config.causal), masked_lm)
    return ", ".join([*needs, *(f"{name}={value!r}" for name, value in fields.items())])


def compatible_families(config: BertConfig, masked_lm: bool = True) -> list[Family]:
    """Returns the families that can represent an architecture.

    Families with the architecture's type of tokenizer come first.
    """
    fitting = [
        family
        for family in FAMILIES.values()
        if not unsupported_fields(family.config, config, ACTIVATIONS, masked_lm)
        and (not config.causal or family.can_be_causal)
    ]
    return sorted(
        fitting,
        key=lambda family: family.config.fixed.get("tokenizer", "wordpiece") != config.tokenizer,
    )
