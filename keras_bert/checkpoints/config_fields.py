# SPDX-License-Identifier: Apache-2.0
"""The configuration files of released models: the names of the fields of `BertConfig` in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.config import BertConfig, ConfigError

# Fields that do not change outputs: of training, of tokenization, and which outputs are returned.
# `causal` is a field of few families, and is checked with them.
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
REQUIRED_WITHOUT_SEGMENTS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
}
"""The names of the fields of sizes that most families have."""
REQUIRED = {**REQUIRED_WITHOUT_SEGMENTS, "num_segments": "type_vocab_size"}

# Number of segment embeddings, all 0, in the file of an encoder that has none
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
"""Fields of the files of all families that change the computation, or the file that is read, and
their allowed values; an absent field, or null, is always allowed."""


def check_needed(
    fields: Mapping[str, Any], needed: Mapping[str, tuple[Any, ...]], path: Path
) -> None:
    """Checks that fields of a file have allowed values, or are absent or null."""
    for name, allowed_values in needed.items():
        # Some files have null for an absent value.
        if fields.get(name) not in (None, *allowed_values):
            choices = " or ".join([*map(repr, allowed_values), "absent"])
            raise CheckpointError(f"{path}: {name} is {fields[name]!r}; it must be {choices}.")


def meaning(
    fields: Mapping[str, Any], name: str, words: Mapping[str, str], path: Path, default: str = ""
) -> str:
    """Returns the name in `BertConfig` of the word in a field; `default` stands for no field."""
    word = fields.get(name, default)
    if not isinstance(word, str) or word not in words:
        raise CheckpointError(f"{path}: {name} is {word!r}; it must be one of {', '.join(words)}.")
    return words[word]


def effects(config: BertConfig, masked_lm: bool = True) -> dict[str, Any]:
    """Returns what an architecture computes, by field: equal values compute equal outputs.

    Args:
        config: The architecture.
        masked_lm: Whether it has the masked LM head, whose fields are left out otherwise.
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
    """Returns the fields by which two architectures compute other outputs, with `other`'s values.

    See `effects` for the arguments.
    """
    ours, theirs = effects(config, masked_lm), effects(other, masked_lm)
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    # Of several fields with one effect, such as a window and its interval, those that differ
    return {
        name: getattr(other, name)
        for name in names
        if getattr(config, name) != getattr(other, name)
    }


def word_of(value: str, field: str, words: Mapping[str, str]) -> str:
    """Returns the first word in a file for a value of `BertConfig`, the inverse of `meaning`."""
    for word, ours in words.items():
        if ours == value:
            return word
    choices = ", ".join(dict.fromkeys(words.values()))
    raise CheckpointError(f"the format does not have the {field} {value!r}; it has {choices}")


@dataclasses.dataclass(frozen=True)
class ConfigFields:
    """The fields of the configuration file of a family.

    Args:
        required: The name in the file of each field of `BertConfig` that must be present.
        optional: The name in the file of each field that may be absent.
        defaults: Defaults of optional fields that differ from `BertConfig`'s.
        needed: The allowed values of other fields of the file that change the computation; an
            absent field, or null, is always allowed. Such fields of all families are added.
        token_ids: The role of each special token to write the id of, since the class defaults to
            the released vocabulary. When read, the tokenizer's files have them.
        fixed: Values of fields that are constant in the code of the family.
        activation: The name in the file of the activation.
        always_projects: Whether the embeddings are projected even if their dimension equals
            `hidden_dim`.
        positions_follow_padding: Whether positions begin with `pad_token_id + 1`, and the number of
            positions in the file includes the rows before.
    """

    required: Mapping[str, str]
    optional: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    needed: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    token_ids: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    activation: str = "hidden_act"
    always_projects: bool = False
    to_flat: Callable[[Mapping[str, Any], Path, Mapping[str, str]], Mapping[str, Any]] | None = None
    from_flat: Callable[[dict[str, Any], Mapping[str, str]], dict[str, Any]] | None = None
    positions_follow_padding: bool = False

    def read(
        self, fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]
    ) -> BertConfig:
        """Converts the fields of a file to a `BertConfig`, by the names there of the file's
        activations.
        """
        check_needed(fields, {**NEEDED, **self.needed}, path)
        if self.to_flat is not None:
            fields = self.to_flat(fields, path, activations)
        absent_fields = [
            name for name in (*self.required.values(), self.activation) if name not in fields
        ]
        if absent_fields:
            raise CheckpointError(f"{path}: the fields {', '.join(absent_fields)} are missing.")
        activation = meaning(fields, self.activation, activations, path)
        values = {ours: fields[theirs] for ours, theirs in self.required.items()}
        optional_values = {ours: fields.get(theirs) for ours, theirs in self.optional.items()}
        values |= self.defaults
        values |= {ours: value for ours, value in optional_values.items() if value is not None}
        try:
            config = BertConfig(**values, **self.fixed, activation=activation)
            # Redundant values are `None`, so that equal architectures have equal configs.
            changes: dict[str, Any] = {}
            if config.masked_lm_activation == config.activation:
                changes["masked_lm_activation"] = None
            if "pooler_dropout" in self.fixed:
                # Both dropouts of these classifiers have one rate.
                changes["pooler_dropout"] = config.effective_classifier_dropout
            if config.embedding_dim == config.hidden_dim and not self.always_projects:
                changes["embedding_dim"] = None
            if self.positions_follow_padding:
                offset = config.pad_token_id + 1
                changes["position_offset"] = offset
                changes["max_sequence_length"] = config.max_sequence_length - offset
            return config.replace(**changes)
        except ConfigError as error:
            raise CheckpointError(f"{path}: {error}") from error

    def write(self, config: BertConfig, activations: Mapping[str, str]) -> dict[str, Any]:
        """Converts a `BertConfig` without `misfits` to fields, the inverse of `read`."""
        names = {**self.required, **self.optional}
        config = self.with_zero_segments(config)
        fields = {theirs: getattr(config, ours) for ours, theirs in names.items()}
        if "embedding_dim" in names:
            fields[names["embedding_dim"]] = config.embedding_width
        for rate in {"classifier_dropout", "embedding_dropout"}.intersection(self.defaults):
            # In these families it is a number.
            fields[names[rate]] = getattr(config, f"effective_{rate}")
        fields[names["max_sequence_length"]] += config.position_offset
        fields[self.activation] = word_of(config.activation, "activation", activations)
        return fields if self.from_flat is None else self.from_flat(fields, activations)

    def needs_zero_segments(self, config: BertConfig) -> bool:
        """Returns whether files need segment embeddings, all 0, which the encoder does not have."""
        return "num_segments" in self.required and not config.num_segments

    def with_zero_segments(self, config: BertConfig) -> BertConfig:
        """Returns the architecture with the segment embeddings that files must have."""
        is_needed = self.needs_zero_segments(config)
        return config.replace(num_segments=ZERO_SEGMENTS) if is_needed else config

    def misfits(
        self, config: BertConfig, activations: Mapping[str, str], masked_lm: bool = True
    ) -> str:
        """Returns what the file cannot represent of an architecture; empty if it is read again.

        It is the fields with the values that they would need to have, or why the file that would
        be written cannot be read.
        """
        needs = []
        if config.activation not in activations.values():
            choices = dict.fromkeys(activations.values())
            needs.append(f"activation={' or '.join(map(repr, choices))}")
            config = config.replace(activation=next(iter(choices)))
        try:
            read = self.read(self.write(config, activations), Path(), activations)
        except CheckpointError as error:
            return str(error).removeprefix(f"{Path()}: ")
        written = self.with_zero_segments(config)
        fields = differing_fields(written, read.replace(causal=config.causal), masked_lm)
        return ", ".join([*needs, *(f"{name}={value!r}" for name, value in fields.items())])
