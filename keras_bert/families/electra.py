# SPDX-License-Identifier: Apache-2.0
"""ELECTRA discriminators and generators. Their pooler is part of the heads."""

from __future__ import annotations

from keras_bert.families import shared
from keras_bert.families import weight_names as names
from keras_bert.families.records import (
    ConfigFields,
    Family,
    KerasHubModels,
    TF1Release,
    WeightNames,
)

_CONFIG = ConfigFields(
    {**shared.REQUIRED, "embedding_dim": "embedding_size"},
    shared.OPTIONAL,
    needed={
        **shared.CAN_BE_CAUSAL,
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu",),
        "summary_proj_to_labels": (False,),
    },
    fixed={
        "masked_lm_activation": "gelu_erf",
        "pooler": False,
        "pooler_activation": "gelu_erf",
        "pooler_dropout": 0.1,
    },
)
ELECTRA = Family(
    name="electra",
    class_prefix="Electra",
    config=_CONFIG,
    hugging_face=WeightNames(
        names.hf_embeddings("generator_lm_head", "embeddings_project"),
        names.HF_BLOCK,
        "encoder.layer.{layer}.",
        {
            "masked_lm": names.hf_masked_lm(
                "generator_predictions.dense",
                "generator_predictions.LayerNorm",
                "generator_lm_head.bias",
            ),
            "replaced_token": {
                **names.scoped("dense", names.hf_dense("discriminator_predictions.dense")),
                **names.hf_dense("discriminator_predictions.dense_prediction"),
            },
            "pooler": names.hf_dense("classifier.dense", "sequence_summary.summary"),
            **names.hf_task_heads("classifier.out_proj"),
        },
    ),
    classes={
        "Model": (),
        "ForPreTraining": ("replaced_token",),
        "ForMaskedLM": ("masked_lm",),
        "ForCausalLM": ("masked_lm",),
        **shared.HF_TASK_CLASSES,
    },
    sizes={
        "electra_small_discriminator": shared.size(12, 256, embedding_dim=128),
        "electra_base_discriminator": shared.size(12, 768),
        "electra_large_discriminator": shared.size(24, 1024),
        # Compared with their discriminators, the generators have the same width, a third and a
        # quarter.
        "electra_small_generator": shared.size(12, 256, embedding_dim=128),
        "electra_base_generator": shared.size(12, 256, embedding_dim=768),
        "electra_large_generator": shared.size(24, 256, embedding_dim=1024),
    },
    tokenizer_class="ElectraTokenizer",
    poolers={
        "ForSequenceClassification": "classifier.dense",
        "ForMultipleChoice": "sequence_summary.summary",
    },
    can_be_causal=True,
    # Unlike the original encoder, KerasHub's encoder has a pooler.
    keras_hub=KerasHubModels(
        {
            **names.HUB_TABLES,
            **names.HUB_PROJECTION,
            **names.scoped("pooler.dense", names.HUB_POOLER),
        },
        names.HUB_BLOCK,
        "transformer_layers.{layer}.",
        names.HUB_HEADS,
        config=ConfigFields(
            {
                **shared.HUB_SEGMENT_FIELDS,
                "vocabulary_size": "vocab_size",
                "embedding_dim": "embedding_dim",
            },
            fixed=shared.HUB_TANH_GELU,
        ),
        masked_lm_activation=None,
        presets={
            "electra_small_discriminator_uncased_en": "electra_small_discriminator",
            "electra_base_discriminator_uncased_en": "electra_base_discriminator",
            "electra_large_discriminator_uncased_en": "electra_large_discriminator",
            "electra_small_generator_uncased_en": "electra_small_generator",
            "electra_base_generator_uncased_en": "electra_base_generator",
            "electra_large_generator_uncased_en": "electra_large_generator",
        },
    ),
    google_tf1=TF1Release(
        names.tf1_encoder("electra", "electra/embeddings_project", pooler=False),
        names.TF1_BLOCK,
        "electra/encoder/layer_{layer}/",
        {
            "replaced_token": {
                **names.scoped("dense", names.keras_dense("discriminator_predictions/dense", "/")),
                **names.keras_dense("discriminator_predictions/dense_1", "/"),
            }
        },
        config=_CONFIG,
        config_file=None,
        prefix="electra",
        activations={"gelu": "gelu_erf"},
    ),
)
