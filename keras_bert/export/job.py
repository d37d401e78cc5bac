# SPDX-License-Identifier: Apache-2.0
"""Carries a task to where it is exported: into a model of another precision, or another backend."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

import keras


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """What shall be written.

    Args:
        name: The file's or folder's name.
        kind: What the task is, which decides the signatures: a key of `run_job.SIGNATURES`.
        format: `tf_saved_model`, `onnx`, `openvino` or `litert`.
        class_names: The labels to return; `None` for a regression, and for tasks without.
        dtype: Of the encoder's weights and products: `float32` or `bfloat16`.
        pair: Whether the signatures take two texts.
        max_batch_size: The largest batch that a server forms.
        warm_up: Whether to add requests that a server runs before it answers any.
        sequence_length: The one length that a LiteRT model takes, in tokens.
    """

    name: str
    kind: str
    format: str
    class_names: tuple[str, ...] | None
    dtype: str
    pair: bool
    max_batch_size: int
    warm_up: bool
    sequence_length: int


def write_task(task: Any, folder: Path) -> None:
    """Writes what `read_task` reads: plain JSON and the weights, in their own precision."""
    config = keras.saving.serialize_keras_object(task)
    config.pop("compile_config", None)  # Nothing is trained any more
    modules = sorted({type(task).__module__, type(task.backbone).__module__})
    (folder / "task.json").write_text(json.dumps({"modules": modules, "task": config}))
    task.save_weights(folder / "task.weights.h5")


def read_task(folder: Path, dtype: str) -> Any:
    """The task of `write_task`, its encoder in another precision.

    Args:
        folder: That was given to `write_task`.
        dtype: A Keras dtype policy's name for the encoder.
    """
    stored = json.loads((folder / "task.json").read_text())
    for module in stored["modules"]:
        importlib.import_module(module)  # Registers the classes with Keras
    config = stored["task"]
    config["config"]["backbone"]["config"]["dtype"] = dtype
    task = keras.saving.deserialize_keras_object(config)
    task.load_weights(folder / "task.weights.h5")
    return task


def write_options(options: ExportOptions, folder: Path) -> None:
    """Writes what `read_options` reads."""
    (folder / "options.json").write_text(json.dumps(dataclasses.asdict(options)))


def read_options(folder: Path) -> ExportOptions:
    """The options of `write_options`."""
    fields = json.loads((folder / "options.json").read_text())
    names = fields.pop("class_names")
    return ExportOptions(class_names=None if names is None else tuple(names), **fields)
