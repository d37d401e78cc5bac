# SPDX-License-Identifier: Apache-2.0
"""The path of a trained model on the command line, and errors that name the one that is meant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_SAVED = "the .keras file of a task"
_EXPORTED = "a folder written by export"


def check_model(path: str, *, exported: bool = False, flag: str = "model") -> Path:
    """Checks that a path is that of a trained model.

    Args:
        path: The value of the flag.
        exported: Whether an exported SavedModel is taken too, and not only a `.keras` file.
        flag: The name of the flag.

    Returns:
        The path: a folder with a `saved_model.pb`, or a file.

    Raises:
        FileNotFoundError: If it does not exist.
        ValueError: If it is empty, or a folder without such a model. The message names a model that
            is probably meant: of the versions of an export the newest, of a run its export or the
            model of its first seed.
    """
    expected = f"{_EXPORTED} or {_SAVED}" if exported else _SAVED
    if not path:
        raise ValueError(f"no --{flag} is given, expected {expected}")
    model = Path(path)
    if model.is_file() or (exported and is_export(model)):
        return model
    kind, found = ValueError, "is a folder without a model"
    if not model.exists():
        kind, found = FileNotFoundError, "does not exist"
    elif is_export(model):
        found = "is an exported SavedModel"
    elif holds_exports(model):
        found = "is a folder of exported versions"
    near = next(filter(None, _near(model, exported)), None)
    meant = "" if near is None else f"; did you mean --{flag}={near}?"
    raise kind(f"--{flag}={path} {found}, expected {expected}{meant}")


def is_export(path: Path) -> bool:
    """Returns whether a path is a folder with an exported SavedModel."""
    return (path / "saved_model.pb").is_file()


def holds_exports(folder: Path) -> bool:
    """Returns whether a path is a folder of exports, each in a folder named by its version."""
    return bool(_versions(folder))


def _versions(folder: Path) -> list[Path]:
    """Returns the exports in a folder that are named by a number, the newest first."""
    names = [path for path in folder.glob("[0-9]*") if path.name.isdecimal() and is_export(path)]
    return sorted(names, key=lambda path: int(path.name), reverse=True)


def _near(model: Path, exported: bool) -> Iterator[Path | None]:
    """Yields models in a folder, or in the run that the folder belongs to."""
    folders = [folder for folder in (model, *model.parents[:2]) if folder.is_dir()]
    for folder in folders:
        if exported:
            yield from (*_versions(folder), *_versions(folder / "export"))
        yield from sorted(folder.glob("seed_*/model.keras"))
