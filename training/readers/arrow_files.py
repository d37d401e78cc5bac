# SPDX-License-Identifier: Apache-2.0
"""Reads Parquet and Arrow files, and the directories of them that `datasets` writes."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_bert import checks
from keras_bert.data.file_systems import find_files

from .row_values import BadRows, excerpt, row_error

# The shard number in a file name: train-00000-of-00002.parquet. Older versions of `datasets` add a
# hash.
_SHARD = re.compile(r"-(\d+)-of-(\d+)(-[0-9a-f]{16})?$")
# These file names do not contain the split's name. Then the directory has the name.
_UNNAMED_SPLIT = re.compile(r"data|\d+|part-.*")

# A column's class names. For a struct, a dict with the class names of its fields
ClassNames = list[str] | dict[str, Any]
# How to convert a directory of texts, which is not supported
_CONVERT_DIRECTORIES = (
    "if it has a directory of texts for each class, this makes one file of them: "
    """python -c "import json, pathlib; [print(json.dumps({{'text': file.read_text('utf-8'), """
    """'label': file.parent.name}})) for file in pathlib.Path('{directory}').glob('*/*.txt')]" """
    "> train.jsonl"
)


def is_dataset(path: Path) -> bool:
    """Returns whether a path is a directory of Parquet or Arrow files, or one of its splits."""
    # Splits have no suffix. A misspelled file name should not trigger a search.
    may_be_split = not path.suffix and not path.exists()
    return path.is_dir() or (may_be_split and path.name in _splits(path.parent))


def read_rows(path: Path, bad: BadRows | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the place and the fields of each row.

    Class IDs are replaced by class names, if `datasets` has written them to any of the files. -1,
    an unknown class, becomes `None`. A label column with only unknown classes, as in test sets, is
    dropped. A value that Python cannot represent, such as a date after the year 9999, becomes an
    exception object.

    Args:
        path: A file, a directory with the files of one split or written by `save_to_disk`, or one
            of a directory's splits: `directory/train` for `directory/train/*.parquet` or
            `directory/data/train-00000-of-00001.parquet`.
        bad: Collects invalid rows. By default, the first invalid row raises an error.

    Raises:
        ImportError: If pyarrow is not installed.
        ValueError: If a file is invalid, if two of its columns have the same name, or if a
            directory has no files, has multiple splits, lacks a file of the split, or contains
            files of other data sets.
    """
    number, bad = 0, bad or BadRows()
    files = [path] if path.is_file() else _split_files(path)
    names = _class_names(files)
    unknown_columns = {
        column
        for column, classes in names.items()
        if isinstance(classes, list) and all(_are_unknown(file, column) for file in files)
    }
    for table in map(_read, files):
        columns = [name for name in table.column_names if name not in unknown_columns]
        for batch in table.select(columns).to_batches():
            for values in zip(*map(_values, batch.columns), strict=True):
                number += 1
                record = dict(zip(columns, values, strict=True))
                try:
                    for column in names.keys() & record.keys():
                        record[column] = _replace_class_ids(column, record[column], names[column])
                except ValueError as error:
                    bad.add(row_error(path, f"row {number}", str(error)))
                else:
                    yield f"row {number}", record


def _split_files(path: Path) -> list[Path]:
    """Returns the files of one split. `path` is the split, or a directory with a single split."""
    state = path / "state.json"
    if state.is_file():  # written by save_to_disk
        try:
            content = json.loads(state.read_text(encoding="utf-8"))
            names = [str(file["filename"]) for file in content["_data_files"]]
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(
                f"{state} must contain the list _data_files, each with a filename"
            ) from error
        if content.get("_indices_data_files"):
            raise ValueError(
                f"{state} must not refer to a selection of rows, as old versions of datasets write "
                "them. Load the data set and save it with a newer version"
            )
        for name in names:
            if Path(name).name != name:
                raise ValueError(
                    f"{state} must only refer to files in its directory. Received: {name!r}"
                )
        return [path / name for name in names]
    if not path.is_dir():
        return _check_files(path, _splits(path.parent)[path.name])
    splits = _splits(path)
    if not splits:
        class_file = next(path.glob("*/*.txt"), None)
        raise ValueError(
            f"{path} must be a directory with Parquet or Arrow files"
            + (f"; {_CONVERT_DIRECTORIES.format(directory=path)}" if class_file else "")
        )
    if len(splits) > 1:
        raise ValueError(
            f"{path} must have a single split. Received: {', '.join(splits)}. Pass the path of one "
            f"split, such as {path / next(iter(splits))}"
        )
    return _check_files(path, next(iter(splits.values())))


def _splits(directory: Path) -> dict[str, list[Path]]:
    """Returns the files of each split in a directory."""
    splits: dict[str, list[Path]] = {}
    files = [Path(file.path) for file in find_files(directory)]
    for file in files:
        if file.suffix not in (".parquet", ".arrow"):
            continue
        name = _SHARD.sub("", file.stem)
        if not name.startswith("cache-"):  # `map` of datasets writes such files.
            split = file.parent.name if _UNNAMED_SPLIT.fullmatch(name) else name
            splits.setdefault(split, []).append(file)
    return splits


def _check_files(path: Path, files: list[Path]) -> list[Path]:
    """Checks that a split's files are complete, and have the same format and directory.

    Raises:
        ValueError: If the files belong to multiple data sets, such as configurations, or if a file
            is missing.
    """
    sets: dict[tuple[Path, str, int], dict[int, Path]] = {}
    for file in files:
        shard = _SHARD.search(file.stem)
        index, count = (int(shard[1]), int(shard[2])) if shard else (0, 0)
        own = sets.setdefault((file.parent, file.suffix, count), {})
        own[index if count else len(own)] = file
    if len(sets) > 1:
        first, second = (next(iter(own.values())) for own in list(sets.values())[:2])
        raise ValueError(
            f"{path} must have the files of one data set, in one directory and format. Received: "
            f"{first} and {second}"
        )
    ((_, _, count), own), *_ = sets.items()
    gaps = sorted({*range(count)} - own.keys())
    if gaps or (count and len(files) != count):
        raise ValueError(
            f"{path} must have {count} files such as {files[0].name}. Received: {len(files)} files"
            + (f", without number {gaps[0]}" if gaps else "")
        )
    return files


def _read(file: Path, columns: list[str] | None = None) -> Any:
    """Returns the table in a file, with all columns by default."""
    with _opened(file) as (_, read):
        return read(columns)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[tuple[Any, Callable[[list[str] | None], Any]]]:
    """Yields a file's schema, and a function that reads some of its columns."""
    with checks.importing("tables", f"{file}, a Parquet or Arrow file,"):
        from pyarrow import ipc, parquet
    try:
        with open(file, "rb") as source:
            start = source.read(6)
            source.seek(0)
            if start.startswith(b"PAR1"):
                reader = parquet.ParquetFile(source, page_checksum_verification=True)
                schema, read = reader.schema_arrow, reader.read
            else:
                reader = (ipc.open_file if start == b"ARROW1" else ipc.open_stream)(source)
                schema = reader.schema

                def read(columns: list[str] | None) -> Any:
                    table = reader.read_all()
                    table.validate(full=True)  # Reading does not validate, and bad values crash.
                    return table if columns is None else table.select(columns)

            for name, count in Counter(schema.names).items():
                if count > 1:
                    raise ValueError(
                        f"column names must be unique. Received: {excerpt(name)} {count} times"
                    )
            yield schema, read
    except Exception as error:  # pyarrow raises errors of any type for invalid files.
        raise ValueError(f"{file} cannot be read: {error}") from error


def _values(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (ArithmeticError, LookupError, ValueError):
        values = list(map(_value, column))
    return values


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ArithmeticError, LookupError, ValueError) as error:
        return error


def _class_names(files: Sequence[Path]) -> dict[str, ClassNames]:
    """Returns the class names of each column that has classes in any of the files.

    Raises:
        ValueError: If a file's metadata is invalid, or if two files have different classes.
    """
    names: dict[str, ClassNames] = {}
    for file in files:
        with _opened(file) as (schema, _):
            metadata = (schema.metadata or {}).get(b"huggingface", b"{}")
        try:
            features = json.loads(metadata).get("info", {}).get("features", {})
            class_names = {column: _classes(feature) for column, feature in features.items()}
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{file}: the metadata of datasets is invalid: {error!r}") from error
        for column, classes in class_names.items():
            if classes and names.setdefault(column, classes) != classes:
                raise ValueError(
                    f"{file}: {column} must have the same classes as in the other files of the "
                    f"split, {excerpt(names[column], 300)}. Received: {excerpt(classes, 300)}"
                )
    return names


def _classes(feature: Any) -> ClassNames:
    """Returns a feature's class names, or an empty dict for features without classes."""
    if isinstance(feature, list):  # Its only element is the feature of the list's items.
        return _classes(feature[0])
    if not isinstance(feature, dict):
        return {}
    kind = feature.get("_type")
    if kind == "ClassLabel":
        return list(map(str, feature["names"]))
    if "feature" in feature and isinstance(kind, str):  # Sequence, List
        return _classes(feature["feature"])
    fields = {name: _classes(value) for name, value in feature.items()}
    return {name: classes for name, classes in fields.items() if classes}


def _are_unknown(file: Path, column: str) -> bool:
    with _opened(file) as (schema, read):
        if column not in schema.names:
            return True
        return all(value in (None, -1) for value in read([column])[column].to_pylist())


def _replace_class_ids(name: str, value: Any, classes: ClassNames) -> Any:
    """Replaces class IDs in a value with class names."""
    if isinstance(value, list):
        return [_replace_class_ids(name, item, classes) for item in value]
    if isinstance(classes, dict):
        fields = value if isinstance(value, dict) else {}
        shared_keys = classes.keys() & fields.keys()
        named = {
            key: _replace_class_ids(f"{name}.{key}", fields[key], classes[key])
            for key in shared_keys
        }
        return {**fields, **named} if named else value
    if value is None or value == -1:
        return None
    if not isinstance(value, int) or not 0 <= value < len(classes):
        raise ValueError(
            f"{name} must be a class ID from 0 to {len(classes) - 1}, or -1. Received: "
            f"{excerpt(value)}"
        )
    return classes[value]
