# SPDX-License-Identifier: Apache-2.0
"""BERT and MiniLM. MiniLM is a narrower BERT."""

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

CASED, MULTILINGUAL_CASED = 28996, 119547
"""Sizes of the cased vocabularies of BERT and DistilBERT."""
_CHINESE = 21128


def _bert(num_layers: int, hidden_dim: int, vocabulary_size: int = 30522) -> dict[str, Any]:
    # "gelu" is the tanh approximation in the original BERT code.
    return shared.size(
        num_layers, hidden_dim, vocabulary_size=vocabulary_size, activation="gelu_tanh"
    )


def _minilm(num_layers: int) -> dict[str, Any]:
    # MiniLM has 12 narrow heads like its teacher, and was released for code with the exact GELU.
    return shared.size(num_layers, 384, num_heads=12, activation="gelu_erf")


_SIZES = {
    "bert_tiny_uncased": _bert(2, 128),
    "bert_mini_uncased": _bert(4, 256),
    "bert_small_uncased": _bert(4, 512),
    "bert_medium_uncased": _bert(8, 512),
    "bert_base_uncased": _bert(12, 768),
    "bert_large_uncased": _bert(24, 1024),
    "bert_base_cased": _bert(12, 768, CASED),
    "bert_large_cased": _bert(24, 1024, CASED),
    "bert_base_multilingual_cased": _bert(12, 768, MULTILINGUAL_CASED),
    "bert_base_chinese": _bert(12, 768, _CHINESE),
    "bert_large_uncased_whole_word": _bert(24, 1024),
    "bert_large_cased_whole_word": _bert(24, 1024, CASED),
    **{
        f"bert_l{num_layers}_h{hidden_dim}_uncased": _bert(num_layers, hidden_dim)
        for num_layers in (2, 4, 6, 8, 10, 12)
        for hidden_dim in (128, 256, 512, 768)
    },
    "minilm_l6_h384_uncased": _minilm(6),
    "minilm_l12_h384_uncased": _minilm(12),
}
_CONFIG = ConfigFields(shared.REQUIRED, shared.OPTIONAL, needed=shared.CAN_BE_CAUSAL)
BERT = Family(
    name="bert",
    class_prefix="Bert",
    config=_CONFIG,
    hugging_face=WeightNames(
        {
            **names.hf_embeddings("cls.predictions.decoder"),
            **names.scoped("pooler.dense", names.hf_dense("pooler.dense")),
        },
        names.HF_BLOCK,
        "encoder.layer.{layer}.",
        {
            "masked_lm": names.hf_masked_lm(
                "cls.predictions.transform.dense",
                "cls.predictions.transform.LayerNorm",
                "cls.predictions.bias",
                "cls.predictions.decoder.bias",
            ),
            "next_sentence": names.hf_dense("cls.seq_relationship"),
            **names.hf_task_heads(),
        },
    ),
    classes={
        "Model": (),
        "ForPreTraining": ("masked_lm", "next_sentence"),
        "ForMaskedLM": ("masked_lm",),
        "LMHeadModel": ("masked_lm",),
        "ForNextSentencePrediction": ("next_sentence",),
        **shared.HF_TASK_CLASSES,
    },
    sizes=_SIZES,
    tokenizer_class="BertTokenizer",
    can_be_causal=True,
    keras_hub=KerasHubModels(
        {**names.HUB_TABLES, **names.scoped("pooler.dense", names.HUB_POOLER)},
        names.HUB_BLOCK,
        "transformer_layers.{layer}.",
        names.HUB_HEADS,
        config=ConfigFields(shared.HUB_SEGMENT_FIELDS, fixed=shared.HUB_TANH_GELU),
        presets={
            "bert_tiny_en_uncased": "bert_tiny_uncased",
            "bert_small_en_uncased": "bert_small_uncased",
            "bert_medium_en_uncased": "bert_medium_uncased",
            "bert_base_en_uncased": "bert_base_uncased",
            "bert_base_en": "bert_base_cased",
            "bert_base_zh": "bert_base_chinese",
            "bert_base_multi": "bert_base_multilingual_cased",
            "bert_large_en_uncased": "bert_large_uncased",
            "bert_large_en": "bert_large_cased",
        },
    ),
    google_tf1=TF1Release(
        names.tf1_encoder("bert"),
        names.TF1_BLOCK,
        "bert/encoder/layer_{layer}/",
        names.TF1_HEADS,
        config=_CONFIG,
        config_file="bert_config.json",
        prefix="bert_model.ckpt",
        activations=shared.TF1_ACTIVATIONS,
    ),
)
