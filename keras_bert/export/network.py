# SPDX-License-Identifier: Apache-2.0
"""Converts a task's network to a TensorFlow function of token ids, for converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from keras_bert.export.options import Servable
from keras_bert.models.inputs import INPUT_NAMES
from keras_bert.ops.unpadding import forbid_unpadding


def network_function(
    task: Servable,
    length: int | None = None,
    rejects_negative_ids: bool = False,
    compute: Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]] | None = None,
) -> tuple[Any, list[tf.TensorSpec]]:
    """Returns a function of `token_ids`, `segment_ids` and `padding_mask`, and its input specs.

    Args:
        task: Task on the TensorFlow backend, in float32.
        length: Fixed sequence length. `None` for any length.
        rejects_negative_ids: Whether the runtime raises an error for negative ids.
        compute: Function from the inputs to the outputs. Defaults to the task.
    """
    # (batch, length), or (batch, choices, length)
    outer = [None] * (len(task.input["token_ids"].shape) - 1)
    specs = [tf.TensorSpec([*outer, length], tf.int32, name) for name in INPUT_NAMES]

    def logits(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        features = dict(zip(INPUT_NAMES, inputs, strict=True))
        features["padding_mask"] = tf.cast(features["padding_mask"], tf.bool)
        if not rejects_negative_ids:
            # ONNX Runtime and LiteRT raise an error for ids beyond the vocabulary, but count
            # negative ids from its end.
            ids = features["token_ids"]
            features["token_ids"] = tf.where(ids < 0, tf.int32.max, ids)
        with forbid_unpadding():  # Not all runtimes support the unpadded operations.
            outputs = compute(features) if compute else task(features, training=False)
        return dict(outputs) if isinstance(outputs, dict) else {task.output_name: outputs}

    return tf.function(logits, input_signature=specs, autograph=False), specs
