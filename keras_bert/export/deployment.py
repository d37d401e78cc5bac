# SPDX-License-Identifier: Apache-2.0
"""Deployment of an export as the next version of a model in a running TensorFlow Serving."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from keras_bert.atomic import make_directory, scratch_directory

_WHOLE_EXPORT = ("saved_model.pb", "variables/variables.index")


def deploy(export: str | os.PathLike[str], base_path: str | os.PathLike[str]) -> Path:
    """Deploys a SavedModel as the next version of a model, atomically.

    TensorFlow Serving loads a version as soon as its folder contains `saved_model.pb`, even if the
    weights are still missing, and unloads the previous version. Therefore the files are copied to a
    hidden folder, which the server ignores, and the folder is renamed. A process that is killed
    leaves its hidden folder, `.deploying.*.partial`, which the next call on the same machine
    removes. Another machine's folder on a shared disk stays: the machine may be writing to it.

    Args:
        export: A folder written by `export`.
        base_path: The folder of the model, the server's `--model_base_path`, which contains a
            folder for each version, named by its number. It is created if it does not exist.

    Returns:
        The folder of the new version.

    Raises:
        ValueError: If `export` is not a complete SavedModel.

    Example:

    ```python
    classifier.export("export/sst2/1")
    keras_bert.export.deploy("export/sst2/1", "/models/sst2")  # PosixPath('/models/sst2/4')
    ```
    """
    source, base = Path(export), Path(base_path)
    absent_files = [name for name in _WHOLE_EXPORT if not (source / name).is_file()]
    if absent_files:
        raise ValueError(f"{source} is not an exported SavedModel: it has no {absent_files[0]}.")
    make_directory(base)
    # On the same disk, so that it can be renamed
    with scratch_directory(base, "deploying") as scratch:
        copy = scratch / "version"
        shutil.copytree(source, copy)
        while True:
            version = base / str(max(_versions(base), default=0) + 1)
            try:
                os.rename(copy, version)
            except OSError as error:  # another process has just created it
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            else:
                return version


def _versions(base: Path) -> list[int]:
    return [int(path.name) for path in base.iterdir() if path.name.isdecimal()]
