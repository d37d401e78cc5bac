# SPDX-License-Identifier: Apache-2.0
"""Rotary positions (RoPE) in the config.json of encoders with one base for all layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_bert.checks import POSITIVE, NumberRange

BASE = "rope_theta"
"""Name of the base, in the object `rope_parameters` or next to the other fields."""
SCALE = "rope_scale"
"""Name for the frequency factor. Files do not contain this field."""
FIELDS = {"rotary_base": BASE, "rotary_scale": SCALE}
NEEDED: dict[str, tuple[Any, ...]] = {"position_embedding_type": ("absolute", "rope")}

_NTK_FACTOR = NumberRange(at_least=1)
_KINDS = ("default", "linear", "ntk", "dynamic")


def rope_base_and_scale(
    rope_parameters: Any, fields: Mapping[str, Any], base: Any
) -> tuple[float, float]:
    """Returns the base and the frequency factor for a RoPE object in a file.

    Two scalings change the base or the factor: `linear`, and the fixed `ntk` in Alibaba's files. A
    `dynamic` scaling has no effect up to the number of positions in the file.

    Args:
        rope_parameters: The object.
        fields: All fields in the file.
        base: Default base.

    Reference:
        [Position interpolation](https://arxiv.org/abs/2306.15595), section 3, for `linear`;
        [mGTE](https://arxiv.org/abs/2407.19669), section 2.1, for `ntk`.
    """
    parameters = rope_parameters if isinstance(rope_parameters, dict) else {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if not isinstance(rope_parameters, dict) or kind not in _KINDS:
        raise ValueError(
            f"rope_type in rope_parameters or rope_scaling must be one of {', '.join(_KINDS)}. "
            f"Received: {rope_parameters!r}"
        )
    partial = parameters.get("partial_rotary_factor", fields.get("partial_rotary_factor"))
    factor: Any = 1.0 if kind == "default" else parameters.get("factor")
    if (
        not (_NTK_FACTOR if kind == "ntk" else POSITIVE).allows(factor)
        or parameters.get("mixed_b") is not None
        or partial not in (None, 1)
    ):
        raise ValueError(
            "rope_parameters or rope_scaling must have a factor above 0 (at least 1 for 'ntk'), no "
            f"mixed_b, and 1 as partial_rotary_factor. Received: {rope_parameters!r}"
        )
    base = base if parameters.get(BASE) is None else parameters[BASE]
    if not POSITIVE.allows(base):
        raise ValueError(f"{BASE} must be {POSITIVE}. Received: {base!r}")
    hidden: Any
    heads: Any
    hidden, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
    dim = hidden / heads if POSITIVE.allows(hidden) and POSITIVE.allows(heads) else None
    if dim and fields.get("head_dim") not in (None, dim):
        raise ValueError(
            f"head_dim must be hidden_size / num_attention_heads. Received: {fields['head_dim']!r}"
        )
    if kind == "linear":
        return base, 1 / factor
    if kind == "ntk" and dim:
        return float(base) * factor, factor ** (-2 / dim)
    return base, 1.0


def to_flat(
    fields: Mapping[str, Any], activations: Mapping[str, str], *, default: float
) -> dict[str, Any]:
    """Returns the fields in a file, with `BASE` and `SCALE` next to the other fields."""
    # If a file has both objects, the reference uses the older name.
    rope_parameters = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    base = default if fields.get(BASE) is None else fields[BASE]
    base, scale = rope_base_and_scale(rope_parameters, fields, base)
    return {**fields, BASE: base, SCALE: scale}


def from_flat(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields to write, the inverse of `to_flat`. See `ConfigFields.from_flat`."""
    kind = scaling_parameters(fields.pop(SCALE))
    return {
        **fields,
        "head_dim": fields["hidden_size"] // fields["num_attention_heads"],
        "rope_parameters": {**kind, BASE: fields[BASE]},
    }


def scaling_parameters(scale: float) -> dict[str, Any]:
    """Returns the RoPE parameters for a frequency factor."""
    return {"rope_type": "default"} if scale == 1 else {"rope_type": "linear", "factor": 1 / scale}
