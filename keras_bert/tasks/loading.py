# SPDX-License-Identifier: Apache-2.0
"""Loading of saved models of any task."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import keras

# Keras finds classes that are imported; importing this file imports `keras_bert.tasks` with all.
PACKAGE = "keras_bert"
CONFIG_FILE, METADATA_FILE = "config.json", "metadata.json"


def load_model(filepath: str | os.PathLike[str], *, compile: bool = True) -> Any:
    """Loads a model that `save` wrote: any task or backbone of this package.

    `keras.models.load_model` does the same once the class of the model is imported.

    Args:
        filepath: Path of a `.keras` file, or of the folder that `save(..., zipped=False)` wrote.
        compile: Whether to compile the model with its saved optimizer, loss and metrics.

    Returns:
        The model.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is not a saved model, corrupt, or a model of another package.
    """
    path = Path(filepath)
    _check_archive(path)
    try:
        return keras.models.load_model(path, compile=compile)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is a corrupt `.keras` archive: {error}.") from error


def _check_archive(path: Path) -> None:
    """Checks that a file is an archive of a model of this package, before Keras loads it."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; expected a `.keras` file.")
    if path.is_dir():
        if (path / CONFIG_FILE).exists() and not (path / METADATA_FILE).exists():
            raise ValueError(
                f"{path} is the folder of a preset or checkpoint; load it with `from_preset` of "
                "the task."
            )
        if not (path / CONFIG_FILE).exists():
            raise ValueError(f"{path} is a folder without {CONFIG_FILE}; expected a `.keras` file.")
        text = (path / CONFIG_FILE).read_bytes()
    else:
        text = _config_in_archive(path)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its {CONFIG_FILE} is not JSON: {error}.") from error
    fields = fields if isinstance(fields, dict) else {}
    if not str(fields.get("registered_name")).startswith(f"{PACKAGE}>"):
        raise ValueError(
            f"{path} has a model of the class {fields.get('class_name')!r} (module "
            f"{fields.get('module')!r}); expected a task or a Backbone of {PACKAGE}. "
            "`keras.models.load_model` loads others."
        )


def _config_in_archive(path: Path) -> bytes:
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
            names = archive.namelist()
            if CONFIG_FILE in names:
                return archive.read(CONFIG_FILE)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise ValueError(f"{path} is a corrupt `.keras` archive: {error}.") from error
    raise ValueError(
        f"{path} is a zip file but not a `.keras` archive: it has no {CONFIG_FILE}; found "
        f"{', '.join(names[:5]) or 'nothing'}."
    )
