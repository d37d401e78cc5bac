# SPDX-License-Identifier: Apache-2.0
"""Static int8: computes the input scales of matmuls from a model's inputs in example data."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bert import checks
from keras_bert.layers.block import TransformerBlock
from keras_bert.layers.dense import Dense
from keras_bert.layers.feed_forward import FeedForward
from keras_bert.layers.interventions import observe_inputs
from keras_bert.ops.annotations import Tensor

# Between a feed-forward network's two matmuls, all channels have the same scale. One channel in a
# thousand may be clipped, since a single channel is often many times as large as the rest.
_UNCLIPPED_CHANNELS = 0.999


def quantize_statically(model: Any, rows: Any) -> None:
    """Quantizes the matmuls in all blocks, given calibration data for the model's `predict`.

    Raises:
        ValueError: If a layer is quantized or has LoRA, if a feed-forward network is gated, or if
            the calibration data is empty.
    """
    layers = model._flatten_layers()
    blocks = [layer for layer in layers if isinstance(layer, TransformerBlock)]
    # Blocks may share their parts.
    networks = {id(block.feed_forward): block.feed_forward for block in blocks}
    attentions = {id(block.attention): block.attention for block in blocks}
    seconds = [network.output_projection for network in networks.values()]
    products = [network.intermediate for network in networks.values()]
    for attention in attentions.values():
        products += [attention.query_key_value, attention.output_projection]
    _check(networks.values(), [*products, *seconds])

    with _recorded([*products, *seconds]) as largest:
        _eager_view(model).predict(rows, verbose=0)
    if not largest:
        raise ValueError(
            "calibration must have examples, and be computed outside of `strategy.scope()`, whose "
            f"threads are not observed. Received: {checks.shorten_repr(rows)}"
        )
    for layer in products:
        layer.quantize_statically(largest[layer.path])
    for layer in seconds:
        unclipped = np.quantile(largest[layer.path], _UNCLIPPED_CHANNELS)
        layer.quantize_statically(np.array([unclipped], "float32"))
    # They are traced again with the new weights. Other threads may be inside a prediction loop.
    model.train_function = model.test_function = None
    model.make_predict_function(force=True)


def _check(networks: Any, products: Sequence[Dense]) -> None:
    for network in networks:
        if type(network) is not FeedForward or not network.use_intermediate_bias:
            raise ValueError(
                "calibration requires feed-forward networks without gate and with a bias in the "
                f"first dense layer. Received: {network.path}, a {type(network).__name__}. "
                "`quantize('int8')` without calibration supports it."
            )
    for layer in products:
        if layer.quantization_mode is not None or layer.lora_enabled:
            state = "is quantized" if layer.quantization_mode is not None else "has a LoRA update"
            raise ValueError(
                "calibration requires layers that are not quantized and have no LoRA update. "
                f"Received: {layer.path}, which {state}. Calibrate the model before that."
            )


@contextlib.contextmanager
def _recorded(layers: Sequence[Dense]) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Records the maximum absolute value of each input channel, by layer path."""
    largest: dict[str, np.ndarray[Any, Any]] = {}

    def record(path: str, inputs: Tensor) -> None:
        values = np.abs(np.asarray(ops.convert_to_numpy(ops.cast(inputs, "float32"))))
        values = values.reshape(-1, values.shape[-1]).max(axis=0)
        largest[path] = np.maximum(largest.get(path, 0), values)

    with contextlib.ExitStack() as stack:
        for layer in layers:
            stack.enter_context(observe_inputs(layer, functools.partial(record, layer.path)))
        yield largest


def _eager_view(model: Any) -> Any:
    """Returns a view of the model with an eager `predict_function`, to make arrays readable.

    Other threads keep the model's traced function. The view does not have the model's replicas,
    because a `tf.distribute.Strategy` computes them in other threads.
    """
    view = object.__new__(type(model))
    own = {"predict_function": None, "_run_eagerly": True, "_distribute_strategy": None}
    vars(view).update(vars(model) | own)
    return view
