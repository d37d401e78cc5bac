# SPDX-License-Identifier: Apache-2.0
"""The encoder: token ids in, hidden states out."""

from __future__ import annotations

import os
from typing import Any, Self

import keras

from keras_bert.config import BertConfig
from keras_bert.layers import EmbeddingPostprocessor, TokenEmbedding, TransformerBlock
from keras_bert.models.encoder_graph import encoder_outputs, new_layers
from keras_bert.models.inputs import TokenModel, token_inputs
from keras_bert.models.layer_states import STATES, layer_states, restore_layer_states


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

        layers = new_layers(config, policy, embeddings_of)
        inputs = token_inputs(packed)
        outputs = encoder_outputs(config, layers, inputs)
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)

        self.config: BertConfig = config
        self.packed = packed
        self.dtype_policy = policy
        self.token_embedding: TokenEmbedding = layers.token_embedding
        self.embeddings: EmbeddingPostprocessor = layers.embeddings
        self.embedding_projection = layers.embedding_projection
        self.blocks: list[TransformerBlock] = layers.blocks
        self.pooler = layers.pooler

    @property
    def token_embedding_table(self) -> Any:
        """The token embeddings, a variable of shape `(vocabulary, embedding width)`."""
        return self.token_embedding.embeddings

    def encode(self, inputs: dict[str, Any], output_positions: Any = None) -> dict[str, Any]:
        """The encoder as a part of a larger functional model that may look at some tokens alone.

        What nobody looks at is not computed: the last block works on the tokens asked for.

        Args:
            inputs: Symbolic inputs by name, the encoder's and any others.
            output_positions: Symbolic, int `(batch, slots)`, the tokens whose outputs are wanted;
                `None` for all of them.

        Returns:
            What a call returns, symbolic. With `output_positions`, `sequence_output` (and the last
            of `hidden_states`) is `(batch, slots, hidden)`, and `pooled_output` is of the first
            slot.

        Raises:
            ValueError: If a causal encoder is asked for some tokens: its pooler looks for the last.

        Example:

        >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=32)
        >>> inputs = {"token_ids": keras.Input((None,), dtype="int32")}
        >>> first = keras.ops.zeros_like(inputs["token_ids"][:, :1])
        >>> Backbone(config).encode(inputs, first)["sequence_output"].shape
        (None, None, 8)
        """
        inputs = {name: inputs.get(name) for name in self.input}
        if output_positions is None:
            return dict(self(inputs))
        if self.config.causal:
            raise ValueError(
                "A causal encoder gives the outputs of all tokens; leave positions out."
            )
        model_inputs = {
            **token_inputs(self.packed),
            "output_positions": keras.Input((None,), dtype="int32", name="output_positions"),
        }
        # A plain TokenModel: files of weights have the name of its class in their paths.
        model = TokenModel(
            inputs=model_inputs,
            outputs=encoder_outputs(self.config, self, model_inputs),
            name=f"{self.name}_at_positions",
        )
        model.config = self.config
        return dict(model({**inputs, "output_positions": output_positions}))

    def enable_lora(self, rank: int, lora_alpha: float | None = None) -> None:
        """Freezes the encoder and adds low-rank updates to the Q, K, V product of every block.

        A `.keras` file keeps the updates apart, so that training goes on from it as it was; a
        preset has them merged into the kernels: what `from_preset` loads is an ordinary encoder,
        all of it trainable.

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
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "name": self.name,
            "trainable": self.trainable,
            "frozen_layers": [],
            **layer_states(self),
            **({"packed": True} if self.packed else {}),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        config = dict(config)
        trainable = config.pop("trainable", True)
        states = {name: config.pop(name) for name in STATES if name in config}
        dtype = keras.dtype_policies.get(config.get("dtype"))
        if isinstance(dtype, keras.dtype_policies.DTypePolicyMap):
            # Files from before there was a field for them have quantized layers here.
            config["dtype"] = dtype.default_policy
            states["quantized"] = {
                path: keras.dtype_policies.serialize(policy) for path, policy in dtype.items()
            }
        architecture = BertConfig.from_dict(config.pop("config"))
        backbone = cls(architecture, **config)
        backbone.trainable = trainable  # reaches into every layer, so it comes first
        restore_layer_states(backbone, states)
        return backbone

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        *,
        load_weights: bool = True,
        packed: bool = False,
        dtype: Any = None,
        **kwargs: Any,
    ) -> Self:
        """A pretrained encoder from a folder or a name.

        Args:
            preset: A folder (our own preset, Hugging Face's layout, the TF1 release's, told by
                its files), `hf://organisation/model`, or a name that KerasHub knows.
            load_weights: `False` gives the architecture with fresh weights.
            packed: Whether the encoder also takes packed rows.
            dtype: A Keras dtype policy or its name.
            **kwargs: Other arguments of the class, such as `output_attention_scores`.

        Raises:
            keras_bert.checkpoints.CheckpointError: If the files are missing, malformed, or do
                not fit; the message names the file and the tensor.
        """
        from keras_bert import checkpoints

        return checkpoints.load_backbone(
            preset, cls=cls, load_weights=load_weights, packed=packed, dtype=dtype, **kwargs
        )

    def save_to_preset(self, folder: str | os.PathLike[str]) -> None:
        """Writes the architecture and the weights to a folder that `from_preset` reads."""
        from keras_bert import checkpoints

        checkpoints.save_preset(self, folder)
