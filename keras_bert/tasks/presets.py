# SPDX-License-Identifier: Apache-2.0
"""What tasks take from a checkpoint besides weights."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_bert.config import BertConfig

if TYPE_CHECKING:
    from keras_bert.checkpoints import Checkpoint

_PADDING_TOKENS = ("<pad>", "[PAD]")  # byte pairs' and SentencePiece's, WordPiece's


def classifier_from_preset(
    make_task: Callable[..., Any],
    head_name: str,
    preset: str | os.PathLike[str],
    num_classes: int | None = None,
    *,
    class_names: Sequence[str] | None = None,
    sequence_length: int | None = None,
    dropout: float | None = None,
    encoder_dropout: float | None = None,
    load_weights: bool = True,
    dtype: Any = None,
    head_options: Mapping[str, Any] | None = None,
) -> Any:
    """A task with heads for classes, their weights and names from a checkpoint that has them.

    Args:
        make_task: The task's class: called with a backbone, the number of classes, a
            preprocessor's config, and `class_names`, `dropout` and the head's options by name.
        head_name: Which of its `heads` has the classes.
        preset, num_classes, class_names, sequence_length, dropout, load_weights, dtype: As in
            `TextClassifier.from_preset`.
        encoder_dropout: Both of the encoder's rates; `None` takes the checkpoint's.
        head_options: What else decides the head, as arguments of the task; `None` takes what a
            preset of ours was saved with.

    Raises:
        keras_bert.checkpoints.CheckpointError: If the files are missing, malformed, or do not
            fit; the message names the file and the tensor.
        ValueError: If the number of classes is not known.
    """
    from keras_bert import checkpoints

    checkpoint = checkpoints.open_checkpoint(preset, weights=load_weights)
    saved = checkpoint.task or {}
    stored = saved.get("head_options") or {}
    options = stored if head_options is None else dict(head_options)
    wanted = len(class_names) if num_classes is None and class_names else num_classes
    head_classes = checkpoint.num_classes(head_name) if load_weights else None
    fits = wanted in (None, head_classes) and options == stored
    outputs = None
    if head_classes is not None and fits:
        if class_names is None:
            class_names = checkpoint.class_names
        else:
            outputs = _stored_outputs(checkpoint.class_names, class_names, preset)
    task = make_task(
        checkpoint.new_backbone(
            with_dropout(checkpoint.config, encoder_dropout), weights_fit=load_weights, dtype=dtype
        ),
        head_classes if wanted is None else wanted,
        preprocessor_config(checkpoint, sequence_length),
        class_names=class_names,
        dropout=saved.get("dropout") if dropout is None else dropout,
        **options,
    )
    if not load_weights:
        return task
    checkpoint.load_into(task.backbone, pooler_is_used=task.uses_pooler)
    if head_classes is None or fits:
        load_heads(checkpoint, task.heads, {head_name: outputs})
    else:
        leave_heads(checkpoint)
        load_heads(checkpoint, pooler_head(getattr(task, "pooler", None)))
        warnings.warn(
            f"{preset} has a classifier for {head_classes} classes{_in_brackets(stored)} and "
            f"{task.num_classes} are wanted{_in_brackets(options)}; the classifier head is "
            "freshly initialised.",
            checkpoints.CheckpointWarning,
            stacklevel=3,
        )
    checkpoint.warn_unused()
    return task


def _stored_outputs(
    stored: Sequence[str] | None, wanted: Sequence[str], preset: str | os.PathLike[str]
) -> list[int] | None:
    """For each class wanted, the index of the stored output that is for it.

    Args:
        stored: The names of a trained head's outputs in their order, `None` where the checkpoint
            has none (or placeholders such as `LABEL_0`): the wanted names are then the only ones.
        wanted: As many names.
        preset: Where the head comes from, for a warning.

    Returns:
        `None` where the outputs stay in their order; of other names, after a warning.
    """
    if stored is None or list(stored) == list(wanted):
        return None
    if sorted(stored) == sorted(wanted):
        return [list(stored).index(name) for name in wanted]
    from keras_bert import checkpoints

    warnings.warn(
        f"{os.fspath(preset)} has a trained head for the classes {', '.join(stored)}; class_names "
        f"renames its outputs, in this order, to {', '.join(wanted)}. If these are other classes "
        "and not other names of the same, start from the encoder alone: save it with "
        "`backbone.save_to_preset`.",
        checkpoints.CheckpointWarning,
        stacklevel=4,
    )
    return None


def load_heads(
    checkpoint: Checkpoint,
    heads: Mapping[str, Any],
    outputs: Mapping[str, Sequence[int] | None] | None = None,
) -> None:
    """Loads the heads that a checkpoint has; it warns of the others.

    Args:
        checkpoint: What they are loaded from.
        heads: The heads by name.
        outputs: As in `Checkpoint.load_head`, by a head's name.
    """
    for name, head in heads.items():
        checkpoint.load_head(name, head, (outputs or {}).get(name))


def leave_heads(checkpoint: Checkpoint) -> None:
    """Keeps heads that do not fit, and are knowingly not loaded, out of the unused weights."""
    for name in checkpoint.heads:
        checkpoint.leave_head(name)


def pooler_head(pooler: Any) -> dict[str, Any]:
    """The pooler of a task's own among its heads, where it has one."""
    return {} if pooler is None else {"pooler": pooler}


def with_dropout(config: BertConfig, rate: float | None) -> BertConfig:
    """A config with both of the encoder's dropout rates replaced, unless `rate` is `None`."""
    return config if rate is None else config.replace(dropout=rate, attention_dropout=rate)


def _in_brackets(options: Mapping[str, Any]) -> str:
    return f" ({', '.join(f'{name}={value}' for name, value in options.items())})" * bool(options)


def preprocessor_config(checkpoint: Checkpoint, sequence_length: int | None) -> dict[str, Any]:
    """The config of a preprocessor for a checkpoint's vocabulary.

    Args:
        checkpoint: What it is for.
        sequence_length: The longest row in tokens; `None` takes what a preset of ours was saved
            with, otherwise the encoder's maximum.

    Raises:
        keras_bert.checkpoints.CheckpointError: If the checkpoint has no vocabulary.
    """
    task = checkpoint.task or {}
    saved = task.get("sequence_length")
    overlap = {"overlap": task["overlap"]} if "overlap" in task and not sequence_length else {}
    return {
        "tokenizer": checkpoint.require_tokenizer(),
        "sequence_length": sequence_length or saved or checkpoint.config.max_sequence_length,
        **overlap,
    }


def check_preprocessor(preprocessor: Any, config: BertConfig) -> None:
    """Raises if a preprocessor, or the config of one, makes rows that an encoder cannot take.

    Raises:
        ValueError: If rows may be longer than the encoder's positions, ids larger than its
            vocabulary, or padding another id than the one past which it counts positions.
    """
    from keras_bert.checkpoints.tokenizer_files import tokens_of

    values = preprocessor if isinstance(preprocessor, dict) else preprocessor.get_config()
    if values["sequence_length"] > config.max_sequence_length:
        raise ValueError(
            f"The preprocessor makes rows of up to {values['sequence_length']} tokens; the "
            f"encoder has positions for {config.max_sequence_length}."
        )
    tokens = tokens_of(values["tokenizer"])
    if len(tokens) > config.vocabulary_size:
        raise ValueError(
            f"The preprocessor's vocabulary has {len(tokens)} tokens; the encoder's has "
            f"{config.vocabulary_size}."
        )
    padding = [tokens.index(token) for token in _PADDING_TOKENS if token in tokens]
    if config.position_offset and padding[:1] != [config.pad_token_id]:
        raise ValueError(
            f"The preprocessor fills rows up with the token {padding[0] if padding else None}; the "
            f"encoder counts positions past token {config.pad_token_id}, its pad_token_id."
        )
