# SPDX-License-Identifier: Apache-2.0
"""The heads of pre-training, put on an encoder's outputs."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.layers import ClassificationHead, MaskedLMTransform, TokensAt, VocabularyBias
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import first_positions, token_inputs
from keras_bert.ops.annotations import Tensor


def pretraining_inputs(backbone: Backbone) -> dict[str, Any]:
    """The symbolic inputs of an encoder, and `mask_positions`: int32 `(batch, slots)`."""
    positions = keras.Input((None,), dtype="int32", name="mask_positions")
    return {**token_inputs(backbone.packed), "mask_positions": positions}


def encode_masked(
    backbone: Backbone, inputs: dict[str, Tensor], *, pooled: bool = False
) -> tuple[Any, dict[str, Any]]:
    """The encoder's outputs at the masked tokens, and perhaps at the pooler's.

    Args:
        backbone: The encoder.
        inputs: What `pretraining_inputs` returns.
        pooled: Whether the first token is encoded too, for `pooled_output`.

    Returns:
        The masked tokens' hidden states, symbolic `(batch, slots, hidden)`; and the outputs, whose
        first token and `pooled_output` are valid only if `pooled`.
    """
    positions = inputs["mask_positions"]
    if backbone.config.causal:
        outputs = backbone.encode(inputs)
        return TokensAt(name="masked_tokens")(outputs["sequence_output"], positions), outputs
    if not pooled:
        outputs = backbone.encode(inputs, positions)
        return outputs["sequence_output"], outputs
    first = first_positions(inputs["token_ids"])
    outputs = backbone.encode(inputs, ops.concatenate([first, positions], axis=1))
    return outputs["sequence_output"][:, 1:], outputs


def masked_lm_logits(backbone: Backbone, hidden: Tensor) -> Tensor:
    """Logits over the vocabulary, with the tied token table.

    Args:
        backbone: The encoder whose token table is shared.
        hidden: Symbolic, `(batch, slots, hidden)`, of the masked tokens.

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
    logits = backbone.token_embedding(transform(hidden), reverse=True)
    return VocabularyBias(name="masked_lm_bias")(logits)


def next_sentence_logits(backbone: Backbone, pooled_output: Tensor) -> Tensor:
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
