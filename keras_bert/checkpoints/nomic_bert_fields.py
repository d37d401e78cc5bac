# SPDX-License-Identifier: Apache-2.0
"""The fields of NomicBERT's config.json, in both spellings that are in use.

The released files have GPT-2's fields, and others for further options of the released code; the
files of `transformers` 5 have BERT's. Both are read, and the latter are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import rotary_fields
from keras_bert.checkpoints.config_fields import meaning

# The names of GPT-2 of BERT's fields
_RELEASED = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
    "hidden_dropout_prob": "resid_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
    rotary_fields.BASE: "rotary_emb_base",
}
# The activations of the gated feed-forward networks
_GATED = {"swiglu": "silu", "geglu": "gelu"}
NEEDED: dict[str, tuple[Any, ...]] = {
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


def to_flat(
    fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the fields of a file by BERT's names; see `ConfigFields.to_flat`.

    Raises:
        CheckpointError: If the file has another architecture; the message names the field.
    """
    flat = dict(fields)
    if fields.get("hidden_size") is None:
        for name, released_name in _RELEASED.items():
            if fields.get(name) is None and fields.get(released_name) is not None:
                flat[name] = fields[released_name]
        if fields.get("hidden_act") is None and fields.get("activation_function") is not None:
            flat["hidden_act"] = meaning(fields, "activation_function", _GATED, path)
        if fields.get("rotary_scaling_factor") is not None:
            # Positions are scaled in texts that are longer than in training.
            flat["max_position_embeddings"] = fields.get("max_trained_positions", 2048)
    return rotary_fields.to_flat(flat, path, activations, default=1000.0)
