# SPDX-License-Identifier: Apache-2.0
"""Which files an export wrote itself: only these are replaced."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from keras_bert.export.description import (
    DESCRIPTION_FILE,
    METADATA_NAME,
    PACKED_FILE,
    TOKENIZER_FILE,
)
from keras_bert.export.formats import FORMATS

# The files and folders of an exported SavedModel
_FILES = (
    *map(re.escape, ("saved_model.pb", "fingerprint.pb", "batching_params.pbtxt", "assets")),
    *map(re.escape, ("assets.extra", DESCRIPTION_FILE, TOKENIZER_FILE)),
    r"assets\.extra/tf_serving_warmup_requests",
    r"variables(/variables\.(index|data-\d+-of-\d+))?",
)
# A property's key in ONNX' serialized form, and the tag of the value behind it
_ONNX_KEY = b"\n" + bytes([len(METADATA_NAME)]) + METADATA_NAME.encode() + b"\x12"


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
        own = "|".join(_FILES) if DESCRIPTION_FILE in files else ""
        foreign = [path for name, path in files.items() if not re.fullmatch(own, name)]
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
    if path.suffix == ".tflite":
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            return PACKED_FILE in archive.namelist()
        return False
    if path.suffix == ".xml":
        with contextlib.suppress(ElementTree.ParseError):
            return ElementTree.parse(path).find(f"rt_info/{METADATA_NAME}") is not None
        return False
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.rfind(_ONNX_KEY) >= 0
