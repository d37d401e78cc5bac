# SPDX-License-Identifier: Apache-2.0
"""Computes hidden states and attention probabilities of texts in every encoder layer."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_bert.models.backbone import Backbone, attention_probabilities
from keras_bert.tasks.explained_row import check_length, pad_to_bucket_length, read_text
from keras_bert.tasks.task import Task

_BATCH_SIZE = 16


@dataclasses.dataclass(frozen=True)
class TextStates:
    """An encoder's outputs for one example, without padding.

    Attributes:
        token_ids: Token IDs, int `(tokens,)`, including special tokens.
        tokens: Tokens as strings.
        hidden_states: Float32 `(layers + 1, tokens, hidden)`. The first entry is for the
            embeddings.
        attention: Attention probabilities in each layer, float32 `(heads, tokens, tokens)`. Empty
            if they were not requested.
    """

    token_ids: np.ndarray
    tokens: tuple[str, ...]
    hidden_states: np.ndarray
    attention: tuple[np.ndarray, ...]


def encoder_and_preprocessor(
    model: Backbone | Task, preprocessor: Any = None
) -> tuple[Backbone, Any]:
    """Returns a model's encoder, and the preprocessor for its inputs.

    Raises:
        ValueError: If the model is neither a task nor a `Backbone`, or has no preprocessor.
    """
    if isinstance(model, Task):
        return model.backbone, preprocessor or model.preprocessor
    if not isinstance(model, Backbone):
        raise ValueError(
            f"The model must be a task or a Backbone. Received: a {type(model).__name__}"
        )
    if preprocessor is None:
        raise ValueError(
            "A Backbone has no tokenizer. Pass preprocessor=, for example a "
            "TextClassifierPreprocessor, or pass a task."
        )
    return model, preprocessor


def require_masked_lm(model: Any) -> None:
    """Checks that a model has a masked LM head."""
    if not isinstance(model, Task) or "masked_lm" not in model.heads:
        raise ValueError(
            f"The model must be a MaskedLM or a Pretrainer. Received: a {type(model).__name__}"
        )


def require_row_logits(model: Any) -> None:
    """Checks that a model computes logits or scores for each example."""
    if not isinstance(model, Task) or not model.has_row_logits:
        raise ValueError(
            "The model must be a task with a head that computes logits for its own input, such as "
            f"a TextClassifier. Received: a {type(model).__name__}"
        )


def read_texts(x: Any) -> list[tuple[str, ...]]:
    """Reads a text, a pair (a tuple of two texts), or a list of texts or pairs.

    Raises:
        ValueError: If `x` has a different type or is empty.
    """
    rows = x if isinstance(x, list) else [x]
    if not rows:
        raise ValueError("x must have at least one text. Received: an empty list")
    return [read_text(row, f"Text {number}") for number, row in enumerate(rows)]


def text_states(
    backbone: Backbone,
    preprocessor: Any,
    rows: Sequence[tuple[str, ...]],
    *,
    attention: bool = False,
    special_tokens_in_text: bool = False,
    truncate: bool = False,
) -> Iterator[TextStates]:
    """Computes hidden states, and optionally attention probabilities, of texts and pairs.

    A text longer than the maximum sequence length raises an error, unless `truncate` is true.
    """
    from keras_bert.data.texts import TextClassifierPreprocessor

    tokenizer = preprocessor.tokenizer
    vocabulary = tokenizer.vocabulary
    if special_tokens_in_text:
        tokenizer = tokenizer.with_special_tokens_in_text
    pack = TextClassifierPreprocessor(tokenizer, preprocessor.sequence_length)
    encoder = backbone.with_hidden_states()
    if not truncate:
        for row in rows:
            check_length(preprocessor, row, special_tokens_in_text)
    for batch in _batches(rows):
        columns = [list(column) for column in zip(*batch, strict=True)]
        features = {name: np.asarray(value) for name, value in pack(*columns).items()}
        features = pad_to_bucket_length(features, preprocessor)
        outputs = encoder(features, training=False)
        states = np.stack(as_float32(outputs["hidden_states"]))
        mask = features["padding_mask"]
        scores = []
        if attention:
            scores = as_float32(
                attention_probabilities(backbone, features, outputs["hidden_states"])
            )
        for index in range(len(batch)):
            length = int(mask[index].sum())
            ids = features["token_ids"][index, :length]
            yield TextStates(
                token_ids=ids,
                tokens=tuple(vocabulary[token] for token in ids),
                hidden_states=states[:, index, :length],
                attention=tuple(layer[index, :, :length, :length] for layer in scores),
            )


def as_float32(tensors: Sequence[Any]) -> list[np.ndarray]:
    """Converts tensors to NumPy arrays, float32."""
    return [keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")) for x in tensors]


def _batches(rows: Sequence[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    """Yields batches of consecutive examples with the same number of texts."""
    for _, group in itertools.groupby(rows, key=len):
        while batch := list(itertools.islice(group, _BATCH_SIZE)):
            yield batch
