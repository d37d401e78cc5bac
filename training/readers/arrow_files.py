# SPDX-License-Identifier: Apache-2.0
"""Rows of Parquet and Arrow files, and of the folders of them that `datasets` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..engine import child_programs
from .values import BadRows, excerpt, row_error

# The number of a file among those of a split: train-00000-of-00002.parquet
_SHARD = re.compile(r"-\d+-of-\d+$")
# Names of files that are not the name of a split, which their folder has then
_NO_SPLIT = re.compile(r"data|\d+|part-.*")


def is_dataset(path: Path) -> bool:
    """Returns whether a path is a folder of Parquet or Arrow files, or one of its splits."""
    # Names of splits have no suffix, and whoever misspells a file should not wait for the search
    may_be_split = not path.suffix and not path.exists()
    return path.is_dir() or (may_be_split and path.name in _splits(path.parent))


def read_rows(path: Path, bad: BadRows | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the place and the fields of each row.

    The numbers of classes become their names, where `datasets` has written them into the file; -1,
    an unknown class, becomes `None`. A column of which all are unknown, as in test sets, is left
    out.

    Args:
        path: A file; a folder of files of one split, or written by `save_to_disk`; or, of a folder
            with several splits, one of them: `folder/train` for `folder/train/*.parquet` or
            `folder/data/train-00000-of-00001.parquet`.
        bad: Collects malformed rows; by default, the first one raises an error.

    Raises:
        ImportError: If pyarrow is not installed.
        ValueError: If a file is malformed, or a folder has no files or several splits.
    """
    number, bad = 0, bad or BadRows()
    for file in [path] if path.is_file() else _split_files(path):
        table = _read(file)
        try:
            names = _class_names(table.schema)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{file}: the metadata of datasets is malformed: {error!r}") from error
        for column in names:
            if all(value in (None, -1) for value in table[column].to_pylist()):
                table = table.drop_columns(column)
        for batch in table.to_batches():
            for record in batch.to_pylist():
                number += 1
                try:
                    _name_classes(record, names)
                except ValueError as error:
                    bad.add(row_error(path, f"row {number}", str(error)))
                else:
                    yield f"row {number}", record


def _split_files(path: Path) -> list[Path]:
    """Returns the files of a folder with one split, or of one split of a folder."""
    state = path / "state.json"
    if state.is_file():  # written by save_to_disk
        try:
            content = json.loads(state.read_text(encoding="utf-8"))
            files = [Path(file["filename"]) for file in content["_data_files"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{state}: expected _data_files with a filename each") from error
        for file in files:
            if file.name != str(file):
                raise ValueError(f"{state} names {str(file)!r}, expected files of its folder")
        return [path / file for file in files]
    if not path.is_dir():
        return _splits(path.parent)[path.name]
    splits = _splits(path)
    if not splits:
        raise ValueError(f"{path} is a folder without Parquet or Arrow files")
    if len(splits) > 1:
        raise ValueError(
            f"{path} has the splits {', '.join(splits)}; expected the path of one, such as "
            f"{path / next(iter(splits))}"
        )
    return next(iter(splits.values()))


def _splits(folder: Path) -> dict[str, list[Path]]:
    """Returns the files of each split of a folder."""
    splits: dict[str, list[Path]] = {}
    for file in sorted([*folder.rglob("*.parquet"), *folder.rglob("*.arrow")]):
        name = _SHARD.sub("", file.stem)
        if not name.startswith("cache-"):  # of datasets' `map`
            split = file.parent.name if _NO_SPLIT.fullmatch(name) else name
            splits.setdefault(split, []).append(file)
    return splits


def _read(file: Path) -> Any:
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError as error:
        raise ImportError(
            f"{file} is read by pyarrow, which is not installed: {child_programs.install('tables')}"
        ) from error
    try:
        with open(file, "rb") as source:
            start = source.read(6)
            source.seek(0)
            if start.startswith(b"PAR1"):
                return parquet.ParquetFile(source).read()
            return (ipc.open_file if start == b"ARROW1" else ipc.open_stream)(source).read_all()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def _class_names(schema: Any) -> dict[str, list[str]]:
    """Returns the names of the classes of each column of class numbers, or of lists of them."""
    content = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    names = {}
    for column, feature in content.get("info", {}).get("features", {}).items():
        item = feature.get("feature", feature) if isinstance(feature, dict) else feature[0]
        if item.get("_type") == "ClassLabel":
            names[column] = item["names"]
    return names


def _name_classes(record: dict[str, Any], names: Mapping[str, list[str]]) -> None:
    """Replaces the numbers of classes in a row by their names."""
    for column in names.keys() & record.keys():
        try:
            record[column] = _named(record[column], names[column])
        except (IndexError, TypeError) as error:
            raise ValueError(
                f"{column} is {excerpt(record[column])}, expected the number of a class from 0 to "
                f"{len(names[column]) - 1}, or -1"
            ) from error


def _named(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    if value in (None, -1):
        return None
    if value < 0:
        raise IndexError(value)
    return names[value]
