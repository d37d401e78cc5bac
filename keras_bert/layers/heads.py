# SPDX-License-Identifier: Apache-2.0
"""Layers on top of encoders: the pooler, and heads for pre-training and fine-tuning."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.config import POOLINGS as ENCODER_POOLINGS
from keras_bert.config import BertConfig
from keras_bert.layers.base import Layer
from keras_bert.layers.dense import Dense
from keras_bert.layers.norm import Norm, add_norm_weights
from keras_bert.layers.pooling import mean_of_tokens, unit_vectors
from keras_bert.ops import SeedGenerator, activation_function, dropout, norm, tokens_at
from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.reference import length_of

POOLINGS = (*ENCODER_POOLINGS, "none")


@keras.saving.register_keras_serializable(package="keras_bert")
class Pooler(Layer):
    """Pools the sequence output to one vector per example and applies a dense layer.

    It computes `norm(activation(dense(dropout(pooled))))`, by default without a norm.

    Args:
        activation: An activation name in `BertConfig.activation`.
        dropout: Dropout rate on the pooled vector.
        initializer_range: Standard deviation of the kernel's truncated normal initializer.
        pooling: `"first"` pools the first token. `"last"` pools the last non-padding token, for
            causal encoders, because no other token attends to the whole input. `"mean"` averages
            all non-padding tokens before the dense layer, and `"late"` averages them after the
            dense layer and the norm. `"none"` applies the layer to every token.
        norm: `"layer_norm"`, `"rms_norm"`, or `None` for no norm.
        norm_bias: Whether LayerNorm has an offset.
        epsilon: Added to the variance or to the mean square of the norm.
        use_bias: Whether the dense layer has a bias.

    Call arguments:
        inputs: Float `(batch, length, hidden)`.
        padding_mask: Bool `(batch, length)`, False at padding. `None` for no padding, or if the
            pooling does not use it (`"first"` and `"none"`).
        sequence_ids: int `(batch, length)`, 0 at padding. Used instead of `padding_mask` for packed
            rows. `None` otherwise.
        training: Whether dropout is active.

    Output shape:
        `(batch, hidden)`, or `(batch, length, hidden)` if `pooling` is `"none"`.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3, the vector C.
    """

    def __init__(
        self,
        activation: str = "tanh",
        dropout: float = 0.0,
        initializer_range: float = 0.02,
        pooling: str = "first",
        norm: str | None = None,
        norm_bias: bool = True,
        epsilon: float = 1e-12,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        checks.PROPER_FRACTION.check(dropout=dropout)
        checks.POSITIVE.check(initializer_range=initializer_range, epsilon=epsilon)
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}. Received: {pooling!r}")
        self.activation = activation
        self.dropout = dropout
        self.seed_generator = SeedGenerator()
        self.initializer_range = initializer_range
        self.pooling = pooling
        self.norm = norm
        self.norm_bias = norm_bias
        self.epsilon = epsilon
        self.use_bias = use_bias

    @property
    def needs_mask(self) -> bool:
        """Whether the result depends on which tokens are padding."""
        return self.pooling in ("last", "mean", "late")

    def build(
        self,
        inputs_shape: Shape,
        padding_mask_shape: Shape | None = None,
        sequence_ids_shape: Shape | None = None,
    ) -> None:
        hidden_dim = inputs_shape[-1]
        self.dense = Dense(
            hidden_dim,
            activation=activation_function(self.activation),
            use_bias=self.use_bias,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=self.initializer_range),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build((None, hidden_dim))
        self.output_norm = None
        if self.norm is not None:
            self.output_norm = Norm(
                self.norm, self.epsilon, self.norm_bias, dtype=self.dtype_policy, name="norm"
            )
            self.output_norm.build((None, hidden_dim))

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        mask = sequence_ids if padding_mask is None else padding_mask
        pooled = self._pool(inputs, mask, training)
        pooled = dropout(pooled, self.dropout, seed=self.seed_generator, training=training)
        outputs = self.dense(pooled)
        if self.output_norm is not None:
            outputs = self.output_norm(outputs)
        return mean_of_tokens(outputs, mask) if self.pooling == "late" else outputs

    def _pool(self, inputs: Tensor, mask: Tensor, training: bool) -> Tensor:
        if self.pooling in ("late", "none"):
            return inputs
        if self.pooling == "first":
            return inputs[:, 0]
        if self.pooling == "mean":
            return mean_of_tokens(inputs, mask)
        return inputs[:, -1] if mask is None else _last_non_padding(inputs, mask, training)

    def compute_output_shape(
        self,
        inputs_shape: Shape,
        padding_mask_shape: Shape | None = None,
        sequence_ids_shape: Shape | None = None,
    ) -> Any:
        return inputs_shape if self.pooling == "none" else (inputs_shape[0], inputs_shape[-1])


def _last_non_padding(inputs: Tensor, mask: Tensor, training: bool) -> Tensor:
    """Returns the last non-padding token's vector, or the first vector if all are padding."""
    positions = ops.arange(length_of(inputs), dtype="int32")
    last = ops.amax(ops.where(ops.cast(mask, "bool"), positions, 0), axis=1)
    # (batch, length, hidden) -> (batch, 1, hidden) -> (batch, hidden)
    return tokens_at(inputs, last[:, None], training=training)[:, 0]


def new_pooler(
    config: BertConfig, policy: keras.DTypePolicy, name: str = "pooler", pooling: str | None = None
) -> Pooler:
    """Creates a pooler for an encoder, or for a task whose encoder has no pooler."""
    return Pooler(
        config.pooler_activation,
        dropout=config.pooler_dropout,
        initializer_range=config.output_initializer_range,
        pooling=pooling or config.effective_pooling,
        norm=config.norm if config.pooler_norm else None,
        norm_bias=config.norm_bias,
        epsilon=config.layer_norm_epsilon,
        use_bias=config.head_bias,
        dtype=policy,
        name=name,
    )


@keras.saving.register_keras_serializable(package="keras_bert")
class ClassificationHead(Layer):
    """A classification head, `dense(dropout(inputs))`, computed in float32 under any dtype policy.

    It classifies examples by their pooled output, or every token. It is also used as the next
    sentence prediction head, with two classes (0 = IsNext) and no dropout, and as the question
    answering head, with a start logit and an end logit per token.

    Args:
        num_classes: Number of outputs.
        dropout: Dropout rate on the input.
        initializer_range: Standard deviation of the kernel's truncated normal initializer.

    Input shape:
        `(batch, hidden)` or `(batch, length, hidden)`.

    Output shape:
        Logits `(batch, num_classes)` or `(batch, length, num_classes)`, float32.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), sections 3.1 (task 2) and 4.
    """

    def __init__(
        self,
        num_classes: int,
        dropout: float = 0.0,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        checks.POSITIVE_INT.check(num_classes=num_classes)
        checks.PROPER_FRACTION.check(dropout=dropout)
        checks.POSITIVE.check(initializer_range=initializer_range)
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.num_classes = num_classes
        self.dropout = dropout
        self.initializer_range = initializer_range
        self.seed_generator = SeedGenerator()
        self.supports_masking = True  # Recurrent layers propagate their mask.

    def build(self, input_shape: Shape) -> None:
        self.dense = Dense(
            self.num_classes,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=self.initializer_range),
            dtype="float32",
            name="dense",
        )
        self.dense.build((None, input_shape[-1]))

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        hidden = dropout(inputs, self.dropout, seed=self.seed_generator, training=training)
        return self.dense(hidden)

    def transform_logits(self, scale: float, bias: Any) -> None:
        """Changes the weights so that `logits` become `scale * logits + bias`.

        Args:
            scale: A number.
            bias: Float `(num_classes,)`.

        Raises:
            ValueError: If the head is quantized.
        """
        if self.dense.quantization_mode is not None:
            raise ValueError(
                "The head's weights must not be quantized if its logits change. Received: "
                f"{self.dense.quantization_mode}. Call `quantize` afterwards."
            )
        self.dense.kernel.assign(self.dense.kernel * scale)
        self.dense.bias.assign(self.dense.bias * scale + ops.convert_to_tensor(bias, "float32"))

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return (*input_shape[:-1], self.num_classes)


def new_classification_head(
    config: BertConfig, num_classes: int, dropout: float | None = None
) -> ClassificationHead:
    """Creates a classification head for an encoder, by default with the config's dropout."""
    return ClassificationHead(
        num_classes,
        dropout=config.effective_classifier_dropout if dropout is None else dropout,
        initializer_range=config.classifier_initializer_range,
        name="classifier",
    )


@keras.saving.register_keras_serializable(package="keras_bert")
class GatherTokens(keras.layers.Layer):
    """Gathers the vectors at given positions in each example.

    Call arguments:
        inputs: Float `(batch, length, dim)`.
        positions: int `(batch, slots)`, in `[0, length)`.

    Output shape:
        `(batch, slots, dim)`, in the dtype of the inputs.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "autocast": False})

    def call(self, inputs: Tensor, positions: Tensor, training: bool = False) -> Tensor:
        return tokens_at(inputs, positions, training=training)

    def compute_output_spec(
        self, inputs: Tensor, positions: Tensor, training: bool = False
    ) -> keras.KerasTensor:
        return keras.KerasTensor((*positions.shape, inputs.shape[-1]), dtype=inputs.dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class MaskedLMTransform(Layer):
    """The transform in the masked LM head: `LN(activation(dense(inputs)))`.

    It is followed by the matmul with the transposed token embeddings (`TokenEmbedding(...,
    reverse=True)`) and by `VocabularyBias`.

    Args:
        activation: An activation name in `BertConfig.activation`.
        dim: Dimension of the token embeddings. Defaults to the hidden dimension.
        layer_norm_epsilon: Added to the variance or to the mean square.
        norm: `"layer_norm"` or `"rms_norm"`.
        norm_bias: Whether LayerNorm has an offset.
        use_bias: Whether the dense layer has a bias.
        initializer_range: Standard deviation of the kernel's truncated normal initializer.

    Input shape:
        `(batch, slots, hidden)`.

    Output shape:
        `(batch, slots, dim)`.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 1.
    """

    def __init__(
        self,
        activation: str,
        dim: int | None = None,
        layer_norm_epsilon: float = 1e-12,
        norm: str = "layer_norm",
        norm_bias: bool = True,
        use_bias: bool = True,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        checks.POSITIVE_INT.check_optional(dim=dim)
        checks.POSITIVE.check(
            layer_norm_epsilon=layer_norm_epsilon, initializer_range=initializer_range
        )
        self.activation = activation
        self.dim = dim
        self.layer_norm_epsilon = layer_norm_epsilon
        self.norm = norm
        self.norm_bias = norm_bias
        self.use_bias = use_bias
        self.initializer_range = initializer_range

    def build(self, input_shape: Shape) -> None:
        hidden_dim = input_shape[-1]
        dim = self.dim or hidden_dim
        self.dense = Dense(
            dim,
            use_bias=self.use_bias,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=self.initializer_range),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build((None, hidden_dim))
        self.gamma, self.beta = add_norm_weights(self, dim, self.norm, self.norm_bias)

    def call(self, inputs: Tensor) -> Tensor:
        hidden = activation_function(self.activation)(self.dense(inputs))
        return norm(hidden, self.gamma, self.beta, kind=self.norm, epsilon=self.layer_norm_epsilon)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return (*input_shape[:-1], self.dim or input_shape[-1])


@keras.saving.register_keras_serializable(package="keras_bert")
class ReplacedTokenHead(Layer):
    """The head for replaced token detection: `dense(activation(dense(inputs)))`.

    For each token, it outputs the logit of the probability that the token was replaced.

    Args:
        activation: An activation name in `BertConfig.activation`.
        initializer_range: Standard deviation of the kernels' truncated normal initializer.

    Input shape:
        `(batch, length, hidden)`.

    Output shape:
        Logits `(batch, length)`, float32.

    Reference:
        [ELECTRA](https://arxiv.org/abs/2003.10555), section 2.
    """

    def __init__(self, activation: str, initializer_range: float = 0.02, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        checks.POSITIVE.check(initializer_range=initializer_range)
        self.activation = activation
        self.initializer_range = initializer_range

    def build(self, input_shape: Shape) -> None:
        hidden_dim = input_shape[-1]

        def dense(units: int, name: str, dtype: str) -> Dense:
            layer = Dense(
                units,
                kernel_initializer=keras.initializers.TruncatedNormal(
                    stddev=self.initializer_range
                ),
                dtype=dtype,
                name=name,
            )
            layer.build((None, hidden_dim))
            return layer

        self.dense = dense(hidden_dim, "dense", self.dtype_policy)
        self.prediction = dense(1, "prediction", "float32")

    def call(self, inputs: Tensor) -> Tensor:
        hidden = activation_function(self.activation)(self.dense(inputs))
        return self.prediction(hidden)[..., 0]

    def compute_output_spec(self, inputs: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(inputs.shape[:-1], dtype="float32")


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenProjection(Layer):
    """Projects token vectors to fewer dimensions and scales them to unit L2 norm, in float32.

    Args:
        dim: Number of dimensions after the projection.
        use_bias: Whether the projection has a bias.
        initializer_range: Standard deviation of the kernel's truncated normal initializer.

    Call arguments:
        inputs: Float `(batch, length, hidden)`.
        padding_mask: Bool `(batch, length)`, False at padding. `None` for no padding.
        pooling_mask: Bool `(batch, length)`, True for the tokens whose vectors are used. Defaults
            to all tokens except padding.

    Output shape:
        `(batch, length, dim)`, float32. The vectors of other tokens are 0.

    Reference:
        [ColBERT](https://arxiv.org/abs/2004.12832), section 3.2.
    """

    def __init__(
        self, dim: int, use_bias: bool = False, initializer_range: float = 0.02, **kwargs: Any
    ) -> None:
        checks.POSITIVE_INT.check(dim=dim)
        checks.POSITIVE.check(initializer_range=initializer_range)
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.dim = int(dim)
        self.use_bias = bool(use_bias)
        self.initializer_range = initializer_range

    def build(
        self,
        inputs_shape: Shape,
        padding_mask_shape: Shape | None = None,
        pooling_mask_shape: Shape | None = None,
    ) -> None:
        self.dense = Dense(
            self.dim,
            use_bias=self.use_bias,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=self.initializer_range),
            dtype="float32",
            name="dense",
        )
        self.dense.build((None, inputs_shape[-1]))

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        pooling_mask: Tensor | None = None,
    ) -> Tensor:
        vectors = unit_vectors(self.dense(inputs))
        mask = padding_mask if pooling_mask is None else pooling_mask
        if mask is None:
            return vectors
        # In float16, the vectors at padding may be infinite.
        return ops.where(ops.cast(mask, "bool")[:, :, None], vectors, 0.0)

    def compute_output_spec(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        pooling_mask: Tensor | None = None,
    ) -> keras.KerasTensor:
        return keras.KerasTensor((*inputs.shape[:-1], self.dim), dtype="float32")


@keras.saving.register_keras_serializable(package="keras_bert")
class VocabularyBias(keras.layers.Layer):
    """Adds the masked LM head's output bias, in float32.

    Input shape:
        `(batch, slots, vocabulary)`.

    Output shape:
        Same as the input, float32.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})

    def build(self, input_shape: Shape) -> None:
        self.bias = self.add_weight(name="bias", shape=input_shape[-1:], initializer="zeros")

    def call(self, inputs: Tensor) -> Tensor:
        return ops.add(inputs, self.bias)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return input_shape
