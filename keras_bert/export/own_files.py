# SPDX-License-Identifier: Apache-2.0
"""Recognizes the files of an export, because only these files may be replaced."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from keras_bert.atomic import check_replaceable
from keras_bert.export.description import DESCRIPTION_FILE, TOKENIZER_FILE
from keras_bert.export.formats import FORMATS

# Files and directories in an exported SavedModel, and the SavedModel itself (".")
_NAMES = re.compile(
    r"\.|(saved_model|fingerprint)\.pb|batching_params\.pbtxt|assets|assets\.extra|"
    rf"{re.escape(DESCRIPTION_FILE)}|{re.escape(TOKENIZER_FILE)}|"
    r"assets\.extra/tf_serving_warmup_requests|variables(/variables\.(index|data-\d+-of-\d+))?"
)


def check_exports(paths: Sequence[Path], format: str, advice: str = "") -> None:
    """Checks that an export may replace the files at its paths. See `check_replaceable`.

    An earlier export may be replaced, unless its directory has a file that no export writes.
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
        is_own = main.is_file() and main.stat().st_size > 0 and FORMATS[format].is_export(main)
        check_replaceable(paths, lambda _: is_own, advice)
