# SPDX-License-Identifier: Apache-2.0
"""The fields of ModernBERT's config.json, in both spellings that are in use.

Files of `transformers` 4 have a number of layers for the global ones, and a base of the rotary
positions for each kind of layer; those of version 5 have the type of every layer, and parameters of
the rotary positions for each type. Both are read, and files that are written have both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.config_fields import ConfigFields
from keras_bert.checkpoints.errors import CheckpointError

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_BASES = {_GLOBAL: "global_rope_theta", _LOCAL: "local_rope_theta"}
_DEFAULT_BASES = {_GLOBAL: 160_000.0, _LOCAL: 10_000.0}
_POOLINGS = {"cls": "first", "mean": "mean"}
_EVERY = "global_attn_every_n_layers"


def _read(fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of a file with one value for each field of `BertConfig`."""
    flat = dict(fields)
    for name, needed in (("decoder_bias", True), ("tie_word_embeddings", True)):
        if fields.get(name, needed) is not needed:
            raise CheckpointError(f"{path}: {name} is {fields[name]!r}; it must be {needed}.")
    flat[_EVERY] = _global_every(fields, path)
    window = fields.get("local_attention", 128)
    flat["attention_window"] = None
    if flat[_EVERY] != 1:
        if not isinstance(window, int) or isinstance(window, bool) or window < 2 or window % 2:
            raise CheckpointError(
                f"{path}: local_attention is {window!r}; it must be an even number above 0."
            )
        flat["attention_window"] = window // 2
    flat.update(_bases(fields, path))
    for name, default, words in (
        ("classifier_activation", "gelu", activations),
        ("classifier_pooling", "cls", _POOLINGS),
    ):
        word = fields.get(name, default)
        if not isinstance(word, str) or word not in words:
            raise CheckpointError(
                f"{path}: {name} is {word!r}; it must be one of {', '.join(words)}."
            )
        flat[name] = words[word]
    return flat


def _global_every(fields: Mapping[str, Any], path: Path) -> Any:
    """Returns every how many layers one is global, by whichever field a file has."""
    types = fields.get("layer_types")
    if types is None:
        return fields.get(_EVERY, 3)
    layers = fields.get("num_hidden_layers")
    is_list = isinstance(types, list) and len(types) == layers
    if not is_list or not all(name in (_GLOBAL, _LOCAL) for name in types):
        raise CheckpointError(
            f"{path}: layer_types is {types!r}; it must be a list of {_GLOBAL} and {_LOCAL}, one "
            "for each of num_hidden_layers."
        )
    places = [index for index, name in enumerate(types) if name == _GLOBAL]
    # With a single global layer, any number of layers between two that there are not
    every = places[1] if places[1:] else len(types)
    if places != list(range(0, len(types), every)):
        raise CheckpointError(
            f"{path}: layer_types has {_GLOBAL} at {places}; it must be the first layer, and every "
            "n-th one after it."
        )
    return every


def _bases(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Returns the base of the rotary positions of both kinds of layers."""
    given = fields.get("rope_parameters") or {}
    bases = {}
    for kind, name in _BASES.items():
        of_kind = given.get(kind) or {} if isinstance(given, dict) else None
        if not isinstance(of_kind, dict) or of_kind.get("rope_type", "default") != "default":
            raise CheckpointError(
                f"{path}: rope_parameters is {given!r}; it must have the rope_type 'default' for "
                f"{_GLOBAL} and {_LOCAL}."
            )
        base = of_kind.get("rope_theta", fields.get(name))
        bases[name] = _DEFAULT_BASES[kind] if base is None else float(base)
    return bases


def _written(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of a file in both spellings, the inverse of `_read`."""
    every = fields[_EVERY] or 1
    local = fields.pop("attention_window")
    words = {ours: theirs for theirs, ours in _POOLINGS.items()}
    fields[_EVERY] = every if local else 1
    layers = range(fields["num_hidden_layers"])
    bases = {name: fields[name] or fields[_BASES[_GLOBAL]] for name in _BASES.values()}
    return {
        **fields,
        **bases,
        "layer_types": [_LOCAL if index % fields[_EVERY] else _GLOBAL for index in layers],
        "local_attention": 2 * (local or 64),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": bases[name]}
            for kind, name in _BASES.items()
        },
        "classifier_activation": activations[fields["classifier_activation"]],
        "classifier_pooling": words[fields["classifier_pooling"] or "first"],
        "embedding_dropout": fields["embedding_dropout"] or 0.0,
        "tie_word_embeddings": True,
    }


FIELDS = ConfigFields(
    {
        "vocabulary_size": "vocab_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "hidden_dim": "hidden_size",
        "intermediate_dim": "intermediate_size",
        "max_sequence_length": "max_position_embeddings",
    },
    {
        "layer_norm_epsilon": "norm_eps",
        "norm_bias": "norm_bias",
        "attention_bias": "attention_bias",
        "feed_forward_bias": "mlp_bias",
        "head_bias": "classifier_bias",
        "rotary_base": _BASES[_GLOBAL],
        "local_rotary_base": _BASES[_LOCAL],
        "attention_window": "attention_window",
        "global_attention_every": _EVERY,
        "masked_lm_activation": "classifier_activation",
        "pooler_activation": "classifier_activation",
        "pooling": "classifier_pooling",
        # There it is applied before the last product of a sublayer, and here after it.
        "dropout": "mlp_dropout",
        "attention_dropout": "attention_dropout",
        "embedding_dropout": "embedding_dropout",
        "classifier_dropout": "classifier_dropout",
        "initializer_range": "initializer_range",
        "pad_token_id": "pad_token_id",
    },
    defaults={
        "layer_norm_epsilon": 1e-5,
        "norm_bias": False,
        "attention_bias": False,
        "feed_forward_bias": False,
        "head_bias": False,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "embedding_dropout": 0.0,
        "classifier_dropout": 0.0,
        "pad_token_id": 50283,
    },
    fixed={
        "num_segments": 0,
        "positions": "rotary",
        "feed_forward": "gated",
        "norm_placement": "pre",
        "first_attention_norm": False,
        "pooler": False,
        "pooler_norm": True,
        "token_pooler": True,
        "scaled_initializer": True,
        "tokenizer": "byte_pair",
    },
    activation="hidden_activation",
    to_flat=_read,
    from_flat=_written,
)
