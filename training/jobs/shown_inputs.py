# SPDX-License-Identifier: Apache-2.0
"""Shows how `finetune` converts the examples of a file to sequences of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..readers.task_files import task_of_kind
from .tasks import TASKS

if TYPE_CHECKING:
    from keras_bert.insight import ModelInputs


def options_of_finetune(kind: str, **options: int | None) -> dict[str, int]:
    """Returns options of the preprocessor. Options that are `None` have the value of `finetune`.

    Args:
        kind: The type of the data, see `readers.task_files.KINDS`.
        **options: The options by the name of their flag. Flags that the task lacks are omitted.
    """
    defaults = TASKS[task_of_kind(kind) or "classification"].config_class().to_dict()
    return {
        name: defaults[name] if value is None else value
        for name, value in options.items()
        if name in defaults
    }


def model_inputs_of_file(
    kind: str, part: Any, count: int, preset: str, options: dict[str, int]
) -> ModelInputs:
    """Returns the sequences of the first examples in a file.

    Args:
        kind: The type of the data, see `readers.task_files.KINDS`.
        part: The content of the file, as in `data_inspection.text_rows`.
        count: The number of examples.
        preset: The checkpoint. Its weights are not loaded.
        options: The options of the preprocessor.
    """
    import keras_bert
    from keras_bert import insight

    options = {**options, "load_weights": False}
    y: Any = None
    if kind == "tagging":
        names = sorted({label for labels in part.labels or () for label in labels})
        task: Any = keras_bert.TokenClassifier.from_preset(preset, class_names=names, **options)
        x, y = part.words[:count], part.labels and part.labels[:count]
    elif kind == "multiple_choice":
        task = keras_bert.MultipleChoice.from_preset(preset, **options)
        x, y = tuple(column[:count] for column in part.inputs), part.labels
    elif kind == "squad":
        task = keras_bert.QuestionAnswerer.from_preset(preset, **options)
        x = part[:count]
    else:
        task = keras_bert.TextClassifier.from_preset(
            preset,
            part.num_classes,
            class_names=part.class_names,
            multi_label=part.multi_label,
            **options,
        )
        x, y = part.inputs[:count], part.labels
    return insight.model_inputs(task, x, None if y is None else y[:count])
