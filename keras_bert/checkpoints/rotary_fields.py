# SPDX-License-Identifier: Apache-2.0
"""The base of rotary positions in the config.json of encoders that have one for all layers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError

BASE = "rope_theta"
"""The name of the base, in the object `rope_parameters` or beside the other fields."""


def read(
    fields: Mapping[str, Any], path: Path, activations: Mapping[str, str], *, default: float
) -> dict[str, Any]:
    """Returns the fields of a file with `BASE` beside the others; see `ConfigFields.to_flat`.

    Args:
        fields: The JSON object of the file.
        path: Path of the file, for error messages.
        activations: Not used.
        default: The base if the file has none.

    Raises:
        CheckpointError: If positions are scaled, or the dimension of heads is not that of the
            hidden states divided by their number.
    """
    given = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    if not isinstance(given, dict) or given.get("rope_type", "default") != "default":
        raise CheckpointError(
            f"{path}: rope_parameters is {given!r}; it must have the rope_type 'default'."
        )
    hidden, heads, dim = (
        fields.get(name) for name in ("hidden_size", "num_attention_heads", "head_dim")
    )
    if dim is not None and isinstance(heads, int) and dim * heads != hidden:
        raise CheckpointError(
            f"{path}: head_dim is {dim!r}; it must be hidden_size / num_attention_heads."
        )
    base = given.get(BASE, fields.get(BASE))
    return {**fields, BASE: default if base is None else base}


_POOLINGS = {"bos": "first", "mean": "mean", "late": "late"}


def read_eurobert(
    fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the fields of a file of EuroBERT, with `pooling` by the names of `BertConfig`."""
    flat = read(fields, path, activations, default=10_000.0)
    pooling = fields.get("classifier_pooling", "late")
    if pooling not in _POOLINGS:
        raise CheckpointError(
            f"{path}: classifier_pooling is {pooling!r}; it must be one of {', '.join(_POOLINGS)}."
        )
    # As many as there are heads is no sharing.
    if flat.get("num_key_value_heads") == flat.get("num_attention_heads"):
        flat["num_key_value_heads"] = None
    return {**flat, "classifier_pooling": _POOLINGS[pooling]}


def written_eurobert(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of a file of EuroBERT, the inverse of `read_eurobert`."""
    words = {ours: theirs for theirs, ours in _POOLINGS.items()}
    return {
        **written(fields, activations),
        "num_key_value_heads": fields["num_key_value_heads"] or fields["num_attention_heads"],
        "classifier_pooling": words[fields["classifier_pooling"] or "first"],
    }


def written(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of a file, the inverse of `read`; see `ConfigFields.from_flat`."""
    return {
        **fields,
        "head_dim": fields["hidden_size"] // fields["num_attention_heads"],
        "rope_parameters": {"rope_type": "default", BASE: fields[BASE]},
    }
