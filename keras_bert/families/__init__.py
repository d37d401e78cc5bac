# SPDX-License-Identifier: Apache-2.0
"""Describes the supported model families, one module per family.

A module contains all information about its family, including config fields, tensor names, sizes and
tokenizer. To add a family, add a module and an entry in `FAMILIES`.
"""

from keras_bert.families.albert import ALBERT
from keras_bert.families.bert import BERT
from keras_bert.families.camembert import CAMEMBERT
from keras_bert.families.deberta_v2 import DEBERTA_V2
from keras_bert.families.distilbert import DISTILBERT
from keras_bert.families.electra import ELECTRA
from keras_bert.families.eurobert import EUROBERT
from keras_bert.families.gte import GTE
from keras_bert.families.modernbert import MODERNBERT
from keras_bert.families.mpnet import MPNET
from keras_bert.families.nomic_bert import NOMIC_BERT
from keras_bert.families.roberta import ROBERTA
from keras_bert.families.xlm_roberta import XLM_ROBERTA

FAMILIES = {
    family.name: family
    for family in (
        BERT,
        ROBERTA,
        ALBERT,
        ELECTRA,
        DISTILBERT,
        XLM_ROBERTA,
        CAMEMBERT,
        MODERNBERT,
        NOMIC_BERT,
        GTE,
        EUROBERT,
        MPNET,
        DEBERTA_V2,
    )
}
"""The families by name.

A model is saved as the first family that can represent its architecture and has its type of
tokenizer.
"""
TF1_RELEASES = tuple(family.google_tf1 for family in FAMILIES.values() if family.google_tf1)
"""The TF1 releases. A model is saved as the first release that can represent its architecture."""
SIZES = {
    name: {**family.values, **values}
    for family in FAMILIES.values()
    for name, values in family.sizes.items()
}
"""The released models' `BertConfig` values."""
KERAS_HUB_NAMES = {
    hub_name: name
    for family in FAMILIES.values()
    if family.keras_hub
    for hub_name, name in family.keras_hub.presets.items()
}
"""The name in `SIZES` for each KerasHub preset."""
