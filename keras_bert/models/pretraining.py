# SPDX-License-Identifier: Apache-2.0
"""Functional graphs for pre-training: an encoder and heads on its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.config import BertConfig
from keras_bert.layers import ClassificationHead, GatherTokens, MaskedLMTransform, VocabularyBias
from keras_bert.layers.dense import Dense
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import first_positions, token_inputs
from keras_bert.ops.annotations import Tensor


def default_pair_format(config: BertConfig) -> str:
    """Returns the format of the segment pairs that the family's sentence objective is trained on.

    It is a `sequence_format` of `keras_bert.data.InstanceGenerator`.
    """
    # Only ALBERT shares the weights of all layers, and only its head predicts the order.
    return "sentence_order" if config.layer_sharing == "all" else "next_sentence"


def pretraining_inputs(backbone: Backbone) -> dict[str, Any]:
    """Creates an encoder's symbolic inputs, and `mask_positions`, int32 `(batch, slots)`."""
    positions = keras.Input((None,), dtype="int32", name="mask_positions")
    return {**token_inputs(backbone.packed), "mask_positions": positions}


def encode_masked(
    backbone: Backbone, inputs: dict[str, Tensor], *, pooled: bool = False
) -> tuple[Any, dict[str, Any]]:
    """Computes the hidden states of masked tokens, `(batch, slots, hidden)`, and all outputs.

    `pooled_output` is only valid with `pooled`, because the first token is then also computed.
    """
    positions = inputs["mask_positions"]
    if backbone.pools_all_tokens and (pooled or backbone.pooler is not None):
        outputs = backbone.encode(inputs)
        return GatherTokens(name="masked_tokens")(outputs["sequence_output"], positions), outputs
    if not pooled:
        outputs = backbone.encode(inputs, positions)
        return outputs["sequence_output"], outputs
    first = first_positions(inputs["token_ids"])
    outputs = backbone.encode(inputs, ops.concatenate([first, positions], axis=1))
    return outputs["sequence_output"][:, 1:], outputs


def masked_lm_logits(backbone: Backbone, hidden: Tensor) -> Tensor:
    """Computes float32 logits `(batch, slots, vocabulary)` with a new head defined by the config.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 1.
    """
    return decode_masked_lm(backbone, _new_masked_lm_head(backbone), hidden)


def decode_masked_lm(backbone: Backbone, head: Sequence[Any], hidden: Tensor) -> Tensor:
    """Applies the layers from `masked_lm_head`. Returns logits `(batch, slots, vocabulary)`."""
    first, *bias = head
    logits = first(hidden)
    if isinstance(first, MaskedLMTransform):
        logits = backbone.token_embedding(logits, reverse=True)
    for layer in bias:
        logits = layer(logits)
    return logits if bias else ops.cast(logits, "float32")


def masked_lm_head(model: keras.Model) -> tuple[Any, ...]:
    """Returns the layers in a task's masked LM head."""
    names = [layer.name for layer in model.layers]
    return tuple(model.get_layer(name) for name in _MASKED_LM_LAYERS if name in names)


_TRANSFORM, DECODER, _BIAS = _MASKED_LM_LAYERS = (
    "masked_lm_transform",
    "masked_lm_decoder",
    "masked_lm_bias",
)


def _new_masked_lm_head(backbone: Backbone) -> list[Any]:
    config, policy = backbone.config, backbone.dtype_policy
    bias = [VocabularyBias(name=_BIAS)] if config.masked_lm_bias else []
    if config.masked_lm_head == "linear":
        stddev = config.output_initializer_range
        decoder = Dense(
            config.vocabulary_size,
            use_bias=False,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=stddev),
            dtype=policy,
            name=DECODER,
        )
        return [decoder, *bias]
    transform = MaskedLMTransform(
        config.effective_masked_lm_activation,
        dim=config.embedding_width,
        layer_norm_epsilon=config.layer_norm_epsilon,
        norm=config.norm,
        norm_bias=config.norm_bias,
        use_bias=config.head_bias,
        initializer_range=config.output_initializer_range,
        dtype=policy,
        name=_TRANSFORM,
    )
    return [transform, *bias]


def next_sentence_logits(backbone: Backbone, pooled_output: Tensor) -> Tensor:
    """Computes float32 logits `(batch, 2)`. Class 0 means that sentence B follows sentence A.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 2.
    """
    head = ClassificationHead(
        2, initializer_range=backbone.config.initializer_range, name="next_sentence"
    )
    return head(pooled_output)
