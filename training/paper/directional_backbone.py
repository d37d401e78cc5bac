# SPDX-License-Identifier: Apache-2.0
"""A right-to-left encoder, alone or concatenated with a left-to-right encoder."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert import Backbone, BertConfig
from keras_bert.models.inputs import token_inputs
from keras_bert.models.token_model import TokenModel
from keras_bert.ops.annotations import Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class ReverseRows(keras.layers.Layer):
    """Reverses the tokens in each row. Padding stays at the end.

    Call arguments:
        values: `(batch, length)` or `(batch, length, features)`. `None` for a missing input.
        padding_mask: Bool `(batch, length)`, False at padding. `None` for no padding.

    Output shape:
        The shape of `values`.
    """

    def call(self, values: Tensor | None, padding_mask: Tensor | None = None) -> Tensor | None:
        if values is None:
            return None
        if padding_mask is None:
            return ops.flip(values, axis=1)
        lengths = ops.sum(ops.cast(padding_mask, "int32"), axis=1, keepdims=True)
        positions = ops.arange(ops.shape(values)[1], dtype="int32")[None]
        index = ops.where(positions < lengths, lengths - 1 - positions, positions)
        if len(values.shape) == 3:
            index = ops.broadcast_to(index[:, :, None], ops.shape(values))
        return ops.take_along_axis(values, index, axis=1)

    def compute_output_spec(self, values: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        return keras.KerasTensor(values.shape, values.dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class DirectionalBackbone(Backbone):
    """An encoder that reads each row from right to left, or in both directions.

    The right-to-left encoder is a causal `Backbone` named `backward` that is applied to reversed
    rows. Its outputs are reversed again. With `concatenates`, a second causal `Backbone` named
    `forward` reads the row from left to right. The outputs of both are concatenated, as in ELMo.
    The encoders have separate weights.

    Args:
        config: The architecture of each encoder. It must be causal and have a pooler.
        concatenates: Whether to add the left-to-right encoder.
        dtype: A Keras dtype policy or its name. Defaults to Keras' global policy.
        name: Name of the model.

    Call arguments:
        inputs: See `Backbone`.

    Returns:
        A dict with `sequence_output`, `(batch, length, hidden)`, and `pooled_output`, `(batch,
        hidden)`. With `concatenates`, they are `2 * hidden` wide.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.1.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        concatenates: bool = False,
        dtype: str | keras.DTypePolicy | None = None,
        name: str = "backbone",
        **kwargs: Any,
    ) -> None:
        if not (config.causal and config.pooler):
            raise ValueError(
                "config must be causal and have a pooler. Received: "
                f"causal={config.causal}, pooler={config.pooler}"
            )
        inputs = token_inputs()
        backward = Backbone(config, dtype=dtype, name="backward")
        mask = inputs["padding_mask"]
        reverse = ReverseRows(name="reverse")
        rows = {name: reverse(inputs[name], mask) for name in ("token_ids", "segment_ids")}
        outputs = dict(backward({**rows, "padding_mask": mask}))
        outputs["sequence_output"] = reverse(outputs["sequence_output"], mask)
        if concatenates:
            forward = Backbone(config, dtype=dtype, name="forward")(inputs)
            outputs = {
                name: ops.concatenate([forward[name], output], axis=-1)
                for name, output in outputs.items()
            }
        TokenModel.__init__(self, inputs=inputs, outputs=outputs, name=name, **kwargs)
        self.config = config
        self.concatenates = concatenates
        self.dtype_policy = backward.dtype_policy
        self.packed, self.rematerialize, self.unpadded = False, False, None
        self.pooler = backward.pooler

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "concatenates": self.concatenates}
