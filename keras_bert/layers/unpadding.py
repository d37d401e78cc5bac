# SPDX-License-Identifier: Apache-2.0
"""Computes batches without padding: when this is done, and how padding is removed and restored."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_bert.config import BertConfig
from keras_bert.ops import BatchLayout
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention.kernels import case_on_device_of, prefers_varlen
from keras_bert.ops.varlen import computes_unpadded, index_of_tokens, pad, unpad, varlen_of


def should_unpad(
    token_ids: Tensor,
    layout: BatchLayout,
    config: BertConfig,
    unpadded: bool | None,
    dtype: str,
    training: bool,
) -> bool:
    """Returns whether a batch becomes a varlen one; see `BatchLayoutBuilder` for `unpadded`."""
    if layout.padding_mask is None or layout.sequence_ids is not None:
        return False
    if config.output_hidden_states or config.output_attention_scores:
        return False
    # PyTorch's meta tensors have only a shape, and no number of tokens. A batch without rows has no
    # longest row.
    if getattr(token_ids, "is_meta", False) or token_ids.shape[0] == 0:
        return False
    if unpadded is None and not training:
        case = case_on_device_of(
            token_ids,
            dtype=dtype,
            head_dim=config.head_dim,
            lengths=(None, None),
            form="varlen",
            bias=config.relative_positions is not None,
        )
        if prefers_varlen(case, math.prod(ops.shape(token_ids))):
            unpadded = True
    return computes_unpadded(unpadded, training)


def remove_padding(
    ids: dict[str, Tensor], layout: BatchLayout, training: bool
) -> tuple[dict[str, Tensor], BatchLayout]:
    """Returns the ids `(1, tokens)` and the layout of the varlen batch of a padded one."""
    varlen = varlen_of(layout.padding_mask, training)
    ids = {name: None if x is None else unpad(x, varlen) for name, x in ids.items()}
    if ids["position_ids"] is None:
        ids["position_ids"] = varlen.position_ids[None]
    positions = layout.output_positions
    if positions is not None:
        positions = index_of_tokens(positions, varlen)
    return ids, BatchLayout(
        varlen=varlen, output_positions=positions, position_ids=ids["position_ids"]
    )


@keras.saving.register_keras_serializable(package="keras_bert")
class RestorePadding(keras.layers.Layer):
    """Restores the shape of a batch from its varlen vectors, with zeros at padding.

    Call arguments:
        inputs: Float `(1, tokens, hidden)`, of all tokens or of the layout's output positions.
        ids: int `(batch, length)`, the token ids or the output positions, for the shape.
        layout: The second output of `BatchLayoutBuilder`.

    Output shape:
        `(batch, length, hidden)`; the inputs unchanged if the batch is not varlen.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "autocast": False})

    def call(self, inputs: Tensor, ids: Tensor, layout: BatchLayout) -> Tensor:
        if not layout.is_varlen:
            return inputs
        batch, length = ops.shape(ids)
        if layout.output_positions is not None:
            return ops.reshape(inputs, (batch, length, inputs.shape[-1]))
        return pad(inputs, layout.varlen, (batch, length))

    def compute_output_spec(
        self, inputs: Tensor, ids: Tensor, layout: BatchLayout
    ) -> keras.KerasTensor:
        return keras.KerasTensor((*ids.shape, inputs.shape[-1]), dtype=inputs.dtype)
