# SPDX-License-Identifier: Apache-2.0
"""Loading of saved models of any task."""

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

# Keras finds classes that are imported; importing this file imports `keras_bert.tasks` with all.
PACKAGE = "keras_bert"
CONFIG_FILE, METADATA_FILE = "config.json", "metadata.json"
WEIGHTS_FILES = ("model.weights.h5", "model.weights.npz")
# A member of an archive may be extracted to that many times its size; smaller ones to any size.
_MOST_EXPANSION = 100
_UNCHECKED_BYTES = 1 << 26
_MESSAGE_LENGTH = 500


def load_model(filepath: str | os.PathLike[str], *, compile: bool = True) -> Any:
    """Loads a model that `save` wrote: any task or backbone of this package.

    The file is checked first, and needs not be trusted: reading it is bounded by its size, and
    neither executes code nor opens other files. `keras.models.load_model` loads it without these
    checks once the class of the model is imported.

    Args:
        filepath: Path of a `.keras` file, or of the folder that `save(..., zipped=False)` wrote.
        compile: Whether to compile the model with its saved optimizer, loss and metrics.

    Returns:
        The model.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is not a saved model, corrupt, a model of another package, or has
            weights that are infinite or NaN.
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
    # Keras, and the backends, raise errors of any class for configs and weights that do not fit.
    except Exception as error:
        raise ValueError(f"{path} cannot be loaded: {_reason(error)}") from error
    optimizer = getattr(model, "optimizer", None)
    for variable in (*model.weights, *(optimizer.variables if optimizer else ())):
        if keras.backend.is_float_dtype(variable.dtype):
            for shard in local_shards(variable):
                check_finite(shard, f"{path}: weight {variable.path!r}")
    return model


def _read_config(path: Path) -> tuple[dict[str, Any], int]:
    """Reads the config of a model of this package, and the size of its weights in bytes."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; expected a `.keras` file.")
    if path.is_dir():
        if (path / CONFIG_FILE).exists() and not (path / METADATA_FILE).exists():
            raise ValueError(
                f"{path} is the folder of a preset or checkpoint; load it with `from_preset` of "
                "the task."
            )
        if not (path / CONFIG_FILE).exists():
            is_export = (path / "saved_model.pb").exists()
            advice = " An export is loaded by `keras_bert.export.ServedModel`." * is_export
            raise ValueError(
                f"{path} is a folder without {CONFIG_FILE}; expected a `.keras` file.{advice}"
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
    # Or a task of the user's own, which is registered in another package
    base = keras.Model if name.startswith(f"{PACKAGE}>") else Task
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise ValueError(
            f"{path} has a model of the class {config.get('class_name')!r} (module "
            f"{config.get('module')!r}); expected a task or a Backbone of {PACKAGE}. "
            "`keras.models.load_model` loads others."
        )
    if not num_bytes:
        raise ValueError(f"{path} has no weights; looked for {' and '.join(WEIGHTS_FILES)}.")
    return config, num_bytes


def _read_archive(path: Path) -> tuple[bytes, int]:
    """Reads the config in an archive, and the size of its weights in bytes."""
    with path.open("rb") as file:
        start = file.read(8)
    if not zipfile.is_zipfile(path):
        what = "an HDF5 file" if start == b"\x89HDF\r\n\x1a\n" else f"starting with {start!r}"
        what = "a truncated archive" if start.startswith(b"PK\x03\x04") else what
        raise ValueError(
            f"{path} is not a valid `.keras` archive (a zip file): found {path.stat().st_size:,} "
            f"bytes, {what}."
        )
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            for name, member in members.items():
                if member.file_size > max(_UNCHECKED_BYTES, _MOST_EXPANSION * member.compress_size):
                    raise ValueError(
                        f"{path}: {name} would be extracted from {member.compress_size:,} to "
                        f"{member.file_size:,} bytes; expected at most {_MOST_EXPANSION} times as "
                        "many. Keras does not compress its files."
                    )
            if CONFIG_FILE in members:
                with archive.open(CONFIG_FILE) as file:
                    text = read_small(file, f"{path}: its {CONFIG_FILE}")
                sizes = [members[name].file_size for name in WEIGHTS_FILES if name in members]
                return text, sum(sizes)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise ValueError(f"{path} is a corrupt `.keras` archive: {error}.") from error
    raise ValueError(
        f"{path} is a zip file but not a `.keras` archive: it has no {CONFIG_FILE}; found "
        f"{', '.join(list(members)[:5]) or 'nothing'}."
    )


def _objects_in(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the objects in a config, that itself first."""
    rest: list[Any] = [config]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            yield value
            rest.extend(value.values())
        elif isinstance(value, list) and not (value and isinstance(value[0], str)):
            rest.extend(value)


def _check_objects(config: dict[str, Any], path: Path) -> None:
    """Checks that only classes of Keras and registered ones are created.

    Keras also imports classes of its other packages, such as tokenizers that open the file in
    their config.
    """
    for fields in _objects_in(config):
        package = str(fields.get("module")).partition(".")[0]
        if package in ("keras_hub", "keras_nlp", "keras_cv") and "class_name" in fields:
            raise ValueError(
                f"{path}: its {CONFIG_FILE} has a {fields['class_name']!r} of {package}; expected "
                f"objects of keras and {PACKAGE} only. `keras.models.load_model` loads others."
            )


def _check_sizes(config: dict[str, Any], num_bytes: int, path: Path) -> None:
    """Checks that the file of the weights can contain them, before memory is allocated."""
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
                f"{path}: num_classes is {num_classes}, which a file of weights of {num_bytes:,} "
                "bytes cannot contain."
            )


def _config_fields(backbone: Any) -> dict[str, Any]:
    """Returns the fields of the `BertConfig` of a backbone; `{}` if it is malformed."""
    for name in ("config", "config"):
        backbone = backbone.get(name) if isinstance(backbone, dict) else None
    return backbone if isinstance(backbone, dict) else {}


def _reason(error: BaseException) -> str:
    """Returns why an object could not be created, in a line, without its whole config."""
    while "Exception encountered:" in str(error) and error.__context__ is not None:
        error = error.__context__
    text = " ".join(str(error).split())
    text = text if len(text) <= _MESSAGE_LENGTH else f"{text[:_MESSAGE_LENGTH]}…"
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"
