# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning runs as checkpoints: `--preset` may name the run that a training goes on from."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from pathlib import Path

from keras_bert import minilm

# The models of temporary folders
_models: dict[str, str] = {}


def resolve(preset: str) -> str:
    """Returns the folder of a run's model or of MiniLM; any other checkpoint as it is.

    That of a run is a preset with the head of the trained task, which a task of the same kind and
    shape starts from. It is in a temporary folder, which is removed when the process ends.

    Raises:
        FileNotFoundError: As for `keras_bert.minilm.directory`.
        ValueError: If the model of the run cannot be loaded; and as for
            `keras_bert.minilm.directory`.
    """
    model = find_model(Path(preset))
    return minilm.resolve(preset) if model is None else _saved_preset(model.resolve())


def find_model(path: Path) -> Path | None:
    """Returns the model that a fine-tuning run has kept; `None` if the path is of no run.

    Args:
        path: The `output_dir` of a run, the folder of one of its seeds, or a `.keras` file.
    """
    if path.suffix == ".keras" and path.is_file():
        return path
    if (path / "config.json").exists():  # of a checkpoint
        return None
    if (path / "model.keras").is_file():
        return path / "model.keras"
    try:
        best = json.loads((path / "results.json").read_text(encoding="utf-8"))["kept"]
        # Not the recorded path, since the run may have been moved
        model = path / f"seed_{best['seed']}" / "model.keras"
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return model if model.is_file() else None


@functools.cache
def _saved_preset(model: Path) -> str:
    import keras_bert

    task = keras_bert.load_model(model, compile=False)
    if not hasattr(task, "save_to_preset"):
        raise ValueError(f"{model} holds a {type(task).__name__}, expected a task")
    seed = model.parent
    # Messages about the checkpoint have the names of the run and the seed.
    folder = Path(tempfile.mkdtemp(dir=_temporary_folder().name), seed.parent.name, seed.name)
    task.save_to_preset(folder)
    _models[os.fspath(folder)] = os.fspath(model)
    return os.fspath(folder)


def with_names(message: str) -> str:
    """Returns a message with the names of models instead of those of temporary folders."""
    for folder, model in _models.items():
        message = message.replace(folder, f"--preset={model}")
    return message


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="keras_bert_")
