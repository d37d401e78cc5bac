# SPDX-License-Identifier: Apache-2.0
"""A tagger on features of words that an encoder has computed once."""

from __future__ import annotations

import keras

from keras_bert.layers import ClassificationHead
from keras_bert.layers.scalar_mix import ScalarMix
from keras_bert.models.recurrent import bidirectional_lstm


def feature_tagger(
    num_features: int,
    hidden_dim: int,
    num_classes: int,
    *,
    mix: bool = False,
    num_layers: int = 2,
    units: int = 768,
    dropout: float = 0.0,
) -> keras.Model:
    """A BiLSTM over words, and a class for each.

    Its inputs are a dict of `features`, float `(batch, words, num_features, hidden_dim)`, the
    vectors of each word, and `padding_mask`, bool `(batch, words)`, False at padding. Its output
    are logits, float32 `(batch, words, num_classes)`.

    Args:
        num_features: How many vectors a word has, such as one of each of four layers.
        hidden_dim: Their width.
        num_classes: Width of the output.
        mix: Whether the vectors of a word are summed with learnt weights; otherwise they are put
            beside each other.
        num_layers: Of the BiLSTM.
        units: Width of each of its directions.
        dropout: Rate on the features, and before the classifier.

    Returns:
        The functional model.

    Example:

    >>> model = feature_tagger(4, 8, 3, mix=True, units=6)
    >>> x = {"features": np.zeros((2, 5, 4, 8)), "padding_mask": np.ones((2, 5), bool)}
    >>> model.predict(x, verbose=0).shape
    (2, 5, 3)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.3.
    """
    features = keras.Input((None, num_features, hidden_dim), name="features")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    if mix:
        x = ScalarMix(name="scalar_mix")(features)
    else:
        # (batch, words, features, hidden) -> (batch, words, features * hidden)
        x = keras.layers.Reshape((-1, num_features * hidden_dim), name="side_by_side")(features)
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    x = bidirectional_lstm(
        x, padding_mask, num_layers=num_layers, units=units, return_sequences=True
    )
    logits = ClassificationHead(num_classes, dropout=dropout, name="classifier")(x)
    return keras.Model(
        {"features": features, "padding_mask": padding_mask}, logits, name="feature_tagger"
    )
