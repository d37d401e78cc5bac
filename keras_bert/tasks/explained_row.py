# SPDX-License-Identifier: Apache-2.0
"""A task's input and the output value that `keras_bert.insight.attributions` explains."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bert.checks import shorten_repr
from keras_bert.ops.dispatch import compiles_each_shape

# A token's text index, the offset of its first character in the text, and the offset after its last
# character. `None` for a special token.
Span = tuple[int, int, int] | None


@dataclasses.dataclass(frozen=True)
class ExplainedRow:
    """A task's input and the output value to explain.

    Attributes:
        features: NumPy arrays with a batch size of 1. They may have padding.
        texts: The texts.
        spans: The place of each non-padding token in the texts.
        indices: Maps output names ("" for a single output) to the index of a value in the output.
            With multiple outputs, the sum of these values is explained.
        target: Name of the explained value.
    """

    features: dict[str, np.ndarray]
    texts: tuple[str, ...]
    spans: tuple[Span, ...]
    indices: dict[str, tuple[int, ...]]
    target: str


def read_text(x: Any, name: str) -> tuple[str, ...]:
    """Reads a text or a pair of texts.

    Raises:
        ValueError: If `x` is neither. The message starts with `name`.
    """
    texts = (x,) if isinstance(x, str) else tuple(x) if isinstance(x, (list, tuple)) else ()
    if not 1 <= len(texts) <= 2 or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} must be a text or a pair of texts. Received: {shorten_repr(x)}")
    return texts


def check_length(
    preprocessor: Any, texts: Sequence[str], special_tokens_in_text: bool = False
) -> None:
    """Checks that a text or a pair of texts fits in one sequence."""
    from keras_bert.data.packing import num_special_tokens

    tokenizer = preprocessor.tokenizer
    if special_tokens_in_text:
        tokenizer = tokenizer.with_special_tokens_in_text
    lengths = [len(ids) for ids in tokenizer(list(texts))]
    max_tokens = preprocessor.sequence_length - num_special_tokens(tokenizer, len(texts))
    if sum(lengths) > max_tokens:
        subject = "The text" if len(texts) == 1 else "The texts"
        raise ValueError(
            f"{subject} must have at most {max_tokens} tokens. Received: "
            f"{' + '.join(map(str, lengths))} tokens in {shorten_repr(texts[0])}. Shorten the "
            "text, or use a preprocessor with a longer sequence_length."
        )


def pad_to_bucket_length(
    features: dict[str, np.ndarray], preprocessor: Any
) -> dict[str, np.ndarray]:
    """Pads inputs to one of a few lengths on JAX, where compiling a new length takes seconds."""
    if not compiles_each_shape():
        return features
    from keras_bert.data.bucketing import bucket_lengths

    length = features["token_ids"].shape[-1]
    buckets = bucket_lengths(preprocessor.sequence_length, coarse=True)
    num_padding = next(bucket for bucket in buckets if bucket >= length) - length
    padding_values = {
        "token_ids": preprocessor.tokenizer.pad_token_id,
        "segment_ids": 0,
        "padding_mask": 0,
    }
    return {
        name: np.pad(
            value,
            (*[(0, 0)] * (value.ndim - 1), (0, num_padding)),
            constant_values=padding_values[name],
        )
        if name in padding_values
        else value
        for name, value in features.items()
    }


def pack_texts(task: Any, texts: tuple[str, ...]) -> tuple[dict[str, np.ndarray], tuple[Span, ...]]:
    """Converts a text or a pair of texts to features and token spans."""
    from keras_bert.data.texts import TextClassifierPreprocessor

    preprocessor = task.preprocessor
    check_length(preprocessor, texts)
    tokenizer = preprocessor.tokenizer
    pack = TextClassifierPreprocessor(tokenizer, preprocessor.sequence_length)
    features = one_row(task, pack([texts[0]], [texts[1]] if len(texts) == 2 else None))
    _, starts, ends = tokenizer.tokenize_with_offsets(list(texts))
    spans: list[Span] = [None] * int(features["padding_mask"].sum())
    position = 1
    for number, bounds in enumerate(zip(starts, ends, strict=True)):
        for start, end in zip(*bounds, strict=True):
            spans[position] = (number, start, end)
            position += 1
        position += tokenizer.pair_separators
    return features, tuple(spans)


def one_row(task: Any, features: dict[str, Any]) -> dict[str, np.ndarray]:
    """Returns features as arrays, padded by `pad_to_bucket_length`.

    Features of multiple windows raise an error.
    """
    arrays = {name: np.asarray(value) for name, value in features.items()}
    if len(arrays["token_ids"]) != 1:
        raise ValueError(
            f"The input must fit in one window. Received: an input of {len(arrays['token_ids'])} "
            "windows. Shorten it, or use a preprocessor with a longer sequence_length."
        )
    return pad_to_bucket_length(arrays, task.preprocessor)


def predict_row(task: Any, features: dict[str, np.ndarray]) -> np.ndarray:
    """Computes the outputs for an input, `(1, ...)`."""
    if compiles_each_shape():
        # Compiling all operations together is faster than compiling each one separately.
        return np.asarray(task.predict_on_batch(features))
    tensors = {name: keras.ops.convert_to_tensor(value) for name, value in features.items()}
    return np.asarray(keras.ops.convert_to_numpy(task(tensors, training=False)))


def target_class(
    target: Any, num_classes: int, class_names: Sequence[str] | None
) -> tuple[int, str]:
    """Returns the ID and name of the class with this ID or name."""
    if class_names is not None and target in class_names:
        return list(class_names).index(target), str(target)
    if not isinstance(target, int) or not 0 <= target < num_classes:
        names = f", or one of {', '.join(class_names)}" if class_names else ""
        raise ValueError(f"target must be 0 to {num_classes - 1}{names}. Received: {target!r}")
    return target, class_names[target] if class_names else f"class {target}"
