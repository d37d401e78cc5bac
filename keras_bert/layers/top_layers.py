# SPDX-License-Identifier: Apache-2.0
"""Layers between an encoder and a task's head, such as a BiLSTM."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.layers.pooling import SentencePooling
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.masks import masked_score

# These layers respect the mask, and checking them with an example takes long on JAX.
_NEVER_READ_PADDING = (keras.layers.RNN, keras.layers.Bidirectional, SentencePooling)


def bidirectional_lstm(
    units: int = 768, num_layers: int = 2, *, return_sequences: bool = False
) -> list[keras.layers.Layer]:
    """Creates a stack of bidirectional LSTM layers, for example for a task's `top_layers`.

    The layers compute in float32 under any dtype policy, since rounding errors accumulate over
    steps. They are called `bilstm_0`, `bilstm_1`, …

    Args:
        units: Number of units per direction.
        num_layers: Number of layers.
        return_sequences: Whether the last layer returns the states at all tokens, `(batch, length,
            2 * units)`. For example, a question answerer needs them. Otherwise the last layer
            returns the forward state after the last token, concatenated with the backward state
            after the first token, `(batch, 2 * units)`. For example, a text classifier needs these.

    Returns:
        A list of layers.

    Raises:
        ValueError: If an argument is below 1.

    Example:

    >>> import keras_bert
    >>> config = keras_bert.BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> classifier = keras_bert.TextClassifier(
    ...     keras_bert.Backbone(config),
    ...     num_classes=2,
    ...     top_layers=keras_bert.layers.bidirectional_lstm(units=4),
    ... )

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.1, "+ BiLSTM", and section 5.3.
    """
    checks.POSITIVE_INT.check(units=units, num_layers=num_layers)
    return [
        keras.layers.Bidirectional(
            keras.layers.LSTM(
                units, return_sequences=return_sequences or index < num_layers - 1, dtype="float32"
            ),
            dtype="float32",
            name=f"bilstm_{index}",
        )
        for index in range(num_layers)
    ]


def as_layers(top_layers: Any, *, return_sequences: bool = False) -> list[keras.layers.Layer]:
    """Converts a task's `top_layers` argument to a list of layers.

    The argument is a list of layers or serialized layers, the result of `top_layer_options`, or
    `None` for no layers. `return_sequences` is whether the head needs a vector for each token.
    """
    if isinstance(top_layers, Mapping):
        if "pooling" in top_layers:
            return [SentencePooling(**top_layers, name="sentence_pooling")]
        units, num_layers = top_layers.get("bilstm_units"), top_layers.get("bilstm_layers")
        if not units:
            return []
        return bidirectional_lstm(units, num_layers or 2, return_sequences=return_sequences)
    return [
        keras.saving.deserialize_keras_object(layer) if isinstance(layer, dict) else layer
        for layer in top_layers or ()
    ]


def apply_layers(
    layers: Sequence[keras.layers.Layer], x: Tensor, padding_mask: Tensor | None = None
) -> Tensor:
    """Applies layers in order to a symbolic tensor `(batch, length, hidden)`.

    The padding mask `(batch, length)` is passed to layers whose `call` has a `mask` or
    `padding_mask` argument. For convolutions and `GlobalMaxPooling1D`, the input is changed at
    padding instead.

    Raises:
        ValueError: If a layer's outputs would depend on the amount of padding.
    """
    for layer in layers:
        has_tokens = padding_mask is not None and len(x.shape) == 3
        apply = functools.partial(_apply_layer, layer)
        width = x.shape[-1]
        x = apply(x, padding_mask if has_tokens else None)
        if has_tokens and not isinstance(layer, _NEVER_READ_PADDING):
            _check_padding_is_not_read(layer, apply, width)
    return x


def _apply_layer(layer: keras.layers.Layer, x: Tensor, padding_mask: Tensor | None) -> Tensor:
    arguments = inspect.signature(layer.call).parameters
    takes_mask = [name for name in ("mask", "padding_mask") if name in arguments]
    if takes_mask:
        return layer(x, **{takes_mask[0]: padding_mask})
    if padding_mask is not None and isinstance(layer, keras.layers.GlobalMaxPooling1D):
        x = ReplacePadding(masked_score(x.dtype))(x, padding_mask=padding_mask)
    elif padding_mask is not None and _is_convolution_of_each_token(layer):
        x = ReplacePadding(0.0)(x, padding_mask=padding_mask)
    return layer(x)


def _check_padding_is_not_read(
    layer: keras.layers.Layer, apply: Callable[[Tensor, Tensor], Tensor], width: int
) -> None:
    """Checks with an example that a layer's outputs do not depend on the amount of padding.

    `supports_masking` is not enough, because it only means that a layer passes on a mask.
    """
    length, padded = 5, 8
    x = keras.random.normal((1, padded, width), seed=0)
    mask = ops.arange(padded)[None] < length
    cause = None
    try:
        alone, among = (
            ops.convert_to_numpy(ops.cast(apply(x[:, :end], mask[:, :end]), "float32"))
            for end in (length, padded)
        )
        if among.ndim == 3 and among.shape[1] == padded:
            among = among[:, :length]
        is_same = alone.shape == among.shape and bool(
            (abs(alone - among) <= 1e-3 + 0.02 * abs(among)).all()
        )
    except Exception as error:  # For example, if a layer requires a fixed length.
        is_same, cause = False, error
    if not is_same:
        raise ValueError(
            "The outputs of top_layers must not depend on the amount of padding. Received: "
            f"{type(layer).__name__} {layer.name!r}. Use layers whose `call` respects a `mask` "
            "argument, layers that compute each token independently, GlobalMaxPooling1D, or a "
            "convolution with strides=1 and padding='same' or 'causal'."
        ) from cause


def _is_convolution_of_each_token(layer: keras.layers.Layer) -> bool:
    """Returns whether a layer is a convolution that pads its input with zeros."""
    kinds = keras.layers.Conv1D, keras.layers.SeparableConv1D, keras.layers.DepthwiseConv1D
    return (
        isinstance(layer, kinds)
        and layer.padding in ("same", "causal")
        and set(layer.strides) == {1}
    )


class ReplacePadding(keras.layers.Layer):
    """Replaces vectors at padding by a value, for layers that do not support masks."""

    def __init__(self, value: float, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.value = value

    def call(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if padding_mask is None:
            return x
        # Examples without tokens only fill the batch. They are left unchanged.
        has_tokens = ops.any(padding_mask, axis=1, keepdims=True)
        is_read = ops.logical_or(padding_mask, ops.logical_not(has_tokens))
        return ops.where(is_read[:, :, None], x, ops.cast(self.value, x.dtype))

    def compute_mask(self, *_: Tensor) -> None:
        """Returns `None`, because Keras would pass on the mask."""

    def compute_output_spec(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        return keras.KerasTensor(x.shape, x.dtype)


def top_layer_options(layers: Sequence[keras.layers.Layer]) -> dict[str, Any] | None:
    """Returns the values that describe `top_layers` in presets.

    They are `bilstm_units` and `bilstm_layers` for a `bidirectional_lstm` stack, and `pooling` and
    `normalize` for a `SentencePooling`. The dict is empty without layers. The result is `None` for
    other layers.
    """
    if not layers:
        return {}
    if isinstance(layers[0], SentencePooling):
        pooling_options = {"pooling": layers[0].pooling, "normalize": layers[0].normalize}
        return pooling_options if len(layers) == 1 else None
    first = getattr(layers[0], "forward_layer", None)
    if not isinstance(first, keras.layers.LSTM):
        return None
    last_returns_sequences = getattr(layers[-1], "return_sequences", False)
    same = bidirectional_lstm(first.units, len(layers), return_sequences=last_returns_sequences)
    if list(map(_config_without_names, layers)) != list(map(_config_without_names, same)):
        return None
    return {"bilstm_units": first.units, "bilstm_layers": len(layers)}


def _config_without_names(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns a layer's config without the automatic names of its inner layers."""
    config: dict[str, Any] = layer.get_config()
    for key in ("layer", "backward_layer"):
        if key in config:
            config[key] = {**config[key]["config"], "name": None}
    return config
