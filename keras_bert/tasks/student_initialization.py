# SPDX-License-Identifier: Apache-2.0
"""Initializes students with layers of their teacher, for distillation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from keras_bert.checkpoints import weights
from keras_bert.models.backbone import Backbone
from keras_bert.ops.lazy_tensorflow import serialize_keras_object

if TYPE_CHECKING:
    from keras_bert.tasks.masked_lm import MaskedLM
    from keras_bert.tasks.text_classifier import TextClassifier


def student_from_teacher(
    teacher: MaskedLM | TextClassifier,
    num_layers: int | None = None,
    *,
    layers: Sequence[int] | None = None,
    **changes: Any,
) -> Any:
    """Creates a student with copies of its teacher's embeddings and heads, and of some layers.

    Args:
        teacher: A `MaskedLM` or a `TextClassifier`.
        num_layers: Number of layers, spread evenly from the first to the last. For example, 6 of 12
            layers are layers 0, 2, 4, 7, 9 and 11, as in DistilBERT.
        layers: Indices of the teacher's layers, instead of `num_layers`.
        **changes: `BertConfig` fields to change in the student. They must not change the shapes of
            layers. For example, `num_segments=0, pooler=False` creates a DistilBERT from a BERT.

    Returns:
        A task of the teacher's class with the same preprocessor.

    Raises:
        ValueError: If not exactly one of `num_layers` and `layers` is given, if the layers are not
            ascending or do not exist in the teacher, or if a weight's shape differs.

    Reference:
        [DistilBERT](https://arxiv.org/abs/1910.01108), section 3, "Student initialization".
    """
    layers = _validate_layers(teacher.config.num_layers, num_layers, layers)
    heads = teacher.config.heads_by_layer
    heads = None if heads is None else tuple(heads[index] for index in layers)
    backbone = Backbone(
        teacher.config.replace(**{"num_layers": len(layers), "heads_by_layer": heads, **changes}),
        packed=teacher.backbone.packed,
        unpadded=teacher.backbone.unpadded,
        dtype=teacher.backbone.dtype_policy,
        name=teacher.backbone.name,
    )
    config = {**teacher.get_config(), "backbone": serialize_keras_object(backbone)}
    student = type(teacher).from_config(config)
    student.trainable = True
    copy_layers(teacher, student, layers)
    return student


def copy_layers(
    teacher: MaskedLM | TextClassifier,
    student: MaskedLM | TextClassifier,
    layers: Sequence[int],
) -> None:
    """Copies the weights of embeddings, heads and some layers from a teacher to a student.

    `layers` contains the index of the teacher's layer for each layer of the student.
    """
    layers = _validate_layers(teacher.config.num_layers, None, layers)
    if len(layers) != student.config.num_layers:
        raise ValueError(
            f"layers must have an index for each of the student's {student.config.num_layers} "
            f"layers. Received: {layers}"
        )
    for name, value, weight in _weights_to_copy(teacher, student, layers):
        if tuple(value.shape) != tuple(weight.shape):
            raise ValueError(
                f"To copy layers, {name} must have the same shape in teacher and student. "
                f"Received: {tuple(value.shape)} and {tuple(weight.shape)}"
            )
        weights.assign(name, weight, weights.to_numpy(value))


def spread_layers(num_layers: int, count: int) -> tuple[int, ...]:
    """Returns `count` layer indices, spread evenly from the first to the last layer."""
    if not 1 <= count <= num_layers:
        raise ValueError(
            f"num_layers must be from 1 to the teacher's {num_layers}. Received: {count}"
        )
    if count == 1:
        return (0,)
    return tuple(round(index * (num_layers - 1) / (count - 1)) for index in range(count))


def _validate_layers(
    teacher_layers: int, num_layers: int | None, layers: Sequence[int] | None
) -> tuple[int, ...]:
    if (num_layers is None) == (layers is None):
        raise ValueError(
            "Exactly one of num_layers and layers must be given, the number of layers to copy or "
            f"their indices. Received: num_layers={num_layers} and layers={layers}"
        )
    if layers is None:
        return spread_layers(teacher_layers, int(num_layers or 0))
    if not layers or list(layers) != sorted(set(layers)) or layers[0] < 0:
        raise ValueError(f"layers must be ascending indices. Received: {tuple(layers)}")
    if layers[-1] >= teacher_layers:
        raise ValueError(
            f"layers must be below the teacher's num_layers, {teacher_layers}. Received: "
            f"{tuple(layers)}"
        )
    return tuple(layers)


def _weights_to_copy(
    teacher: Any, student: Any, layers: Sequence[int]
) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name, the teacher's value and the student's variable of each weight."""
    encoder = teacher.backbone
    for name, weight in weights.backbone_weights(student.backbone).items():
        if name in weights.POOLER_WEIGHTS and encoder.pooler is None:
            continue
        index, path = weights.split_block(name)
        source = name if index is None else f"blocks.{layers[index]}.{path}"
        try:
            value = weights.backbone_weight(encoder, source)
        except AttributeError as error:
            raise ValueError(
                f"The teacher must have all weights of the student. Received: no {name}"
            ) from error
        yield name, value, weight
    heads = dict(teacher.heads)
    if encoder.pooler is not None:
        heads.setdefault("pooler", encoder.pooler)
    for name, head in student.heads.items():
        if name in heads:
            values = weights.head_weights(heads[name])
            for part, weight in weights.head_weights(head).items():
                yield f"{name}.{part}", values[part], weight
