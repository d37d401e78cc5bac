# SPDX-License-Identifier: Apache-2.0
"""EuroBERT, an encoder with Llama's layers, grouped queries and RMSNorm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_bert.families import rotary, shared
from keras_bert.families import weight_names as names
from keras_bert.families.records import ConfigFields, Family, StoredTensor, WeightNames

_POOLINGS = {"bos": "first", "mean": "mean", "late": "late"}


def _to_flat(fields: Mapping[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields in a file, with `BertConfig`'s value for the pooling."""
    flat = rotary.to_flat(fields, activations, default=10_000.0)
    pooling = shared.map_value(fields, "classifier_pooling", _POOLINGS, "late")
    # If every head has its own keys and values, the config does not have the field.
    if flat.get("num_key_value_heads") == flat.get("num_attention_heads"):
        flat["num_key_value_heads"] = None
    return {**flat, "classifier_pooling": pooling}


def _from_flat(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields to write, the inverse of `_to_flat`."""
    return {
        **rotary.from_flat(fields, activations),
        "num_key_value_heads": fields["num_key_value_heads"] or fields["num_attention_heads"],
        "classifier_pooling": shared.word_of(
            fields["classifier_pooling"] or "first", "pooling", _POOLINGS
        ),
        "tie_word_embeddings": False,
    }


def _size(
    num_layers: int, hidden_dim: int, intermediate_dim: int, num_heads: int, key_heads: int | None
) -> dict[str, Any]:
    return shared.size(
        num_layers,
        hidden_dim,
        intermediate_dim=intermediate_dim,
        num_heads=num_heads,
        num_key_value_heads=key_heads,
        vocabulary_size=128_256,
        max_sequence_length=8192,
        rotary_base=250_000.0,
        activation="silu",
        pooling="late",
    )


EUROBERT = Family(
    name="eurobert",
    class_prefix="EuroBert",
    config=ConfigFields(
        shared.REQUIRED_WITHOUT_SEGMENTS,
        {
            "num_key_value_heads": "num_key_value_heads",
            "attention_dropout": "attention_dropout",
            "attention_bias": "attention_bias",
            "masked_lm_bias": "mlp_bias",
            "feed_forward_bias": "mlp_bias",
            "layer_norm_epsilon": "rms_norm_eps",
            "initializer_range": "initializer_range",
            **rotary.FIELDS,
            "pooling": "classifier_pooling",
            "pad_token_id": "pad_token_id",
        },
        defaults={
            "attention_dropout": 0.0,
            "attention_bias": False,
            "masked_lm_bias": False,
            "feed_forward_bias": False,
            "layer_norm_epsilon": 1e-5,
            "pad_token_id": 128_001,
        },
        # The original code calls the pooling `clf_pooling`.
        needed={**rotary.NEEDED, "tie_word_embeddings": (False,), "clf_pooling": ("late",)},
        token_ids={**shared.BOS_AND_EOS, "mask_token_id": "mask"},
        fixed={
            "num_segments": 0,
            "positions": "rotary",
            "feed_forward": "gated",
            "norm": "rms_norm",
            "norm_placement": "pre",
            "embedding_norm": False,
            "pooler": False,
            "pooler_activation": "gelu_erf",
            "masked_lm_head": "linear",
            "dropout": 0.0,
            "tokenizer": "byte_pair",
        },
        to_flat=_to_flat,
        from_flat=_from_flat,
    ),
    hugging_face=WeightNames(
        {
            "token_embedding.embeddings": StoredTensor(("embed_tokens.weight",)),
            "final_norm.gamma": StoredTensor(("norm.weight",)),
        },
        names.hf_block(
            ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            output="self_attn.o_proj",
            norm="input_layernorm",
            # The first projection is activated, and the second projection is the gate.
            intermediate=("mlp.gate_proj", "mlp.up_proj"),
            feed_forward_output="mlp.down_proj",
            feed_forward_norm="post_attention_layernorm",
        ),
        "layers.{layer}.",
        {
            "masked_lm": {
                "decoder.kernel": StoredTensor(("lm_head.weight",), transposed=True),
                "output_bias": StoredTensor(("lm_head.bias",)),
            },
            "pooler": names.hf_dense("dense"),
            **dict.fromkeys(names.CLASSIFIERS, names.hf_dense("classifier")),
        },
    ),
    classes={**shared.MASKED_LM_CLASSES, **shared.CLASSIFIER_CLASSES},
    sizes={
        "eurobert_210m": _size(12, 768, 3072, 12, None),
        "eurobert_610m": _size(26, 1152, 4096, 18, 6),
        "eurobert_2.1b": _size(32, 2304, 6144, 18, 6),
    },
    encoder_scope="model",
    tokenizer={
        # The released tokenizer pads with the end-of-text token. Here, padding is a separate token.
        "special_tokens": {
            "pad": "<|pad|>",
            "unk": "<|end_of_text|>",
            "cls": "<|begin_of_text|>",
            "sep": "<|end_of_text|>",
            "mask": "<|mask|>",
        },
        "pair_separators": 1,
        "mask_takes_space": False,
        "word_pattern": "llama3",
        "ignore_merges": True,
        "space_before_first_word": False,
    },
)
