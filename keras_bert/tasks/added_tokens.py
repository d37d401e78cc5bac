# SPDX-License-Identifier: Apache-2.0
"""Adds tokens to a task's tokenizer and rows to its token embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_bert.checkpoints import weights
from keras_bert.layers import TokenEmbedding, VocabularyBias
from keras_bert.layers.initial_weights import skip_initial_weights
from keras_bert.models.pretraining import DECODER


def with_added_tokens(task: Any, tokens: Sequence[str]) -> Any:
    """Creates a task with more tokens. See `Task.with_added_tokens`."""
    fields = task.get_config()
    if "backbone" not in fields:
        raise ValueError(
            f"A {type(task).__name__} consists of other tasks. Add the tokens to each of these "
            "tasks first."
        )
    changed_layers = [
        layer.path
        for layer in task._flatten_layers()
        if layer.quantization_mode is not None or getattr(layer, "lora_enabled", False)
    ]
    if changed_layers:
        raise ValueError(
            "Tokens must be added before `quantize` and `enable_lora`. Received: quantized layers "
            f"or layers with LoRA: {', '.join(changed_layers[:5])}"
        )
    tokenizer = task.preprocessor.tokenizer
    new_tokenizer = tokenizer.with_added_tokens(tokens)
    size = max(task.config.vocabulary_size, new_tokenizer.vocabulary_size)
    fields["preprocessor"] = {**fields["preprocessor"], "tokenizer": new_tokenizer.get_config()}
    fields["backbone"]["config"]["config"]["vocabulary_size"] = size
    if "generator" in fields:
        fields["generator"]["vocabulary_size"] = size
    with skip_initial_weights():
        new_task = type(task).from_config(fields)
    axes = {id(variable): axis for variable, axis in _vocabulary_axes(task)}
    old_count, new_count = tokenizer.vocabulary_size, new_tokenizer.vocabulary_size
    for old, new in zip(task.variables, new_task.variables, strict=True):
        value = weights.to_numpy(old)
        if id(old) in axes:
            value = _with_mean_rows(value, axes[id(old)], old_count, new_count, size)
        weights.assign(new.path, new, value)
    if task.compiled:
        new_task.compile_from_config(task.get_compile_config())
    return new_task


def _vocabulary_axes(task: Any) -> Iterator[tuple[Any, int]]:
    """Yields each variable with a value for every token, and the axis of the tokens."""
    for layer in task._flatten_layers():
        if isinstance(layer, TokenEmbedding):
            yield from ((variable, 0) for variable in layer.variables)
        elif isinstance(layer, VocabularyBias) or layer.name == DECODER:
            yield from ((variable, -1) for variable in layer.variables)


def _with_mean_rows(
    value: np.ndarray[Any, Any], axis: int, old_count: int, new_count: int, size: int
) -> np.ndarray[Any, Any]:
    """Enlarges an axis to `size`. The values of new tokens are the mean of the old tokens."""
    rows = np.moveaxis(value, axis, 0)
    padded = np.zeros((size, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    padded[old_count:new_count] = rows[:old_count].mean(axis=0, dtype="float32")
    return np.moveaxis(padded, 0, axis)
