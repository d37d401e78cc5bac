# SPDX-License-Identifier: Apache-2.0
"""Layers before and after an encoder's blocks that arrange a batch and restore its shape."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_bert.config import BertConfig
from keras_bert.layers.base import check_length, check_same_shape
from keras_bert.ops import BatchLayout
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention.kernels import case_on_device_of
from keras_bert.ops.batch_layout import rope_name
from keras_bert.ops.masks import AttentionPattern
from keras_bert.ops.unpadding import should_unpad
from keras_bert.ops.varlen import index_of_tokens, pad, unpad, varlen_of

_IDS = ("token_ids", "segment_ids", "position_ids", "counted_position_ids")


@keras.saving.register_keras_serializable(package="keras_bert")
class BatchLayoutBuilder(keras.layers.Layer):
    """Finds how tokens are arranged, and computes the masks and RoPE angles that all blocks share.

    Args:
        config: Configuration of the encoder.
        unpadded: Whether batches are computed without padding. `None` chooses the faster way, see
            `keras_bert.ops.unpadding.should_unpad`.

    Call arguments:
        inputs: A dict of int tensors `(batch, length)`. All except `token_ids` are optional:
            `token_ids`, `segment_ids`, `position_ids`, `counted_position_ids` (used for the
            embeddings instead of `position_ids`), `padding_mask` (bool or int, 0 at padding),
            `sequence_ids` (for packed rows) and `output_positions` (int `(batch, slots)`, the
            positions to compute in the last block).
        training: Whether the model is in training.

    Output shape:
        A tuple with a dict of IDs and a `keras_bert.ops.BatchLayout`. Each ID tensor is
        `(batch, length)`, or `(1, tokens)` in an unpadded batch. `output_positions` is
        `(batch, slots)`, or `(1, batch * slots)` in an unpadded batch.

    Raises:
        ValueError: If the input is longer than `config.max_sequence_length` without `position_ids`,
            or if an input has a different shape from `token_ids`.

    Example:

    A batch has two sequences with three tokens and one token, and two output positions in each.
    Unpadded, it is a single row, and `cu_seqlens` has the ends of the sequences:

    >>> inputs = {
    ...     "token_ids": np.array([[7, 8, 9], [5, 0, 0]]),
    ...     "padding_mask": np.array([[1, 1, 1], [1, 0, 0]]),
    ...     "output_positions": np.array([[0, 2], [0, 0]]),
    ... }
    >>> layer = BatchLayoutBuilder(BertConfig(), unpadded=True)
    >>> ids, layout = layer(inputs, training=True)
    >>> [keras.ops.convert_to_numpy(x).tolist() for x in (ids["token_ids"], ids["position_ids"])]
    [[[7, 8, 9, 5]], [[0, 1, 2, 0]]]
    >>> keras.ops.convert_to_numpy(ids["output_positions"]).tolist()
    [[0, 2, 3, 3]]
    >>> keras.ops.convert_to_numpy(layout.varlen.cu_seqlens).tolist()
    [0, 3, 4]

    `RestorePadding` returns the four vectors at the output positions as `(2, 2, hidden)`. Without
    output positions, it returns all four vectors as `(2, 3, hidden)`, with zeros at padding.

    Reference:
        [ModernBERT](https://arxiv.org/abs/2412.13663), section 2.1.2.
    """

    def __init__(self, config: BertConfig, unpadded: bool | None = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.unpadded = unpadded
        # To return attention scores, the model needs masks over all token pairs.
        in_blocks = not config.output_attention_scores
        windows = dict.fromkeys(config.attention_windows)
        self.patterns = [AttentionPattern(config.causal, window, in_blocks) for window in windows]
        self.rotary_bases = tuple(dict.fromkeys(config.rotary_bases))

    def call(
        self, inputs: dict[str, Tensor], training: bool = False
    ) -> tuple[dict[str, Tensor], BatchLayout]:
        config = self.config
        self._check(inputs)
        ids = {name: inputs.get(name) for name in (*_IDS, "output_positions")}
        layout = BatchLayout(
            padding_mask=inputs.get("padding_mask"),
            sequence_ids=inputs.get("sequence_ids"),
            position_ids=inputs.get("position_ids"),
        )
        case = case_on_device_of(
            ids["token_ids"],
            dtype=self.compute_dtype,
            head_dim=config.head_dim,
            lengths=(None, None),
            form="unpadded",
            bias=config.relative_positions is not None,
            training=bool(training),
        )
        returns_all_layers = config.output_hidden_states or config.output_attention_scores
        if should_unpad(self.unpadded, ids["token_ids"], layout, case, returns_all_layers):
            ids, layout = _remove_padding(ids, layout, training)
        x, scale = ids["token_ids"], config.rotary_scale
        layout = dataclasses.replace(
            layout,
            cos_sin={
                rope_name(base, scale): layout.rope(x, config.head_dim, base, scale)
                for base in self.rotary_bases
            },
            masks={
                pattern.name: layout.mask(x, pattern, self.compute_dtype)
                for pattern in self.patterns
            },
        )
        counted_position_ids = ids.pop("counted_position_ids")
        if counted_position_ids is not None:
            ids["position_ids"] = counted_position_ids
        return ids, layout

    def _check(self, inputs: dict[str, Tensor]) -> None:
        shape = inputs["token_ids"].shape
        for name in (*_IDS, "padding_mask", "sequence_ids"):
            if inputs.get(name) is not None:
                check_same_shape(name, inputs[name].shape, shape)
        if all(inputs.get(name) is None for name in _IDS[2:]):
            check_length(shape[1], self.config.max_sequence_length)

    def compute_output_spec(
        self, inputs: dict[str, Tensor], training: bool = False
    ) -> tuple[dict[str, Tensor], keras.KerasTensor]:
        """Returns symbolic IDs, and one symbolic tensor for the layout.

        Keras connects layers by these outputs, and does not allow `None` as an output. So symbolic
        IDs always have `output_positions`.
        """
        self._check(inputs)
        batch, length = inputs["token_ids"].shape

        def tensor(*shape: int | None) -> keras.KerasTensor:
            return keras.KerasTensor(shape, dtype="int32")

        ids = {name: tensor(batch, length) for name in _IDS[:3]}
        return {**ids, "output_positions": tensor(batch, None)}, tensor()

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "config": self.config.to_dict(),
            "unpadded": self.unpadded,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> BatchLayoutBuilder:
        return cls(BertConfig.from_dict(config.pop("config")), **config)


def _remove_padding(
    ids: dict[str, Tensor], layout: BatchLayout, training: bool
) -> tuple[dict[str, Tensor], BatchLayout]:
    """Converts a padded batch's IDs and layout to an unpadded batch, with IDs `(1, tokens)`."""
    varlen = varlen_of(layout.padding_mask, training)
    positions = ids.pop("output_positions")
    ids = {name: None if x is None else unpad(x, varlen) for name, x in ids.items()}
    if ids["position_ids"] is None:
        ids["position_ids"] = varlen.position_ids[None]
    ids["output_positions"] = None if positions is None else index_of_tokens(positions, varlen)
    return ids, BatchLayout(varlen=varlen, position_ids=ids["position_ids"])


@keras.saving.register_keras_serializable(package="keras_bert")
class RestorePadding(keras.layers.Layer):
    """Restores the shape of unpadded batches, with zeros at padding.

    Call arguments:
        inputs: Float `(1, tokens, hidden)`, the vectors of all tokens or at the output positions.
        ids: int `(batch, length)`, the token IDs or output positions. Only their shape is used.
        layout: The second output of `BatchLayoutBuilder`.
        at_positions: Whether the inputs are only at the output positions.

    Output shape:
        `(batch, length, hidden)`. If the batch is padded or packed, the inputs are unchanged.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "autocast": False})

    def call(
        self, inputs: Tensor, ids: Tensor, layout: BatchLayout, at_positions: bool = False
    ) -> Tensor:
        if layout.varlen is None:
            return inputs
        batch, length = ops.shape(ids)
        if at_positions:
            return ops.reshape(inputs, (batch, length, inputs.shape[-1]))
        return pad(inputs, layout.varlen, (batch, length))

    def compute_output_spec(
        self, inputs: Tensor, ids: Tensor, layout: BatchLayout, at_positions: bool = False
    ) -> keras.KerasTensor:
        return keras.KerasTensor((*ids.shape, inputs.shape[-1]), dtype=inputs.dtype)
