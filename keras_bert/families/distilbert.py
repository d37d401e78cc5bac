# SPDX-License-Identifier: Apache-2.0
"""DistilBERT, a BERT with half the layers, without segments or a pooler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_bert.families import shared
from keras_bert.families import weight_names as names
from keras_bert.families.bert import CASED, MULTILINGUAL_CASED
from keras_bert.families.records import ConfigFields, Family, KerasHubModels, WeightNames


def _to_flat(fields: Mapping[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields in a file. BERT's names for three fields take precedence."""
    older = {
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    }
    return {**fields, **{older[name]: fields[name] for name in older if name in fields}}


DISTILBERT = Family(
    name="distilbert",
    class_prefix="DistilBert",
    config=ConfigFields(
        {
            "vocabulary_size": "vocab_size",
            "num_layers": "n_layers",
            "num_heads": "n_heads",
            "hidden_dim": "dim",
            "intermediate_dim": "hidden_dim",
            "max_sequence_length": "max_position_embeddings",
        },
        {
            "token_dropout": "dropout",
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "classifier_dropout": "seq_classif_dropout",
            "answer_dropout": "qa_dropout",
            "initializer_range": "initializer_range",
            "pad_token_id": "pad_token_id",
        },
        defaults={"token_dropout": 0.1, "classifier_dropout": 0.2, "answer_dropout": 0.1},
        to_flat=_to_flat,
        fixed={
            "num_segments": 0,
            "pooler": False,
            "pooler_activation": "relu",
            "layer_norm_epsilon": 1e-12,
        },
        activation="activation",
    ),
    hugging_face=WeightNames(
        names.hf_embeddings("vocab_projector"),
        names.hf_block(
            ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            output="attention.out_lin",
            norm="sa_layer_norm",
            intermediate="ffn.lin1",
            feed_forward_output="ffn.lin2",
            feed_forward_norm="output_layer_norm",
        ),
        "transformer.layer.{layer}.",
        {
            "masked_lm": names.hf_masked_lm(
                "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
            ),
            "pooler": names.hf_dense("pre_classifier"),
            **names.hf_task_heads(),
        },
    ),
    classes={**shared.MASKED_LM_CLASSES, **shared.HF_TASK_CLASSES},
    sizes={
        "distilbert_base_uncased": shared.size(6, 768),
        "distilbert_base_cased": shared.size(6, 768, vocabulary_size=CASED),
        "distilbert_base_multilingual_cased": shared.size(
            6, 768, vocabulary_size=MULTILINGUAL_CASED
        ),
    },
    tokenizer_class="DistilBertTokenizer",
    poolers={
        "ForSequenceClassification": "pre_classifier",
        "ForMultipleChoice": "pre_classifier",
    },
    keras_hub=KerasHubModels(
        {**names.HUB_TABLES_WITHOUT_SEGMENTS, **names.scoped("pooler.dense", names.HUB_POOLER)},
        names.HUB_BLOCK,
        "transformer_layers.{layer}.",
        {**names.HUB_HEADS, "pooler": names.HUB_POOLER},
        config=ConfigFields(
            {"token_dropout": "dropout", **shared.HUB_FIELDS},
            fixed={
                "num_segments": 0,
                "pooler": False,
                "pooler_activation": "relu",
                "layer_norm_epsilon": 1e-12,
                "classifier_dropout": 0.2,
                "answer_dropout": 0.1,
            },
        ),
        presets={
            "distil_bert_base_en_uncased": "distilbert_base_uncased",
            "distil_bert_base_en": "distilbert_base_cased",
            "distil_bert_base_multi": "distilbert_base_multilingual_cased",
        },
    ),
)
