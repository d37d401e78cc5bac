# SPDX-License-Identifier: Apache-2.0
"""Rotary positions in the config.json of encoders that have one base for all layers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.config_fields import meaning, word_of
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checks import POSITIVE, Numbers

BASE = "rope_theta"
"""The name of the base, in the object `rope_parameters` or beside the other fields."""
SCALE = "rope_scale"
"""A name for the factor of the frequencies, which files do not have."""


_NTK_FACTOR = Numbers(at_least=1)
_KINDS = ("default", "linear", "ntk", "dynamic")


def rope_base_and_scale(
    rope_parameters: Any, fields: Mapping[str, Any], path: Path, base: Any
) -> tuple[float, float]:
    """Returns the base and the factor of the frequencies of an object of a file.

    Positions may be scaled by a base and a factor of the frequencies: `linear`, and the fixed `ntk`
    of the files that Alibaba released. A `dynamic` scaling has no effect up to the number of
    positions of the file. `base` is for parameters that have none.

    Reference:
        [Position interpolation](https://arxiv.org/abs/2306.15595), section 3, for `linear`;
        [mGTE](https://arxiv.org/abs/2407.19669), section 2.1, for `ntk`.
    """
    parameters = rope_parameters if isinstance(rope_parameters, dict) else {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if not isinstance(rope_parameters, dict) or kind not in _KINDS:
        raise CheckpointError(
            f"{path}: the parameters of the rotary positions (rope_parameters, rope_scaling) are "
            f"{rope_parameters!r}; they must have the rope_type {' or '.join(map(repr, _KINDS))}."
        )
    partial = parameters.get("partial_rotary_factor", fields.get("partial_rotary_factor"))
    factor: Any = 1.0 if kind == "default" else parameters.get("factor")
    if (
        not (_NTK_FACTOR if kind == "ntk" else POSITIVE).allows(factor)
        or parameters.get("mixed_b") is not None
        or partial not in (None, 1)
    ):
        raise CheckpointError(
            f"{path}: the parameters of the rotary positions are {rope_parameters!r}; they must "
            "have a factor above 0 (for 'ntk' of at least 1), no mixed_b, and 1 as "
            "partial_rotary_factor."
        )
    base = base if parameters.get(BASE) is None else parameters[BASE]
    if not POSITIVE.allows(base):
        raise CheckpointError(f"{path}: {BASE} is {base!r}; it must be {POSITIVE}.")
    hidden: Any
    heads: Any
    hidden, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
    dim = hidden / heads if POSITIVE.allows(hidden) and POSITIVE.allows(heads) else None
    if dim and fields.get("head_dim") not in (None, dim):
        raise CheckpointError(
            f"{path}: head_dim is {fields['head_dim']!r}; it must be hidden_size / "
            "num_attention_heads."
        )
    if kind == "linear":
        return base, 1 / factor
    if kind == "ntk" and dim:
        return float(base) * factor, factor ** (-2 / dim)
    return base, 1.0


def to_flat(
    fields: Mapping[str, Any], path: Path, activations: Mapping[str, str], *, default: float
) -> dict[str, Any]:
    """Returns the fields of a file with `BASE` and `SCALE` beside the others."""
    # Of two objects the reference takes the one of the older name.
    rope_parameters = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    base = default if fields.get(BASE) is None else fields[BASE]
    base, scale = rope_base_and_scale(rope_parameters, fields, path, base)
    return {**fields, BASE: base, SCALE: scale}


def from_flat(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of a file, the inverse of `to_flat`; see `ConfigFields.from_flat`."""
    kind = scaling_parameters(fields.pop(SCALE))
    return {
        **fields,
        "head_dim": fields["hidden_size"] // fields["num_attention_heads"],
        "rope_parameters": {**kind, BASE: fields[BASE]},
    }


def scaling_parameters(scale: float) -> dict[str, Any]:
    """Returns the parameters of rotary positions with a factor of the frequencies."""
    return {"rope_type": "default"} if scale == 1 else {"rope_type": "linear", "factor": 1 / scale}


# === NomicBERT ===

# The released files have GPT-2's fields, and others for further options of the released code; the
# files of `transformers` 5 have BERT's. Both are read, and the latter are written.
# The names of GPT-2 of BERT's fields
_GPT2_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
    "hidden_dropout_prob": "resid_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
    BASE: "rotary_emb_base",
}
# The activations of the gated feed-forward networks
_GATED = {"swiglu": "silu", "geglu": "gelu"}
NOMIC_BERT_NEEDED: dict[str, tuple[Any, ...]] = {
    "rotary_emb_fraction": (1.0,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (),
    "prenorm": (False,),
    "parallel_block": (False,),
    "use_rms_norm": (False,),
    "causal": (False,),
    "qkv_proj_bias": (False,),
    "mlp_fc1_bias": (False,),
    "mlp_fc2_bias": (False,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "num_experts": (0,),
}
"""Options of the released code that NomicBERT does not use."""


def nomic_bert_to_flat(
    fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the fields of a file by BERT's names; see `ConfigFields.to_flat`."""
    flat = dict(fields)
    if fields.get("hidden_size") is None:
        for name, released_name in _GPT2_NAMES.items():
            if fields.get(name) is None and fields.get(released_name) is not None:
                flat[name] = fields[released_name]
        if fields.get("hidden_act") is None and fields.get("activation_function") is not None:
            flat["hidden_act"] = meaning(fields, "activation_function", _GATED, path)
        if fields.get("rotary_scaling_factor") is not None:
            # Positions are scaled in texts that are longer than in training.
            flat["max_position_embeddings"] = fields.get("max_trained_positions", 2048)
    return to_flat(flat, path, activations, default=1000.0)


# === EuroBERT ===

_POOLINGS = {"bos": "first", "mean": "mean", "late": "late"}


def eurobert_to_flat(
    fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the fields of a file of EuroBERT, with `pooling` by the names of `BertConfig`."""
    flat = to_flat(fields, path, activations, default=10_000.0)
    pooling = meaning(fields, "classifier_pooling", _POOLINGS, path, "late")
    # As many as there are heads is no sharing.
    if flat.get("num_key_value_heads") == flat.get("num_attention_heads"):
        flat["num_key_value_heads"] = None
    return {**flat, "classifier_pooling": pooling}


def eurobert_from_flat(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of a file of EuroBERT, the inverse of `eurobert_to_flat`."""
    return {
        **from_flat(fields, activations),
        "num_key_value_heads": fields["num_key_value_heads"] or fields["num_attention_heads"],
        "classifier_pooling": word_of(
            fields["classifier_pooling"] or "first", "pooling", _POOLINGS
        ),
        "tie_word_embeddings": False,
    }
