# SPDX-License-Identifier: Apache-2.0
"""MPNet, a RoBERTa with bucketed relative positions and BERT's vocabulary."""

from __future__ import annotations

import dataclasses

from keras_bert.families import shared
from keras_bert.families import weight_names as names
from keras_bert.families.records import StoredTensor
from keras_bert.families.roberta import ROBERTA

_BLOCK = names.hf_block(
    ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    output="attention.attn.o",
    norm="attention.LayerNorm",
    intermediate="intermediate.dense",
    feed_forward_output="output.dense",
    feed_forward_norm="output.LayerNorm",
)
MPNET = dataclasses.replace(
    ROBERTA,
    name="mpnet",
    class_prefix="MPNet",
    config=dataclasses.replace(
        ROBERTA.config,
        required=shared.REQUIRED_WITHOUT_SEGMENTS,
        # Whatever the file contains, `transformers` uses 32 buckets and starts positions after
        # padding id 1.
        needed={"relative_attention_num_buckets": (32,), "pad_token_id": (1,)},
        fixed={
            "num_segments": 0,
            "relative_positions": "bucketed",
            "masked_lm_activation": "gelu_erf",
            "pooler_dropout": 0.1,
        },
    ),
    hugging_face=dataclasses.replace(
        ROBERTA.hugging_face,
        encoder={
            **ROBERTA.hugging_face.encoder,
            "relative_embeddings.embeddings": StoredTensor(
                ("encoder.relative_attention_bias.weight",)
            ),
        },
        block=_BLOCK,
    ),
    classes={**shared.MASKED_LM_CLASSES, **shared.HF_TASK_CLASSES},
    sizes={
        "mpnet_base": shared.size(
            12, 768, vocabulary_size=30527, position_offset=2, layer_norm_epsilon=1e-5
        ),
    },
    tokenizer_class="MPNetTokenizer",
    can_be_causal=False,
    keras_hub=None,
    # Text pairs have no segments, as in RoBERTa.
    tokenizer={
        "special_tokens": {
            "cls": "<s>",
            "pad": "<pad>",
            "sep": "</s>",
            "unk": "[UNK]",
            "mask": "<mask>",
        },
        "pair_separators": 2,
        "num_segments": 1,
    },
)
