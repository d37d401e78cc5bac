# SPDX-License-Identifier: Apache-2.0
"""One vector for the whole input, of encoders that have a pooler and of those that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras import ops

from keras_bert.config import BertConfig
from keras_bert.layers import Pooler

if TYPE_CHECKING:
    from keras_bert.models.backbone import Backbone


def make_pooler(config: BertConfig, policy: Any, name: str = "pooler") -> Pooler:
    """A pooler, for an encoder or for a task on one that has none.

    Args:
        config: The encoder's.
        policy: A Keras dtype policy.
        name: The layer's name.
    """
    return Pooler(
        config.pooler_activation,
        dropout=config.pooler_dropout,
        initializer_range=config.initializer_range,
        last_token=config.causal,
        dtype=policy,
        name=name,
    )


def task_pooler(backbone: Backbone) -> Pooler | None:
    """A pooler of a task's own, where the encoder has none."""
    if backbone.config.pooler:
        return None
    # By another name than the encoder's, for it learns as fast as the head that it belongs to.
    return make_pooler(backbone.config, backbone.dtype_policy, name="task_pooler")


def first_positions(token_ids: Any) -> Any:
    """The position of each row's first token, symbolic int `(batch, 1)`."""
    return ops.zeros_like(token_ids[:, :1])


def encode_pooled(backbone: Backbone, inputs: dict[str, Any]) -> dict[str, Any]:
    """The encoder's outputs where a pooler alone looks at them, the encoder's or a task's.

    Args:
        backbone: The encoder.
        inputs: Symbolic, by name.
    """
    if backbone.config.causal:
        return backbone.encode(inputs)
    return backbone.encode(inputs, first_positions(inputs["token_ids"]))


def pooled_output(encoded: dict[str, Any], pooler: Pooler | None, padding_mask: Any) -> Any:
    """The encoder's pooled output, or that of the task's own pooler.

    Args:
        encoded: The encoder's outputs.
        pooler: What `task_pooler` gave.
        padding_mask: Symbolic boolean `(batch, length)`, which decides where a causal encoder's
            last token is.

    Returns:
        Symbolic `(batch, hidden)`.
    """
    if pooler is None:
        return encoded["pooled_output"]
    if pooler.last_token:
        return pooler(encoded["sequence_output"], padding_mask=padding_mask)
    return pooler(encoded["sequence_output"])
