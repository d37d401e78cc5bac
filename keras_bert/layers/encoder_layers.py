# SPDX-License-Identifier: Apache-2.0
"""Creates an encoder's layers from its config."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import keras

from keras_bert.config import BertConfig
from keras_bert.layers.attention import Attention
from keras_bert.layers.block import TransformerBlock
from keras_bert.layers.dense import Dense
from keras_bert.layers.embeddings import EmbeddingPostprocessor, TokenEmbedding, new_embeddings
from keras_bert.layers.feed_forward import FeedForward, GatedFeedForward
from keras_bert.layers.heads import Pooler, new_pooler
from keras_bert.layers.norm import Norm
from keras_bert.layers.positions import RelativeEmbeddings

# Config fields that must be equal for encoders to share embeddings
_EMBEDDING_FIELDS = (
    "vocabulary_size", "embedding_width", "max_sequence_length", "num_segments", "positions",
    "position_offset", "embedding_norm", "norm", "norm_bias",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class EncoderLayers:
    """An encoder's layers. `blocks` has one entry per layer in the config."""

    token_embedding: TokenEmbedding
    embeddings: EmbeddingPostprocessor
    embedding_projection: Dense | None
    blocks: list[TransformerBlock]
    final_norm: Norm | None
    pooler: Pooler | None
    relative_embeddings: RelativeEmbeddings | None


class HasEmbeddings(Protocol):
    """An encoder with embeddings that another encoder can share."""

    config: BertConfig
    token_embedding: TokenEmbedding
    embeddings: EmbeddingPostprocessor


def new_encoder_layers(
    config: BertConfig, policy: keras.DTypePolicy, embeddings_of: HasEmbeddings | None = None
) -> EncoderLayers:
    """Creates an encoder's layers with newly initialized weights or with shared embeddings.

    With `embeddings_of`, the new encoder shares the embeddings in that encoder. They must have the
    same shapes. The embedding projection is not shared.
    """
    if embeddings_of is not None:
        check_same_embeddings(config, embeddings_of.config)
        token_embedding, embeddings = embeddings_of.token_embedding, embeddings_of.embeddings
    else:
        token_embedding, embeddings = new_embeddings(config, policy)
    blocks = new_blocks(config, policy)
    projection = None
    if config.embedding_dim is not None:
        projection = Dense(
            config.hidden_dim,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=config.initializer_range),
            dtype=policy,
            name="embedding_projection",
        )
    final_norm = None
    if config.norm_placement == "pre":
        final_norm = _new_norm(config, policy, "final_norm")
        final_norm.build((None, None, config.hidden_dim))
    pooler = new_pooler(config, policy, "pooler") if config.pooler else None
    return EncoderLayers(
        token_embedding,
        embeddings,
        projection,
        blocks,
        final_norm,
        pooler,
        _new_relative_embeddings(config, policy),
    )


def check_same_embeddings(config: BertConfig, other: BertConfig) -> None:
    """Checks that two encoders can share embeddings.

    Raises:
        ValueError: If a config field that defines the embeddings differs.
    """
    for name in _EMBEDDING_FIELDS:
        if getattr(config, name) != getattr(other, name):
            raise ValueError(
                f"Encoders that share embeddings must have the same {name}. Received: "
                f"{getattr(config, name)} and {getattr(other, name)}"
            )


def new_blocks(config: BertConfig, policy: keras.DTypePolicy) -> list[TransformerBlock]:
    """Creates the block for each encoder layer, built with newly initialized weights.

    A layer that shares all of its weights with an earlier layer has the same block object.
    Otherwise it has a new block. The block may share its attention or feed-forward network with an
    earlier block.
    """
    blocks: list[TransformerBlock] = []
    for index in range(config.num_layers):
        owners = (config.attention_owners[index], config.feed_forward_owners[index])
        if index not in owners:
            blocks.append(blocks[owners[0]])
            continue
        attention = feed_forward = None
        if owners[0] < index:
            attention = (blocks[owners[0]].attention, blocks[owners[0]].attention_norm)
        if owners[1] < index:
            feed_forward = (blocks[owners[1]].feed_forward, blocks[owners[1]].feed_forward_norm)
        block = TransformerBlock(
            *(attention or _new_attention(config, policy, index)),
            *(feed_forward or _new_feed_forward(config, policy)),
            norm_placement=config.norm_placement,
            dropout=config.dropout,
            dtype=policy,
            name=f"layer_{index}",
        )
        block.build((None, None, config.hidden_dim))
        blocks.append(block)
    return blocks


def _new_attention(
    config: BertConfig, policy: keras.DTypePolicy, index: int
) -> tuple[Attention, Norm | None]:
    attention = Attention(
        config.effective_heads_by_layer[index],
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        window=config.attention_windows[index],
        causal=config.causal,
        rotary_base=config.rotary_bases[index] if config.rotary_bases else None,
        rotary_scale=config.rotary_scale,
        relative_positions=config.relative_positions,
        relative_dropout=config.dropout if config.relative_positions == "disentangled" else 0.0,
        use_bias=config.attention_bias,
        dropout=config.attention_dropout,
        initializer_range=config.initializer_range,
        output_initializer_range=config.output_initializer_range,
        return_scores=config.output_attention_scores,
        max_length=config.max_sequence_length,
        dtype=policy,
        name="attention",
    )
    has_norm = config.attention_norms[index]
    return attention, _new_norm(config, policy, "attention_norm") if has_norm else None


def _new_relative_embeddings(
    config: BertConfig, policy: keras.DTypePolicy
) -> RelativeEmbeddings | None:
    if config.relative_positions is None:
        return None
    is_bucketed = config.relative_positions == "bucketed"
    return RelativeEmbeddings(
        config.relative_positions,
        config.num_heads if is_bucketed else config.hidden_dim,
        config.relative_buckets,
        config.relative_distance,
        layer_norm_epsilon=config.layer_norm_epsilon,
        initializer_range=config.initializer_range,
        dtype=policy,
        name="relative_embeddings",
    )


def _new_feed_forward(config: BertConfig, policy: keras.DTypePolicy) -> tuple[FeedForward, Norm]:
    cls = GatedFeedForward if config.feed_forward == "gated" else FeedForward
    feed_forward = cls(
        config.intermediate_dim,
        activation=config.activation,
        use_bias=config.feed_forward_bias,
        use_intermediate_bias=config.effective_intermediate_bias,
        initializer_range=config.initializer_range,
        output_initializer_range=config.output_initializer_range,
        dtype=policy,
        name="feed_forward",
    )
    return feed_forward, _new_norm(config, policy, "feed_forward_norm")


def _new_norm(config: BertConfig, policy: keras.DTypePolicy, name: str) -> Norm:
    return Norm(config.norm, config.layer_norm_epsilon, config.norm_bias, dtype=policy, name=name)
