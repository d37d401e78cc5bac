# SPDX-License-Identifier: Apache-2.0
"""The fields of a released BERT's JSON file, which Hugging Face's files have kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.config import BertConfig, ConfigError

# Our field -> the file's. What decides the outputs must be in the file.
_REQUIRED = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
# Absent from some files, which then mean the released values: those that BertConfig has.
_OPTIONAL = {
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "classifier_dropout": "classifier_dropout",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}
_ACTIVATION = "hidden_act"


def config_from_json(
    fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]
) -> BertConfig:
    """The architecture that a released file describes.

    Args:
        fields: The file's JSON object.
        path: The file, for errors.
        activations: The format's words for activations, and ours for them.

    Raises:
        CheckpointError: If a field is missing or has a value that is not allowed.
    """
    missing = [key for key in (*_REQUIRED.values(), _ACTIVATION) if key not in fields]
    if missing:
        raise CheckpointError(f"{path}: the fields {', '.join(missing)} are missing.")
    word = fields[_ACTIVATION]
    if not isinstance(word, str) or word not in activations:
        raise CheckpointError(
            f"{path}: {_ACTIVATION} is {word!r}; it must be one of {', '.join(activations)}."
        )
    values = {ours: fields[theirs] for ours, theirs in _REQUIRED.items()}
    # Some writers spell an absent value as null.
    values |= {
        ours: fields[theirs] for ours, theirs in _OPTIONAL.items() if fields.get(theirs) is not None
    }
    try:
        return BertConfig(**values, activation=activations[word])
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error


def config_to_json(config: BertConfig, words: Mapping[str, str]) -> dict[str, Any]:
    """The inverse of `config_from_json`.

    Args:
        config: The architecture.
        words: Our names of activations, and the format's words for them.

    Raises:
        CheckpointError: If the format has no word for the activation.
    """
    if config.activation not in words:
        raise CheckpointError(
            f"The format has no word for the activation {config.activation!r}; "
            f"it has them for {', '.join(words)}."
        )
    names = {**_REQUIRED, **_OPTIONAL}
    fields = {theirs: getattr(config, ours) for ours, theirs in names.items()}
    return {**fields, _ACTIVATION: words[config.activation]}
