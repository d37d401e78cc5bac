# SPDX-License-Identifier: Apache-2.0
"""An encoder's layers, and how they follow one another."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import keras

from keras_bert.config import BertConfig
from keras_bert.layers import (
    CountedPositions,
    Dense,
    EmbeddingPostprocessor,
    Pooler,
    TokenEmbedding,
    TransformerBlock,
)
from keras_bert.models.pooling import make_pooler

if TYPE_CHECKING:
    from keras_bert.models.backbone import Backbone


@dataclasses.dataclass(frozen=True)
class EncoderLayers:
    """The layers of an encoder that have weights.

    Args:
        token_embedding: The token table.
        embeddings: The other embeddings, and their norm.
        embedding_projection: From the embeddings' width to the blocks'; `None` where they are one.
        blocks: One for every depth, the same one where weights are shared.
        pooler: `None` where there is none.
    """

    token_embedding: TokenEmbedding
    embeddings: EmbeddingPostprocessor
    embedding_projection: Dense | None
    blocks: list[TransformerBlock]
    pooler: Pooler | None


def new_layers(
    config: BertConfig, policy: Any, embeddings_of: Backbone | None = None
) -> EncoderLayers:
    """Layers with fresh weights.

    Args:
        config: The architecture.
        policy: A Keras dtype policy.
        embeddings_of: An encoder whose embeddings these layers have in common.

    Raises:
        ValueError: If that encoder's embeddings have another shape.
    """
    if embeddings_of is None:
        token_embedding, embeddings = _embeddings(config, policy)
    else:
        _check_same_embeddings(config, embeddings_of.config)
        token_embedding, embeddings = embeddings_of.token_embedding, embeddings_of.embeddings
    blocks: list[TransformerBlock] = []
    for index in range(config.num_layers):
        blocks.append(_block(config, policy, index, blocks))
    return EncoderLayers(
        token_embedding,
        embeddings,
        _projection(config, policy),
        blocks,
        make_pooler(config, policy) if config.pooler else None,
    )


def encoder_outputs(
    config: BertConfig, layers: EncoderLayers | Backbone, inputs: dict[str, Any]
) -> dict[str, Any]:
    """What an encoder returns for symbolic inputs.

    Args:
        config: The architecture.
        layers: Of that architecture.
        inputs: What `token_inputs` gave, and `output_positions`, int `(batch, slots)`, where the
            outputs of some tokens alone are wanted.
    """
    position_ids = inputs.get("position_ids")
    if config.position_offset:
        count = CountedPositions(config.pad_token_id, config.max_sequence_length, name="positions")
        position_ids = count(inputs["token_ids"], position_ids=position_ids)
    x = layers.embeddings(
        layers.token_embedding(inputs["token_ids"]),
        segment_ids=inputs["segment_ids"],
        position_ids=position_ids,
    )
    if layers.embedding_projection is not None:
        x = layers.embedding_projection(x)
    masks = {name: inputs.get(name) for name in ("padding_mask", "sequence_ids")}
    hidden_states, attention_scores = [x], []
    for depth, block in enumerate(layers.blocks, start=1):
        # The next block looks at every token; behind the last one, some may not be wanted.
        is_last = depth == config.num_layers
        x = block(x, **masks, output_positions=inputs.get("output_positions") if is_last else None)
        if config.output_attention_scores:
            x, scores = x
            attention_scores.append(scores)
        hidden_states.append(x)
    outputs: dict[str, Any] = {"sequence_output": x}
    if layers.pooler is not None:
        outputs["pooled_output"] = layers.pooler(x, **masks) if config.causal else layers.pooler(x)
    if config.output_hidden_states:
        outputs["hidden_states"] = tuple(hidden_states)
    if config.output_attention_scores:
        outputs["attention_scores"] = tuple(attention_scores)
    return outputs


def _embeddings(config: BertConfig, policy: Any) -> tuple[TokenEmbedding, EmbeddingPostprocessor]:
    table = TokenEmbedding(
        config.vocabulary_size,
        config.embedding_width,
        initializer_range=config.initializer_range,
        dtype=policy,
        name="token_embedding",
    )
    rest = EmbeddingPostprocessor(
        config.max_sequence_length,
        config.num_segments,
        position_offset=config.position_offset,
        layer_norm_epsilon=config.layer_norm_epsilon,
        dropout=config.dropout,
        initializer_range=config.initializer_range,
        dtype=policy,
        name="embeddings",
    )
    return table, rest


def _check_same_embeddings(config: BertConfig, other: BertConfig) -> None:
    names = (
        "vocabulary_size",
        "embedding_width",
        "max_sequence_length",
        "num_segments",
        "position_offset",
    )
    for name in names:
        if getattr(config, name) != getattr(other, name):
            raise ValueError(
                f"Encoders that share embeddings must have the same {name}; received "
                f"{getattr(config, name)} and {getattr(other, name)}."
            )


def _projection(config: BertConfig, policy: Any) -> Dense | None:
    if config.embedding_dim is None:
        return None
    return Dense(
        config.hidden_dim,
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=config.initializer_range),
        dtype=policy,
        name="embedding_projection",
    )


def _block(
    config: BertConfig, policy: Any, index: int, before: list[TransformerBlock]
) -> TransformerBlock:
    """A new block, or one of those before it, or a new one with a part of theirs."""
    owners = {
        "attention": config.attention_owners[index],
        "feed_forward": config.feed_forward_owners[index],
    }
    if index not in owners.values():
        return before[owners["attention"]]
    block = TransformerBlock(
        config.num_heads,
        config.intermediate_dim,
        activation=config.activation,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        layer_norm_epsilon=config.layer_norm_epsilon,
        initializer_range=config.initializer_range,
        causal=config.causal,
        return_scores=config.output_attention_scores,
        dtype=policy,
        name=f"layer_{index}",
    )
    for part, owner in owners.items():
        if owner < index:
            block.share(before[owner], part)
    block.build((None, None, config.hidden_dim))
    return block
