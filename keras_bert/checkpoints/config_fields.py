# SPDX-License-Identifier: Apache-2.0
"""The configuration files of released models: what a family calls the fields of `BertConfig`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.config import BertConfig, ConfigError

# Fields that change no output: of training, of tokenization, and of what is returned
_WITHOUT_EFFECT = (
    "dropout",
    "attention_dropout",
    "classifier_dropout",
    "answer_dropout",
    "pooler_dropout",
    "initializer_range",
    "pad_token_id",
    "tokenizer",
    "output_hidden_states",
    "output_attention_scores",
)


@dataclasses.dataclass(frozen=True)
class ConfigFields:
    """The fields of a family's configuration file.

    Args:
        required: The file's name for each of our fields that decides the outputs.
        optional: The same for fields that some files leave out.
        defaults: Values of optional fields that are left out, where `BertConfig` has others.
        fixed: Values of our fields that the family's code fixes.
        activation: The file's name for the activation.
        positions_follow_padding: Whether positions count from `pad_token_id + 1`, and the file's
            number of positions includes those before.
    """

    required: Mapping[str, str]
    optional: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    activation: str = "hidden_act"
    positions_follow_padding: bool = False

    def read(
        self, fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]
    ) -> BertConfig:
        """The architecture that a file describes.

        Args:
            fields: The file's JSON object.
            path: The file, for errors.
            activations: Our name for each of the format's activations.

        Raises:
            CheckpointError: If a field is missing or has a value that is not allowed.
        """
        missing = [
            name for name in (*self.required.values(), self.activation) if name not in fields
        ]
        if missing:
            raise CheckpointError(f"{path}: the fields {', '.join(missing)} are missing.")
        word = fields[self.activation]
        if not isinstance(word, str) or word not in activations:
            raise CheckpointError(
                f"{path}: {self.activation} is {word!r}; it must be one of "
                f"{', '.join(activations)}."
            )
        values = {ours: fields[theirs] for ours, theirs in self.required.items()}
        # Some writers spell an absent value as null.
        given = {ours: fields.get(theirs) for ours, theirs in self.optional.items()}
        values |= self.defaults
        values |= {ours: value for ours, value in given.items() if value is not None}
        try:
            config = BertConfig(**values, **self.fixed, activation=activations[word])
            # Redundant values are `None`, so that equal architectures have equal configs.
            changes: dict[str, Any] = {}
            if config.masked_lm_activation == config.activation:
                changes["masked_lm_activation"] = None
            # ALBERT has a projection between equal widths too, the others have none.
            if config.embedding_dim == config.hidden_dim and config.layer_sharing == "none":
                changes["embedding_dim"] = None
            if self.positions_follow_padding:
                offset = config.pad_token_id + 1
                changes["position_offset"] = offset
                changes["max_sequence_length"] = config.max_sequence_length - offset
            return config.replace(**changes)
        except ConfigError as error:
            raise CheckpointError(f"{path}: {error}") from error

    def write(self, config: BertConfig, activations: Mapping[str, str]) -> dict[str, Any]:
        """The inverse of `read`, for an architecture without `misfits`.

        Args:
            config: The architecture.
            activations: The format's name for each of our activations.

        Raises:
            CheckpointError: If the format has no name for the activation.
        """
        if config.activation not in activations:
            raise CheckpointError(
                f"The format has no word for the activation {config.activation!r}; "
                f"it has them for {', '.join(activations)}."
            )
        names = {**self.required, **self.optional}
        fields = {theirs: getattr(config, ours) for ours, theirs in names.items()}
        if "embedding_dim" in names:
            fields[names["embedding_dim"]] = config.embedding_width
        fields[names["max_sequence_length"]] += config.position_offset
        return {**fields, self.activation: activations[config.activation]}

    def misfits(self, config: BertConfig, masked_lm: bool = True) -> list[str]:
        """What the file cannot express of an architecture, as `field=value` that it would need.

        Args:
            config: The architecture.
            masked_lm: Whether the masked-LM head belongs to it.

        Returns:
            An empty list if the file describes the architecture.
        """
        wanted: dict[str, Any] = {"masked_lm_activation": config.activation, **self.fixed}
        wanted["position_offset"] = config.pad_token_id + 1 if self.positions_follow_padding else 0
        ignored = {*self.required, *self.optional, *_WITHOUT_EFFECT, "activation", "causal"}
        if not masked_lm:
            ignored.add("masked_lm_activation")
        needs = []
        for field in dataclasses.fields(BertConfig):
            if field.name in ignored:
                continue
            value = getattr(config, field.name)
            if field.name == "masked_lm_activation":
                value = config.effective_masked_lm_activation
            needed = wanted.get(field.name, field.default)
            if value != needed:
                needs.append(f"{field.name}={needed!r}")
        shares_all = self.fixed.get("layer_sharing") == "all"
        if "embedding_dim" in self.required and shares_all and config.embedding_dim is None:
            needs.append("embedding_dim")  # it has a projection whatever the widths
        return needs
