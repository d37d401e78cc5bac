# SPDX-License-Identifier: Apache-2.0
"""Tokenizes calibration examples, and compares an int8 model's outputs with those in float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_bert.data.labels import softmax
from keras_bert.data.questions import QuestionWindows
from keras_bert.export.options import Servable
from keras_bert.models.inputs import INPUT_NAMES

Array = np.ndarray[Any, Any]


def calibration_features(
    task: Servable, examples: Sequence[Sequence[str]]
) -> Iterator[dict[str, Array]]:
    """Yields each example's features, int32 `(1, length)`, without padding.

    Padding would distort the calibration. For a question answerer, the first example has the
    passage's first window, the second example the second window, and so on.
    """
    for number, texts in enumerate(examples):
        inputs = task.preprocessor(*([text] for text in texts))
        if isinstance(inputs, QuestionWindows):
            inputs = task.preprocessor.pad(inputs)
            window = number % len(inputs["token_ids"])
            is_token = inputs["padding_mask"][window]
            inputs = {name: x[window][is_token][None] for name, x in inputs.items()}
        yield {name: inputs[name].astype("int32") for name in INPUT_NAMES}


def points_lost(task: Any, expected: Sequence[Array], actual: Sequence[Array]) -> float:
    """Estimates how many points a model with the outputs `actual` loses.

    For classes and answer positions, it is the expected loss of accuracy if the probabilities of
    the float32 model are correct. A different label that was almost as likely therefore costs
    almost nothing. For scores and embeddings, it is the loss of correlation. The correlation of
    embeddings is that of the texts' cosine similarities.

    Args:
        task: The task.
        expected: The float32 model's logits or embeddings of each example.
        actual: The other model's outputs.
    """
    if hasattr(task, "pooling") or getattr(task, "is_regression", False):
        values = np.stack([_values_to_correlate(task, outputs) for outputs in (expected, actual)])
        with np.errstate(all="ignore"):  # For example, all values are equal.
            correlation = np.corrcoef(values)[0, 1]
        return float(100 * (1 - np.nan_to_num(correlation, nan=1.0)))
    losses = []
    for one, other in zip(expected, actual, strict=True):
        if getattr(task, "multi_label", False):
            # A label applies or does not apply.
            one, other = (np.stack([np.zeros_like(x), x], axis=-1) for x in (one, other))
        probabilities = softmax(one)
        chosen = np.take_along_axis(probabilities, other.argmax(axis=-1)[..., None], axis=-1)
        losses.append(np.mean(probabilities.max(axis=-1) - chosen[..., 0]))
    return float(100 * np.mean(losses))


def _values_to_correlate(task: Any, outputs: Sequence[Array]) -> Array:
    values = np.concatenate(outputs)
    if not hasattr(task, "pooling"):
        return values.ravel()
    vectors = values / np.maximum(np.linalg.norm(values, axis=-1, keepdims=True), 1e-12)
    cosines: Array = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
    return cosines
