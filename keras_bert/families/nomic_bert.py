# SPDX-License-Identifier: Apache-2.0
"""NomicBERT, a BERT with RoPE and gated feed-forward networks, without biases in its layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_bert.families import rotary, shared
from keras_bert.families import weight_names as names
from keras_bert.families.records import ConfigFields, Family, StoredTensor, WeightNames

# The released files have GPT-2's fields and further options of the original code. The files of
# `transformers` 5 have BERT's fields. Both can be read, and saved files have BERT's fields.
# GPT-2's names for BERT's fields
_GPT2_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
    "hidden_dropout_prob": "resid_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
    rotary.BASE: "rotary_emb_base",
}
# Activations in the gated feed-forward networks
_GATED = {"swiglu": "silu", "geglu": "gelu"}
# Options of the original code and their supported values
_NEEDED: dict[str, tuple[Any, ...]] = {
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


def _to_flat(fields: Mapping[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields in a file by BERT's names. See `ConfigFields.to_flat`."""
    flat = dict(fields)
    if fields.get("hidden_size") is None:
        for name, released_name in _GPT2_NAMES.items():
            if fields.get(name) is None and fields.get(released_name) is not None:
                flat[name] = fields[released_name]
        if fields.get("hidden_act") is None and fields.get("activation_function") is not None:
            flat["hidden_act"] = shared.map_value(fields, "activation_function", _GATED)
        if fields.get("rotary_scaling_factor") is not None:
            # Positions are only scaled in texts longer than in training.
            flat["max_position_embeddings"] = fields.get("max_trained_positions", 2048)
    return rotary.to_flat(flat, activations, default=1000.0)


NOMIC_BERT = Family(
    name="nomic_bert",
    class_prefix="NomicBert",
    config=ConfigFields(
        shared.REQUIRED,
        {**shared.OPTIONAL, **rotary.FIELDS},
        defaults={"dropout": 0.0, "attention_dropout": 0.0},
        needed={**rotary.NEEDED, **_NEEDED},
        fixed={
            "positions": "rotary",
            "feed_forward": "gated",
            "attention_bias": False,
            "feed_forward_bias": False,
            "pooler": False,
        },
        to_flat=_to_flat,
        from_flat=rotary.from_flat,
    ),
    hugging_face=WeightNames(
        {
            **names.hf_embeddings("cls.predictions.decoder"),
            "embeddings.gamma": StoredTensor(("emb_ln.weight",)),
            "embeddings.beta": StoredTensor(("emb_ln.bias",)),
        },
        names.hf_block(
            ("attn.Wqkv",),
            output="attn.out_proj",
            norm="norm1",
            # The first projection is activated, and the second projection is the gate.
            intermediate=("mlp.fc12", "mlp.fc11"),
            feed_forward_output="mlp.fc2",
            feed_forward_norm="norm2",
        ),
        "encoder.layers.{layer}.",
        {
            "masked_lm": names.hf_masked_lm(
                "cls.predictions.transform.dense",
                "cls.predictions.transform.layer_norm",
                "cls.predictions.bias",
                "cls.predictions.decoder.bias",
            ),
            "pooler": names.hf_dense("pooler.dense"),
            **names.hf_task_heads(),
        },
    ),
    poolers={"ForSequenceClassification": "nomic_bert.pooler.dense"},
    released_scope="bert",
    classes={**shared.MASKED_LM_CLASSES, **shared.CLASSIFIER_CLASSES},
    sizes={
        "nomic_bert": shared.size(
            12,
            768,
            vocabulary_size=30528,
            max_sequence_length=2048,
            rotary_base=1000.0,
            activation="silu",
        ),
    },
    tokenizer_class="BertTokenizer",
)
