# SPDX-License-Identifier: Apache-2.0
"""Loads saved models of any task."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from keras_bert.checkpoints.layouts import check_finite
from keras_bert.checkpoints.weights import check_file_size
from keras_bert.config import BertConfig, ConfigError
from keras_bert.layers.initial_weights import skip_initial_weights
from keras_bert.ops.dispatch import local_shards
from keras_bert.tasks.task import Task
from keras_bert.vocabularies.files import parse_json, read_bytes, read_small

# Keras only finds imported classes. Importing this module imports `keras_bert.tasks` with all
# tasks.
PACKAGE = "keras_bert"
CONFIG_FILE, METADATA_FILE = "config.json", "metadata.json"
WEIGHTS_FILES = ("model.weights.h5", "model.weights.npz")
# An archive member may expand to this many times its size. Small members may expand to any size.
_MOST_EXPANSION = 100
_UNCHECKED_BYTES = 1 << 26
_MESSAGE_LENGTH = 500


def load_model(filepath: str | os.PathLike[str], *, compile: bool = True) -> Any:
    """Loads a saved task or backbone of any class.

    You do not need to trust the file, because it is checked first. Its size bounds the memory that
    loading uses. Loading does not execute the file's code or open other files.
    `keras.models.load_model` loads it without these checks, once the model's class is imported.

    Args:
        filepath: Path of a `.keras` file or a directory saved with `save(..., zipped=False)`.
        compile: Whether to compile the model with its saved optimizer, loss and metrics.

    Returns:
        The model.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is not a saved model, is corrupt, contains neither a task nor a
            backbone, or has infinite or NaN weights.
    """
    path = Path(filepath)
    config, num_bytes = _read_config(path)
    _check_objects(config, path)
    _check_sizes(config, num_bytes, path)
    try:
        with skip_initial_weights():
            model = keras.models.load_model(path, compile=compile)
    except ImportError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is a corrupt `.keras` archive: {error}.") from error
    # Keras and the backends raise errors of any class for configs and weights that do not match.
    except Exception as error:
        raise ValueError(f"{path} cannot be loaded: {_reason(error)}") from error
    optimizer = getattr(model, "optimizer", None)
    for variable in (*model.weights, *(optimizer.variables if optimizer else ())):
        if keras.backend.is_float_dtype(variable.dtype):
            for shard in local_shards(variable):
                check_finite(shard, f"{path}: weight {variable.path!r}")
    return model


def _read_config(path: Path) -> tuple[dict[str, Any], int]:
    """Reads a model's config, and the size of its weights in bytes."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Pass the path of a `.keras` file.")
    if path.is_dir():
        if (path / CONFIG_FILE).exists() and not (path / METADATA_FILE).exists():
            raise ValueError(
                f"filepath must be a `.keras` file. Received: {path}, the directory of a preset or "
                "checkpoint. Load it with `from_preset` of the task."
            )
        if not (path / CONFIG_FILE).exists():
            is_export = (path / "saved_model.pb").exists()
            advice = " Load an export with `keras_bert.export.ServedModel`." * is_export
            raise ValueError(
                f"filepath must be a `.keras` file. Received: {path}, a directory without "
                f"{CONFIG_FILE}.{advice}"
            )
        text = read_bytes(path / CONFIG_FILE)
        num_bytes = sum(
            (path / name).stat().st_size for name in WEIGHTS_FILES if (path / name).exists()
        )
    else:
        text, num_bytes = _read_archive(path)
    try:
        config = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path}: its {CONFIG_FILE} is not JSON: {error}.") from error
    config = config if isinstance(config, dict) else {}
    name = str(config.get("registered_name"))
    cls = keras.saving.get_registered_object(name)
    # Custom tasks are registered with a different package name.
    base = keras.Model if name.startswith(f"{PACKAGE}>") else Task
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise ValueError(
            f"{path} must contain a task or a Backbone of {PACKAGE}. Received: a model of the "
            f"class {config.get('class_name')!r} (module {config.get('module')!r}). "
            "`keras.models.load_model` loads other models."
        )
    if not num_bytes:
        raise ValueError(
            f"{path} must contain weights in {' or '.join(WEIGHTS_FILES)}. Received: no weights"
        )
    return config, num_bytes


def _read_archive(path: Path) -> tuple[bytes, int]:
    """Reads the config from an archive, and the size of its weights in bytes."""
    with path.open("rb") as file:
        start = file.read(8)
    if not zipfile.is_zipfile(path):
        what = "an HDF5 file" if start == b"\x89HDF\r\n\x1a\n" else f"starting with {start!r}"
        what = "a truncated archive" if start.startswith(b"PK\x03\x04") else what
        raise ValueError(
            f"{path} must be a `.keras` archive (a zip file). Received: {path.stat().st_size:,} "
            f"bytes, {what}"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            for name, member in members.items():
                if member.file_size > max(_UNCHECKED_BYTES, _MOST_EXPANSION * member.compress_size):
                    raise ValueError(
                        f"{path}: {name} must expand to at most {_MOST_EXPANSION} times its "
                        f"compressed size. Received: {member.file_size:,} bytes, compressed to "
                        f"{member.compress_size:,}. Keras does not compress its files."
                    )
            if CONFIG_FILE in members:
                with archive.open(CONFIG_FILE) as file:
                    text = read_small(file, f"{path}: its {CONFIG_FILE}")
                sizes = [members[name].file_size for name in WEIGHTS_FILES if name in members]
                return text, sum(sizes)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise ValueError(f"{path} is a corrupt `.keras` archive: {error}.") from error
    raise ValueError(
        f"{path} must be a `.keras` archive. Received: a zip file without {CONFIG_FILE}, with "
        f"{', '.join(list(members)[:5]) or 'no files'}"
    )


def _objects_in(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields a config and all objects in it."""
    rest: list[Any] = [config]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            yield value
            rest.extend(value.values())
        elif isinstance(value, list) and not (value and isinstance(value[0], str)):
            rest.extend(value)


def _check_objects(config: dict[str, Any], path: Path) -> None:
    """Checks that only Keras classes and registered classes are created.

    Keras also imports classes from its other packages, for example tokenizers that open a file in
    their config.
    """
    for fields in _objects_in(config):
        package = str(fields.get("module")).partition(".")[0]
        if package in ("keras_hub", "keras_nlp", "keras_cv") and "class_name" in fields:
            raise ValueError(
                f"{path}: its {CONFIG_FILE} must only contain objects of keras and {PACKAGE}. "
                f"Received: a {fields['class_name']!r} of {package}. `keras.models.load_model` "
                "loads it."
            )


def _check_sizes(config: dict[str, Any], num_bytes: int, path: Path) -> None:
    """Checks that the weights fit in their file, before memory is allocated."""
    for fields in _objects_in(config):
        is_backbone = fields.get("registered_name") == f"{PACKAGE}>Backbone"
        architecture = _config_fields(fields) if is_backbone else fields.get("generator")
        if isinstance(architecture, dict):
            try:
                check_file_size(
                    BertConfig.from_dict(architecture), num_bytes, f"{path}: its file of weights"
                )
            except ConfigError as error:
                raise ValueError(f"{path}: its {CONFIG_FILE}: {error}") from error
        num_classes = fields.get("num_classes")
        width = _config_fields(fields.get("backbone")).get("hidden_dim")
        if not isinstance(num_classes, int) or not isinstance(width, int):
            continue
        if num_classes * width > 2 * num_bytes:
            raise ValueError(
                f"{path}: num_classes must fit in the file of weights. Received: {num_classes} "
                f"with {num_bytes:,} bytes of weights"
            )


def _config_fields(backbone: Any) -> dict[str, Any]:
    """Returns a backbone's `BertConfig` fields, or `{}` if it is invalid."""
    for name in ("config", "config"):
        backbone = backbone.get(name) if isinstance(backbone, dict) else None
    return backbone if isinstance(backbone, dict) else {}


def _reason(error: BaseException) -> str:
    """Returns, on one line, why an object could not be created, without its whole config."""
    while "Exception encountered:" in str(error) and error.__context__ is not None:
        error = error.__context__
    text = " ".join(str(error).split())
    text = text if len(text) <= _MESSAGE_LENGTH else f"{text[:_MESSAGE_LENGTH]}…"
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"
