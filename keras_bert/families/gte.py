# SPDX-License-Identifier: Apache-2.0
"""GTE, with NomicBERT's architecture, biases, XLM-RoBERTa's vocabulary and scaled RoPE."""

from __future__ import annotations

import dataclasses
import functools

from keras_bert.families import rotary, shared
from keras_bert.families import weight_names as names
from keras_bert.families.nomic_bert import NOMIC_BERT
from keras_bert.families.records import ConfigFields, WeightNames
from keras_bert.families.xlm_roberta import XLM_ROBERTA


def _gate_first(size: int, head_dim: int) -> list[int]:
    """Returns a gated layer's columns if the gate comes first in files."""
    half = size // 2
    return [*range(half, size), *range(half)]


_BLOCK = names.hf_block(
    ("attention.qkv_proj",),
    output="attention.o_proj",
    norm="attn_ln",
    intermediate="mlp.up_gate_proj",
    feed_forward_output="mlp.down_proj",
    feed_forward_norm="mlp_ln",
)
GTE = dataclasses.replace(
    NOMIC_BERT,
    name="gte",
    class_prefix="Gte",
    released_name="new",
    released_scope="new",
    poolers={"ForSequenceClassification": "gte.pooler.dense"},
    config=ConfigFields(
        shared.REQUIRED,
        {**shared.OPTIONAL, **rotary.FIELDS},
        defaults={"attention_dropout": 0.0, "pad_token_id": 1},
        # These fields, except for RoPE's, belong to the original code.
        needed={
            **rotary.NEEDED,
            "layer_norm_type": ("layer_norm",),
            "logn_attention_scale": (False,),
        },
        fixed={
            "masked_lm_activation": "gelu_erf",
            "positions": "rotary",
            "feed_forward": "gated",
            "intermediate_bias": False,
            "pooler": False,
            "tokenizer": "sentence_piece",
        },
        to_flat=functools.partial(rotary.to_flat, default=160_000.0),
        from_flat=rotary.from_flat,
    ),
    hugging_face=WeightNames(
        names.hf_embeddings("lm_head.decoder"),
        {
            **_BLOCK,
            "feed_forward.intermediate.kernel": dataclasses.replace(
                _BLOCK["feed_forward.intermediate.kernel"], columns=_gate_first
            ),
        },
        "encoder.layer.{layer}.",
        {
            "masked_lm": names.hf_masked_lm(
                "lm_head.dense", "lm_head.norm", "lm_head.decoder.bias"
            ),
            "pooler": names.hf_dense("pooler.dense"),
            **names.hf_task_heads(),
        },
    ),
    tokenizer=XLM_ROBERTA.tokenizer,
    sizes={
        "gte_multilingual_base": shared.size(
            12,
            768,
            vocabulary_size=250_048,
            max_sequence_length=8192,
            num_segments=1,
            rotary_base=160_000.0,
        ),
    },
    tokenizer_class=None,
)
