# SPDX-License-Identifier: Apache-2.0
"""Draws figure 2 of the BERT paper, the input of the model, with `insight.model_inputs`."""

from __future__ import annotations

import keras_bert
from keras_bert import insight

# The tokens of the figure with the IDs of bert_base_uncased, whose vocabulary also has "playing"
_IDS = {
    **{"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "he": 2002, "is": 2003, "my": 2026},
    **{"##ing": 2075, "play": 2377, "dog": 3899, "likes": 7777, "cute": 10140},
}


def bert_input() -> str:
    """Returns an SVG of the tokens and embeddings of the text pair in the figure."""
    vocabulary = [f"[unused{index}]" for index in range(1 + max(_IDS.values()))]
    for token, index in _IDS.items():
        vocabulary[index] = token
    preprocessor = keras_bert.data.TextClassifierPreprocessor(
        keras_bert.WordPieceTokenizer(vocabulary), sequence_length=11
    )
    config = keras_bert.BertConfig(
        len(vocabulary), num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16
    )
    task = keras_bert.TextClassifier(keras_bert.Backbone(config), 2, preprocessor)
    (sequence,) = insight.model_inputs(task, [("my dog is cute", "he likes playing")])
    return sequence.svg()
