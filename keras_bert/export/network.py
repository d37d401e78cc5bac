# SPDX-License-Identifier: Apache-2.0
"""Converts a task's network to a TensorFlow function of token ids, for converters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from keras_bert.export.options import Servable
from keras_bert.models.inputs import INPUT_NAMES
from keras_bert.ops.linear_chain import unroll_loops
from keras_bert.ops.unpadding import forbid_unpadding


def network_function(
    task: Servable,
    length: int | None = None,
    rejects_negative_ids: bool = False,
    compute: Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]] | None = None,
) -> tuple[Any, list[tf.TensorSpec]]:
    """Returns a function of `token_ids`, `segment_ids` and `padding_mask`, and its input specs.

    The task may have more inputs, see `Task.network_inputs`.

    Args:
        task: Task on the TensorFlow backend, in float32.
        length: Fixed sequence length. `None` for any length.
        rejects_negative_ids: Whether the runtime raises an error for negative ids.
        compute: Function from the inputs to the outputs. Defaults to `Task.network_outputs`.
    """
    # (batch, length), or (batch, choices, length)
    outer = [None] * (len(task.input["token_ids"].shape) - 1)
    names = (*INPUT_NAMES, *task.network_inputs)
    specs = [tf.TensorSpec([*outer, length], tf.int32, name) for name in names]

    def logits(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        features = dict(zip(names, inputs, strict=True))
        features["padding_mask"] = tf.cast(features["padding_mask"], tf.bool)
        if not rejects_negative_ids:
            # ONNX Runtime and LiteRT raise an error for ids beyond the vocabulary, but count
            # negative ids from its end.
            ids = features["token_ids"]
            features["token_ids"] = tf.where(ids < 0, tf.int32.max, ids)
        unrolled = contextlib.nullcontext() if length is None else unroll_loops()
        with forbid_unpadding(), unrolled:  # Not all runtimes support the unpadded operations.
            return dict((compute or task.network_outputs)(features))

    return tf.function(logits, input_signature=specs, autograph=False), specs
