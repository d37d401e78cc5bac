# SPDX-License-Identifier: Apache-2.0
"""Creation of tasks from checkpoints: their options, heads and preprocessors."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_bert import checkpoints, checks
from keras_bert.aliases import suggestion
from keras_bert.checkpoints import Checkpoint
from keras_bert.config import BertConfig
from keras_bert.data.labels import listed
from keras_bert.layers.initial_weights import loading
from keras_bert.layers.top_layers import top_layer_options
from keras_bert.vocabularies.tokenizer_config import list_tokens

_ENCODER_OPTIONS = ("encoder_dropout", "packed", "rematerialize", "unpadded", "dtype")
_PADDING_TOKENS = ("<pad>", "[PAD]")  # of BPE and SentencePiece, of WordPiece


def task_of_preset(
    make_task: Any, checkpoint: Checkpoint, *, load_weights: bool = True, **options: Any
) -> tuple[Any, Callable[[], None]]:
    """Creates a task with the architecture of a checkpoint, and a function that loads its weights.

    The options are the other arguments of `Task.from_preset`, of the encoder and of the task.
    Without `load_weights`, the function does nothing.
    """
    encoder = {name: options.pop(name) for name in _ENCODER_OPTIONS if name in options}
    config = with_encoder_dropout(checkpoint.config, encoder.pop("encoder_dropout", None))
    arguments = {name: value for name, value in options.items() if value is not None}
    task_arguments = {*make_task.options, "name"}
    preprocessor_options = make_task.preprocessor_class.options
    names = task_arguments.union(preprocessor_options)
    unknown = sorted(set(arguments) - names)
    if unknown:
        raise ValueError(
            f"{make_task.__name__} has no option {', '.join(unknown)}; its options are "
            f"{', '.join(sorted(names))}, and those of the encoder "
            f"{', '.join(_ENCODER_OPTIONS)}.{suggestion(unknown, {*names, *_ENCODER_OPTIONS})}"
        )
    if arguments.get("num_classes") == 1:
        checkpoint = checkpoint.with_scores()
    defaults = make_task.options_of_checkpoint(checkpoint)
    head = _choose_head(make_task, checkpoint, defaults, arguments, load_weights)
    names_in_presets = set(make_task.preset_options).intersection(make_task.options)
    preprocessor = None
    if make_task.needs_vocabulary or checkpoint.tokenizer:
        preprocessor = preprocessor_config(
            checkpoint,
            {name: defaults[name] for name in preprocessor_options if name in defaults},
            {name: arguments[name] for name in preprocessor_options if name in arguments},
        )
    with loading(load_weights):
        backbone: Any = checkpoint.new_backbone(config, weights_fit=load_weights, **encoder)
    try:
        task = make_task(
            backbone,
            preprocessor=preprocessor,
            **{name: defaults[name] for name in names_in_presets if defaults.get(name) is not None}
            | {name: value for name, value in arguments.items() if name in task_arguments}
            | head.options,
        )
    except ValueError as error:  # of an option, which the checkpoint may have
        raise checkpoints.CheckpointError(f"{checkpoint.folder}: {error}") from error

    def load() -> None:
        if not load_weights:
            return
        checkpoint.load_into(task.backbone, pooler_is_used=task.uses_pooler)
        if head.mismatch:
            for name in checkpoint.heads:
                checkpoint.leave_head(name)
            if "pooler" in task.heads:
                checkpoint.load_head("pooler", task.heads["pooler"])
            checkpoints.errors.warn(
                f"{checkpoint.folder} {head.mismatch}; the {make_task.head_name} head is "
                "initialized randomly.",
            )
        else:
            for name, layer in task.heads.items():
                outputs = head.outputs if name == make_task.head_name else None
                checkpoint.load_head(name, layer, outputs)
        checkpoint.warn_unused()

    return task, load


@dataclasses.dataclass(frozen=True)
class _Head:
    """The options of the head of a task, and whether a stored head matches them.

    Args:
        options: Arguments of the class of the task.
        mismatch: Why the stored head does not match; empty if it does, or if there is none.
        outputs: For each output, the index of the stored output; `None` for the stored order.
    """

    options: dict[str, Any]
    mismatch: str = ""
    outputs: list[int] | None = None


def _choose_head(
    make_task: Any,
    checkpoint: Checkpoint,
    defaults: Mapping[str, Any],
    arguments: Mapping[str, Any],
    load_weights: bool,
) -> _Head:
    """Determines the options of the head, and compares them with the checkpoint's."""
    names = make_task.options
    has_head = load_weights and make_task.head_name in checkpoint.heads
    head_options = (defaults.get("head_options") or {}) if has_head or not load_weights else {}
    layers = (
        top_layer_options(arguments["top_layers"]) if "top_layers" in arguments else head_options
    )
    options: dict[str, Any] = {}
    if "top_layers" in names and "top_layers" not in arguments:
        options["top_layers"] = head_options
    differs = has_head and layers != head_options
    if "num_classes" not in names:
        mismatch = f"has a head{_in_brackets(head_options)}, but expected one{_in_brackets(layers)}"
        return _Head(options, mismatch if differs else "")
    class_names = arguments.get("class_names")
    num_classes = arguments.get("num_classes", len(class_names) if class_names else None)
    num_stored = checkpoint.num_classes(make_task.head_name) if has_head else None
    options["num_classes"] = num_stored if num_classes is None else num_classes
    differs |= num_stored is not None and num_classes not in (None, num_stored)
    multi_label = bool(defaults.get("multi_label"))
    differs |= has_head and arguments.get("multi_label", multi_label) != multi_label
    if "multi_label" in names and (differs or not has_head):  # Those saved are of the stored head
        is_kept = multi_label and not differs
        options["multi_label"] = arguments.get("multi_label", is_kept)
        options["thresholds"] = arguments.get("thresholds")
    if differs:
        return _Head(
            options,
            f"has a classifier for {num_stored} {_outputs(multi_label)}"
            f"{_in_brackets(head_options)}, but expected {options['num_classes']} "
            f"{_outputs(options.get('multi_label'))}{_in_brackets(layers)}",
        )
    outputs = None
    if has_head and class_names is None:
        options["class_names"] = checkpoint.class_names
    elif has_head and class_names is not None:
        outputs = _stored_outputs(checkpoint.class_names, class_names, checkpoint.folder)
        thresholds = defaults.get("thresholds")
        if outputs is not None and thresholds and "thresholds" not in arguments:
            options["thresholds"] = [thresholds[index] for index in outputs]
    return _Head(options, outputs=outputs)


def _stored_outputs(
    names: Sequence[str] | None,
    class_names: Sequence[str],
    preset: str | os.PathLike[str],
) -> list[int] | None:
    """Returns the index of the stored output for each class; `None` if the order is the same.

    The `names` of a checkpoint are `None` if it has none, or placeholders such as `LABEL_0`. If the
    names differ, the outputs are renamed, with a warning.
    """
    if names is None or list(names) == list(class_names):
        return None
    if sorted(names) == sorted(class_names):
        index_of = {name: index for index, name in enumerate(names)}
        return [index_of[name] for name in class_names]
    checkpoints.errors.warn(
        f"{os.fspath(preset)} has a trained head for the classes {listed(names)}; class_names "
        f"renames its outputs, in this order, to {listed(class_names)}. If these are different "
        "classes and not only different names, start from the encoder alone: save it with "
        "`backbone.save_to_preset`.",
    )
    return None


def with_encoder_dropout(config: BertConfig, rate: float | None) -> BertConfig:
    """Returns an architecture with another dropout rate; with its own if the rate is `None`."""
    return config if rate is None else config.replace(dropout=rate, attention_dropout=rate)


def _outputs(multi_label: Any) -> str:
    return "labels" if multi_label else "classes"


def _in_brackets(options: Mapping[str, Any] | None) -> str:
    if options is None:
        return " (other top_layers)"
    return f" ({', '.join(f'{name}={value}' for name, value in options.items())})" * bool(options)


def preprocessor_config(
    checkpoint: Checkpoint,
    defaults: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    """Creates the config of a preprocessor with the tokenizer of a checkpoint.

    The arguments override the options that were saved with it; `sequence_length` defaults
    to the maximum of the encoder.
    """
    if "sequence_length" in arguments:
        # A saved overlap is only valid for the saved length, and so is a length of questions that
        # leaves no space for a passage beside at most four special tokens.
        longest = arguments["sequence_length"] - 5
        limits = {"overlap": 0, "max_query_length": longest}
        defaults = {
            name: value
            for name, value in defaults.items()
            if name not in limits or value <= limits[name]
        }
    return {
        "tokenizer": checkpoint.require_tokenizer(),
        "sequence_length": checkpoint.config.max_sequence_length,
        **defaults,
        **arguments,
    }


def check_preprocessor(preprocessor: Any, config: BertConfig) -> None:
    """Checks that an encoder can take the rows of a preprocessor, or of its config."""
    values = preprocessor if isinstance(preprocessor, dict) else preprocessor.get_config()
    for name in ("tokenizer", "sequence_length"):
        if name not in values:
            raise ValueError(f"The config of the preprocessor lacks {name}; it has {list(values)}.")
    for name, value in values.items():
        if name != "tokenizer" and not (value is None or checks.INTEGER.allows(value)):
            raise ValueError(f"{name} of the preprocessor is {value!r}; expected an integer.")
    if values["sequence_length"] > config.max_sequence_length:
        raise ValueError(
            f"The preprocessor creates rows of up to {values['sequence_length']} tokens; the "
            f"encoder has positions for {config.max_sequence_length}."
        )
    tokens = list_tokens(values["tokenizer"])
    if len(tokens) > config.vocabulary_size:
        raise ValueError(
            f"The preprocessor's vocabulary has {len(tokens)} tokens; the encoder's has "
            f"{config.vocabulary_size}."
        )
    padding = [tokens.index(token) for token in _PADDING_TOKENS if token in tokens]
    if config.position_offset and padding[:1] != [config.pad_token_id]:
        raise ValueError(
            f"The preprocessor pads rows with the token {padding[0] if padding else None}; the "
            f"pad_token_id of the encoder, by which it counts positions, is {config.pad_token_id}."
        )


def tokenizer_facts(task: Any) -> dict[str, Any]:
    """Returns the options of a task's tokenizer by their names in errors; `{}` without one.

    Models that read the same ids must have the same: a vocabulary of equal size is not enough.
    """
    if task._preprocessor_config() is None:
        return {}
    # From the preprocessor, which adds defaults for options that an older file lacks
    tokenizer = task.preprocessor.get_config()["tokenizer"]
    return {f"tokenizer ({name})": value for name, value in tokenizer.items()}


def shown(value: Any) -> str:
    """Returns a value as text for an error message; for a vocabulary, its size."""
    is_long = isinstance(value, (list, dict))
    return f"one of {len(value):,} entries" if is_long else str(value)
