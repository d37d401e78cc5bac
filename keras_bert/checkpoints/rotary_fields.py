# SPDX-License-Identifier: Apache-2.0
"""Rotary positions in the config.json of encoders that have one base for all layers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError

BASE = "rope_theta"
"""The name of the base, in the object `rope_parameters` or beside the other fields."""
SCALE = "rope_scale"
"""A name for the factor of the frequencies, which files do not have."""


def read(
    fields: Mapping[str, Any], path: Path, activations: Mapping[str, str], *, default: float
) -> dict[str, Any]:
    """Returns the fields of a file with `BASE` and `SCALE` beside the others.

    See `ConfigFields.to_flat`. Of the ways to scale positions, those that are a base and a factor
    of the frequencies are read: `linear`, and the fixed `ntk` of the files that Alibaba released.
    A `dynamic` one has no effect up to the number of positions of the file.

    Args:
        fields: The JSON object of the file.
        path: Path of the file, for error messages.
        activations: Not used.
        default: The base if the file has none.

    Raises:
        CheckpointError: If positions are scaled in another way, or the dimension of heads is not
            that of the hidden states divided by their number.

    Reference:
        [Position interpolation](https://arxiv.org/abs/2306.15595), section 3, for `linear`;
        [mGTE](https://arxiv.org/abs/2407.19669), section 2.1, for `ntk`.
    """
    given = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    kind = None
    if isinstance(given, dict):
        kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ("default", "linear", "ntk", "dynamic"):
        raise CheckpointError(
            f"{path}: rope_parameters is {given!r}; it must have the rope_type 'default', "
            "'linear', 'ntk' or 'dynamic'."
        )
    hidden, heads, dim = (
        fields.get(name) for name in ("hidden_size", "num_attention_heads", "head_dim")
    )
    if dim is not None and isinstance(heads, int) and dim * heads != hidden:
        raise CheckpointError(
            f"{path}: head_dim is {dim!r}; it must be hidden_size / num_attention_heads."
        )
    base = given.get(BASE, fields.get(BASE))
    flat = {**fields, BASE: default if base is None else base, SCALE: 1.0}
    factor = given.get("factor", 1.0)
    if not isinstance(factor, (int, float)) or factor <= 0 or given.get("mixed_b") is not None:
        raise CheckpointError(
            f"{path}: rope_parameters is {given!r}; it must have a factor above 0 and no mixed_b."
        )
    if kind == "linear":
        flat[SCALE] = 1 / factor
    elif kind == "ntk" and isinstance(hidden, int) and isinstance(heads, int) and heads:
        flat[BASE] *= factor
        flat[SCALE] = factor ** (-2 * heads / hidden)
    elif kind == "dynamic" and given.get("original_max_position_embeddings") is not None:
        flat["max_position_embeddings"] = given["original_max_position_embeddings"]
    return flat


_POOLINGS = {"bos": "first", "mean": "mean", "late": "late"}


def read_eurobert(
    fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the fields of a file of EuroBERT, with `pooling` by the names of `BertConfig`."""
    flat = read(fields, path, activations, default=10_000.0)
    if fields.get("tie_word_embeddings"):
        raise CheckpointError(f"{path}: tie_word_embeddings is True; it must be False.")
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
        "tie_word_embeddings": False,
    }


def written(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of a file, the inverse of `read`; see `ConfigFields.from_flat`."""
    scale = fields.pop(SCALE)
    kind = {"rope_type": "default"} if scale == 1 else {"rope_type": "linear", "factor": 1 / scale}
    return {
        **fields,
        "head_dim": fields["hidden_size"] // fields["num_attention_heads"],
        "rope_parameters": {**kind, BASE: fields[BASE]},
    }
