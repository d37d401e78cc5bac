# SPDX-License-Identifier: Apache-2.0
"""Hands an export to a running TensorFlow Serving as the next version of a model."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

_WHOLE_EXPORT = ("saved_model.pb", "variables/variables.index")


def deploy(export: str | os.PathLike[str], base_path: str | os.PathLike[str]) -> Path:
    """Copies a SavedModel to the next version of a model, which appears whole or not at all.

    TensorFlow Serving loads a version as soon as its folder holds `saved_model.pb`, with its
    weights or without, and retires the one before. Therefore the files are copied to a hidden
    folder, whose name is no number, and that is renamed.

    Args:
        export: A folder that `export` wrote.
        base_path: The model's folder, the server's `--model_base_path`, which has a folder for each
            version, named by its number. It is made if there is none.

    Returns:
        The new version's folder.

    Raises:
        ValueError: If `export` is not a whole SavedModel.

    Example:

    ```python
    classifier.export("export/sst2/1")
    keras_bert.export.deploy("export/sst2/1", "/models/sst2")  # PosixPath('/models/sst2/4')
    ```
    """
    source, base = Path(export), Path(base_path)
    missing = [name for name in _WHOLE_EXPORT if not (source / name).is_file()]
    if missing:
        raise ValueError(f"{source} is not an exported SavedModel: it has no {missing[0]}.")
    base.mkdir(parents=True, exist_ok=True)
    # On the same disk, so that it can be renamed
    with tempfile.TemporaryDirectory(prefix=".deploying.", dir=base) as temporary:
        copied = Path(temporary) / "version"
        shutil.copytree(source, copied)
        while True:
            version = base / str(max(_versions(base), default=0) + 1)
            try:
                os.rename(copied, version)
            except OSError as error:  # somebody else has just made it
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            else:
                return version


def _versions(base: Path) -> list[int]:
    return [int(path.name) for path in base.iterdir() if path.name.isdecimal()]
