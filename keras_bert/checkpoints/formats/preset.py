# SPDX-License-Identifier: Apache-2.0
"""Loads and saves this package's presets (config.json, model.safetensors, tokenizer, task.json)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import sentence_transformers, weights
from keras_bert.checkpoints.checkpoint import Checkpoint
from keras_bert.checkpoints.directories import checkpoint_errors, read_json, replaced_files
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.tensors import (
    Location,
    SafetensorsFiles,
    open_safetensors,
    write_safetensors,
)
from keras_bert.checks import POSITIVE_INT
from keras_bert.config import BertConfig, ConfigError
from keras_bert.families.records import Layout, StoredTensor
from keras_bert.vocabularies.files import write_json
from keras_bert.vocabularies.tokenizer_config import list_tokens
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer
from keras_bert.vocabularies.tokenizer_settings import ALL_FILES
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer

FORMAT = "keras_bert"
FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TASK_FILE = "task.json"
# Options of the layers below a head, each with a function that validates its values
HEAD_OPTIONS: dict[str, Callable[[Any], bool]] = {
    "bilstm_units": POSITIVE_INT.allows,
    "bilstm_layers": POSITIVE_INT.allows,
    "pooling": sentence_transformers.MODES.__contains__,
    "normalize": lambda value: isinstance(value, bool),
}


def save_preset(
    backbone: weights.Encoder,
    preset_dir: str | os.PathLike[str],
    *,
    heads: Mapping[str, weights.Head] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
    task: Mapping[str, Any] | None = None,
) -> None:
    """Saves a directory that `from_preset` can load. It contains no executable code.

    Args:
        backbone: Encoder. Its weights are saved in their own dtype. LoRA updates are merged into
            the kernels.
        preset_dir: Directory to write to. All files are written before an existing preset is
            replaced.
        heads: Layer or layers of each head. The heads' names can be chosen freely.
        tokenizer: Tokenizer config.
        class_names: A classifier's class names in the order of its outputs.
        task: Task settings, as values that JSON can represent.

    Raises:
        CheckpointError: If the encoder or a head is quantized, or the files would not be read as
            the same model.
    """
    values = weights.all_head_weights(heads)
    tensors = dict(weights.backbone_weights(backbone))
    for head, head_values in values.items():
        tensors |= {_head_tensor(head, name): weight for name, weight in head_values.items()}
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "config": backbone.config.to_dict(),
        "heads": {head: sorted(names) for head, names in values.items()},
        "class_names": None if class_names is None else list(class_names),
        "num_tokens": None if tokenizer is None else len(list_tokens(tokenizer)),
    }
    owned = (CONFIG_FILE, WEIGHTS_FILE, TASK_FILE, *ALL_FILES)
    with replaced_files(preset_dir, owned=owned) as temporary:
        write_json(temporary / CONFIG_FILE, config)
        arrays = {name: weights.to_numpy(weight) for name, weight in tensors.items()}
        write_safetensors(temporary / WEIGHTS_FILE, arrays)
        with checkpoint_errors():
            write_tokenizer(temporary, tokenizer, backbone.config.max_sequence_length)
        if task is not None:
            write_json(temporary / TASK_FILE, task)
        open_directory(temporary).check_written(
            backbone.config, heads or {}, tokenizer, class_names
        )


def is_preset_config(fields: Mapping[str, Any]) -> bool:
    """Returns whether a config.json belongs to a preset of this package."""
    return fields.get("format") == FORMAT


def open_directory(directory: Path) -> Checkpoint:
    """Opens a preset of this package."""
    path, task_path = directory / CONFIG_FILE, directory / TASK_FILE
    fields = read_json(path)
    version = fields.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format_version must be {FORMAT_VERSION} for this version of keras_bert. "
            f"Received: {version!r}"
        )
    config = _config(fields, path)
    return Checkpoint(
        format=FORMAT,
        directory=directory,
        config=config,
        backbone_layout={
            name: StoredTensor((name,)) for name in weights.backbone_weight_shapes(config)
        },
        head_layouts=_head_layouts(fields, path),
        open_tensors=lambda: SafetensorsFiles(_locations(directory / WEIGHTS_FILE)),
        open_tokenizer=lambda: read_tokenizer(directory),
        num_tokens=fields.get("num_tokens"),
        class_names=_class_names(fields, path),
        task=_task(task_path) if task_path.exists() else None,
    )


def _head_tensor(head: str, name: str) -> str:
    return f"heads.{head}.{name}"


def _config(fields: Mapping[str, Any], path: Path) -> BertConfig:
    config = fields.get("config")
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: config must be an object. Received: {config!r}")
    try:
        return BertConfig.from_dict(config)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _head_layouts(fields: Mapping[str, Any], path: Path) -> dict[str, Layout]:
    heads = fields.get("heads", {})
    if not isinstance(heads, dict) or not all(map(_is_list_of_strings, heads.values())):
        raise CheckpointError(
            f"{path}: heads must map each head to a list of weights. Received: {heads!r}"
        )
    return {
        head: {name: StoredTensor((_head_tensor(head, name),)) for name in names}
        for head, names in heads.items()
    }


def _class_names(fields: Mapping[str, Any], path: Path) -> tuple[str, ...] | None:
    names = fields.get("class_names")
    if names is not None and not _is_list_of_strings(names):
        raise CheckpointError(
            f"{path}: class_names must be null or a list of strings. Received: {names!r}"
        )
    return None if names is None else tuple(names)


def _task(path: Path) -> dict[str, Any]:
    """Reads a task's settings."""
    fields = read_json(path)
    if not fields:
        raise CheckpointError(f"{path}: a task's settings must not be empty. Received: {fields}")
    for setting in ("sequence_length", "overlap", "doc_stride", "max_query_length"):
        if fields.get(setting) is not None and not POSITIVE_INT.allows(fields[setting]):
            raise CheckpointError(
                f"{path}: {setting} must be {POSITIVE_INT}. Received: {fields[setting]!r}"
            )
    options = fields.get("head_options", {})
    if (
        not isinstance(options, dict)
        or set(options) - set(HEAD_OPTIONS)
        or not all(HEAD_OPTIONS[name](value) for name, value in options.items())
    ):
        raise CheckpointError(
            f"{path}: head_options must be an object with bilstm_units and bilstm_layers (integers "
            f"above 0), or with pooling (one of {', '.join(sentence_transformers.MODES)}) and "
            f"normalize (true or false). Received: {options!r}"
        )
    return fields


def _is_list_of_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _locations(path: Path) -> dict[str, Location]:
    with open_safetensors(path) as file:
        return {name: Location(path, name) for name in file.keys()}  # noqa: SIM118
