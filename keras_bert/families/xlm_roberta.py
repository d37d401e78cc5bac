# SPDX-License-Identifier: Apache-2.0
"""XLM-RoBERTa, with RoBERTa's architecture and weight names, and SentencePiece."""

from __future__ import annotations

import dataclasses

from keras_bert.families import shared
from keras_bert.families.roberta import ROBERTA, roberta_size

XLM_ROBERTA = dataclasses.replace(
    ROBERTA,
    name="xlm-roberta",
    class_prefix="XLMRoberta",
    encoder_scope="roberta",
    config=dataclasses.replace(
        ROBERTA.config, fixed={**ROBERTA.config.fixed, "tokenizer": "sentence_piece"}
    ),
    sizes={
        "xlm_roberta_base": roberta_size(12, 768, 250_002),
        "xlm_roberta_large": roberta_size(24, 1024, 250_002),
    },
    keras_hub=None,
    # Text is not lowercased, and pairs have no segments.
    tokenizer={
        "special_tokens": shared.ROBERTA_TOKENS,
        **shared.UNCLEANED,
        "pair_separators": 2,
        "num_segments": 1,
    },
    tokenizer_class="XLMRobertaTokenizer",
)
