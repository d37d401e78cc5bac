# SPDX-License-Identifier: Apache-2.0
"""The folder that a program writes into: one process at a time, and what an end leaves there."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

_LOCK_FILE = ".lock"
_claimed: list[Path] = []


class FolderInUseError(OSError):
    """Another process writes into the folder."""


@contextlib.contextmanager
def claimed(output_dir: str | os.PathLike[str]) -> Iterator[Path]:
    """Makes the folder and keeps other processes that ask for it out of it.

    The lock is the operating system's: it ends with the process, however that ends. Where there
    are no such locks (Windows), two processes are not told apart.

    Args:
        output_dir: The folder, which is made with the folders above it.

    Raises:
        FolderInUseError: If another process has it; the message names that process.
        OSError: If it cannot be made or written to.
    """
    path = Path(output_dir)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = open(path / _LOCK_FILE, "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        reason = f"{error.filename} is a file" if path.is_file() else error.strerror
        raise OSError(f"--output_dir={path} cannot be written to: {reason}") from error
    with lock:
        _lock(lock, path)
        # What a process left that was killed while it wrote; no other one writes here now.
        for leftover in (*path.glob(".*.partial*"), *path.glob("seed_*/.*.partial*")):
            leftover.unlink() if leftover.is_file() else shutil.rmtree(leftover)
        _claimed.append(path)
        try:
            yield path
        except BaseException as error:
            error.add_note(kept(path))
            raise
        finally:
            _claimed.remove(path)


def claimed_folders() -> tuple[Path, ...]:
    """The folders that this process writes into, the outermost first."""
    return tuple(_claimed)


def kept(folder: Path) -> str:
    """What a run that ended early has left in its folder, and what its command does next time."""
    models = sorted(folder.glob("seed_*/model.keras"))
    # Of a grid's runs, or of a run's seeds
    done = [*folder.glob("*/results.json"), *folder.glob("seed_*/run.json")]
    steps = sorted(folder.glob("**/checkpoints/step_*[0-9]"))
    found = [
        *(f"{path.relative_to(folder)}" for path in models),
        *(f"the checkpoint {path.relative_to(folder)}" for path in steps[-1:]),
        *([f"{len(done)} finished runs"] if done else []),
    ]
    then = "goes on from there" if steps or done else "begins anew"
    return f"{folder} keeps {', '.join(found) or 'no model yet'}; the same command {then}"


def _lock(file: IO[str], folder: Path) -> None:
    """Locks the file for this process alone (a child does not inherit it), and signs it."""
    if fcntl is None:
        return
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        raise FolderInUseError(
            f"--output_dir={folder} is in use by {file.read().strip() or 'another process'}: wait "
            "for its end, or choose another folder"
        ) from error
    except OSError:
        return  # a file system without locks
    file.truncate(0)
    now = datetime.datetime.now().isoformat(" ", "seconds")
    command = " ".join(sys.argv)
    file.write(f"process {os.getpid()} on {os.uname().nodename}, since {now} ({command})\n")
    file.flush()


def fingerprint(settings: Mapping[str, Any], *contents: bytes) -> str:
    """Changes with the settings that decide what comes of a run, and with what it starts from.

    Args:
        settings: What can be written as JSON.
        contents: Of files: a vocabulary, say.
    """
    content = json.dumps(settings, sort_keys=True).encode() + b"".join(contents)
    return hashlib.sha256(content).hexdigest()


def content_of_folder(folder: str | os.PathLike[str]) -> bytes:
    """Changes with the files of a folder, a preset's for example; empty where there is no folder.

    Args:
        folder: The folder; what lies in folders below it is not looked at.
    """
    digest = hashlib.sha256()
    files = sorted(path for path in Path(folder).glob("*") if path.is_file())
    for path in files:
        with open(path, "rb") as file:
            digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.digest() if files else b""


def check_room(folder: Path, needed: int) -> None:
    """Raises if so many bytes would not go into a folder.

    Raises:
        OSError: With how much is free.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"no room in {folder}: a model takes about {needed:,} bytes, and {free:,} are free"
        )
