# SPDX-License-Identifier: Apache-2.0
"""The layers of an encoder that have weights, created from its config."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import keras

from keras_bert.config import BertConfig
from keras_bert.layers.dense import Dense
from keras_bert.layers.embeddings import EmbeddingPostprocessor, TokenEmbedding, new_embeddings
from keras_bert.layers.encoder import TransformerBlock, new_blocks
from keras_bert.layers.heads import Pooler, new_pooler

# In which encoders that share embeddings must not differ
_EMBEDDING_FIELDS = (
    "vocabulary_size", "embedding_width", "max_sequence_length", "num_segments", "position_offset",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class EncoderLayers:
    """The layers of an encoder; `blocks` has an entry for each layer of the config."""

    token_embedding: TokenEmbedding
    embeddings: EmbeddingPostprocessor
    embedding_projection: Dense | None
    blocks: list[TransformerBlock]
    pooler: Pooler | None


class HasEmbeddings(Protocol):
    """An encoder whose embeddings another one can share."""

    config: BertConfig
    token_embedding: TokenEmbedding
    embeddings: EmbeddingPostprocessor


def new_encoder_layers(
    config: BertConfig, policy: keras.DTypePolicy, embeddings_of: HasEmbeddings | None = None
) -> EncoderLayers:
    """Creates the layers with newly initialized weights, or with another encoder's embeddings.

    Args:
        config: The architecture.
        policy: The dtype policy of all layers.
        embeddings_of: The encoder that shares its embeddings, without their projection; `None`
            creates new ones.

    Raises:
        ValueError: If the embeddings of the other encoder have a different shape.
    """
    if embeddings_of is not None:
        for name in _EMBEDDING_FIELDS:
            own, other = getattr(config, name), getattr(embeddings_of.config, name)
            if own != other:
                raise ValueError(
                    f"Encoders that share embeddings must have the same {name}; received {own} "
                    f"and {other}."
                )
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
    pooler = new_pooler(config, policy, "pooler") if config.pooler else None
    return EncoderLayers(token_embedding, embeddings, projection, blocks, pooler)
