# SPDX-License-Identifier: Apache-2.0
"""Scores of labels without training examples, from embeddings or an entailment model's logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert import checks
from keras_bert.data.arrays import unit_rows
from keras_bert.data.labels import softmax

Array = np.ndarray[Any, Any]

# The default hypotheses for embedders and for entailment models
SIMILARITY_HYPOTHESIS = "{}"
ENTAILMENT_HYPOTHESIS = "This example is {}."


def label_hypotheses(labels: Sequence[str] | Mapping[str, str], hypothesis: str) -> dict[str, str]:
    """Returns the text that stands for each label.

    The labels are sorted. All predictions are computed and ranked in this order, so they do not
    depend on the order of `labels`.

    Args:
        labels: The labels, or a dict from each label to its description. The description of a label
            such as `card_arrival` defaults to `card arrival`.
        hypothesis: The text, with `{}` in place of the description.

    Raises:
        ValueError: If `labels` is empty or has duplicates, or if `hypothesis` has no `{}`.

    Example:

    >>> label_hypotheses(["top_up", "card_arrival"], "It is about {}.")
    {'card_arrival': 'It is about card arrival.', 'top_up': 'It is about top up.'}
    """
    checks.check_names("labels", labels)
    names = sorted(set(labels))
    if not names or len(names) != len(labels):
        raise ValueError(f"labels must be one or more different names. Received: {labels!r}")
    if isinstance(labels, Mapping):
        descriptions = {name: labels[name] for name in names}
        checks.check_names("labels", descriptions.values())
    else:
        descriptions = {name: name.replace("_", " ") for name in names}
    if "{}" not in hypothesis:
        raise ValueError(f"hypothesis must have {{}} for the label. Received: {hypothesis!r}")
    return {name: hypothesis.replace("{}", text) for name, text in descriptions.items()}


def cosine_similarities(text_vectors: Array, label_vectors: Array) -> Array:
    """Returns the cosine similarities `(texts, labels)` of embeddings."""
    return np.asarray(unit_rows(text_vectors) @ unit_rows(label_vectors).T)


def entailment_id(
    class_names: Sequence[str] | None, num_classes: int, entailment: str | int | None = None
) -> int:
    """Returns the ID of the class that means entailment.

    Args:
        class_names: The names of an entailment model's classes, if it has names.
        num_classes: The number of classes.
        entailment: The class by name or ID. Defaults to the first name that starts with "entail".

    Raises:
        ValueError: If the model has no such class.
    """
    names = [str(name) for name in class_names or ()]
    if entailment is None:
        entailment = next((x for x in names if x.lower().startswith("entail")), None)
    ids: dict[Any, int] = {name: index for index, name in enumerate(names)}
    ids |= {index: index for index in range(num_classes)}
    if num_classes < 2 or entailment not in ids:
        raise ValueError(
            "A text-pair classifier must have an entailment class (the first text entails the "
            f"second). Received: entailment={entailment!r} and the classes "
            f"{', '.join(names) or num_classes}"
        )
    return ids[entailment]


def entailment_scores(logits: Array, entailment: int, *, multi_label: bool) -> Array:
    """Returns the probabilities of labels `(texts, labels)`, see `classify_zero_shot`.

    Args:
        logits: An entailment model's logits for each pair of text and hypothesis, float
            `(texts, labels, classes)`.
        entailment: The ID of the class that means entailment.
        multi_label: Whether any number of labels applies to a text.
    """
    if not multi_label and logits.shape[1] > 1:
        return softmax(logits[..., entailment])
    contradiction = -1 if entailment == 0 else 0
    return np.asarray(softmax(logits[..., [contradiction, entailment]])[..., 1])
