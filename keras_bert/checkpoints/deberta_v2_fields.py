# SPDX-License-Identifier: Apache-2.0
"""The fields of DeBERTa's config.json, versions 2 and 3: relative positions as they were trained.

The code of the release can leave out each kind of position, and the defaults of `transformers`
leave out all of them. The released models have them, and others are an error that names the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError

_BUCKETS, _DISTANCE = "position_buckets", "max_relative_positions"
_POSITIONS = "max_position_embeddings"
# Each field and the value that it must have; an absent one has another value.
_PRESENT: dict[str, Any] = {
    "relative_attention": True,
    "position_biased_input": False,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}
_PRODUCTS = ["c2p", "p2c"]
NEEDED: dict[str, tuple[Any, ...]] = {
    "type_vocab_size": (0,),
    "conv_kernel_size": (0,),
    "pooler_hidden_act": ("gelu",),
}
"""Fields that have the needed value when they are absent."""


def to_flat(
    fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the fields of a file, with all that it leaves out; see `ConfigFields.to_flat`.

    Another architecture is a `CheckpointError` that names the field.
    """
    expected: dict[str, Any] = {**_PRESENT, "pos_att_type": "|".join(_PRODUCTS)}
    actual = {name: fields.get(name) for name in expected}
    products = actual["pos_att_type"]
    words = products.lower().split("|") if isinstance(products, str) else products
    if isinstance(words, list):
        words = sorted(word.strip() for word in words if isinstance(word, str))
    if words == _PRODUCTS:
        actual["pos_att_type"] = expected["pos_att_type"]
    hidden_dim = fields.get("hidden_size")
    for name in ("embedding_size", "pooler_hidden_size"):
        expected[name], actual[name] = hidden_dim, fields.get(name, hidden_dim)
    if isinstance(hidden_dim, int) and isinstance(fields.get("num_attention_heads"), int):
        width = hidden_dim // max(1, fields["num_attention_heads"])
        expected["attention_head_size"] = width
        actual["attention_head_size"] = fields.get("attention_head_size", width)
    for name, value in expected.items():
        if actual[name] != value or isinstance(actual[name], bool) != isinstance(value, bool):
            raise CheckpointError(f"{path}: {name} is {fields.get(name)!r}; it must be {value!r}.")
    buckets, distance = fields.get(_BUCKETS), fields.get(_DISTANCE, -1)
    if not isinstance(buckets, int) or buckets < 1:
        raise CheckpointError(f"{path}: {_BUCKETS} is {buckets!r}; it must be an integer above 0.")
    if not isinstance(distance, int) or distance < 1:
        distance = fields.get(_POSITIONS)
    return {**fields, _BUCKETS: buckets, _DISTANCE: distance}


def from_flat(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields to write; see `ConfigFields.from_flat`."""
    return {**fields, **_PRESENT, "pos_att_type": _PRODUCTS, "type_vocab_size": 0}
