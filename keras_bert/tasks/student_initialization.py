# SPDX-License-Identifier: Apache-2.0
"""Initialization of students with layers of their teacher, for distillation."""

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
    """Creates a student with copies of the embeddings, heads and some of the layers of a teacher.

    Args:
        teacher: A `MaskedLM` or a `TextClassifier`.
        num_layers: The number of layers, which are spread evenly from the first to the last one: 6
            of 12 are layers 0, 2, 4, 7, 9 and 11, as in DistilBERT.
        layers: The indices of the teacher's layers, instead of `num_layers`.
        **changes: Fields of `BertConfig` in which the student differs, and that do not change the
            shapes of layers: for example `num_segments=0, pooler=False`, to create a DistilBERT
            from a BERT.

    Returns:
        A task of the class of the teacher, with the same preprocessor.

    Raises:
        ValueError: If not exactly one of `num_layers` and `layers` is given, the layers are not
            ascending or not in the teacher, or the shape of a weight differs.

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

    `layers` has the index of a layer of the teacher for each of the student's.
    """
    layers = _validate_layers(teacher.config.num_layers, None, layers)
    if len(layers) != student.config.num_layers:
        raise ValueError(f"layers is {layers}; the student has {student.config.num_layers} layers.")
    for name, value, weight in _weights_to_copy(teacher, student, layers):
        if tuple(value.shape) != tuple(weight.shape):
            raise ValueError(
                f"The teacher's {name} has the shape {tuple(value.shape)}, and the student's "
                f"{tuple(weight.shape)}; to copy layers, the shapes must be equal."
            )
        weights.assign(name, weight, weights.to_numpy(value))


def spread_layers(num_layers: int, count: int) -> tuple[int, ...]:
    """Returns `count` indices of layers, spread evenly from the first to the last one."""
    if not 1 <= count <= num_layers:
        raise ValueError(f"num_layers is {count}; the teacher has {num_layers}.")
    if count == 1:
        return (0,)
    return tuple(round(index * (num_layers - 1) / (count - 1)) for index in range(count))


def _validate_layers(
    teacher_layers: int, num_layers: int | None, layers: Sequence[int] | None
) -> tuple[int, ...]:
    if (num_layers is None) == (layers is None):
        raise ValueError(
            f"num_layers is {num_layers} and layers is {layers}; expected exactly one of them: the "
            "number of layers to copy, or their indices."
        )
    if layers is None:
        return spread_layers(teacher_layers, int(num_layers or 0))
    if not layers or list(layers) != sorted(set(layers)) or layers[0] < 0:
        raise ValueError(f"layers must be ascending indices. Received: {tuple(layers)}")
    if layers[-1] >= teacher_layers:
        raise ValueError(f"layers is {tuple(layers)}; the teacher has {teacher_layers}, from 0.")
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
            raise ValueError(f"The teacher has no {name}, which the student needs.") from error
        yield name, value, weight
    heads = dict(teacher.heads)
    if encoder.pooler is not None:
        heads.setdefault("pooler", encoder.pooler)
    for name, head in student.heads.items():
        if name in heads:
            values = weights.head_weights(heads[name])
            for part, weight in weights.head_weights(head).items():
                yield f"{name}.{part}", values[part], weight
