# SPDX-License-Identifier: Apache-2.0
"""What other libraries call the arguments and flags of this one, for error messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any

_CLASSES = ("num_classes", "class_names")
_LENGTH = ("sequence_length",)
_ENCODER_DROPOUT = ("encoder_dropout",)

# Their name -> ours: those of `transformers`, its `TrainingArguments` and its scripts, of the
# original code of BERT, and of KerasHub
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

# What is said where none of ours exists, as in programs, which read labels from files
_ANSWERS = {
    **dict.fromkeys(
        ("num_labels", "num_classes", "id2label", "label2id"),
        "The classes are those of the labels in the data.",
    ),
    "task": "The files tell the task, and --regression that labels are scores.",
}


def suggestion(names: Iterable[str], known: Collection[str]) -> str:
    """Returns what to write instead of the names that other libraries have.

    Args:
        names: Names of arguments or flags, which do not exist here.
        known: Those that exist; others are not suggested.

    Returns:
        A sentence after a space, such as `" Instead of num_labels, write num_classes or
        class_names."`; empty if there is nothing to suggest.

    Example:

    >>> from keras_bert.migration_hints import suggestion
    >>> suggestion(["max_length", "verbosity"], ["sequence_length", "dropout"])
    ' Instead of max_length, write sequence_length.'
    """
    parts = []
    for name in names:
        ours = [each for each in _OUR_NAMES.get(name, ()) if each in known]
        if ours:
            parts.append(f" Instead of {name}, write {' or '.join(ours)}.")
        elif name in _ANSWERS:
            parts.append(f" {_ANSWERS[name]}")
    return "".join(parts)


def reject_aliases(function: Callable[..., Any], received: Iterable[str], owner: str) -> None:
    """Raises a TypeError for arguments that other libraries have, with what to write instead.

    Keras ignores some arguments that it does not know.
    """
    others = [name for name in received if name in _OUR_NAMES]
    names = inspect.signature(function).parameters if others else ()
    others = [name for name in others if name not in names]
    if others:
        raise TypeError(f"{owner} has no argument {', '.join(others)}.{suggestion(others, names)}")
