# SPDX-License-Identifier: Apache-2.0
"""Static int8: the scales of the inputs of products, from what a model computes of example rows."""

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

# Between the products of a feed-forward network there is one scale for all channels. One channel in
# a thousand may be clipped: a single one is often many times as large as all others.
_UNCLIPPED_CHANNELS = 0.999


def quantize_statically(model: Any, rows: Any) -> None:
    """Quantizes the products of all blocks of a model by what its `predict` computes of rows.

    A quantized layer, LoRA and gated feed-forward networks are errors.
    """
    layers = model._flatten_layers()
    blocks = [layer for layer in layers if isinstance(layer, TransformerBlock)]
    # (Blocks may share their parts.)
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
            "calibration must have rows, and be computed outside of `strategy.scope()`, whose "
            f"threads are not observed. Received: {checks.shorten_repr(rows)}"
        )
    for layer in products:
        layer.quantize_statically(largest[layer.path])
    for layer in seconds:
        unclipped = np.quantile(largest[layer.path], _UNCLIPPED_CHANNELS)
        layer.quantize_statically(np.array([unclipped], "float32"))
    # They are traced anew, with the new weights. (Other threads may be in a loop of predictions.)
    model.train_function = model.test_function = None
    model.make_predict_function(force=True)


def _check(networks: Any, products: Sequence[Dense]) -> None:
    for network in networks:
        if type(network) is not FeedForward or not network.use_intermediate_bias:
            raise ValueError(
                f"{network.path} is a {type(network).__name__} without a bias of its first product "
                "or with a gate; calibration supports neither. `quantize('int8')` without "
                "calibration does."
            )
    for layer in products:
        if layer.quantization_mode is not None or layer.lora_enabled:
            state = "is quantized" if layer.quantization_mode is not None else "has a LoRA update"
            raise ValueError(f"{layer.path} {state}; calibrate the model as it was before.")


@contextlib.contextmanager
def _recorded(layers: Sequence[Dense]) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Records the largest absolute value of each input channel, by the path of the layer."""
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
    """Returns the same model with its own `predict_function`, which computes readable arrays.

    Other threads keep the model's traced function. The view has none of a model's replicas, which
    a `tf.distribute.Strategy` computes in other threads.
    """
    view = object.__new__(type(model))
    own = {"predict_function": None, "_run_eagerly": True, "_distribute_strategy": None}
    vars(view).update(vars(model) | own)
    return view
