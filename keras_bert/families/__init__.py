# SPDX-License-Identifier: Apache-2.0
"""The families of released models, with one module each.

A family's module has all that the library knows about the family: config fields, tensor names,
sizes, tokenizer. A new family is a new module and its place in `FAMILIES`.
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

An architecture is saved as the first family that can represent it and has its kind of tokenizer.
"""
TF1_RELEASES = tuple(family.google_tf1 for family in FAMILIES.values() if family.google_tf1)
"""The TF1 releases. An architecture is saved as the first one that can represent it."""
SIZES = {
    name: {**family.values, **values}
    for family in FAMILIES.values()
    for name, values in family.sizes.items()
}
"""The values of `BertConfig` of each released model."""
KERAS_HUB_NAMES = {
    theirs: ours
    for family in FAMILIES.values()
    if family.keras_hub
    for theirs, ours in family.keras_hub.presets.items()
}
"""The name in `SIZES` of each preset of KerasHub."""
