# SPDX-License-Identifier: Apache-2.0
"""Suggests this library's names for the arguments and flags of other libraries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any

_CLASSES = ("num_classes", "class_names")
_LENGTH = ("sequence_length",)
_ENCODER_DROPOUT = ("encoder_dropout",)

# Maps names in `transformers`, its `TrainingArguments` and example scripts, the original BERT code
# and KerasHub to the names in this library.
_OUR_NAMES: dict[str, tuple[str, ...]] = {
    "num_labels": _CLASSES,
    "id2label": ("class_names",),
    "label2id": ("class_names",),
    "label_names": ("class_names",),
    "max_length": _LENGTH,
    "max_len": _LENGTH,
    "max_seq_len": _LENGTH,
    "max_seq_length": _LENGTH,
    "model_max_length": _LENGTH,
    "torch_dtype": ("dtype",),
    "output_attentions": ("output_attention_scores",),
    "classifier_dropout": ("dropout",),
    "hidden_dropout": _ENCODER_DROPOUT,
    "hidden_dropout_prob": _ENCODER_DROPOUT,
    "attention_dropout": _ENCODER_DROPOUT,
    "attention_probs_dropout_prob": _ENCODER_DROPOUT,
    "lr": ("learning_rate", "optimizer"),
    "learning_rate": ("optimizer",),
    "num_epochs": ("epochs",),
    "num_train_epochs": ("epochs",),
    "train_batch_size": ("batch_size",),
    "per_device_train_batch_size": ("batch_size",),
    "gradient_accumulation_steps": ("accumulation", "optimizer"),
    "warmup_ratio": ("warmup", "optimizer"),
    "warmup_proportion": ("warmup", "optimizer"),
    "warmup_steps": ("warmup", "optimizer"),
    "weight_decay": ("optimizer",),
    "bf16": ("precision", "dtype"),
    "fp16": ("precision", "dtype"),
    "train_dataset": ("x",),
    "eval_dataset": ("validation_data",),
    "compute_metrics": ("metrics",),
    "model_name_or_path": ("preset",),
    "model_name": ("preset",),
    "pretrained_model_name_or_path": ("preset",),
    "validation_file": ("dev_file",),
    "eval_file": ("dev_file",),
}

# Hints for names without an equivalent, for example because a command reads the labels from files
_HINTS = {
    **dict.fromkeys(
        ("num_labels", "num_classes", "id2label", "label2id"),
        "The classes are inferred from the labels in the data.",
    ),
    "task": "The task is inferred from the files. Pass --regression if the labels are scores.",
}


def suggestion(names: Iterable[str], known: Collection[str]) -> str:
    """Returns a hint with the names to use instead of names from other libraries.

    Args:
        names: Unknown arguments or flags.
        known: Existing arguments or flags. Only these are suggested.

    Returns:
        Sentences that start with a space, for example `" Use num_classes or class_names instead of
        num_labels."`. An empty string without suggestions.

    Example:

    >>> from keras_bert.migration_hints import suggestion
    >>> suggestion(["max_length", "verbosity"], ["sequence_length", "dropout"])
    ' Use sequence_length instead of max_length.'
    """
    parts = []
    for name in names:
        replacements = [each for each in _OUR_NAMES.get(name, ()) if each in known]
        if replacements:
            parts.append(f" Use {' or '.join(replacements)} instead of {name}.")
        elif name in _HINTS:
            parts.append(f" {_HINTS[name]}")
    return "".join(parts)


def reject_aliases(function: Callable[..., Any], received: Iterable[str], owner: str) -> None:
    """Raises a `TypeError` for other libraries' arguments, with the names to use instead.

    This is necessary because Keras ignores some unknown arguments.
    """
    others = [name for name in received if name in _OUR_NAMES]
    names = inspect.signature(function).parameters if others else ()
    others = [name for name in others if name not in names]
    if others:
        raise TypeError(f"{owner} has no argument {', '.join(others)}.{suggestion(others, names)}")
