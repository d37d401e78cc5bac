# SPDX-License-Identifier: Apache-2.0
"""Deploys an export as the next model version in a running TensorFlow Serving."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from keras_bert.atomic import make_directory, scratch_directory

_WHOLE_EXPORT = ("saved_model.pb", "variables/variables.index")


def deploy(export: str | os.PathLike[str], base_path: str | os.PathLike[str]) -> Path:
    """Deploys a SavedModel atomically as a served model's next version.

    TensorFlow Serving loads a version as soon as its directory contains `saved_model.pb`, even if
    the weights are still missing, and then unloads the previous version. The files are therefore
    copied to a hidden directory that the server ignores, and the directory is then renamed.

    If the process is killed, its hidden directory `.deploying.*.partial` remains. The next call on
    the same machine removes it. Hidden directories from other machines on a shared disk are kept,
    because these machines may still be writing to them.

    Args:
        export: Directory written by `export`.
        base_path: The model's directory, passed to the server as `--model_base_path`. It contains
            one numbered directory per version. It is created if it does not exist.

    Returns:
        The directory of the new version.

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
        raise ValueError(
            f"export must be a complete SavedModel. Received: {source} without {absent_files[0]}"
        )
    make_directory(base)
    # The copy is on the same disk, so that it can be renamed.
    with scratch_directory(base, "deploying") as scratch:
        copy = scratch / "version"
        shutil.copytree(source, copy)
        while True:
            version = base / str(max(_versions(base), default=0) + 1)
            try:
                os.rename(copy, version)
            except OSError as error:  # Another process has just created this version.
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            else:
                return version


def _versions(base: Path) -> list[int]:
    return [int(path.name) for path in base.iterdir() if path.name.isdecimal()]
