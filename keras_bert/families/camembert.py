# SPDX-License-Identifier: Apache-2.0
"""CamemBERT, the French XLM-RoBERTa with its own vocabulary."""

from __future__ import annotations

import dataclasses

from keras_bert.families.roberta import roberta_size
from keras_bert.families.xlm_roberta import XLM_ROBERTA

CAMEMBERT = dataclasses.replace(
    XLM_ROBERTA,
    name="camembert",
    class_prefix="Camembert",
    sizes={"camembert_base": roberta_size(12, 768, 32_005)},
    tokenizer_class="CamembertTokenizer",
)
