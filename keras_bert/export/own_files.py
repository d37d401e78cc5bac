# SPDX-License-Identifier: Apache-2.0
"""Which files an export wrote itself: only these are replaced."""

from __future__ import annotations

import fnmatch
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from keras_bert.export.description import DESCRIPTION_FILE, METADATA_NAME, PACKED_FILE
from keras_bert.export.options import FORMATS

# The files of an exported SavedModel
_FILES = (
    "saved_model.pb",
    "fingerprint.pb",
    "batching_params.pbtxt",
    "variables",
    "variables/variables.*",
    "assets",
    "assets/*",
    "assets.extra",
    "assets.extra/*",
)


def check_replaceable(paths: Sequence[Path], format: str) -> None:
    """Checks that what exists at the paths of an export is an earlier export.

    Raises:
        FileExistsError: If it is something else, or a folder with a file that no export has.
    """
    if not any(map(os.path.lexists, paths)):
        return
    main = paths[0]
    if main.is_dir():
        files = {path.relative_to(main).as_posix(): path for path in main.rglob("*")}
        own = _FILES if DESCRIPTION_FILE in files else ()
        foreign = [
            path
            for name, path in files.items()
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in own)
        ]
    else:
        is_export = FORMATS[format].suffixes[0] and _has_mark(main)
        foreign = [] if is_export else [path for path in paths if os.path.lexists(path)]
    if foreign:
        raise FileExistsError(
            f"{main} is no export that can be replaced: export did not write {min(foreign)}. "
            "Choose another path, or move that file."
        )


def _has_mark(path: Path) -> bool:
    """Returns whether a file has the description of an export."""
    if not path.is_file() or not path.stat().st_size:
        return False
    mark = PACKED_FILE if path.suffix == ".tflite" else METADATA_NAME
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.rfind(mark.encode()) >= 0
