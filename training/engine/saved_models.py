# SPDX-License-Identifier: Apache-2.0
"""Finds and loads the trained model or ensemble for `--model`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_bert import minilm
from keras_bert.data.file_systems import find_files

from . import program

HUB_SCHEME = "hf://"
_WILDCARDS = "*?["
_SAVED = "the .keras file of a task"
_EXPORTED = "a directory written by export"


def model_files(model: str, *, exported: bool = False) -> list[Path]:
    """Returns the paths that `--model` specifies. Multiple paths are an ensemble.

    Args:
        model: A path, or multiple paths separated by commas. They may contain wildcards, because
            shells do not expand those in `--model=runs/*/model.keras`. (zsh raises an error unless
            the argument is quoted.)
        exported: Whether a single path may also be an exported SavedModel.

    Raises:
        FileNotFoundError: If a path does not exist, or if no file matches its wildcards.
        ValueError: If a path is not a model.
    """
    names = [model] if Path(model).exists() else model.split(",")
    files = []
    for name in names:
        paths = _named_by(name)
        if not paths:
            raise FileNotFoundError(f"--model={name} must match .keras files. It matches no file")
        files += paths
    return [check_model(file, exported=exported and len(files) == 1) for file in files]


def exists(path: str) -> bool:
    """Returns whether a path exists, or a file matches its wildcards."""
    return any(map(os.path.exists, _named_by(path)))


def _named_by(pattern: str) -> list[str]:
    """Returns the files and exported SavedModels that match a path or a wildcard pattern."""
    if Path(pattern).exists() or not any(mark in pattern for mark in _WILDCARDS):
        return [pattern]
    exports = [os.path.dirname(file.path) for file in find_files(f"{pattern}/saved_model.pb")]
    return [file.path for file in find_files(pattern)] + exports


def load_task(files: Sequence[Path]) -> Any:
    """Loads a model, or multiple models as an ensemble, for prediction.

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


def is_preset(model: str) -> bool:
    """Returns whether `--model` is a checkpoint: a directory, `minilm` or a Hub ID `hf://…`."""
    path = Path(model)
    if path.is_dir():
        is_saved = (path / "metadata.json").is_file() or is_export(path)
        return (path / "config.json").is_file() and not is_saved
    return model == minilm.NAME or model.startswith(HUB_SCHEME)


def load_preset(preset: str) -> Any:
    """Loads a checkpoint as the task whose head it contains. See `class_of_preset`.

    Raises:
        ValueError: If the checkpoint is invalid, or has no vocabulary.
    """
    program.import_quietly()
    from keras_bert import checkpoints

    checkpoint = checkpoints.open_checkpoint(preset)
    return class_of_preset(checkpoint).from_preset(checkpoint.directory)


def class_of_preset(checkpoint: Any) -> Any:
    """Returns the class of the task whose head a checkpoint contains.

    Without a task's head, or with the configuration of sentence-transformers, it is a
    `TextEmbedder` or `SparseEmbedder`. Otherwise, a masked LM's head makes it a `MaskedLM`.
    """
    import keras_bert
    from keras_bert.checkpoints.sentence_transformers import MODULES_FILE, is_sparse_encoder

    task_classes: list[Any] = [
        keras_bert.TextClassifier,
        keras_bert.TokenClassifier,
        keras_bert.QuestionAnswerer,
        keras_bert.MultipleChoice,
        keras_bert.LateInteractionEmbedder,
    ]
    heads = {task_class.head_name: task_class for task_class in task_classes}
    if is_sparse_encoder(checkpoint.directory) or "activation" in (checkpoint.task or {}):
        heads["masked_lm"] = keras_bert.SparseEmbedder
    elif not (checkpoint.directory / MODULES_FILE).is_file():
        heads["masked_lm"] = keras_bert.MaskedLM
    stored = (task_class for head, task_class in heads.items() if head in checkpoint.heads)
    return next(stored, keras_bert.TextEmbedder)


def check_model(path: str, *, exported: bool = False, flag: str = "model") -> Path:
    """Checks that a path is a trained model.

    Returns:
        The path of the `.keras` file or the directory that contains `saved_model.pb`.

    Raises:
        FileNotFoundError: If the path does not exist.
        ValueError: If the path is empty, or a directory without such a model. The message suggests
            a model nearby: the newest version in a directory of exports, or a run's export or the
            model of its first seed.
    """
    kinds = f"{_EXPORTED} or {_SAVED}" if exported else _SAVED
    if not path:
        raise ValueError(f"--{flag} must be {kinds}. Received: no --{flag}")
    model = Path(path)
    if model.is_file() or (exported and is_export(model)):
        return model
    kind, problem = ValueError, "is a directory without a model"
    if not model.exists():
        kind, problem = FileNotFoundError, "does not exist"
    elif is_export(model):
        problem = "is an exported SavedModel"
    elif newest_version(model):
        problem = "is a directory of exported versions"
    near = next(filter(None, _near(model, exported)), None)
    meant = "" if near is None else f". Did you mean --{flag}={near}?"
    raise kind(f"--{flag} must be {kinds}. Received: {path}, which {problem}{meant}")


def is_export(path: Path) -> bool:
    """Returns whether a path is an exported SavedModel."""
    return (path / "saved_model.pb").is_file()


def newest_version(directory: Path) -> Path | None:
    """Returns the newest export in a directory's subdirectories named by version number, if any."""
    return next(iter(_versions(directory)), None)


def _versions(directory: Path) -> list[Path]:
    """Returns a directory's numbered exports in descending order."""
    names = [path for path in directory.glob("[0-9]*") if path.name.isdecimal() and is_export(path)]
    return sorted(names, key=lambda path: int(path.name), reverse=True)


def _near(model: Path, exported: bool) -> Iterator[Path | None]:
    """Yields the models in a directory or in its run."""
    directories = [directory for directory in (model, *model.parents[:2]) if directory.is_dir()]
    for directory in directories:
        if exported:
            yield from (*_versions(directory), *_versions(directory / "export"))
        yield from sorted(directory.glob("seed_*/model.keras"))
