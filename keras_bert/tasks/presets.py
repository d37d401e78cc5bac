# SPDX-License-Identifier: Apache-2.0
"""Creates tasks from checkpoints, with their options, heads and preprocessors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from keras_bert import checkpoints, checks
from keras_bert.checkpoints import Checkpoint
from keras_bert.config import BertConfig
from keras_bert.data.texts import LONG_TEXTS
from keras_bert.layers.initial_weights import skip_initial_weights
from keras_bert.migration_hints import suggestion
from keras_bert.tasks.preset_heads import HeadChoice, choose_head
from keras_bert.text.words import WORD_UNITS
from keras_bert.vocabularies.tokenizer_config import list_tokens, with_defaults

_ENCODER_OPTIONS = ("encoder_dropout", "packed", "rematerialize", "unpadded", "dtype")
# The preprocessor options that are neither integers nor a tokenizer, with their values
_CHOICES: dict[str, tuple[str, ...]] = {"word_unit": WORD_UNITS, "long_texts": LONG_TEXTS}
# The preprocessor options that are no integers and that the preprocessor's class checks
_CHECKED_BY_CLASS = (
    *("tokenizer", "query_prefix", "document_prefix", "skiplist_words"),
    *("do_query_expansion", "attend_to_expansion_tokens"),
)
_PADDING_TOKENS = ("<pad>", "[PAD]")  # The first is for BPE and SentencePiece.


def task_of_preset(
    task_class: Any, checkpoint: Checkpoint, *, load_weights: bool = True, **options: Any
) -> tuple[Any, Callable[[], None]]:
    """Creates a task with a checkpoint's architecture, and a function that loads its weights.

    Without `load_weights`, the function has no effect.

    Args:
        task_class: The task's class, a subclass of `Task`.
        checkpoint: The checkpoint.
        load_weights: Whether the weights will be loaded.
        **options: Other arguments of `Task.from_preset`, for the encoder and the task.
    """
    encoder = {name: options.pop(name) for name in _ENCODER_OPTIONS if name in options}
    config = with_encoder_dropout(checkpoint.config, encoder.pop("encoder_dropout", None))
    given = {name: value for name, value in options.items() if value is not None}
    _check_option_names(task_class, given)
    if given.get("num_classes") == 1:
        checkpoint = checkpoint.as_regression()
    saved = task_class.options_of_checkpoint(checkpoint)
    head = choose_head(task_class, checkpoint, saved, given, load_weights)
    preprocessor = None
    if task_class.needs_vocabulary or checkpoint.tokenizer:
        names = task_class.preprocessor_class.options
        preprocessor = preprocessor_config(
            checkpoint,
            {
                name: saved[name]
                for name in names
                if name in saved and (task_class.supports_windows or name != "long_texts")
            },
            {name: given[name] for name in names if name in given},
        )
    with skip_initial_weights(load_weights):
        backbone: Any = checkpoint.new_backbone(config, weights_fit=load_weights, **encoder)
    saved_names = set(task_class.preset_options).intersection(task_class.options)
    try:
        task = task_class(
            backbone,
            preprocessor=preprocessor,
            **{name: saved[name] for name in saved_names if saved.get(name) is not None}
            | {name: given[name] for name in _task_arguments(task_class) if name in given}
            | head.options,
        )
    except ValueError as error:  # An option is invalid, possibly from the checkpoint.
        raise checkpoints.CheckpointError(f"{checkpoint.directory}: {error}") from error

    def load() -> None:
        if load_weights:
            checkpoint.load_into(task.backbone, pooler_is_used=task.uses_pooler)
            _load_heads(task, checkpoint, head)
            checkpoint.warn_unused()

    return task, load


def _task_arguments(task_class: Any) -> set[str]:
    return {*task_class.options, "name"}


def _check_option_names(task_class: Any, given: Mapping[str, Any]) -> None:
    names = _task_arguments(task_class).union(task_class.preprocessor_class.options)
    unknown = sorted(set(given) - names)
    if unknown:
        raise ValueError(
            f"The options of {task_class.__name__}.from_preset must be among "
            f"{', '.join(sorted(names))}, and for the encoder {', '.join(_ENCODER_OPTIONS)}. "
            f"Received: {', '.join(unknown)}.{suggestion(unknown, {*names, *_ENCODER_OPTIONS})}"
        )


def _load_heads(task: Any, checkpoint: Checkpoint, choice: HeadChoice) -> None:
    """Loads the stored heads. If the task's head does not match, it only loads the pooler."""
    if not choice.mismatch:
        for name, layer in task.heads.items():
            outputs = choice.outputs if name == task.head_name else None
            checkpoint.load_head(name, layer, outputs)
            if choice.outputs is not None and name == "crf":
                layer.reorder_classes(choice.outputs)
        return
    for name in checkpoint.heads:
        checkpoint.ignore_head(name)
    if "pooler" in task.heads:
        checkpoint.load_head("pooler", task.heads["pooler"])
    checkpoints.errors.warn(
        f"{checkpoint.directory} {choice.mismatch}. The {task.head_name} head is initialized "
        "randomly.",
    )


def with_encoder_dropout(config: BertConfig, rate: float | None) -> BertConfig:
    """Returns a config with a different rate of dropout and attention dropout.

    With `None`, the config is returned unchanged.
    """
    return config if rate is None else config.replace(dropout=rate, attention_dropout=rate)


def preprocessor_config(
    checkpoint: Checkpoint,
    defaults: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    """Creates a preprocessor config with a checkpoint's tokenizer.

    The arguments override the saved options. `sequence_length` defaults to the encoder's maximum.
    """
    if "sequence_length" in arguments:
        # A saved overlap is only valid for the saved length. A saved maximum question length may
        # leave no space for a context, since there can be four special tokens.
        longest = arguments["sequence_length"] - 5
        limits = {"overlap": 0, "max_query_length": longest}
        defaults = {
            name: value
            for name, value in defaults.items()
            if name not in limits or (value or 0) <= limits[name]
        }
    return {
        "tokenizer": checkpoint.require_tokenizer(),
        "sequence_length": checkpoint.config.max_sequence_length,
        **defaults,
        **arguments,
    }


def check_preprocessor(preprocessor: Any, config: BertConfig) -> None:
    """Checks that a preprocessor, or its config, is compatible with an encoder."""
    values = preprocessor if isinstance(preprocessor, dict) else preprocessor.get_config()
    for name in ("tokenizer", "sequence_length"):
        if name not in values:
            raise ValueError(
                f"The config of the preprocessor must have {name}. Received: {list(values)}"
            )
    for name, value in values.items():
        if name in _CHOICES and value is not None:
            checks.check_choice(_CHOICES[name], **{name: value})
        elif name not in _CHECKED_BY_CLASS and not (value is None or checks.INTEGER.allows(value)):
            raise ValueError(f"{name} of the preprocessor must be an integer. Received: {value!r}")
    if values["sequence_length"] > config.max_sequence_length:
        raise ValueError(
            "The sequence_length of the preprocessor must be at most max_sequence_length of the "
            f"encoder, which is {config.max_sequence_length}. Received: {values['sequence_length']}"
        )
    tokens = list_tokens(values["tokenizer"])
    if len(tokens) > config.vocabulary_size:
        raise ValueError(
            "The vocabulary of the preprocessor must have at most vocabulary_size tokens of the "
            f"encoder, which is {config.vocabulary_size}. Received: {len(tokens)} tokens"
        )
    num_segments = with_defaults(values["tokenizer"]).get("num_segments", 1)
    if config.num_segments == 1 < num_segments:
        raise ValueError(
            "The tokenizer of the preprocessor must have num_segments=1, like the encoder. "
            f"Received: {num_segments}. Pass num_segments=1 to the tokenizer."
        )
    padding = [tokens.index(token) for token in _PADDING_TOKENS if token in tokens]
    if config.position_offset and padding[:1] != [config.pad_token_id]:
        raise ValueError(
            "The preprocessor must pad with the pad_token_id of the encoder, because the encoder "
            f"counts positions with it. The pad_token_id is {config.pad_token_id}. Received: "
            f"{padding[0] if padding else None}"
        )


def tokenizer_facts(task: Any) -> dict[str, Any]:
    """Returns a task's tokenizer options by name in errors, or `{}` without a tokenizer.

    Models that read the same token IDs must have the same tokenizer options. A vocabulary of the
    same size is not enough.
    """
    if task._preprocessor_config() is None:
        return {}
    # The preprocessor adds defaults for options missing from older files.
    tokenizer = task.preprocessor.get_config()["tokenizer"]
    return {f"tokenizer ({name})": value for name, value in tokenizer.items()}


def shown(value: Any) -> str:
    """Formats a value for an error message. A vocabulary is described by its size."""
    is_long = isinstance(value, (list, dict))
    return f"one of {len(value):,} entries" if is_long else str(value)
