# SPDX-License-Identifier: Apache-2.0
"""The tokens of a batch end to end instead of padded, where this is faster."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.layers.shapes import check_same_shape, too_long
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.unpadded import (
    Rows,
    computes_unpadded,
    index_of_tokens,
    is_unpadded,
    no_rows,
    pad,
    unpad,
    unpadded_rows,
)


@keras.saving.register_keras_serializable(package="keras_bert")
class Unpadding(keras.layers.Layer):
    """Puts the tokens of all rows of a batch end to end, as one row without padding.

    Args:
        max_sequence_length: Maximum length of the input in tokens.
        enabled: Whether it does so; `None` where this is faster, see
            `keras_bert.ops.unpadded.computes_unpadded`. JAX, whose shapes are static, always has
            padded batches.

    Call arguments:
        inputs: A dict of int `(batch, length)`, or `None`, by name.
        padding_mask: Bool or int `(batch, length)`, 0 at padding; a batch without it is returned as
            it is.
        sequence_ids: int `(batch, length)`; packed rows, which have them, are returned as they are.
        training: Whether the batch is one of training.

    Output shape:
        A tuple of the inputs, each `(1, tokens)` and with `position_ids`, and of what
        `keras_bert.ops.unpadded.unpadded_rows` returns. For a batch that is returned as it is, all
        of the latter is `None`.

    Raises:
        ValueError: If the input is longer than `max_sequence_length` and has no `position_ids`, or
            `padding_mask` has another shape.

    Reference:
        [ModernBERT](https://arxiv.org/abs/2412.13663), section 2.1.2.
    """

    def __init__(
        self, max_sequence_length: int, enabled: bool | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**{**kwargs, "dtype": "int32"})
        self.max_sequence_length = max_sequence_length
        self.enabled = enabled

    def call(
        self,
        inputs: dict[str, Tensor],
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        training: bool = False,
    ) -> tuple[dict[str, Tensor], Rows]:
        if padding_mask is None or sequence_ids is not None:
            return inputs, no_rows()
        if not computes_unpadded(self.enabled, training):
            return inputs, no_rows()
        if getattr(inputs["token_ids"], "is_meta", False):
            # PyTorch computes shapes alone, and has no number of tokens.
            return inputs, no_rows()
        shape = inputs["token_ids"].shape
        for name, x in {**inputs, "padding_mask": padding_mask}.items():
            if x is not None:
                check_same_shape(name, x.shape, shape)
        has_positions = inputs["position_ids"] is not None
        if not has_positions and shape[1] is not None and shape[1] > self.max_sequence_length:
            raise ValueError(too_long(shape[1], self.max_sequence_length))
        rows = unpadded_rows(padding_mask)
        inputs = {name: None if x is None else unpad(x, rows) for name, x in inputs.items()}
        if not has_positions:
            inputs["position_ids"] = rows["position_ids"][None]
        return inputs, rows

    def compute_output_spec(
        self,
        inputs: dict[str, Tensor],
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        training: bool = False,
    ) -> tuple[dict[str, Tensor], Rows]:
        token_ids = inputs["token_ids"]
        outputs = {name: keras.KerasTensor(token_ids.shape, dtype="int32") for name in inputs}
        rows = {
            name: [keras.KerasTensor((None, None), dtype="bool") for _ in part]
            if isinstance(part, list)
            else keras.KerasTensor((None,), dtype="bool" if name == "attended" else "int32")
            for name, part in no_rows().items()
        }
        return outputs, rows

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_sequence_length": self.max_sequence_length,
            "enabled": self.enabled,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class UnpaddedPositions(keras.layers.Layer):
    """Returns where the tokens at positions of the rows of a batch are, once it is unpadded.

    Call arguments:
        positions: int `(batch, slots)`.
        unpadded_rows: The second output of `Unpadding`.

    Output shape:
        int `(1, batch * slots)`; `positions` if the batch is padded.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "int32"})

    def call(self, positions: Tensor, unpadded_rows: Rows) -> Tensor:
        if not is_unpadded(unpadded_rows):
            return positions
        return index_of_tokens(positions, unpadded_rows)

    def compute_output_spec(self, positions: Tensor, unpadded_rows: Rows) -> keras.KerasTensor:
        return keras.KerasTensor(positions.shape, dtype="int32")


@keras.saving.register_keras_serializable(package="keras_bert")
class Padding(keras.layers.Layer):
    """Gives vectors of unpadded tokens the shape of the batch again, with zeros at padding.

    Args:
        at_positions: Whether the vectors are those at `UnpaddedPositions`, and not all.

    Call arguments:
        inputs: Float `(1, tokens, hidden)`.
        ids: int `(batch, length)`, the token ids or the positions, for the shape.
        unpadded_rows: The second output of `Unpadding`.

    Output shape:
        `(batch, length, hidden)`; the inputs as they are if the batch is padded.
    """

    def __init__(self, at_positions: bool = False, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "autocast": False})
        self.at_positions = at_positions

    def call(self, inputs: Tensor, ids: Tensor, unpadded_rows: Rows) -> Tensor:
        if not is_unpadded(unpadded_rows):
            return inputs
        batch, length = ops.shape(ids)
        if self.at_positions:
            return ops.reshape(inputs, (batch, length, inputs.shape[-1]))
        return pad(inputs, unpadded_rows, (batch, length))

    def compute_output_spec(
        self, inputs: Tensor, ids: Tensor, unpadded_rows: Rows
    ) -> keras.KerasTensor:
        return keras.KerasTensor((*ids.shape, inputs.shape[-1]), dtype=inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "at_positions": self.at_positions}
