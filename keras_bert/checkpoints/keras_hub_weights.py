# SPDX-License-Identifier: Apache-2.0
"""The weights of KerasHub's presets, through KerasHub's own models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints.errors import CheckpointError, CheckpointWarning
from keras_bert.checkpoints.folders import read_json
from keras_bert.checkpoints.keras_hub_families import ATTENTION, HubFamily
from keras_bert.checkpoints.weights import to_numpy
from keras_bert.config import BertConfig

WEIGHTS_FILE = "model.weights.h5"
TASK_FILE = "task.json"
TASK_WEIGHTS_FILE = "task.weights.h5"

# KerasNLP is the name it had before.
_PACKAGES = ("keras_hub", "keras_nlp")


def check_class(fields: Mapping[str, Any], expected: str, path: Path) -> dict[str, Any]:
    """The constructor's arguments of a serialized object of an expected class."""
    arguments = fields.get("config")
    if fields.get("registered_name") not in [f"{package}>{expected}" for package in _PACKAGES]:
        raise CheckpointError(
            f"{path}: registered_name is {fields.get('registered_name')!r}; it must be "
            f"'keras_hub>{expected}'."
        )
    if not isinstance(arguments, dict):
        raise CheckpointError(f"{path}: config is {arguments!r}; it must be an object.")
    return arguments


class KerasHubWeights:
    """The weights of a KerasHub preset, through KerasHub's own model and Keras' own reader.

    Keras' reader follows no link out of the file and executes nothing.

    Args:
        folder: The preset.
        family: Its family.
        config: The architecture that it describes.

    Raises:
        CheckpointError: If a file is missing or does not fit.
    """

    def __init__(self, folder: Path, family: HubFamily, config: BertConfig) -> None:
        self._path = folder / WEIGHTS_FILE
        self._hidden_dim = config.hidden_dim
        backbone = _make_backbone(family, config)
        _read(backbone.load_weights, self._path)
        self._weights = {
            name: _find(backbone, name)
            for stored in family.backbone_layout(config).values()
            for name in stored.names
            if not (name.startswith("pooled_dense") and family.pooled)
        }
        self._weights |= _task_weights(family, backbone, folder)

    def names(self) -> Collection[str]:
        return self._weights.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        shape = tuple(self._weights[name].shape)
        return _flat(shape, self._hidden_dim) if ATTENTION in name else shape

    def read(self, name: str) -> np.ndarray[Any, Any]:
        # (hidden, heads, head_dim) or (heads, head_dim, hidden) -> (hidden, hidden)
        return to_numpy(self._weights[name]).reshape(self.shape(name))

    def label(self, name: str) -> str:
        return name

    def file(self, name: str) -> str:
        return str(self._path)


def _flat(shape: tuple[int, ...], hidden_dim: int) -> tuple[int, ...]:
    return (hidden_dim, hidden_dim) if len(shape) == 3 else (hidden_dim,)


def _make_backbone(family: HubFamily, config: BertConfig) -> Any:
    arguments = {theirs: getattr(config, ours) for ours, theirs in family.fields.items()}
    if "embedding_dim" in arguments:
        arguments["embedding_dim"] = config.embedding_width
    return getattr(import_keras_hub().models, family.backbone_class)(**arguments, dtype="float32")


def _find(model: Any, name: str) -> Any:
    """The attribute of an attribute …; a number is an item of a list."""
    for part in name.split("."):
        model = model[int(part)] if part.isdigit() else getattr(model, part)
    return model


def task_class(folder: Path) -> str | None:
    """The class of the task in a preset, without its package; `None` for an encoder alone."""
    path = folder / TASK_FILE
    if not path.exists() or not (folder / TASK_WEIGHTS_FILE).exists():
        return None
    return str(read_json(path).get("registered_name")).rpartition(">")[2]


def _task_weights(family: HubFamily, backbone: Any, folder: Path) -> dict[str, Any]:
    name = task_class(folder)
    if name is None:
        return {}
    path, weights = folder / TASK_FILE, folder / TASK_WEIGHTS_FILE
    if name not in family.tasks:
        warnings.warn(
            f"{weights}: the head of {read_json(path).get('registered_name')} was not used.",
            CheckpointWarning,
            stacklevel=2,
        )
        return {}
    arguments = _task_arguments(check_class(read_json(path), name, path), path)
    task = getattr(import_keras_hub().models, name)(backbone, **arguments)
    _read(task.load_task_weights, weights)
    names = [path for head in family.tasks[name].values() for path in head.values()]
    return {name: _find(task, name) for name in names}


def _task_arguments(fields: Mapping[str, Any], path: Path) -> dict[str, int]:
    """The sizes of a task's head, of those that its file names."""
    sizes = {name: fields[name] for name in ("num_classes", "hidden_dim") if name in fields}
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise CheckpointError(f"{path}: {name} is {size!r}; it must be an integer above 0.")
    return sizes


def _read(load: Callable[[str], None], path: Path) -> None:
    if not path.exists():
        raise CheckpointError(f"{path}: the file is missing.")
    try:
        with warnings.catch_warnings():
            # Keras warns of what its older versions did not write, and of nothing that is lost:
            # a weight that is missing is an error.
            warnings.filterwarnings("ignore", "Skipping nested container", UserWarning)
            load(str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: the weights cannot be read: {error}") from error


def import_keras_hub() -> Any:
    """The library, or a `CheckpointError` that says what is missing."""
    try:
        import keras_hub
    except ImportError as error:
        raise CheckpointError(
            f"Presets of KerasHub are read through keras_hub, which cannot be imported: {error}. "
            "Install it with `pip install keras-hub`."
        ) from error
    return keras_hub
