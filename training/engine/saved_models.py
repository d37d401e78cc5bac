# SPDX-License-Identifier: Apache-2.0
"""The models that `--model` names: one, or several that are an ensemble."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import program
from .model_path import check_model

_WILDCARDS = "*?["


def model_files(model: str, *, exported: bool = False) -> list[Path]:
    """Returns the paths that `--model` names: one, or several for an ensemble.

    Args:
        model: A path; or several, separated by commas. Each may have wildcards: shells do not
            expand them in `--model=runs/*/model.keras`, and quotes keep zsh from refusing them.
        exported: Whether the path may be that of an exported SavedModel, if it is the only one.

    Raises:
        FileNotFoundError: If a path does not exist, or nothing matches one with wildcards.
        ValueError: If a path is not that of a model.
    """
    names = [model] if Path(model).exists() else model.split(",")
    files = []
    for name in names:
        has_wildcards = not Path(name).exists() and any(mark in name for mark in _WILDCARDS)
        found = sorted(glob.glob(name)) if has_wildcards else [name]
        if not found:
            raise FileNotFoundError(f"--model={name} matches no file, expected .keras files")
        files += found
    return [check_model(file, exported=exported and len(files) == 1) for file in files]


def load_task(files: Sequence[Path]) -> Any:
    """Loads a model, or several as an ensemble, for prediction.

    Args:
        files: The `.keras` files.

    Raises:
        ValueError: If a file is not a model, or the models cannot be averaged.
    """
    program.import_quietly()
    import keras_bert

    models = [keras_bert.load_model(file, compile=False) for file in files]
    if len(models) == 1:
        return models[0]
    try:
        return keras_bert.Ensemble(models)
    except (TypeError, ValueError) as error:
        members = ", ".join(f"members[{number}] {file}" for number, file in enumerate(files))
        raise ValueError(f"--model: {error} ({members})") from error
