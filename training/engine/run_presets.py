# SPDX-License-Identifier: Apache-2.0
"""Resolves `--preset`. It may be a fine-tuning run, to continue training its model."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from pathlib import Path

from keras_bert import minilm

# Maps the temporary directories of presets to the models that they were saved from
_models: dict[str, str] = {}


def resolve(preset: str) -> str:
    """Returns a directory for `minilm` and fine-tuning runs, and other presets unchanged.

    For a run, the directory contains a preset with the head of the trained task. A task of the same
    type and shape starts from this head. The directory is temporary and is removed when the process
    exits.

    Raises:
        FileNotFoundError: See `keras_bert.minilm.directory`.
        ValueError: If the model of the run cannot be loaded. See also
            `keras_bert.minilm.directory`.
    """
    model = find_model(Path(preset))
    return minilm.resolve(preset) if model is None else _saved_preset(model.resolve())


def find_model(path: Path) -> Path | None:
    """Returns the `.keras` file that a fine-tuning run has saved, or `None` for other paths.

    Args:
        path: A run's `output_dir`, its directory for one seed, or a `.keras` file.
    """
    if path.suffix == ".keras" and path.is_file():
        return path
    if (path / "config.json").exists():  # It is a checkpoint.
        return None
    if (path / "model.keras").is_file():
        return path / "model.keras"
    try:
        best = json.loads((path / "results.json").read_text(encoding="utf-8"))["kept"]
        # Do not use the recorded path, because the run may have been moved.
        model = path / f"seed_{best['seed']}" / "model.keras"
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return model if model.is_file() else None


@functools.cache
def _saved_preset(model: Path) -> str:
    import keras_bert

    task = keras_bert.load_model(model, compile=False)
    if not hasattr(task, "save_to_preset"):
        raise ValueError(f"{model} must contain a task. Received: a {type(task).__name__}")
    seed = model.parent
    # The directory has the names of the run and the seed, because messages contain it.
    directory = Path(tempfile.mkdtemp(dir=_temporary_directory().name), seed.parent.name, seed.name)
    task.save_to_preset(directory)
    _models[os.fspath(directory)] = os.fspath(model)
    return os.fspath(directory)


def with_names(message: str) -> str:
    """Replaces temporary directories in a message with the models that they were saved from."""
    for directory, model in _models.items():
        message = message.replace(directory, f"--preset={model}")
    return message


@functools.cache
def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="keras_bert_")
