# SPDX-License-Identifier: Apache-2.0
"""RoBERTa, a BERT without segments, with byte-level BPE and positions after the padding id."""

from __future__ import annotations

from typing import Any

from keras_bert.families import shared
from keras_bert.families import weight_names as names
from keras_bert.families.records import ConfigFields, Family, KerasHubModels, WeightNames


def roberta_size(num_layers: int, hidden_dim: int, vocabulary_size: int) -> dict[str, Any]:
    return shared.size(
        num_layers,
        hidden_dim,
        vocabulary_size=vocabulary_size,
        num_segments=1,
        position_offset=2,
        layer_norm_epsilon=1e-5,
    )


ROBERTA = Family(
    name="roberta",
    class_prefix="Roberta",
    config=ConfigFields(
        shared.REQUIRED,
        shared.OPTIONAL,
        defaults={"pad_token_id": 1},
        needed=shared.CAN_BE_CAUSAL,
        token_ids=shared.BOS_AND_EOS,
        fixed={
            "masked_lm_activation": "gelu_erf",
            "pooler_dropout": 0.1,
            "tokenizer": "byte_pair",
        },
        positions_follow_padding=True,
    ),
    hugging_face=WeightNames(
        {
            **names.hf_embeddings("lm_head.decoder"),
            # The first layer of the classification head is a pooler. Classifiers ignore the
            # encoder's pooler, even if their file contains it.
            **names.scoped(
                "pooler.dense", names.hf_dense("pooler.dense", instead="classifier.dense")
            ),
        },
        names.HF_BLOCK,
        "encoder.layer.{layer}.",
        {
            "masked_lm": names.hf_masked_lm(
                "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder.bias"
            ),
            **names.hf_task_heads("classifier.out_proj"),
        },
    ),
    classes={
        "Model": (),
        "ForMaskedLM": ("masked_lm",),
        "ForCausalLM": ("masked_lm",),
        **shared.HF_TASK_CLASSES,
    },
    sizes={
        "roberta_base": roberta_size(12, 768, 50265),
        "roberta_large": roberta_size(24, 1024, 50265),
        "distilroberta_base": roberta_size(6, 768, 50265),
    },
    tokenizer_class="RobertaTokenizer",
    poolers={"ForSequenceClassification": "classifier.dense"},
    can_be_causal=True,
    keras_hub=KerasHubModels(
        {**names.HUB_TABLES_WITHOUT_SEGMENTS, **names.scoped("pooler.dense", names.HUB_POOLER)},
        names.HUB_BLOCK,
        "transformer_layers.{layer}.",
        {**names.HUB_HEADS, "pooler": names.HUB_POOLER},
        config=ConfigFields(
            shared.HUB_FIELDS,
            # Positions include padding, and the segment embedding is part of the position
            # embeddings.
            fixed={
                "num_segments": 0,
                "pad_token_id": 1,
                "layer_norm_epsilon": 1e-5,
                "pooler_dropout": 0.1,
                "tokenizer": "byte_pair",
            },
        ),
        presets={
            "roberta_base_en": "roberta_base",
            "roberta_large_en": "roberta_large",
        },
    ),
)
