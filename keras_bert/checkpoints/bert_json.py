# SPDX-License-Identifier: Apache-2.0
"""The JSON files that describe released models: BERT's, and what its descendants made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.config import BertConfig, ConfigError

# What changes no output: how a model is trained, how its text was made ids, what it returns.
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
_DROPOUTS = {
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "classifier_dropout": "classifier_dropout",
}


@dataclasses.dataclass(frozen=True)
class JsonFields:
    """Which fields of ours a family's file has, and which its code has written into it.

    Args:
        required: Our field -> the file's, of those that decide the outputs.
        optional: The same, of those that some files leave out.
        defaults: What an optional field means where it is left out and not what `BertConfig` has.
        fixed: Our fields that the family's code decides.
        activation: The file's field for the activation.
        positions_follow_padding: Whether the first row of the position table is the one behind
            `pad_token_id`, and the file counts those before it too.
    """

    required: Mapping[str, str]
    optional: Mapping[str, str]
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    activation: str = "hidden_act"
    positions_follow_padding: bool = False


_BERT_REQUIRED = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
_BERT_OPTIONAL = {
    **_DROPOUTS,
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}

BERT = JsonFields(_BERT_REQUIRED, _BERT_OPTIONAL)
ROBERTA = JsonFields(
    _BERT_REQUIRED,
    _BERT_OPTIONAL,
    defaults={"pad_token_id": 1},
    fixed={
        "masked_lm_activation": "gelu_erf",
        "pooler_dropout": 0.1,
        "tokenizer": "byte_pair",
    },
    positions_follow_padding=True,
)
ALBERT = JsonFields(
    {**_BERT_REQUIRED, "embedding_dim": "embedding_size"},
    {
        **_BERT_OPTIONAL,
        "classifier_dropout": "classifier_dropout_prob",
        "num_layer_groups": "num_hidden_groups",
    },
    defaults={"dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.1},
    fixed={"layer_sharing": "all", "tokenizer": "sentence_piece"},
)
ELECTRA = JsonFields(
    {**_BERT_REQUIRED, "embedding_dim": "embedding_size"},
    _BERT_OPTIONAL,
    fixed={
        "masked_lm_activation": "gelu_erf",
        "pooler": False,
        "pooler_activation": "gelu_erf",
        "pooler_dropout": 0.1,
    },
)
DISTILBERT = JsonFields(
    {
        "vocabulary_size": "vocab_size",
        "num_layers": "n_layers",
        "num_heads": "n_heads",
        "hidden_dim": "dim",
        "intermediate_dim": "hidden_dim",
        "max_sequence_length": "max_position_embeddings",
    },
    {
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
        "answer_dropout": "qa_dropout",
        "initializer_range": "initializer_range",
        "pad_token_id": "pad_token_id",
    },
    defaults={"classifier_dropout": 0.2, "answer_dropout": 0.1},
    fixed={
        "num_segments": 0,
        "pooler": False,
        "pooler_activation": "relu",
        "layer_norm_epsilon": 1e-12,
    },
    activation="activation",
)


def config_from_json(
    fields: Mapping[str, Any],
    path: Path,
    activations: Mapping[str, str],
    family: JsonFields = BERT,
) -> BertConfig:
    """The architecture that a released file describes.

    Args:
        fields: The file's JSON object.
        path: The file, for errors.
        activations: The format's words for activations, and ours for them.
        family: Which fields the file has.

    Raises:
        CheckpointError: If a field is missing or has a value that is not allowed.
    """
    missing = [key for key in (*family.required.values(), family.activation) if key not in fields]
    if missing:
        raise CheckpointError(f"{path}: the fields {', '.join(missing)} are missing.")
    word = fields[family.activation]
    if not isinstance(word, str) or word not in activations:
        raise CheckpointError(
            f"{path}: {family.activation} is {word!r}; it must be one of {', '.join(activations)}."
        )
    values = {ours: fields[theirs] for ours, theirs in family.required.items()}
    # Some writers spell an absent value as null.
    given = {ours: fields.get(theirs) for ours, theirs in family.optional.items()}
    values |= {**family.defaults} | {
        ours: value for ours, value in given.items() if value is not None
    }
    try:
        config = BertConfig(**values, **family.fixed, activation=activations[word])
        return _without_redundancy(_with_offset(config) if _offset(family, config) else config)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _offset(family: JsonFields, config: BertConfig) -> int:
    return config.pad_token_id + 1 if family.positions_follow_padding else 0


def _with_offset(config: BertConfig) -> BertConfig:
    offset = config.pad_token_id + 1
    return config.replace(
        position_offset=offset, max_sequence_length=config.max_sequence_length - offset
    )


def _without_redundancy(config: BertConfig) -> BertConfig:
    """Spells as `None` what says no more than that, so that equal models have equal configs."""
    changes: dict[str, Any] = {}
    if config.masked_lm_activation == config.activation:
        changes["masked_lm_activation"] = None
    # ALBERT has a projection between equal widths too, the others have none.
    if config.embedding_dim == config.hidden_dim and config.layer_sharing == "none":
        changes["embedding_dim"] = None
    return config.replace(**changes) if changes else config


def misfits(config: BertConfig, family: JsonFields = BERT, masked_lm: bool = True) -> list[str]:
    """What of an architecture a family's file cannot say, as `field=value` of what it would need.

    Args:
        config: The architecture.
        family: Which fields the file has.
        masked_lm: Whether the masked-LM head belongs to it.

    Returns:
        Nothing if the file describes the architecture.
    """
    wanted: dict[str, Any] = {"masked_lm_activation": config.activation, **family.fixed}
    wanted["position_offset"] = _offset(family, config)
    spoken = {*family.required, *family.optional, *_WITHOUT_EFFECT, "activation", "causal"}
    if not masked_lm:
        spoken.add("masked_lm_activation")
    needs = []
    for field in dataclasses.fields(BertConfig):
        if field.name in spoken:
            continue
        needed = wanted.get(field.name, field.default)
        if _effective(config, field.name) != needed:
            needs.append(f"{field.name}={needed!r}")
    if "embedding_dim" in family.required and family.fixed.get("layer_sharing") == "all":
        # Its projection is there whatever the widths
        needs += ["embedding_dim"] if config.embedding_dim is None else []
    return needs


def _effective(config: BertConfig, name: str) -> Any:
    if name == "masked_lm_activation":
        return config.effective_masked_lm_activation
    return getattr(config, name)


def config_to_json(
    config: BertConfig, words: Mapping[str, str], family: JsonFields = BERT
) -> dict[str, Any]:
    """The inverse of `config_from_json`, for an architecture without `misfits`.

    Args:
        config: The architecture.
        words: Our names of activations, and the format's words for them.
        family: Which fields the file has.

    Raises:
        CheckpointError: If the format has no word for the activation.
    """
    if config.activation not in words:
        raise CheckpointError(
            f"The format has no word for the activation {config.activation!r}; "
            f"it has them for {', '.join(words)}."
        )
    names = {**family.required, **family.optional}
    fields = {theirs: getattr(config, ours) for ours, theirs in names.items()}
    if "embedding_dim" in names:
        fields[names["embedding_dim"]] = config.embedding_width
    fields[names["max_sequence_length"]] += config.position_offset
    return {**fields, family.activation: words[config.activation]}
