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


def written(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of a file, the inverse of `read`; see `ConfigFields.from_flat`."""
    return {
        **fields,
        "head_dim": fields["hidden_size"] // fields["num_attention_heads"],
        "rope_parameters": {"rope_type": "default", BASE: fields[BASE]},
    }
