# SPDX-License-Identifier: Apache-2.0
"""ALBERT, with weights shared across layers and projected narrow embeddings."""

from __future__ import annotations

from typing import Any

from keras_bert.families import shared
from keras_bert.families import weight_names as names
from keras_bert.families.records import (
    ConfigFields,
    Family,
    KerasHubModels,
    TF1Release,
    WeightNames,
)


def _albert(num_layers: int, hidden_dim: int, dropout: float, **fields: Any) -> dict[str, Any]:
    rates = {"dropout": dropout, "attention_dropout": dropout}
    shape = {"vocabulary_size": 30000, "embedding_dim": 128, "activation": "gelu_tanh"}
    return shared.size(num_layers, hidden_dim, **shape, **rates, **fields)


def _alberts(version: str, dropout: float) -> dict[str, dict[str, Any]]:
    return {
        f"albert_base_{version}": _albert(12, 768, dropout),
        f"albert_large_{version}": _albert(24, 1024, dropout),
        f"albert_xlarge_{version}": _albert(24, 2048, dropout, num_heads=16),
        # Neither version uses dropout here.
        f"albert_xxlarge_{version}": _albert(12, 4096, 0.0),
    }


_CONFIG = ConfigFields(
    {**shared.REQUIRED, "embedding_dim": "embedding_size"},
    {
        **shared.OPTIONAL,
        "classifier_dropout": "classifier_dropout_prob",
        "num_layer_groups": "num_hidden_groups",
    },
    defaults={"dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.1},
    needed={"inner_group_num": (1,)},
    token_ids=shared.BOS_AND_EOS,
    fixed={"layer_sharing": "all", "tokenizer": "sentence_piece"},
    always_projects=True,
)
ALBERT = Family(
    name="albert",
    class_prefix="Albert",
    config=_CONFIG,
    hugging_face=WeightNames(
        {
            **names.hf_embeddings("predictions.decoder", "encoder.embedding_hidden_mapping_in"),
            **names.scoped("pooler.dense", names.hf_dense("pooler")),
        },
        names.hf_block(
            ("attention.query", "attention.key", "attention.value"),
            output="attention.dense",
            norm="attention.LayerNorm",
            intermediate="ffn",
            feed_forward_output="ffn_output",
            feed_forward_norm="full_layer_layer_norm",
        ),
        "encoder.albert_layer_groups.{group}.albert_layers.0.",
        {
            "masked_lm": names.hf_masked_lm(
                "predictions.dense",
                "predictions.LayerNorm",
                "predictions.bias",
                "predictions.decoder.bias",
            ),
            "next_sentence": names.hf_dense("sop_classifier.classifier"),
            **names.hf_task_heads(),
        },
    ),
    classes={
        "Model": (),
        "ForPreTraining": ("masked_lm", "next_sentence"),
        "ForMaskedLM": ("masked_lm",),
        **shared.HF_TASK_CLASSES,
    },
    sizes={**_alberts("v1", 0.1), **_alberts("v2", 0.0)},
    tokenizer_class="AlbertTokenizer",
    keras_hub=KerasHubModels(
        {
            **names.HUB_TABLES,
            **names.HUB_PROJECTION,
            **names.scoped("pooler.dense", names.HUB_POOLER),
        },
        names.HUB_BLOCK,
        "transformer_layers.{group}.0.",
        names.HUB_HEADS,
        config=ConfigFields(
            {
                **shared.HUB_SEGMENT_FIELDS,
                "embedding_dim": "embedding_dim",
                "num_layer_groups": "num_groups",
            },
            fixed={
                **shared.HUB_TANH_GELU,
                "layer_sharing": "all",
                "classifier_dropout": 0.1,
                "tokenizer": "sentence_piece",
            },
            always_projects=True,
        ),
        masked_lm_activation="gelu_tanh",
        presets={
            "albert_base_en_uncased": "albert_base_v2",
            "albert_large_en_uncased": "albert_large_v2",
            "albert_extra_large_en_uncased": "albert_xlarge_v2",
            "albert_extra_extra_large_en_uncased": "albert_xxlarge_v2",
        },
    ),
    google_tf1=TF1Release(
        names.tf1_encoder("bert", "bert/encoder/embedding_hidden_mapping_in"),
        names.block_layout(
            names.TF1_ENDINGS,
            ("attention_1/self/query", "attention_1/self/key", "attention_1/self/value"),
            output="attention_1/output/dense",
            norm="LayerNorm",
            intermediate="ffn_1/intermediate/dense",
            feed_forward_output="ffn_1/intermediate/output/dense",
            feed_forward_norm="LayerNorm_1",
        ),
        "bert/encoder/transformer/group_{group}/inner_group_0/",
        names.TF1_HEADS,
        config=_CONFIG,
        config_file="albert_config.json",
        prefix="model.ckpt-best",
        activations=shared.TF1_ACTIVATIONS,
    ),
)
