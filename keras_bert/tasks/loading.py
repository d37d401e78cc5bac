# SPDX-License-Identifier: Apache-2.0
"""Loading a saved task, whichever it is."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import keras

# Keras finds the classes that were imported; `keras_bert.tasks`, where this file is, imports all.
PACKAGE = "keras_bert"
CONFIG_FILE, METADATA_FILE = "config.json", "metadata.json"


def load_model(filepath: str | os.PathLike[str], *, compile: bool = True) -> Any:
    """A model that `save` wrote: any task or backbone of this package.

    `keras.models.load_model` does the same once the model's class has been imported.

    Args:
        filepath: A `.keras` file, or the folder that `save(..., zipped=False)` wrote.
        compile: Whether it comes with its optimizer and loss, to be trained further.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no saved model, a damaged one, or one of another package.
    """
    path = Path(filepath)
    _check_archive(path)
    try:
        return keras.models.load_model(path, compile=compile)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is a damaged `.keras` archive: {error}.") from error


def _check_archive(path: Path) -> None:
    """Raises if a file is no archive of a model of ours, before Keras makes anything of it."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; expected a `.keras` file.")
    if path.is_dir():
        if (path / CONFIG_FILE).exists() and not (path / METADATA_FILE).exists():
            raise ValueError(
                f"{path} is the folder of a preset or checkpoint; load it with the task's "
                "`from_preset`."
            )
        if not (path / CONFIG_FILE).exists():
            raise ValueError(f"{path} is a folder without {CONFIG_FILE}; expected a `.keras` file.")
        text = (path / CONFIG_FILE).read_bytes()
    else:
        text = _config_in_archive(path)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {CONFIG_FILE} in it is no JSON: {error}.") from error
    fields = fields if isinstance(fields, dict) else {}
    if not str(fields.get("registered_name")).startswith(f"{PACKAGE}>"):
        raise ValueError(
            f"{path} holds a model of the class {fields.get('class_name')!r} (module "
            f"{fields.get('module')!r}); expected a task or a Backbone of {PACKAGE}. "
            "`keras.models.load_model` loads others."
        )


def _config_in_archive(path: Path) -> bytes:
    with path.open("rb") as file:
        start = file.read(8)
    if not zipfile.is_zipfile(path):
        what = "an HDF5 file" if start == b"\x89HDF\r\n\x1a\n" else f"starting with {start!r}"
        what = "an archive that is cut off" if start.startswith(b"PK\x03\x04") else what
        raise ValueError(
            f"{path} is no valid `.keras` archive (a zip file): found {path.stat().st_size:,} "
            f"bytes, {what}."
        )
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if CONFIG_FILE in names:
                return archive.read(CONFIG_FILE)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise ValueError(f"{path} is a damaged `.keras` archive: {error}.") from error
    raise ValueError(
        f"{path} is a zip file but no `.keras` archive: it has no {CONFIG_FILE}; found "
        f"{', '.join(names[:5]) or 'nothing'}."
    )
