# SPDX-License-Identifier: Apache-2.0
"""The heads of pre-training, put on an encoder's outputs."""

from __future__ import annotations

from typing import Any

import keras

from keras_bert.layers import ClassificationHead, MaskedLMTransform, VocabularyBias
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import token_inputs


def pretraining_inputs(backbone: Backbone) -> dict[str, Any]:
    """The symbolic inputs of an encoder, and `mask_positions`: int32 `(batch, slots)`."""
    positions = keras.Input((None,), dtype="int32", name="mask_positions")
    return {**token_inputs(backbone.packed), "mask_positions": positions}


def encode(backbone: Backbone, inputs: dict[str, Any]) -> dict[str, Any]:
    """The encoder's outputs for inputs of which some are for a head."""
    return dict(backbone({name: inputs[name] for name in backbone.input}))


def masked_lm_logits(backbone: Backbone, sequence_output: Any, mask_positions: Any) -> Any:
    """Logits over the vocabulary for the masked positions, with the tied token table.

    Args:
        backbone: The encoder whose token table is shared.
        sequence_output: Symbolic, `(batch, length, hidden)`.
        mask_positions: Symbolic, int `(batch, slots)`.

    Returns:
        Symbolic float32 logits `(batch, slots, vocabulary)`.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 1.
    """
    config, policy = backbone.config, backbone.dtype_policy
    transform = MaskedLMTransform(
        config.effective_masked_lm_activation,
        dim=config.embedding_width,
        layer_norm_epsilon=config.layer_norm_epsilon,
        initializer_range=config.initializer_range,
        dtype=policy,
        name="masked_lm_transform",
    )
    hidden = transform(sequence_output, mask_positions)
    logits = backbone.token_embedding(hidden, reverse=True)
    return VocabularyBias(name="masked_lm_bias")(logits)


def next_sentence_logits(backbone: Backbone, pooled_output: Any) -> Any:
    """Logits of whether the second segment follows the first (0 = it does).

    Args:
        backbone: The encoder, for the range of its first weights.
        pooled_output: Symbolic, `(batch, hidden)`.

    Returns:
        Symbolic float32 logits `(batch, 2)`.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 2.
    """
    head = ClassificationHead(
        2, initializer_range=backbone.config.initializer_range, name="next_sentence"
    )
    return head(pooled_output)
