# SPDX-License-Identifier: Apache-2.0
"""The encoder: token ids in, hidden states out."""

from __future__ import annotations

import os
from typing import Any, Self

import keras

from keras_bert.config import BertConfig
from keras_bert.layers import (
    CountedPositions,
    EmbeddingPostprocessor,
    TokenEmbedding,
    TransformerBlock,
)
from keras_bert.models.inputs import TokenModel, token_inputs
from keras_bert.models.pooling import make_pooler


@keras.saving.register_keras_serializable(package="keras_bert")
class Backbone(TokenModel):
    """An encoder of BERT's family as a functional Keras model.

    Args:
        config: The architecture.
        output_hidden_states: Whether to return the hidden states of every block too; `None`
            leaves it to the config.
        output_attention_scores: Whether to return every block's attention probabilities too
            (which gives up the fused attention); `None` leaves it to the config.
        packed: Whether the model also takes rows in which several sequences are packed. It changes
            the inputs and no weight.
        embeddings_of: Another encoder, of the same vocabulary, positions, segments and width of
            embeddings, whose embeddings this one takes for its own (their projection aside);
            `None` makes new ones.
        dtype: A Keras dtype policy or its name: `float32`, `bfloat16`, `mixed_bfloat16`,
            `mixed_float16`. `None` takes Keras' global policy.
        name: The model's name.

    Call arguments:
        inputs: A dict of
            `token_ids`: int `(batch, length)`;
            `segment_ids`: int `(batch, length)`, 0 for sentence A and 1 for B; may be left out
            or `None` (all zeros);
            `padding_mask`: bool or int `(batch, length)`, 0 at padding; may be left out or
            `None` for a batch without padding, which is faster.
            and if the model is `packed`
            `sequence_ids`: int `(batch, length)`, which of the row's sequences a token belongs to,
            0 at padding (so no `padding_mask` is needed): a token looks at those of its own
            sequence alone. May be left out or `None` for one sequence in a row;
            `position_ids`: int `(batch, length)`, each token's place in its sequence, from 0; may
            be left out or `None` where they count from the row's first token. With them, a row may
            be longer than `config.max_sequence_length`.
            Token ids alone may be given instead of a dict.

    Returns:
        A dict of
        `sequence_output`: `(batch, length, hidden)`;
        `pooled_output`, where the config has a pooler:
        `(batch, hidden)`, of the row's first token, whose sequence is the first;
        of a causal model, of the row's last real token: no other has seen all of its sequence;
        `hidden_states`, where asked for: a tuple of num_layers + 1 tensors
        `(batch, length, hidden)`, the first one behind the embeddings;
        `attention_scores`, where asked for: a tuple of num_layers tensors
        `(batch, heads, length, length)`.

    Raises:
        TypeError: If `config` is no `BertConfig`.
        ValueError: If an input is longer than `config.max_sequence_length`, two inputs differ
            in shape, or an array of token ids holds one outside the vocabulary.

    Example:

    >>> config = BertConfig(num_layers=2, hidden_dim=8, num_heads=2, intermediate_dim=32)
    >>> backbone = Backbone(config)
    >>> outputs = backbone({"token_ids": np.array([[101, 2023, 102]])})
    >>> tuple(outputs["sequence_output"].shape), tuple(outputs["pooled_output"].shape)
    ((1, 3, 8), (1, 8))

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        output_hidden_states: bool | None = None,
        output_attention_scores: bool | None = None,
        packed: bool = False,
        embeddings_of: Backbone | None = None,
        dtype: Any = None,
        name: str = "backbone",
        **kwargs: Any,
    ) -> None:
        changes = {
            "output_hidden_states": output_hidden_states,
            "output_attention_scores": output_attention_scores,
        }
        if not isinstance(config, BertConfig):
            raise TypeError(
                f"config must be a BertConfig, received {config!r}. "
                "`BertConfig.from_name` knows the released sizes."
            )
        config = config.replace(**{k: v for k, v in changes.items() if v is not None})
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())

        # === Layers ===
        if embeddings_of is None:
            token_embedding, embeddings = _embeddings(config, policy)
        else:
            _check_same_embeddings(config, embeddings_of.config)
            token_embedding, embeddings = embeddings_of.token_embedding, embeddings_of.embeddings
        pooler = make_pooler(config, policy) if config.pooler else None

        # === Functional graph ===
        inputs = token_inputs(packed)
        position_ids = inputs.get("position_ids")
        if config.position_offset:
            count = CountedPositions(
                config.pad_token_id, config.max_sequence_length, name="positions"
            )
            position_ids = count(inputs["token_ids"], position_ids=position_ids)
        x = embeddings(
            token_embedding(inputs["token_ids"]),
            segment_ids=inputs["segment_ids"],
            position_ids=position_ids,
        )
        projection = _projection(config, policy)
        if projection is not None:
            x = projection(x)
        masks = {name: inputs.get(name) for name in ("padding_mask", "sequence_ids")}
        blocks: list[TransformerBlock] = []
        hidden_states, attention_scores = [x], []
        for index in range(config.num_layers):
            blocks.append(_block(config, policy, index, blocks))
            x = blocks[-1](x, **masks)
            if config.output_attention_scores:
                x, scores = x
                attention_scores.append(scores)
            hidden_states.append(x)
        outputs: dict[str, Any] = {"sequence_output": x}
        if pooler is not None:
            outputs["pooled_output"] = pooler(x, **masks) if config.causal else pooler(x)
        if config.output_hidden_states:
            outputs["hidden_states"] = tuple(hidden_states)
        if config.output_attention_scores:
            outputs["attention_scores"] = tuple(attention_scores)
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)

        self.config: BertConfig = config
        self.packed = packed
        self.dtype_policy = policy
        self.token_embedding: TokenEmbedding = token_embedding
        self.embeddings: EmbeddingPostprocessor = embeddings
        self.embedding_projection = projection
        self.blocks = blocks
        self.pooler = pooler

    @property
    def token_embedding_table(self) -> Any:
        """The token embeddings, a variable of shape `(vocabulary, embedding width)`."""
        return self.token_embedding.embeddings

    def enable_lora(self, rank: int, lora_alpha: float | None = None) -> None:
        """Freezes the encoder and adds low-rank updates to the Q, K, V product of every block.

        Saving merges the updates into the kernels: what is loaded is an ordinary encoder, all of
        it trainable.

        Args:
            rank: Rank of the update of each block's `(hidden, 3 * hidden)` kernel.
            lora_alpha: Scale of the update is `lora_alpha / rank`; `None` means `rank`.

        Reference:
            [LoRA](https://arxiv.org/abs/2106.09685), section 4.
        """
        for layer in self._flatten_layers(include_self=False):
            # A container's own switch would reach into the updates inside it.
            for variable in layer._trainable_variables:
                variable.trainable = False
        for index in sorted(set(self.config.attention_owners)):
            block = self.blocks[index]
            block.attention.query_key_value.enable_lora(rank, lora_alpha=lora_alpha)

    def get_config(self) -> dict[str, Any]:
        return {
            "config": self.config.to_dict(),
            "dtype": keras.dtype_policies.serialize(self._layer_policies()),
            "name": self.name,
            "trainable": self.trainable,
            "frozen_layers": [layer.path for layer in self._frozen_layers()],
            **({"packed": True} if self.packed else {}),
        }

    def _layer_policies(self) -> Any:
        """The dtype policy, with those of quantized layers by their paths where there are any."""
        quantized = {
            layer.path: layer.dtype_policy
            for layer in self._flatten_layers(include_self=False)
            if layer.quantization_mode is not None
        }
        if not quantized or isinstance(self.dtype_policy, keras.dtype_policies.DTypePolicyMap):
            return self.dtype_policy
        return keras.dtype_policies.DTypePolicyMap(self.dtype_policy, quantized)

    def _frozen_layers(self) -> list[keras.Layer]:
        return [layer for layer in self._flatten_layers(include_self=False) if not layer.trainable]

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        config = dict(config)
        trainable = config.pop("trainable", True)
        frozen_layers = set(config.pop("frozen_layers", ()))
        architecture = BertConfig.from_dict(config.pop("config"))
        backbone = cls(architecture, **config)
        backbone.trainable = trainable  # reaches into every layer, so it comes first
        for layer in backbone._flatten_layers(include_self=False):
            if layer.path in frozen_layers:
                layer.trainable = False
        return backbone

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        *,
        load_weights: bool = True,
        packed: bool = False,
        dtype: Any = None,
    ) -> Self:
        """A pretrained encoder from a folder or a name.

        Args:
            preset: A folder (our own preset, Hugging Face's layout, the TF1 release's, told by
                its files), `hf://organisation/model`, or a name that KerasHub knows.
            load_weights: `False` gives the architecture with fresh weights.
            packed: Whether the encoder also takes packed rows.
            dtype: A Keras dtype policy or its name.

        Raises:
            keras_bert.checkpoints.CheckpointError: If the files are missing, malformed, or do
                not fit; the message names the file and the tensor.
        """
        from keras_bert import checkpoints

        return checkpoints.load_backbone(
            preset, cls=cls, load_weights=load_weights, packed=packed, dtype=dtype
        )

    def save_to_preset(self, folder: str | os.PathLike[str]) -> None:
        """Writes the architecture and the weights to a folder that `from_preset` reads."""
        from keras_bert import checkpoints

        checkpoints.save_preset(self, folder)


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


def _projection(config: BertConfig, policy: Any) -> keras.layers.Dense | None:
    if config.embedding_dim is None:
        return None
    return keras.layers.Dense(
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
    return block
