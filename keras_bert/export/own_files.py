# SPDX-License-Identifier: Apache-2.0
"""Recognizes the files of an export, because only these files may be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from keras_bert.atomic import check_replaceable
from keras_bert.export.formats import FORMATS


def check_exports(paths: Sequence[Path], format: str, advice: str = "") -> None:
    """Checks that an export may replace the files at its paths. See `check_replaceable`.

    An earlier export may be replaced, unless its directory has a file that no export writes.
    """
    main = paths[0]
    own = FORMATS[format]
    if main.is_dir():
        names = own.directory_files if own.is_export(main) else None
        check_replaceable(
            [main, *main.rglob("*")],
            lambda path: bool(names and names.fullmatch(path.relative_to(main).as_posix())),
            advice,
        )
    else:
        is_own = main.is_file() and main.stat().st_size > 0 and own.is_export(main)
        check_replaceable(paths, lambda _: is_own, advice)
