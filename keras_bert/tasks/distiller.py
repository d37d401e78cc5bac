# SPDX-License-Identifier: Apache-2.0
"""Knowledge distillation: trains a student on its teacher's outputs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.data.adapters.base import InputAdapter
from keras_bert.data.adapters.reading import Rows
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.labels import LabelRules
from keras_bert.layers import Dense, FrozenModel, GatherTokens
from keras_bert.losses import SoftTargetDivergence, cosine_distance
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import token_inputs
from keras_bert.models.pretraining import decode_masked_lm, encode_masked, pretraining_inputs
from keras_bert.ops import tokens_at
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.lazy_tensorflow import serialize_keras_object
from keras_bert.tasks.custom_objective import CustomObjective, slot_targets, token_weights
from keras_bert.tasks.masked_lm import MaskedLM
from keras_bert.tasks.objective import exclude_variables
from keras_bert.tasks.presets import shown, tokenizer_facts
from keras_bert.tasks.student_initialization import student_from_teacher
from keras_bert.tasks.task import Task
from keras_bert.tasks.text_classifier import TextClassifier

# Default loss weights of divergence, labels and cosine distance. Masked LMs use DistilBERT's
# weights, and classifiers use equal weights for teacher and labels.
_MASKED_LM_WEIGHTS = (5.0, 2.0, 1.0)
_CLASSIFIER_WEIGHTS = (0.5, 0.5, 0.0)
DIVERGENCE_TOKENS = ("masked", "all")


@keras.saving.register_keras_serializable(package="keras_bert")
class Distiller(CustomObjective, Task):
    """Trains a student to reproduce the outputs of its teacher.

    Both are masked LMs, to get a smaller encoder for fine-tuning, or both are classifiers, to get a
    smaller classifier. The loss is a weighted sum of up to three losses:

    - The divergence of the student's softened distribution from the teacher's distribution. For
      regression, it is the squared difference.
    - The loss on the labels (the masked tokens or the classes).
    - For masked LMs, the cosine distance between the last hidden states, over all non-padding
      tokens.

    `fit` and `evaluate` accept the same data as the student. A classifier can also learn without
    labels, only from the teacher's outputs. To do so, omit `y`, or use the label -1 (for regression
    NaN) for examples without a label.

    The student is trained in place, so save, export and evaluate the task that you passed as
    `student`. The teacher is not trained, runs without dropout, and is not saved in presets.

    `compile()` defaults to AdamW with the student's default learning rate. The losses and metrics
    are fixed.

    Args:
        student: A `MaskedLM` or a `TextClassifier`, see `student_from_teacher`.
        teacher: A task of the same class with the same vocabulary and classes.
        temperature: Logits are divided by the temperature before they are compared. Defaults to 2.
        divergence_weight: Loss weight of the divergence from the teacher. Defaults to 5 for masked
            LMs and 0.5 for classifiers.
        label_weight: Loss weight of the labels. Defaults to 2 for masked LMs and 0.5 for
            classifiers.
        cosine_weight: Loss weight of the cosine distance. Defaults to 1 for masked LMs. Must be 0
            for classifiers.
        divergence_tokens: Compares masked LMs on the `"masked"` tokens or on `"all"` non-padding
            tokens. `"all"` is the default of the original DistilBERT code. It needs logits over the
            vocabulary for about seven times the number of tokens.
        project_hidden: Whether to train a projection of the student's hidden states to the
            teacher's dimension if the hidden dimensions differ. If `False`, different dimensions
            raise an error.
        name: Name of the model.

    Call arguments:
        inputs: The student's inputs.

    Returns:
        A dict with `student_logits` and `teacher_logits`. If hidden states are compared, it also
        has `student_hidden` and `teacher_hidden`.

    Raises:
        TypeError: If student and teacher are not both a `MaskedLM` or both a `TextClassifier`.
        ValueError: If one of them has `multi_label`, if they share an encoder, if their tokenizers
            or classes differ, if their hidden dimensions differ without `project_hidden`, or if an
            option is invalid.

    Example:

    >>> from keras_bert import Backbone, BertConfig, Distiller, MaskedLM
    >>> config = BertConfig(num_layers=4, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> teacher = MaskedLM(Backbone(config))
    >>> student = Distiller.student_from_teacher(teacher, num_layers=2, pooler=False)
    >>> distiller = Distiller(student, teacher)
    >>> distiller.compile()
    >>> x = {"token_ids": np.array([[101, 103, 102]]), "mask_positions": np.array([[1]])}
    >>> history = distiller.fit(x, np.array([[7]]), sample_weight=np.ones((1, 1)), verbose=0)
    >>> distiller.student.config.num_layers
    2

    Reference:
        [DistilBERT](https://arxiv.org/abs/1910.01108), sections 2 and 3;
        [Distilling the Knowledge in a Neural Network](https://arxiv.org/abs/1503.02531).
    """

    model_fields = ("student", "teacher")

    def __init__(
        self,
        student: MaskedLM | TextClassifier,
        teacher: MaskedLM | TextClassifier,
        *,
        temperature: float = 2.0,
        divergence_weight: float | None = None,
        label_weight: float | None = None,
        cosine_weight: float | None = None,
        divergence_tokens: str = "masked",
        project_hidden: bool = True,
        name: str = "distiller",
        **kwargs: Any,
    ) -> None:
        _check_pair(student, teacher)
        is_masked = isinstance(student, MaskedLM)
        arguments = (divergence_weight, label_weight, cosine_weight)
        usual = _MASKED_LM_WEIGHTS if is_masked else _CLASSIFIER_WEIGHTS
        weights = tuple(
            default if weight is None else weight
            for weight, default in zip(arguments, usual, strict=True)
        )
        checks.POSITIVE.check(temperature=temperature)
        checks.NON_NEGATIVE.check(
            divergence_weight=weights[0], label_weight=weights[1], cosine_weight=weights[2]
        )
        if divergence_tokens not in DIVERGENCE_TOKENS:
            raise ValueError(
                f"divergence_tokens must be one of {', '.join(DIVERGENCE_TOKENS)}. Received: "
                f"{divergence_tokens!r}"
            )
        if weights[2] and not is_masked:
            raise ValueError(
                "cosine_weight must be 0 for classifiers, because their hidden states are not "
                f"compared. Received: {weights[2]}"
            )
        projection = _projection(student, teacher, project_hidden) if weights[2] else None

        # === Functional graph ===
        inputs = pretraining_inputs(student.backbone) if is_masked else token_inputs()
        compared = (bool(weights[2]), divergence_tokens == "all")
        student_outputs = _apply_task(student, inputs, *compared)
        teacher_inputs = {**inputs} if is_masked else token_inputs()
        frozen = FrozenModel(
            keras.Model(
                teacher_inputs, _apply_task(teacher, teacher_inputs, *compared), name="frozen"
            ),
            name="teacher",
        )
        teacher_outputs = frozen(inputs)
        if projection is not None:
            student_outputs["hidden"] = projection(student_outputs["hidden"])
        outputs = {f"student_{name}": value for name, value in student_outputs.items()}
        outputs |= {f"teacher_{name}": value for name, value in teacher_outputs.items()}
        super().__init__(
            inputs=inputs, outputs=outputs, backbone=student.backbone, name=name, **kwargs
        )
        self.student_task = student
        self.teacher_task = teacher
        self.uses_pooler = student.uses_pooler
        self.supports_class_weight = student.supports_class_weight
        self.temperature = temperature
        self.divergence_weight, self.label_weight, self.cosine_weight = weights
        self.divergence_tokens = divergence_tokens
        self.project_hidden = project_hidden
        self.is_masked_lm = is_masked
        self.needs_labels = False
        self.is_regression = isinstance(student, TextClassifier) and student.is_regression
        self.default_learning_rate = student.default_learning_rate
        self._divergence: Callable[[Any, Any], Any] = (
            _squared_difference if self.is_regression else SoftTargetDivergence(temperature).call
        )
        names = ["divergence", "label_loss", *([] if self.is_regression else ["accuracy"])]
        self._report([*names, *(["cosine_distance"] if self.cosine_weight else [])])

    student_from_teacher = staticmethod(student_from_teacher)

    @property
    def student(self) -> Backbone:
        """The student's encoder."""
        return self.backbone

    @property
    def head(self) -> Any:
        """The student's head, or `None` for a masked LM."""
        return getattr(self.student_task, "head", None)

    @property
    def preprocessor(self) -> Any:
        """The student's preprocessor."""
        return self.student_task.preprocessor

    def _trained(self, variables: list[Any]) -> list[Any]:
        return exclude_variables(super()._trained(variables), self.teacher_task.variables)

    def _loss_parts(self) -> dict[str, float]:
        parts = {"divergence": self.divergence_weight, "label_loss": self.label_weight}
        return {**parts, **({"cosine_distance": self.cosine_weight} if self.cosine_weight else {})}

    def _loss_targets(self, x: Any, y: Any, sample_weight: Any) -> tuple[Any, dict[str, Any]]:
        if self.is_masked_lm:
            labels, labeled = slot_targets(x, y, sample_weight)
            tokens = token_weights(x, labeled)
            compared = tokens if self.divergence_tokens == "all" else labeled
            weights = {"divergence": compared, "label_loss": labeled, "cosine_distance": tokens}
            return labels, weights
        num_rows = ops.shape(x["token_ids"] if isinstance(x, Mapping) else x)[:1]
        rows = ops.ones(num_rows) if sample_weight is None else sample_weight
        rows = ops.reshape(ops.cast(rows, "float32"), (-1,))
        labels, labeled = _known_labels(y, rows, self.is_regression)
        return labels, {"divergence": rows, "label_loss": labeled}

    def _values(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any
    ) -> dict[str, tuple[Any, Any]]:
        student, teacher = y_pred["student_logits"], y_pred["teacher_logits"]
        labels, weights = self._loss_targets(x, y, sample_weight)
        labeled, logits = weights["label_loss"], student
        if self.is_masked_lm and self.divergence_tokens == "all":
            # (batch, length, vocabulary) -> (batch, slots, vocabulary)
            logits = tokens_at(logits, x["mask_positions"])
        values = {"divergence": (self._divergence(teacher, student), weights["divergence"])}
        if self.cosine_weight:
            distance = cosine_distance(y_pred["teacher_hidden"], y_pred["student_hidden"])
            values["cosine_distance"] = (distance, weights["cosine_distance"])
        if labels is None:
            return values
        if self.is_regression:
            values["label_loss"] = (_squared_difference(labels, logits), labeled)
            return values
        entropy = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        is_right = ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), labels)
        values["label_loss"] = (entropy, labeled)
        values["accuracy"] = (ops.cast(is_right, "float32"), labeled)
        return values

    def get_metrics_result(self) -> dict[str, Any]:
        """Returns all metrics by name. Metrics on labels are NaN if no example has a label."""
        logs = super().get_metrics_result()
        for name in ("label_loss", "accuracy"):
            if name in logs:
                has_labels = ops.convert_to_tensor(self._means[name].count) > 0
                logs[name] = ops.where(has_labels, logs[name], float("nan"))
        return logs

    # The student reads the input, except that examples for classifiers may have no labels.

    def _read(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> Rows:
        options = dataclasses.replace(options, allow_unlabeled=not self.is_masked_lm)
        return self.student_task._read(x, y, sample_weight, options)

    def _label_rules(self, options: BatchOptions) -> LabelRules:
        return self.student_task._label_rules(options)

    def _batches(self, rows: InputAdapter, options: BatchOptions) -> Batches:
        return self.student_task._batches(rows, options)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Computes the student's outputs, see its `predict`."""
        return self.student_task.predict(x, *args, **kwargs)

    def save_to_preset(self, preset_dir: str | os.PathLike[str]) -> None:
        """Saves only the student, see its `save_to_preset`."""
        self.student_task.save_to_preset(preset_dir)

    def get_config(self) -> dict[str, Any]:
        return {
            "student": serialize_keras_object(self.student_task),
            "teacher": serialize_keras_object(self.teacher_task),
            "name": self.name,
            **self._layer_states(),
            **{name: checks.plain(getattr(self, name)) for name in self.options},
        }

    @property
    def _parts_with_states(self) -> tuple[keras.Model, ...]:
        return (self.student_task, self.teacher_task)


def _apply_task(
    task: MaskedLM | TextClassifier, inputs: dict[str, Any], with_hidden: bool, everywhere: bool
) -> dict[str, Any]:
    """Returns a task's symbolic `logits`, and with `with_hidden` also its `hidden` states.

    A masked LM only has logits for the masked tokens, or with `everywhere` for all tokens.
    """
    if not isinstance(task, MaskedLM):
        return {"logits": task(inputs)}
    if with_hidden or everywhere:
        hidden = task.backbone.encode(inputs)["sequence_output"]
        masked = hidden if everywhere else GatherTokens()(hidden, inputs["mask_positions"])
    else:
        hidden = None
        masked, _ = encode_masked(task.backbone, inputs)
    logits = decode_masked_lm(task.backbone, task.heads["masked_lm"], masked)
    return {"logits": logits, **({"hidden": hidden} if with_hidden else {})}


def _squared_difference(x: Any, y: Any) -> Any:
    """Returns the squared differences of tensors `(batch, 1)`, with shape `(batch,)`."""
    return ops.square(x - y)[:, 0]


def _known_labels(y: Any, rows: Any, is_regression: bool) -> tuple[Any, Any]:
    """Returns the labels and their weights, with weight 0 for missing labels."""
    if y is None:
        return None, rows
    y = ops.reshape(y, (-1,))
    if is_regression:
        y = ops.cast(y, "float32")
        has_label = ops.isfinite(y)
        labels = ops.where(has_label, y, 0.0)[:, None]
    else:
        y = ops.cast(y, "int32")
        has_label = y >= 0
        labels = ops.maximum(y, 0)
    return labels, rows * ops.cast(has_label, "float32")


def _check_pair(student: Any, teacher: Any) -> None:
    kinds = (MaskedLM, TextClassifier)
    if not any(isinstance(student, kind) and isinstance(teacher, kind) for kind in kinds):
        raise TypeError(
            "student and teacher must both be a MaskedLM or both a TextClassifier. Received: "
            f"{type(student).__name__} and {type(teacher).__name__}"
        )
    if getattr(student, "multi_label", False) or getattr(teacher, "multi_label", False):
        raise ValueError(
            "student and teacher must classify with one label for each text, or be regressions. "
            "Received: a TextClassifier with multi_label=True"
        )
    if student.backbone is teacher.backbone:
        raise ValueError(
            "student and teacher must have different encoders. Received: the same encoder. Create "
            "the student with Distiller.student_from_teacher."
        )
    names = ["vocabulary_size", *(["causal"] if isinstance(student, MaskedLM) else [])]
    facts = {name: (getattr(student.config, name), getattr(teacher.config, name)) for name in names}
    if isinstance(student, TextClassifier):
        facts["num_classes"] = (student.num_classes, teacher.num_classes)
        facts["class_names"] = (student.class_names, teacher.class_names)
    tokenizers = tokenizer_facts(student), tokenizer_facts(teacher)
    if all(tokenizers):
        names = list(dict.fromkeys([*tokenizers[0], *tokenizers[1]]))
        facts |= {name: (tokenizers[0].get(name), tokenizers[1].get(name)) for name in names}
    for name, (own, others) in facts.items():
        if own != others:
            raise ValueError(
                f"student and teacher must have the same {name}. Received: {shown(own)} and "
                f"{shown(others)}"
            )
    options = student._preprocessor_config() or {}
    length = options.get("sequence_length") or student.config.max_sequence_length
    if length > teacher.config.max_sequence_length:
        raise ValueError(
            "The teacher must have positions for all tokens in the student's input. Received: "
            f"{length} tokens and {teacher.config.max_sequence_length} positions. Create the "
            "student with a smaller sequence_length."
        )
    if student.backbone.packed and not teacher.backbone.packed:
        raise ValueError(
            "The teacher must accept packed rows if the student does. Received: a packed student "
            "and a teacher that is not packed. Create the teacher with packed=True."
        )


def _projection(student: Task, teacher: Task, allowed: bool) -> Dense | None:
    widths = student.config.hidden_dim, teacher.config.hidden_dim
    if widths[0] == widths[1]:
        return None
    if not allowed:
        raise ValueError(
            "To compare hidden states, student and teacher must have the same hidden_dim. "
            f"Received: {widths[0]} and {widths[1]}. Use a projection (project_hidden=True), or "
            "disable the comparison (cosine_weight=0)."
        )
    return Dense(
        widths[1],
        kernel_initializer=keras.initializers.TruncatedNormal(
            stddev=student.config.initializer_range
        ),
        dtype=student.backbone.dtype_policy,
        name="hidden_projection",
    )
