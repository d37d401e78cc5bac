# SPDX-License-Identifier: Apache-2.0
"""Which files an export wrote: only these are replaced."""

from __future__ import annotations

import contextlib
import mmap
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from keras_bert.atomic import check_replaceable
from keras_bert.export.description import (
    DESCRIPTION_FILE,
    METADATA_NAME,
    PACKED_FILE,
    TOKENIZER_FILE,
)
from keras_bert.export.formats import FORMATS

# The files and folders of an exported SavedModel, and itself
_NAMES = re.compile(
    r"\.|(saved_model|fingerprint)\.pb|batching_params\.pbtxt|assets|assets\.extra|"
    rf"{re.escape(DESCRIPTION_FILE)}|{re.escape(TOKENIZER_FILE)}|"
    r"assets\.extra/tf_serving_warmup_requests|variables(/variables\.(index|data-\d+-of-\d+))?"
)
# A property's key in ONNX' serialized form, and the tag of the value behind it
_ONNX_KEY = b"\n" + bytes([len(METADATA_NAME)]) + METADATA_NAME.encode() + b"\x12"


def check_exports(paths: Sequence[Path], format: str, advice: str = "") -> None:
    """Checks that an export may replace what is at its paths, see `check_replaceable`.

    It may replace an earlier export, but no folder with a file that no export has.
    """
    main = paths[0]
    if main.is_dir():
        is_own = (main / DESCRIPTION_FILE).exists()
        paths = [main, *main.rglob("*")]
        check_replaceable(
            paths,
            lambda path: is_own and bool(_NAMES.fullmatch(path.relative_to(main).as_posix())),
            advice,
        )
    else:
        is_own = bool(FORMATS[format].suffixes[0]) and _has_mark(main)
        check_replaceable(paths, lambda _: is_own, advice)


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
