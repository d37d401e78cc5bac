# SPDX-License-Identifier: Apache-2.0
"""Finds how the tokens of a batch are arranged, once for all blocks of an encoder."""

from __future__ import annotations

from typing import Any

import keras

from keras_bert.config import BertConfig
from keras_bert.layers.shapes import check_length, check_same_shape
from keras_bert.layers.unpadding import remove_padding, should_unpad
from keras_bert.ops import BatchLayout
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.batch_layout import rope_name
from keras_bert.ops.masks import AttentionPattern
from keras_bert.ops.varlen import NUM_GROUPS, Varlen

_IDS = ("token_ids", "segment_ids", "position_ids", "counted_position_ids")


@keras.saving.register_keras_serializable(package="keras_bert")
class BatchLayoutBuilder(keras.layers.Layer):
    """Finds how tokens are arranged, and makes the masks and RoPE that all blocks share.

    Args:
        config: The architecture.
        unpadded: Whether a batch with a `padding_mask` becomes a varlen one, with the tokens of all
            rows concatenated; `None` where this is faster, see
            `keras_bert.ops.varlen.computes_unpadded`. JAX always has padded batches, since its
            shapes are static.

    Call arguments:
        inputs: A dict of int `(batch, length)` or `None`: `token_ids`; `segment_ids`;
            `position_ids`; `counted_position_ids`, which the embeddings take instead of
            `position_ids`; `padding_mask`, bool or int, 0 at padding; `sequence_ids` of packed
            rows, which are never unpadded; and `output_positions`, int `(batch, slots)`.
        training: Whether the model is in training.

    Output shape:
        A tuple of a dict of the ids, each `(batch, length)`, or `(1, tokens)` in a varlen batch,
        and of a `keras_bert.ops.BatchLayout`.

    Raises:
        ValueError: If the input is longer than `config.max_sequence_length` and has no
            `position_ids`, or an input has another shape.

    Reference:
        [ModernBERT](https://arxiv.org/abs/2412.13663), section 2.1.2.
    """

    def __init__(self, config: BertConfig, unpadded: bool | None = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.unpadded = unpadded
        # The scores that a model returns are those of all pairs of tokens.
        in_blocks = not config.output_attention_scores
        windows = dict.fromkeys(config.attention_windows)
        self.patterns = [AttentionPattern(config.causal, window, in_blocks) for window in windows]
        self.rotary_bases = tuple(dict.fromkeys(config.rotary_bases))

    def call(
        self, inputs: dict[str, Tensor], training: bool = False
    ) -> tuple[dict[str, Tensor], BatchLayout]:
        self._check(inputs)
        names = ("padding_mask", "sequence_ids", "output_positions", "position_ids")
        layout = BatchLayout(**{name: inputs[name] for name in names})
        ids = {name: inputs[name] for name in _IDS}
        x = ids["token_ids"]
        if should_unpad(x, layout, self.config, self.unpadded, self.compute_dtype, training):
            ids, layout = remove_padding(ids, layout, training)
            x = ids["token_ids"]
        ropes = {
            rope_name(base, self.config.rotary_scale): layout.rope(
                x, self.config.head_dim, base, self.config.rotary_scale
            )
            for base in self.rotary_bases
        }
        masks = {
            pattern.name: layout.mask(x, pattern, self.compute_dtype) for pattern in self.patterns
        }
        layout = layout._replace(cos_sin=ropes, masks=masks)
        counted_position_ids = ids.pop("counted_position_ids")
        if counted_position_ids is not None:
            ids["position_ids"] = counted_position_ids
        return ids, layout

    def _check(self, inputs: dict[str, Tensor]) -> None:
        shape = inputs["token_ids"].shape
        for name in (*_IDS, "padding_mask", "sequence_ids"):
            if inputs[name] is not None:
                check_same_shape(name, inputs[name].shape, shape)
        if all(inputs[name] is None for name in _IDS[2:]):
            check_length(shape[1], self.config.max_sequence_length)

    def compute_output_spec(
        self, inputs: dict[str, Tensor], training: bool = False
    ) -> tuple[dict[str, Tensor], BatchLayout]:
        self._check(inputs)
        batch, length = inputs["token_ids"].shape

        def tensor(*shape: int | None, dtype: str = "int32") -> keras.KerasTensor:
            return keras.KerasTensor(shape, dtype=dtype)

        def masks(*shape: int | None) -> tuple[keras.KerasTensor, ...]:
            return tuple(tensor(*shape, dtype="bool") for _ in range(NUM_GROUPS))

        varlen = {name: tensor(None) for name in Varlen._fields}
        # Here each is a tensor, even if it is `None` in `call`.
        layout = BatchLayout(
            padding_mask=tensor(batch, length, dtype="bool"),
            sequence_ids=tensor(batch, length),
            varlen=Varlen(**{**varlen, "key_masks": masks(None, None)}),
            output_positions=tensor(batch, None),
            position_ids=tensor(batch, length),
            relative=tensor(None),
            cos_sin={
                rope_name(base, self.config.rotary_scale): tensor(
                    None, length, 2, self.config.head_dim // 2, dtype="float32"
                )
                for base in self.rotary_bases
            },
            masks={pattern.name: masks(None, 1, None, None) for pattern in self.patterns},
        )
        return {name: tensor(batch, length) for name in _IDS[:3]}, layout

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "config": self.config.to_dict(),
            "unpadded": self.unpadded,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> BatchLayoutBuilder:
        return cls(BertConfig.from_dict(config.pop("config")), **config)
