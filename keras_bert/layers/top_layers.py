# SPDX-License-Identifier: Apache-2.0
"""Layers between an encoder and the head of a task, such as a BiLSTM."""

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

# They obey the mask, and take long to compute an example on JAX.
_NEVER_READ_PADDING = (keras.layers.RNN, keras.layers.Bidirectional, SentencePooling)


def bidirectional_lstm(
    units: int = 768, num_layers: int = 2, *, return_sequences: bool = False
) -> list[keras.layers.Layer]:
    """Creates a stack of bidirectional LSTM layers, such as for the `top_layers` of a task.

    They are computed in float32 under any dtype policy, since rounding errors accumulate over
    steps. The layers are named `bilstm_0`, `bilstm_1`, …

    Args:
        units: Number of units of each direction.
        num_layers: Number of layers.
        return_sequences: Whether the last layer returns the states at all tokens, `(batch, length,
            2 * units)`, as a question answerer needs them. Otherwise it returns `(batch, 2 *
            units)`: the forward state after the last token, concatenated with the backward state
            after the first one, as a text classifier needs it.

    Returns:
        The list of the layers.

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
    """Converts the argument `top_layers` of a task to a list of layers.

    It is layers or their serialized configs, the result of `top_layer_options`, or `None` for
    no layers. With `return_sequences` the head reads a vector for each token.
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
    """Applies layers one after another to a symbolic tensor `(batch, length, hidden)`.

    The padding mask `(batch, length)` goes to layers with an argument `mask` or `padding_mask` in
    `call`; for convolutions and the maximum of all tokens, the padding is replaced in the input.

    Raises:
        ValueError: If the outputs of a layer would depend on how far rows are padded.
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
    """Checks by an example that a row has the same outputs however far it is padded.

    `supports_masking` does not tell: it says only that a layer passes a mask on.
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
    except Exception as error:  # of each backend, such as of a layer of a fixed length
        is_same, cause = False, error
    if not is_same:
        raise ValueError(
            f"The outputs of {type(layer).__name__} {layer.name!r} in top_layers depend on how "
            "far rows are padded. Use layers that obey an argument `mask` in `call`, layers that "
            "compute each token by itself, GlobalMaxPooling1D, or a convolution with strides=1 and "
            "padding='same' or 'causal'."
        ) from cause


def _is_convolution_of_each_token(layer: keras.layers.Layer) -> bool:
    """Returns whether a layer convolves rows that it extends with zeros, as padding may be."""
    kinds = keras.layers.Conv1D, keras.layers.SeparableConv1D, keras.layers.DepthwiseConv1D
    return (
        isinstance(layer, kinds)
        and layer.padding in ("same", "causal")
        and set(layer.strides) == {1}
    )


class ReplacePadding(keras.layers.Layer):
    """Replaces vectors at padding by a value, for layers that know no masks."""

    def __init__(self, value: float, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.value = value

    def call(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if padding_mask is None:
            return x
        # A row of padding alone, which only fills a batch up, stays as it is.
        has_tokens = ops.any(padding_mask, axis=1, keepdims=True)
        is_read = ops.logical_or(padding_mask, ops.logical_not(has_tokens))
        return ops.where(is_read[:, :, None], x, ops.cast(self.value, x.dtype))

    def compute_mask(self, *_: Tensor) -> None:
        """Returns that the outputs have no mask, as Keras would pass it on."""

    def compute_output_spec(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        return keras.KerasTensor(x.shape, x.dtype)


def top_layer_options(layers: Sequence[keras.layers.Layer]) -> dict[str, Any] | None:
    """Returns the values that describe `top_layers` in presets.

    They are `bilstm_units` and `bilstm_layers` of a stack of `bidirectional_lstm`, and `pooling`
    and `normalize` of a `SentencePooling`. Without layers, the dict is empty; of others, it is
    `None`.
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
    """Returns a config without Keras' automatic names for layers inside."""
    config: dict[str, Any] = layer.get_config()
    for key in ("layer", "backward_layer"):
        if key in config:
            config[key] = {**config[key]["config"], "name": None}
    return config
